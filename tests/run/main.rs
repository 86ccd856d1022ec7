//! Whole drains of `tidegate run`'s driver over real sockets, with a stand-in for each other party.

mod in_path;
mod pod;

use std::time::Duration;

use pod::{Counted, InPath, LONG, Pod, timing, until};
use tidegate::config::Mode;
use tidegate::drain::Phase;
use tidegate::signals::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const DRAIN: &str = "envoy POST /drain_listeners?inboundonly&graceful&skip_exit";
const DOOR: &str = "envoy POST /drain_listeners?inboundonly";
const QUIT: &str = "envoy POST /quitquitquit";
const AGENT: &str = "agent POST /drain";

async fn all_answered(mut holds: JoinSet<u16>) {
    while let Some(status) = timeout(LONG, holds.join_next()).await.expect("answered") {
        assert_eq!(status.unwrap(), 200);
    }
}

/// It ends well; the gate has seen one in flight, and then none.
async fn drained_of_one(pod: Pod) {
    let report = pod.end().await.0.report;
    assert_eq!((report.outcome.as_str(), report.cut), ("drained", 0));
    let counted = report.in_flight.iter().find(|it| it.source == "gate");
    assert_eq!(
        counted.map(|it| (it.peak, it.last)),
        Some((Some(1), Some(0)))
    );
}

fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_serves_a_thousand_hooks_and_calls_everybody_in_order() {
    raise_open_files();
    let mut pod = Pod::start(Mode::Hold, timing()).await;
    assert_eq!(pod.ask("GET /readyz").await.0, 200);
    assert_eq!(pod.status().await["phase"], "serving");
    assert!(
        pod.asked().borrow().is_empty(),
        "nobody is polled while serving"
    );

    pod.change(|world| (world.active, world.total) = (1, 1));
    let waiter = pod.wait_in_proxy();
    pod.pre_stop().await;
    pod.reach(Phase::Announcing).await;
    until(async || pod.ask("GET /readyz").await.0 == 503).await;
    assert_eq!(pod.ask("GET /livez").await.0, 200);
    let holds = pod.hold(1_000).await;
    pod.reach(Phase::Draining).await;
    // Seen by every source, held by one.
    until(async || pod.status().await["drain"]["in_flight"][0]["last"] == 1).await;
    let status = pod.status().await;
    assert_eq!(status["phase"], "draining");
    assert_eq!(status["drain"]["trigger"], "pre-stop");
    assert_eq!(status["drain"]["envoy"], "1.40.0");
    let metrics = pod.ask("GET /metrics").await.1;
    for line in [
        "tidegate_phase{phase=\"draining\"} 1",
        "tidegate_hooks_open 1000",
        "tidegate_in_flight{source=\"envoy\"} 1",
        "tidegate_source_up{source=\"queue-proxy\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in:\n{metrics}");
    }
    assert_eq!(pod.told(), [DRAIN]);

    pod.change(|world| world.active = 0);
    let idle = Instant::now();
    all_answered(holds).await;
    println!(
        "1,000 hooks answered {:?} after the last request",
        idle.elapsed()
    );
    assert_eq!(pod.told(), [DRAIN, DOOR], "the proxy outlives the workload");
    assert_eq!(pod.ask("GET /released").await.0, 503);
    // As for the kubelet, whose call came late.
    assert_eq!(pod.ask("GET /wait-for-drain").await.0, 200);

    pod.workload_leaves();
    timeout(LONG, waiter).await.unwrap().unwrap();
    assert_eq!(pod.told(), [DRAIN, DOOR, AGENT]);
    let (ending, written) = pod.end().await;
    assert!(!ending.interrupted);
    let report = ending.report;
    assert_eq!(report.outcome, "drained");
    assert_eq!(report.mode, "hold");
    assert_eq!(report.agent, "drain");
    assert_eq!(report.hooks, 1_001);
    assert_eq!((report.cut, report.late), (0, 0));
    assert_eq!(report.errors, [""; 0]);
    let phases: Vec<_> = report.phases.iter().map(|it| it.phase.as_str()).collect();
    let all: Vec<_> = Phase::ALL.iter().skip(1).map(|it| it.name()).collect();
    assert_eq!(phases, all);
    assert_eq!(written, Some(serde_json::to_value(&report).unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_drain_is_signalled_before_envoy_is_quit() {
    let mut pod = Pod::start(Mode::Hold, timing()).await;
    pod.change(|world| world.agent_drains = false);
    let waiter = pod.wait_in_proxy();
    pod.pre_stop().await;
    pod.reach(Phase::ReleasingWorkload).await;
    pod.workload_leaves();
    timeout(LONG, waiter).await.unwrap().unwrap();
    assert_eq!(
        pod.told(),
        [DRAIN, DOOR, AGENT],
        "the agent has its port still"
    );
    pod.agent_leaves();
    pod.reach(Phase::Done).await;
    assert_eq!(pod.told(), [DRAIN, DOOR, AGENT, QUIT]);
    assert_eq!(pod.end().await.0.report.agent, "no-drain");
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_without_a_sigterm_is_native_and_quits_nobody() {
    let mut pod = Pod::start(Mode::Auto, timing()).await;
    let holds = pod.hold(1).await;
    pod.pre_stop().await;
    all_answered(holds).await;
    pod.workload_leaves();
    until(async || pod.told() == [DRAIN, DOOR, AGENT]).await;
    pod.stop_native().await;
    let report = pod.end().await.0.report;
    assert_eq!(
        (report.mode.as_str(), report.outcome.as_str()),
        ("native", "drained")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_grace_of_a_native_sidecar_lets_everybody_go() {
    let mut pod = Pod::start(Mode::Native, timing()).await;
    pod.change(|world| (world.active, world.total) = (2, 2));
    let holds = pod.hold(3).await;
    pod.pre_stop().await;
    pod.reach(Phase::Draining).await;
    until(async || pod.status().await["drain"]["in_flight"][0]["last"] == 2).await;
    pod.signals.send(Signal::Terminate).await.unwrap();
    all_answered(holds).await;
    let (ending, written) = pod.end().await;
    assert_eq!(ending.report.outcome, "grace-over");
    assert_eq!(ending.report.cut, 2);
    assert_eq!(written.unwrap()["outcome"], "grace-over");
}

#[tokio::test(flavor = "multi_thread")]
async fn annotate_quits_envoy_and_asks_no_agent() {
    let mut pod = Pod::start(Mode::Annotate, timing()).await;
    pod.pre_stop().await;
    pod.reach(Phase::ReleasingWorkload).await;
    pod.workload_leaves();
    pod.reach(Phase::Done).await;
    assert_eq!(pod.told(), [DRAIN, DOOR, QUIT]);
    assert_eq!(pod.end().await.0.report.outcome, "drained");
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_where_both_refuse_is_no_mesh_and_believes_queue_proxy() {
    // queue-proxy is looked at twice a second.
    let mut timing = timing();
    timing.min_drain = Duration::from_secs(3);
    let mut pod = Pod::start(Mode::NoMesh, timing).await;
    pod.change(|world| world.queued = 1.0);
    let holds = pod.hold(1).await;
    pod.pre_stop().await;
    pod.reach(Phase::Draining).await;
    until(async || pod.status().await["drain"]["in_flight"][1]["last"] == 1).await;
    assert_eq!(pod.status().await["phase"], "draining");
    pod.change(|world| world.queued = 0.0);
    all_answered(holds).await;
    pod.workload_leaves();
    pod.stop_native().await;
    assert_eq!(pod.told(), [""; 0]);
    let report = pod.end().await.0.report;
    assert_eq!(
        (report.mode.as_str(), report.outcome.as_str()),
        ("no-mesh", "drained")
    );
    assert!(report.phases.iter().all(|it| it.phase != "closing-door"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_without_a_trigger_is_answered_and_then_nobody_is_polled() {
    let pod = Pod::start(Mode::Hold, timing()).await;
    let opened = Instant::now();
    all_answered(pod.hold(1).await).await;
    assert!(opened.elapsed() >= timing().confirm);
    assert_eq!(pod.status().await["phase"], "serving");
    assert_eq!(pod.ask("GET /readyz").await.0, 200);
    assert_eq!(pod.told(), [""; 0]);
    // A look that was under way may still come; after that, none for ten times the slowest pace.
    let mut asked = pod.asked();
    asked.mark_unchanged();
    let mut looks = 0;
    while timeout(Duration::from_millis(2_500), asked.changed())
        .await
        .is_ok()
    {
        looks += 1;
        assert!(
            looks <= 2,
            "polled while serving: {:?}",
            asked.borrow().last()
        );
    }
    assert!(!pod.report.exists(), "no drain, no report");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigint_ends_it_at_once_answers_the_hooks_and_leaves_no_report() {
    let mut pod = Pod::start(Mode::Hold, timing()).await;
    let holds = pod.hold(5).await;
    pod.signals.send(Signal::Interrupt).await.unwrap();
    all_answered(holds).await;
    assert_eq!(*pod.phases.borrow_and_update(), Phase::Serving);
    let (ending, written) = pod.end().await;
    assert!(ending.interrupted);
    assert_eq!(ending.report.outcome, "interrupted");
    assert_eq!(written, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_that_hangs_shortens_nothing_and_holds_nobody_past_the_deadline() {
    let deadline = Duration::from_secs(4);
    let mut timing = timing();
    timing.announce_delay = Duration::from_secs(2);
    timing.max_drain = Some(deadline);
    let mut pod = Pod::start(Mode::Hold, timing).await;
    pod.change(|world| (world.active, world.total) = (1, 1));
    let holds = pod.hold(20).await;
    let waiter = pod.wait_in_proxy();
    let triggered = Instant::now();
    pod.pre_stop().await;
    pod.reach(Phase::Announcing).await;
    until(async || pod.status().await["drain"]["in_flight"][0]["last"] == 1).await;
    pod.change(|world| world.envoy_hangs = true);
    pod.reach(Phase::Draining).await;
    assert_eq!(pod.ask("GET /livez").await.0, 200);
    all_answered(holds).await;
    assert!(triggered.elapsed() >= deadline);
    timeout(LONG, waiter).await.unwrap().unwrap();
    let report = pod.end().await.0.report;
    assert_eq!((report.outcome.as_str(), report.cut), ("deadline", 1));
    // The door was to be closed one second before; its first attempt may still hang.
    assert_eq!(report.errors[0], "drain-inbound: timeout");
    assert!(
        report.errors[1..]
            .iter()
            .all(|error| error.starts_with("close-door: ")),
        "{:?}",
        report.errors
    );
    assert!(report.seconds < 20.0, "{}", report.seconds);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_proxy_is_held_while_it_would_cut_a_websocket() {
    let mut pod = Pod::start(Mode::Hold, timing()).await;
    pod.change(|world| (world.active, world.total, world.upgrades) = (1, 1, Some(1)));
    let mut queue = pod.hooks_of("queue-proxy", 1);
    until(async || pod.held().await == 1).await;
    pod.pre_stop().await;
    pod.reach(Phase::Draining).await;
    until(async || pod.status().await["queue_proxy_held"] == true).await;
    assert!(queue.try_join_next().is_none());
    // The WebSocket ends; a plain request goes on, which queue-proxy waits for by itself.
    pod.change(|world| world.upgrades = Some(0));
    all_answered(queue).await;
    until(async || pod.status().await["queue_proxy_held"] == false).await;
    assert_eq!(pod.status().await["phase"], "draining");
    until(async || pod.told() == [DRAIN]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_proxy_goes_at_once_where_it_cuts_nothing_or_nobody_can_tell() {
    // Longer than the first look may take.
    let mut timing = timing();
    timing.announce_delay = Duration::from_secs(5);
    for upgrades in [Some(0), None] {
        let pod = Pod::start(Mode::Hold, timing).await;
        pod.change(|world| (world.active, world.total, world.upgrades) = (1, 1, upgrades));
        let queue = pod.hooks_of("queue-proxy", 1);
        until(async || pod.held().await == 1).await;
        let triggered = Instant::now();
        pod.pre_stop().await;
        all_answered(queue).await;
        println!("{upgrades:?}: answered after {:?}", triggered.elapsed());
        assert_eq!(pod.status().await["phase"], "announcing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gates_last_byte_lets_everybody_go() {
    let gate = Counted::new();
    let mut pod = Pod::start_with(Mode::Hold, timing(), InPath::Counted(gate.clone())).await;
    gate.set(1, 1);
    pod.change(|world| (world.active, world.total, world.queued) = (1, 1, 1.0));
    let queue = pod.hooks_of("queue-proxy", 1);
    until(async || pod.held().await == 1).await;
    pod.pre_stop().await;
    let holds = pod.hold(3).await;
    pod.reach(Phase::Draining).await;
    until(async || pod.status().await["queue_proxy_held"] == true).await;
    // The stream ends, a request goes on.
    gate.set(1, 0);
    all_answered(queue).await;
    tokio::time::sleep(timing().min_drain).await;
    assert_eq!(pod.status().await["phase"], "draining");
    assert!(
        pod.asked()
            .borrow()
            .iter()
            .all(|line| !line.contains("/stats"))
    );

    // queue-proxy's report says "one" still, as it does for a second or two.
    pod.change(|world| world.active = 0);
    let last_byte = Instant::now();
    gate.set(0, 0);
    all_answered(holds).await;
    println!(
        "3 hooks answered {:?} after the last byte",
        last_byte.elapsed()
    );
    assert_eq!(
        *gate.told.borrow(),
        ["Announcing", "Draining", "close: true", "Closed"]
    );
    pod.workload_leaves();
    drained_of_one(pod).await;
}
