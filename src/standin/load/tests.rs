//! What counts as lost, and what does not.

use std::time::Duration;

use super::*;
use crate::standin::front::{self, Fault};
use crate::standin::{ANY_PORT, app};

fn config(target: SocketAddr) -> Config {
    Config {
        target,
        path: "/?bytes=10".to_owned(),
        bytes: 10,
        fresh_rate: 200.0,
        kept: 2,
        kept_rate: 100.0,
        endpoint_lag: Duration::from_secs(2),
        scale: Scale::new(0.01),
    }
}

async fn until(load: &Handle, enough: impl Fn(&Tally) -> bool) {
    while !enough(&load.tally()) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_serving_pod_loses_nothing_and_the_load_ends_with_the_endpoints() {
    let app = app::start(app::Config::default()).await.expect("app");
    let load = start(config(app.addr));
    until(&load, |tally| tally.ok > 50).await;
    load.deleted();
    let process = load.process.clone();
    process.exited().await;
    let tally = load.stop().await;
    assert_eq!((tally.lost, tally.elsewhere), (0, 0), "{:?}", tally.losses);
    assert_eq!(tally.sent, tally.ok);
}

#[tokio::test]
async fn refused_is_elsewhere_and_cut_is_lost() {
    let app = app::start(app::Config::default()).await.expect("app");
    let front = front::start(ANY_PORT, app.addr, Fault::None)
        .await
        .expect("front");
    let load = start(config(front.addr));
    until(&load, |tally| tally.ok > 10).await;
    front.set(Fault::Reset);
    until(&load, |tally| tally.lost > 10).await;
    front.set(Fault::Status500);
    until(&load, |tally| {
        tally.losses.iter().any(|loss| loss.reason == "500")
    })
    .await;
    front.process.kill();
    until(&load, |tally| tally.elsewhere > 10).await;
    let tally = load.stop().await;
    assert_eq!(tally.sent, tally.ok + tally.lost);
}

#[tokio::test]
async fn short_bodies_and_cut_requests_are_lost() {
    let app = app::start(app::Config::default()).await.expect("app");
    assert_eq!(get(app.addr, "/?bytes=10", 10).await, Outcome::Ok);
    assert_eq!(
        get(app.addr, "/?bytes=9", 10).await,
        Outcome::Lost("200 OK, 9 of 10 bytes".into())
    );
    let short = front::start(ANY_PORT, app.addr, Fault::Truncated)
        .await
        .expect("front");
    let outcome = get(short.addr, "/", 999).await;
    assert!(
        matches!(&outcome, Outcome::Lost(reason) if reason.starts_with("200 OK, then")),
        "{outcome:?}"
    );
    let cut = get(app.addr, "/?sleep=600000", 64);
    let kill = async {
        while app.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        app.process.kill();
    };
    let (outcome, ()) = tokio::join!(cut, kill);
    assert!(matches!(&outcome, Outcome::Lost(_)), "{outcome:?}");
    assert_eq!(get(app.addr, "/", 64).await, Outcome::Elsewhere);
}

#[tokio::test]
async fn an_idle_connection_ends_with_the_server() {
    let app = app::start(app::Config::default()).await.expect("app");
    let idle = idle(app.addr);
    let sigterm = async {
        // The first request has been answered once one was in flight and none is.
        while app.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        app.process.sigterm();
    };
    let (outcome, ()) = tokio::join!(idle, sigterm);
    assert_eq!(outcome, Outcome::Ok);
}
