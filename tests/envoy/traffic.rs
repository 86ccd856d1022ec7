//! What is in flight when the pod is deleted reaches its end, whole, whatever it is; what merely is
//! open holds nothing.

use std::time::Duration;

use tidegate::config::Mode;
use tidegate::drain::Phase;
use tidegate::standin::app::OnSigterm;
use tokio::net::TcpStream;

use crate::bootstrap::{INBOUND, INBOUND_TCP};
use crate::client::{Client, Echo, SlowReader, ended, head_first, slow};
use crate::netns;
use crate::pod::{AGENT_DRAIN, PROXY, Pod, QUEUE, QUEUE_QUIET, Spec, TIDEGATE, USER};

const FOUR: Duration = Duration::from_secs(4);
const EIGHT: Duration = Duration::from_secs(8);

/// The control: what all the others are here to prevent.
#[test]
fn an_agent_alone_cuts_a_slow_request() {
    netns::test("traffic::an_agent_alone_cuts_a_slow_request", || async {
        let pod = Pod::start(Spec::new(Mode::Hold)).await;
        let request = slow(FOUR);
        pod.busy(1).await;
        pod.mesh().agent.process.sigterm();
        let lost = request.await.expect("the client does not panic");
        let error = lost.expect_err("the agent kills Envoy after its drain");
        println!("{AGENT_DRAIN:?} after the agent's SIGTERM: {error:#}");
    });
}

#[test]
fn slow_requests_end_whole_under_hold() {
    let name = "traffic::slow_requests_end_whole_under_hold";
    netns::test(name, || slow_requests_end_whole(Spec::new(Mode::Hold)));
}

#[test]
fn slow_requests_end_whole_under_annotate() {
    let name = "traffic::slow_requests_end_whole_under_annotate";
    netns::test(name, || slow_requests_end_whole(Spec::new(Mode::Annotate)));
}

#[test]
fn slow_requests_end_whole_with_a_native_sidecar() {
    let name = "traffic::slow_requests_end_whole_with_a_native_sidecar";
    netns::test(name, || slow_requests_end_whole(Spec::new(Mode::Native)));
}

#[test]
fn slow_requests_end_whole_with_a_mode_found_out_to_be_hold() {
    let name = "traffic::slow_requests_end_whole_with_a_mode_found_out_to_be_hold";
    netns::test(name, || {
        slow_requests_end_whole(Spec::new(Mode::Hold).tell("TIDEGATE_MODE", "auto"))
    });
}

#[test]
fn slow_requests_end_whole_with_a_mode_found_out_to_be_native() {
    let name = "traffic::slow_requests_end_whole_with_a_mode_found_out_to_be_native";
    netns::test(name, || {
        slow_requests_end_whole(Spec::new(Mode::Native).tell("TIDEGATE_MODE", "auto"))
    });
}

/// 4 s and 8 s, each with its head before and after the wait, against an agent that would leave
/// after 2 s and a queue-proxy that is quiet after 3 s.
async fn slow_requests_end_whole(spec: Spec) {
    let mode = spec.mode;
    let mut pod = Pod::start(spec).await;
    let client = || async { Client::h1(INBOUND).await.expect("the door is open") };
    let requests = [
        slow(FOUR),
        slow(EIGHT),
        head_first(client().await, FOUR).await,
        head_first(client().await, EIGHT).await,
    ];
    pod.busy(4).await;
    pod.delete();
    let mut last_byte = tokio::time::Instant::now();
    for request in requests {
        last_byte = ended(request).await;
    }
    let end = pod.gone().await;
    end.assert_drained();
    end.assert_released_after(last_byte);
    end.print_times(last_byte);
    assert_eq!(end.report.mode, mode.name());
    assert_eq!(end.report.in_flight[0].peak, Some(4), "{}", end.report_text);
    assert_eq!(end.report.errors, Vec::<String>::new());
    let drain_and_door = [
        "/drain_listeners?inboundonly&graceful&skip_exit",
        "/drain_listeners?inboundonly",
    ];
    match mode {
        Mode::Annotate => {
            assert_eq!(end.posts()[..2], drain_and_door);
            assert_eq!(end.posts()[2..], ["/quitquitquit"]);
        }
        _ => {
            assert_eq!(end.posts(), drain_and_door);
            assert_eq!(end.report.agent, "drain");
        }
    }
    match mode {
        // A regular container gets SIGTERM at once, and outlives it while a hook is open.
        Mode::Hold => {
            assert!(end.sigterm(TIDEGATE) < last_byte);
            assert!(end.exited(TIDEGATE) > end.hook_ended(USER));
            assert!(end.sigterm(PROXY) > end.workload_gone());
        }
        Mode::Annotate => assert!(end.sigterm(PROXY) < last_byte),
        _ => {
            assert!(end.sigterm(TIDEGATE) > end.workload_gone());
            assert!(end.sigterm(PROXY) > end.exited(TIDEGATE));
        }
    }
    // The agent's own drain is skipped: it would take 2 s and more.
    let agent = end.exited(PROXY) - end.workload_gone();
    assert!(agent < AGENT_DRAIN, "istio-proxy took {agent:?}");
}

#[test]
fn an_app_that_finishes_politely_is_served_to_its_end() {
    let name = "traffic::an_app_that_finishes_politely_is_served_to_its_end";
    netns::test(name, || async {
        let mut pod = Pod::start(Spec {
            on_sigterm: OnSigterm::Finishes,
            ..Spec::new(Mode::Hold)
        })
        .await;
        let request = slow(FOUR);
        pod.busy(1).await;
        pod.delete();
        let last_byte = ended(request).await;
        let end = pod.gone().await;
        end.assert_drained();
        end.assert_released_after(last_byte);
        end.print_times(last_byte);
    });
}

#[test]
fn idle_connections_hold_nothing_under_hold() {
    let name = "traffic::idle_connections_hold_nothing_under_hold";
    netns::test(name, || idle_connections_hold_nothing(Mode::Hold));
}

#[test]
fn idle_connections_hold_nothing_under_annotate() {
    let name = "traffic::idle_connections_hold_nothing_under_annotate";
    netns::test(name, || idle_connections_hold_nothing(Mode::Annotate));
}

#[test]
fn idle_connections_hold_nothing_with_a_native_sidecar() {
    let name = "traffic::idle_connections_hold_nothing_with_a_native_sidecar";
    netns::test(name, || idle_connections_hold_nothing(Mode::Native));
}

/// A kept connection and an h2 one, each used once, and one that never said a word.
async fn idle_connections_hold_nothing(mode: Mode) {
    let mut pod = Pod::start(Spec::new(mode)).await;
    let mut kept = Client::h1(INBOUND).await.expect("the door is open");
    let mut h2 = Client::h2(INBOUND).await.expect("the door is open");
    for client in [&mut kept, &mut h2] {
        let reply = client.get("/?bytes=10").await.expect("an answer");
        reply.whole(10).expect("all of it");
    }
    let silent = TcpStream::connect(("127.0.0.1", INBOUND)).await;
    let silent = silent.expect("the door is open");
    pod.delete();
    let end = pod.gone().await;
    end.assert_drained();
    assert_eq!(end.report.in_flight[0].peak, Some(0), "{}", end.report_text);
    // The app's hook ended with the shortest drain, the pod with queue-proxy's quiet period.
    assert!(end.hook_ended(USER) < end.sigterm(QUEUE) + QUEUE_QUIET);
    let over = end.lasted() - QUEUE_QUIET;
    assert!(over < QUEUE_QUIET, "{over:?} longer than queue-proxy alone");
    drop((kept, h2, silent));
}

#[test]
fn every_byte_of_a_large_answer_arrives_under_hold() {
    let name = "traffic::every_byte_of_a_large_answer_arrives_under_hold";
    netns::test(name, || every_byte_arrives(Mode::Hold));
}

#[test]
fn every_byte_of_a_large_answer_arrives_under_annotate() {
    let name = "traffic::every_byte_of_a_large_answer_arrives_under_annotate";
    netns::test(name, || every_byte_arrives(Mode::Annotate));
}

#[test]
fn every_byte_of_a_large_answer_arrives_with_a_native_sidecar() {
    let name = "traffic::every_byte_of_a_large_answer_arrives_with_a_native_sidecar";
    netns::test(name, || every_byte_arrives(Mode::Native));
}

/// 12 MB to a reader of 16 KiB every 2 ms.
async fn every_byte_arrives(mode: Mode) {
    let (mut pod, mut reader) = large_answer(mode).await;
    reader.read_to(LARGE / 4).await.expect("a quarter of it");
    pod.delete();
    let last_byte = ended(reader.rest()).await;
    let end = pod.gone().await;
    end.assert_drained();
    end.print_times(last_byte);
}

#[test]
fn a_reader_that_stalls_gets_its_tail_under_hold() {
    let name = "traffic::a_reader_that_stalls_gets_its_tail_under_hold";
    netns::test(name, || a_stalled_reader_gets_its_tail(Mode::Hold));
}

#[test]
fn a_reader_that_stalls_gets_its_tail_under_annotate() {
    let name = "traffic::a_reader_that_stalls_gets_its_tail_under_annotate";
    netns::test(name, || a_stalled_reader_gets_its_tail(Mode::Annotate));
}

#[test]
fn a_reader_that_stalls_gets_its_tail_with_a_native_sidecar() {
    let name = "traffic::a_reader_that_stalls_gets_its_tail_with_a_native_sidecar";
    netns::test(name, || a_stalled_reader_gets_its_tail(Mode::Native));
}

/// The same reader, but it stops for 2 s in the moment when Envoy says that nothing is in flight any
/// more: the tail is then in Envoy's own memory, and lost if Envoy is ended on that word.
async fn a_stalled_reader_gets_its_tail(mode: Mode) {
    let (mut pod, mut reader) = large_answer(mode).await;
    reader.read_to(LARGE / 4).await.expect("a quarter of it");
    pod.delete();
    while pod.mesh().in_flight().await > 0 {
        // Envoy stops reading at 1 MiB that it has not sent: these 64 KiB are not its last.
        for _ in 0..4 {
            assert!(reader.piece().await.expect("no error") > 0);
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let last_byte = ended(reader.rest()).await;
    let end = pod.gone().await;
    end.assert_drained();
    end.print_times(last_byte);
}

/// Bytes of a large answer.
const LARGE: usize = 12_000_000;

/// A large answer on its way to a slow reader. Nothing but its bytes holds the pod: all delays are
/// short, so that only the flush stands between the last request's end and Envoy's.
async fn large_answer(mode: Mode) -> (Pod, SlowReader) {
    let spec = Spec {
        queue_quiet: Duration::from_millis(200),
        // A busy machine takes its time over so many bytes; no limit is to be met here.
        grace: Some(Duration::from_secs(60)),
        ..Spec::new(mode)
    };
    let spec = spec.set("flush-max", "40s");
    let pod = Pod::start(spec.set("min-drain", "400ms").set("quiet", "100ms")).await;
    let reader = SlowReader::begin(LARGE).await.expect("the head");
    (pod, reader)
}

#[test]
fn streams_and_tunnels_finish_under_hold() {
    let name = "traffic::streams_and_tunnels_finish_under_hold";
    netns::test(name, || streams_and_tunnels_finish(Mode::Hold));
}

#[test]
fn streams_and_tunnels_finish_under_annotate() {
    let name = "traffic::streams_and_tunnels_finish_under_annotate";
    netns::test(name, || streams_and_tunnels_finish(Mode::Annotate));
}

#[test]
fn streams_and_tunnels_finish_with_a_native_sidecar() {
    let name = "traffic::streams_and_tunnels_finish_with_a_native_sidecar";
    netns::test(name, || streams_and_tunnels_finish(Mode::Native));
}

/// Two h2 streams on one connection, a WebSocket and raw TCP, each longer than queue-proxy's quiet
/// period and the agent's drain, and ending one after the other.
async fn streams_and_tunnels_finish(mode: Mode) {
    let mut pod = Pod::start(Spec::new(mode)).await;
    let h2 = Client::h2(INBOUND).await.expect("the door is open");
    let stream = head_first(h2, FOUR).await;
    let websocket = Echo::websocket(INBOUND).await.expect("an upgrade");
    let tcp = Echo::tcp(INBOUND_TCP).await.expect("an echo");
    pod.busy(2).await;
    let websocket = websocket.talk(Duration::from_secs(5));
    let tcp = tcp.talk(Duration::from_secs(6));
    pod.delete();
    ended(stream).await;
    ended(websocket).await;
    let last_byte = ended(tcp).await;
    let end = pod.gone().await;
    end.assert_drained();
    end.assert_released_after(last_byte);
    end.print_times(last_byte);
    assert_eq!(end.report.in_flight[0].peak, Some(3), "{}", end.report_text);
}

#[test]
fn a_pod_without_a_mesh_is_held_by_queue_proxy_alone() {
    let name = "traffic::a_pod_without_a_mesh_is_held_by_queue_proxy_alone";
    netns::test(name, || without_a_mesh(Spec::new(Mode::NoMesh)));
}

#[test]
fn the_absence_of_a_mesh_is_found_out() {
    netns::test("traffic::the_absence_of_a_mesh_is_found_out", || {
        without_a_mesh(Spec::new(Mode::NoMesh).tell("TIDEGATE_MODE", "auto"))
    });
}

async fn without_a_mesh(spec: Spec) {
    // Time enough to find out.
    let mut pod = Pod::start(spec.set("announce-delay", "1s")).await;
    let client = Client::h1(crate::bootstrap::QUEUE_PROXY).await;
    let request = head_first(client.expect("queue-proxy listens"), FOUR).await;
    pod.busy(1).await;
    pod.delete();
    pod.phase(Phase::Draining).await;
    let last_byte = ended(request).await;
    let end = pod.gone().await;
    end.assert_drained();
    assert!(end.hook_ended(USER) > last_byte);
    assert_eq!(end.report.mode, "no-mesh");
    end.print_times(last_byte);
}
