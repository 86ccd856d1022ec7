//! Streams that queue-proxy would cut keep it from its SIGTERM until they have ended; nothing else does.

use std::time::Duration;

use tidegate::config::Mode;
use tokio::time::Instant;

use crate::bootstrap::INBOUND;
use crate::client::{Echo, Pending, ended, slow};
use crate::end::End;
use crate::netns;
use crate::pod::{Pod, QUEUE, Spec};

/// Twice queue-proxy's quiet period, after which it cuts a stream.
const LONG: Duration = Duration::from_secs(6);

/// A pod as of Knative 1.21 and older.
fn cutting(mode: Mode) -> Spec {
    Spec {
        queue_hijacked: Duration::ZERO,
        ..Spec::new(mode)
    }
}

/// Deletes the pod with one thing in flight; says when that ended, and how the pod did.
async fn deleted(spec: Spec, begin: impl AsyncFnOnce() -> Pending) -> (Instant, End) {
    let mut pod = Pod::start(spec).await;
    let stream = begin().await;
    pod.busy(1).await;
    pod.delete();
    let last_byte = ended(stream).await;
    let end = pod.gone().await;
    end.assert_drained();
    (last_byte, end)
}

async fn websocket() -> Pending {
    let stream = Echo::websocket(INBOUND).await.expect("it is upgraded");
    stream.talk(LONG)
}

fn held(last_byte: Instant, end: &End) {
    let sigterm = end.sigterm(QUEUE);
    assert!(sigterm > last_byte, "queue-proxy was stopped too early");
    println!(
        "queue-proxy's SIGTERM: {:?} after the last byte",
        sigterm - last_byte
    );
    assert!(sigterm - last_byte < Duration::from_secs(1));
}

/// The control: what the hold is for.
#[test]
fn queue_proxy_cuts_a_websocket_where_it_is_not_held() {
    let name = "streams::queue_proxy_cuts_a_websocket_where_it_is_not_held";
    netns::test(name, || async {
        let spec = cutting(Mode::Hold).set("hold-queue-proxy", "never");
        let mut pod = Pod::start(spec).await;
        let stream = websocket().await;
        pod.busy(1).await;
        pod.delete();
        let cut = stream.await.expect("the client does not panic");
        println!(
            "{:#}",
            cut.expect_err("queue-proxy cuts it after its quiet period")
        );
        pod.gone().await;
    });
}

#[test]
fn a_websocket_holds_queue_proxy() {
    netns::test("streams::a_websocket_holds_queue_proxy", || async {
        let (last_byte, end) = deleted(cutting(Mode::Hold), websocket).await;
        held(last_byte, &end);
    });
}

#[test]
fn a_websocket_holds_queue_proxy_beside_a_native_sidecar() {
    let name = "streams::a_websocket_holds_queue_proxy_beside_a_native_sidecar";
    netns::test(name, || async {
        let (last_byte, end) = deleted(cutting(Mode::Native), websocket).await;
        held(last_byte, &end);
    });
}

#[test]
fn any_request_holds_the_queue_proxy_of_an_h2c_revision() {
    let name = "streams::any_request_holds_the_queue_proxy_of_an_h2c_revision";
    netns::test(name, || async {
        let spec = cutting(Mode::Hold).set("workload-protocol", "h2c");
        let (last_byte, end) = deleted(spec, async || slow(LONG)).await;
        held(last_byte, &end);
    });
}

#[test]
fn a_plain_request_holds_no_queue_proxy() {
    netns::test("streams::a_plain_request_holds_no_queue_proxy", || async {
        let (_, end) = deleted(cutting(Mode::Hold), async || slow(LONG)).await;
        let answered = end.hook_ended(QUEUE) - end.deleted;
        println!("queue-proxy's hook was answered after {answered:?}");
        // Long before the request's end, however slow the machine.
        assert!(answered < Duration::from_secs(3), "{answered:?}");
    });
}
