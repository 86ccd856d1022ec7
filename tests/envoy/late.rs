//! Requests that come after the deletion, and those that the workload sends itself.

use std::time::Duration;

use tidegate::config::Mode;
use tidegate::standin::load::{self, Tally};
use tidegate::standin::{ANY_PORT, Scale, app};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

use crate::bootstrap::{INBOUND, OTHER_SERVICE, OUTBOUND};
use crate::client::{Client, Reply, ended, slow};
use crate::netns;
use crate::pod::{Pod, QUEUE_QUIET, Spec, local};
use crate::wait::{until, within};

/// How long clients still send to a pod that has been deleted.
const LAG: Duration = Duration::from_secs(4);
/// Time that the test's machine may need on top of what is awaited.
const SLACK: Duration = Duration::from_secs(10);

#[test]
fn requests_until_four_seconds_after_the_trigger_are_served_under_hold() {
    let name = "late::requests_until_four_seconds_after_the_trigger_are_served_under_hold";
    netns::test(name, || late_requests_are_served(Mode::Hold));
}

#[test]
fn requests_until_four_seconds_after_the_trigger_are_served_under_annotate() {
    let name = "late::requests_until_four_seconds_after_the_trigger_are_served_under_annotate";
    netns::test(name, || late_requests_are_served(Mode::Annotate));
}

#[test]
fn requests_until_four_seconds_after_the_trigger_are_served_with_a_native_sidecar() {
    let name =
        "late::requests_until_four_seconds_after_the_trigger_are_served_with_a_native_sidecar";
    netns::test(name, || late_requests_are_served(Mode::Native));
}

/// New connections, kept ones and an h2 one, all steadily asking.
async fn late_requests_are_served(mode: Mode) {
    let mut pod = Pod::start(Spec::new(mode)).await;
    let fresh = load::start(load::Config {
        fresh_rate: 20.0,
        ..steady(LAG)
    });
    let kept = load::start(load::Config {
        kept: 4,
        kept_rate: 10.0,
        ..steady(LAG)
    });
    let (stop, stopped) = watch::channel(false);
    let h2 = tokio::spawn(asks_by_h2(stopped));
    warm([&fresh, &kept]).await;
    pod.delete();
    let deleted = Instant::now();
    fresh.deleted();
    kept.deleted();
    tokio::time::sleep_until(deleted + LAG).await;
    stop.send_replace(true);
    let fresh = within(SLACK, "the last new connection ends", fresh.stop()).await;
    let kept = within(SLACK, "the last kept connection ends", kept.stop()).await;
    let by_h2 = within(SLACK, "the last stream ends", h2).await;
    let by_h2 = by_h2.expect("the client does not panic");
    assert_none_lost(&fresh);
    assert_none_lost(&kept);
    assert_eq!(fresh.elsewhere, 0, "the door closed too early: {fresh:?}");
    println!("{} new, {} kept, {by_h2} by h2", fresh.ok, kept.ok);
    let end = pod.gone().await;
    end.assert_drained();
    assert!(end.report.late >= 100, "{}", end.report_text);
    let closed = |call: &&crate::tap::Call| call.what == "POST /drain_listeners?inboundonly";
    let door = end.calls.iter().find(closed).expect("the door was closed");
    assert!(door.at > deleted + LAG);
}

/// Asks every 50 ms, on a new connection where the last one says that it will close.
async fn asks_by_h2(stopped: watch::Receiver<bool>) -> u64 {
    let mut beat = interval(Duration::from_millis(50));
    let mut client = Client::h2(INBOUND).await.expect("the door is open");
    let mut served = 0;
    while !*stopped.borrow() {
        beat.tick().await;
        let mut reply = client.get("/?bytes=1000").await;
        if reply.as_ref().is_err_and(never_sent) {
            client = Client::h2(INBOUND).await.expect("the door is open");
            reply = client.get("/?bytes=1000").await;
        }
        let reply = reply.and_then(whole);
        reply.unwrap_or_else(|error| panic!("after {served} answers: {error:#}"));
        served += 1;
    }
    served
}

/// Whether the connection had been told to take no more requests, which then was not sent.
fn never_sent(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<hyper::Error>();
    error.is_some_and(|error| error.is_canceled() || error.is_closed())
}

fn whole(reply: Reply) -> anyhow::Result<Reply> {
    reply.whole(1000)
}

#[test]
fn after_the_door_has_closed_new_connections_are_refused() {
    let name = "late::after_the_door_has_closed_new_connections_are_refused";
    netns::test(name, || clients_never_stop(Mode::Hold, 4.0));
}

#[test]
fn after_the_door_has_closed_new_connections_are_refused_with_a_native_sidecar() {
    let name = "late::after_the_door_has_closed_new_connections_are_refused_with_a_native_sidecar";
    netns::test(name, || clients_never_stop(Mode::Native, 4.0));
}

#[test]
fn many_clients_that_never_stop_do_not_hold_the_pod() {
    let name = "late::many_clients_that_never_stop_do_not_hold_the_pod";
    netns::test(name, || clients_never_stop(Mode::Hold, 12.0));
}

/// Clients whose endpoints never converge: each request is served or refused a connection, and from
/// `quiet-max` on they hold nothing.
async fn clients_never_stop(mode: Mode, rate: f64) {
    let mut pod = Pod::start(Spec::new(mode).set("quiet-max", "1500ms")).await;
    let never = Duration::from_secs(600);
    let fresh = load::start(load::Config {
        fresh_rate: rate,
        ..steady(never)
    });
    let kept = load::start(load::Config {
        kept: 2,
        kept_rate: rate / 4.0,
        ..steady(never)
    });
    warm([&fresh, &kept]).await;
    pod.delete();
    let end = pod.gone().await;
    let (fresh, kept) = (fresh.stop().await, kept.stop().await);
    println!("new: {fresh:?}\nkept: {kept:?}");
    end.assert_drained();
    assert_none_lost(&fresh);
    assert_none_lost(&kept);
    assert!(fresh.elsewhere > 0, "the door never closed: {fresh:?}");
    assert!(end.lasted() < 3 * QUEUE_QUIET, "{:?}", end.lasted());
}

/// A small request, through Envoy, at no rate yet.
fn steady(endpoint_lag: Duration) -> load::Config {
    load::Config {
        target: local(INBOUND),
        path: "/?bytes=1000".to_owned(),
        bytes: 1000,
        fresh_rate: 0.0,
        kept: 0,
        kept_rate: 0.0,
        endpoint_lag,
        scale: Scale::REAL,
    }
}

async fn warm(loads: [&load::Handle; 2]) {
    for load in loads {
        until(SLACK, "five answers", || load.tally().ok >= 5).await;
    }
}

fn assert_none_lost(tally: &Tally) {
    assert_eq!(tally.lost, 0, "{:?}", tally.losses);
    assert!(tally.ok > 0, "{tally:?}");
}

#[test]
fn outbound_works_until_the_workload_is_gone_under_hold() {
    let name = "late::outbound_works_until_the_workload_is_gone_under_hold";
    netns::test(name, || outbound_works(Mode::Hold));
}

#[test]
fn outbound_works_until_the_workload_is_gone_under_annotate() {
    let name = "late::outbound_works_until_the_workload_is_gone_under_annotate";
    netns::test(name, || outbound_works(Mode::Annotate));
}

#[test]
fn outbound_works_until_the_workload_is_gone_with_a_native_sidecar() {
    let name = "late::outbound_works_until_the_workload_is_gone_with_a_native_sidecar";
    netns::test(name, || outbound_works(Mode::Native));
}

/// The workload calls another service all the time, on a kept connection and on new ones.
async fn outbound_works(mode: Mode) {
    let other = app::Config {
        listen: local(OTHER_SERVICE),
        tcp: ANY_PORT,
        ..app::Config::default()
    };
    let _other = app::start(other).await.expect("the port is free");
    let mut pod = Pod::start(Spec::new(mode)).await;
    let request = slow(LAG);
    pod.busy(1).await;
    let (stop, stopped) = watch::channel(false);
    let calls = call_out(stopped);
    pod.delete();
    ended(request).await;
    let end = pod.gone().await;
    stop.send_replace(true);
    let calls = within(SLACK, "the last call ends", calls).await;
    let calls = calls.expect("the client does not panic");
    end.assert_drained();
    let gone = end.workload_gone();
    let before = calls.iter().filter(|call| call.ended < gone);
    let mut count = 0;
    for call in before {
        let after = call.ended.saturating_duration_since(end.deleted);
        assert_eq!(call.answer, Ok(None), "{after:?} after the deletion");
        count += 1;
    }
    assert!(count > 50, "{count} calls");
}

/// A call to another service.
struct Outbound {
    ended: Instant,
    /// The answer's `connection` header, or what went wrong.
    answer: Result<Option<String>, String>,
}

fn call_out(stopped: watch::Receiver<bool>) -> JoinHandle<Vec<Outbound>> {
    tokio::spawn(async move {
        let mut beat = interval(Duration::from_millis(50));
        let mut kept = Client::h1(OUTBOUND).await.ok();
        let mut calls = Vec::new();
        while !*stopped.borrow() {
            beat.tick().await;
            if let Some(kept) = &mut kept {
                calls.push(answered(kept).await);
            }
            match Client::h1(OUTBOUND).await {
                Ok(mut fresh) => calls.push(answered(&mut fresh).await),
                Err(error) => calls.push(Outbound {
                    ended: Instant::now(),
                    answer: Err(error.to_string()),
                }),
            }
        }
        calls
    })
}

async fn answered(client: &mut Client) -> Outbound {
    let reply = client.get("/?bytes=1000").await.and_then(whole);
    let connection = |reply: Reply| {
        let value = reply.headers.get("connection")?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    Outbound {
        ended: Instant::now(),
        answer: reply.map(connection).map_err(|error| format!("{error:#}")),
    }
}

#[test]
fn new_connections_are_refused_before_the_deadline_releases_the_workload() {
    let name = "late::new_connections_are_refused_before_the_deadline_releases_the_workload";
    netns::test(name, || async {
        let spec = Spec {
            grace: Some(Duration::from_secs(8)),
            ..Spec::new(Mode::Hold)
        };
        let mut pod = Pod::start(spec.set("margin", "3s")).await;
        let never = Duration::from_secs(600);
        let endless = slow(never);
        pod.busy(1).await;
        let fresh = load::start(load::Config {
            fresh_rate: 50.0,
            ..steady(never)
        });
        warm([&fresh, &fresh]).await;
        pod.delete();
        let end = pod.gone().await;
        let lost = endless.await.expect("the client does not panic");
        lost.expect_err("an endless request cannot end");
        let fresh = fresh.stop().await;
        println!("new: {fresh:?}");
        assert_eq!(end.report.outcome, "deadline", "{}", end.report_text);
        assert_eq!(end.report.cut, 1, "{}", end.report_text);
        // Envoy resets what waits in its listener's queue when it closes it, on a busy machine a
        // connection or two; but nobody gets an answer from a workload that is gone.
        let answered = |loss: &load::Loss| loss.reason.starts_with(|c: char| c.is_ascii_digit());
        assert!(!fresh.losses.iter().any(answered), "{:?}", fresh.losses);
        assert!(fresh.elsewhere > 0, "the door never closed");
    });
}
