//! The app's manners.

use std::time::Duration;

use serde_json::json;
use tidegate::standin::process::How;

use super::relay::Relay;
use super::wait::within;
use super::{LIMIT, app, next, one, plan, start};
use crate::record::Outcome;
use crate::serve::{OnSigterm, ticks};

#[tokio::test]
async fn finish_ends_what_is_in_flight_serves_meanwhile_and_exits_with_0() {
    let app = app(OnSigterm::Finish).await;
    let (mut to_slow, mut to_socket) = (Relay::start(app.addr).await, Relay::start(app.addr).await);
    let slow = json!({"kind": "slow", "seconds": 3, "headers": "first"});
    let mut slow = start(&plan(to_slow.addr, slow));
    let socket = json!({"kind": "websocket", "seconds": 4, "every": 0.1});
    let mut socket = start(&plan(to_socket.addr, socket));
    to_slow.answered(1).await;
    to_socket.answered(1).await;

    app.process.sigterm();
    let meanwhile = one(app.addr, json!({"kind": "get", "path": "/healthz"})).await;
    assert_eq!(meanwhile.outcome, Outcome::Ok, "{meanwhile:?}");
    assert!(app.process.is_running());
    assert_eq!(next(&mut slow).await.outcome, Outcome::Ok);
    assert_eq!(next(&mut socket).await.outcome, Outcome::Ok);
    let exit = within(LIMIT, "the exit", app.process.exited()).await;
    assert_eq!(exit.how, How::Exited(0));
    let after = one(app.addr, json!({"kind": "get", "path": "/healthz"})).await;
    assert_eq!(after.outcome, Outcome::Refused);
}

#[tokio::test]
async fn finish_does_not_wait_for_ever_under_load() {
    let app = app(OnSigterm::Finish).await;
    // At 40 a second and 200 ms each there is never a moment without one.
    let load = json!({"kind": "load", "rps": 40, "seconds": 3, "delay": 0.2});
    let mut relay = Relay::start(app.addr).await;
    let mut first = start(&plan(
        relay.addr,
        json!({"kind": "slow", "seconds": 0.5, "headers": "first"}),
    ));
    let mut load = start(&plan(app.addr, load));
    relay.answered(1).await;
    app.process.sigterm();
    let exit = within(LIMIT, "the exit", app.process.exited()).await;
    assert_eq!(exit.how, How::Exited(0));
    assert_eq!(next(&mut first).await.outcome, Outcome::Ok);
    let totals = next(&mut load).await.load.unwrap();
    assert!(totals.ok > 0 && totals.refused > 0, "{totals:?}");
    assert_eq!(
        totals.sent,
        totals.ok + totals.lost + totals.cut + totals.refused
    );
}

#[tokio::test]
async fn an_idle_app_that_finishes_exits_at_once_and_idle_connections_do_not_hold_it() {
    let app = app(OnSigterm::Finish).await;
    let idle = tokio::net::TcpStream::connect(app.addr).await.unwrap();
    app.process.sigterm();
    let exit = within(LIMIT, "the exit", app.process.exited()).await;
    assert_eq!(exit.how, How::Exited(0));
    drop(idle);
}

#[tokio::test]
async fn ignore_takes_no_notice() {
    let app = app(OnSigterm::Ignore).await;
    let mut relay = Relay::start(app.addr).await;
    let slow = json!({"kind": "slow", "seconds": 0.3, "headers": "first"});
    let mut slow = start(&plan(relay.addr, slow));
    relay.answered(1).await;
    app.process.sigterm();
    assert_eq!(next(&mut slow).await.outcome, Outcome::Ok);
    let after = one(app.addr, json!({"kind": "get", "path": "/healthz"})).await;
    assert_eq!(after.outcome, Outcome::Ok);
    assert!(app.process.is_running());
}

#[tokio::test]
async fn exit_is_told_from_a_crash_by_its_code() {
    let exits = app(OnSigterm::Exit).await;
    exits.process.sigterm();
    let exit = within(LIMIT, "the exit", exits.process.exited()).await;
    assert_eq!(exit.how, How::Exited(143));

    let crashes = app(OnSigterm::Finish).await;
    let crash = json!({"kind": "get", "path": "/crash", "method": "POST"});
    assert_eq!(one(crashes.addr, crash).await.outcome, Outcome::Lost);
    let exit = within(LIMIT, "the crash", crashes.process.exited()).await;
    assert_eq!(exit.how, How::Exited(134));
}

#[tokio::test]
async fn liveness_fails_when_asked_until_the_restart() {
    let app = app(OnSigterm::Finish).await;
    let get = |path, method, status| {
        one(
            app.addr,
            json!({"kind": "get", "path": path, "method": method, "status": status}),
        )
    };
    assert_eq!(get("/healthz", "GET", 200).await.outcome, Outcome::Ok);
    assert_eq!(get("/fail-liveness", "GET", 404).await.outcome, Outcome::Ok);
    assert_eq!(get("/healthz", "GET", 200).await.outcome, Outcome::Ok);
    assert_eq!(
        get("/fail-liveness", "POST", 200).await.outcome,
        Outcome::Ok
    );
    assert_eq!(get("/healthz", "GET", 500).await.outcome, Outcome::Ok);
    assert_eq!(
        get("/slow?seconds=0", "GET", 200).await.outcome,
        Outcome::Ok
    );
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused() {
    let app = app(OnSigterm::Finish).await;
    for path in [
        "/slow?seconds=soon",
        "/slow?seconds=-1",
        "/slow?seconds=1e300",
        "/slow?seconds=0&headers=middle",
        "/slow?seconds=0&bytes=1099511627776",
        "/chunked?every=1",
        "/stream?every=0",
        "/ws",
    ] {
        let record = one(
            app.addr,
            json!({"kind": "get", "path": path, "status": 400}),
        )
        .await;
        assert_eq!(record.outcome, Outcome::Ok, "{path}: {record:?}");
    }
}

#[test]
fn ticks_are_at_least_one() {
    let (s, ms) = (Duration::from_secs, Duration::from_millis);
    assert_eq!(ticks(s(45), s(1)), Ok(45));
    assert_eq!(ticks(ms(200), ms(40)), Ok(5));
    assert_eq!(ticks(ms(10), s(1)), Ok(1));
    assert!(ticks(s(1), s(0)).is_err());
    assert!(ticks(s(86_400), ms(1)).is_err());
}
