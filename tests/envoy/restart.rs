//! A hook without a trigger: one container restarts, the pod stays.

use std::time::Duration;

use tidegate::config::Mode;
use tidegate::standin::app::OnSigterm;
use tokio::time::{interval, sleep};

use crate::bootstrap::INBOUND;
use crate::client::{Client, ended, slow};
use crate::netns;
use crate::pod::{Pod, Spec};
use crate::sidecar::Sidecar;

/// The settings that [`Pod`] gives to the sidecar.
const CONFIRM: Duration = Duration::from_millis(500);
const RESTART_HOLD: Duration = Duration::from_millis(1500);
const FOUR: Duration = Duration::from_secs(4);

#[test]
fn an_idle_restart_under_hold() {
    netns::test("restart::an_idle_restart_under_hold", || {
        restarts(Mode::Hold, false)
    });
}

#[test]
fn a_busy_restart_under_hold() {
    netns::test("restart::a_busy_restart_under_hold", || {
        restarts(Mode::Hold, true)
    });
}

#[test]
fn an_idle_restart_with_a_native_sidecar() {
    netns::test("restart::an_idle_restart_with_a_native_sidecar", || {
        restarts(Mode::Native, false)
    });
}

#[test]
fn a_busy_restart_with_a_native_sidecar() {
    netns::test("restart::a_busy_restart_with_a_native_sidecar", || {
        restarts(Mode::Native, true)
    });
}

/// The hook is answered in time, nothing is told to Envoy, readiness stays; and when the pod is
/// deleted later, it drains as any other.
async fn restarts(mode: Mode, busy: bool) {
    let mut pod = Pod::start(Spec {
        on_sigterm: OnSigterm::Finishes,
        ..Spec::new(mode)
    })
    .await;
    let request = busy.then(|| slow(FOUR));
    pod.busy(u64::from(busy)).await;
    let watched = tokio::spawn(stays_ready(pod.sidecar.clone()));
    let took = pod.restart_user_container().await;
    println!("the hook was answered after {took:?}");
    let least = if busy { RESTART_HOLD } else { CONFIRM };
    assert!(took >= least, "{took:?}");
    assert!(took < RESTART_HOLD + Duration::from_secs(1), "{took:?}");
    if let Some(request) = request {
        ended(request).await;
    }
    watched.await.expect("it stays ready");
    let calls = pod.mesh().tap.calls();
    assert!(
        calls.iter().all(|call| call.what.starts_with("GET ")),
        "{calls:?}"
    );

    let mut client = Client::h1(INBOUND).await.expect("the door is open");
    let reply = client.get("/?bytes=10").await.and_then(|it| it.whole(10));
    let reply = reply.expect("the new container serves");
    assert_eq!(reply.headers.get("connection"), None);
    assert_eq!(pod.sidecar.ready().await, 200);

    let request = slow(FOUR);
    pod.busy(1).await;
    pod.delete();
    let last_byte = ended(request).await;
    let end = pod.gone().await;
    end.assert_drained();
    end.assert_released_after(last_byte);
    // The restart's, and two of the deletion.
    assert_eq!(end.report.hooks, 3, "{}", end.report_text);
}

/// Looks at `/readyz` for as long as a restart's hook may be held, and longer.
async fn stays_ready(sidecar: Sidecar) {
    let mut beat = interval(Duration::from_millis(50));
    let looks = async {
        loop {
            beat.tick().await;
            assert_eq!(sidecar.ready().await, 200);
        }
    };
    tokio::select! {
        () = looks => {}
        () = sleep(RESTART_HOLD + CONFIRM) => {}
    }
}
