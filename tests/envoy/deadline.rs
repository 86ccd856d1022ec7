//! Requests that never end: the pod is released in time all the same, and says what was cut.

use std::time::Duration;

use tidegate::config::Mode;
use tidegate::standin::app::OnSigterm;
use tidegate::standin::kubelet::What;

use crate::client::slow;
use crate::netns;
use crate::pod::{PROXY, Pod, Spec, TIDEGATE, USER};

const ENDLESS: Duration = Duration::from_secs(600);
/// Less `margin`, 3 s, it is the deadline.
const GRACE: Duration = Duration::from_secs(8);
const DEADLINE: Duration = Duration::from_secs(5);
/// The least that the kubelet gives between SIGTERM and SIGKILL.
const KUBELET_MINIMUM: Duration = Duration::from_secs(2);

fn spec(mode: Mode) -> Spec {
    Spec {
        grace: Some(GRACE),
        ..Spec::new(mode)
    }
    .set("margin", "3s")
}

#[test]
fn an_endless_request_is_cut_at_the_deadline_under_hold() {
    let name = "deadline::an_endless_request_is_cut_at_the_deadline_under_hold";
    netns::test(name, || an_endless_request_is_cut(Mode::Hold));
}

#[test]
fn an_endless_request_is_cut_at_the_deadline_under_annotate() {
    let name = "deadline::an_endless_request_is_cut_at_the_deadline_under_annotate";
    netns::test(name, || an_endless_request_is_cut(Mode::Annotate));
}

#[test]
fn an_endless_request_is_cut_at_the_deadline_with_a_native_sidecar() {
    let name = "deadline::an_endless_request_is_cut_at_the_deadline_with_a_native_sidecar";
    netns::test(name, || an_endless_request_is_cut(Mode::Native));
}

async fn an_endless_request_is_cut(mode: Mode) {
    let mut pod = Pod::start(spec(mode)).await;
    let request = slow(ENDLESS);
    pod.busy(1).await;
    pod.delete();
    let end = pod.gone().await;
    let lost = request.await.expect("the client does not panic");
    lost.expect_err("an endless request cannot end");
    assert_eq!(end.report.outcome, "deadline", "{}", end.report_text);
    assert_eq!(end.report.cut, 1, "{}", end.report_text);
    end.assert_orderly();
    assert!(end.hook_ended(USER) >= end.deleted + DEADLINE);
    // The app leaves at once and queue-proxy with its last request, so nobody needs the grace period.
    assert!(end.lasted() < GRACE + KUBELET_MINIMUM, "{:?}", end.lasted());
}

#[test]
fn an_app_that_ignores_sigterm_does_not_hold_the_proxy() {
    let name = "deadline::an_app_that_ignores_sigterm_does_not_hold_the_proxy";
    netns::test(name, || async {
        let mut pod = Pod::start(Spec {
            on_sigterm: OnSigterm::Ignores,
            ..spec(Mode::Hold)
        })
        .await;
        let request = slow(ENDLESS);
        pod.busy(1).await;
        pod.delete();
        let end = pod.gone().await;
        let lost = request.await.expect("the client does not panic");
        lost.expect_err("an endless request cannot end");
        assert_eq!(end.report.outcome, "deadline", "{}", end.report_text);
        assert_eq!(end.report.cut, 1, "{}", end.report_text);
        let killed: Vec<_> = end
            .timeline
            .iter()
            .filter(|event| event.what == What::Killed)
            .map(|event| event.container.as_str())
            .collect();
        assert!(!killed.contains(&TIDEGATE), "{killed:?}");
        assert!(!killed.contains(&PROXY), "{killed:?}");
        assert!(killed.contains(&USER), "{killed:?}");
        assert!(end.exited(PROXY) < end.exited(USER));
    });
}

#[test]
fn a_native_sidecar_takes_sigterm_for_the_end_of_the_grace_period() {
    let name = "deadline::a_native_sidecar_takes_sigterm_for_the_end_of_the_grace_period";
    netns::test(name, || async {
        // It was told of a longer grace period than the kubelet's.
        let mut pod = Pod::start(Spec {
            on_sigterm: OnSigterm::Finishes,
            ..spec(Mode::Native).tell("TIDEGATE_GRACE", "60s")
        })
        .await;
        let request = slow(ENDLESS);
        pod.busy(1).await;
        pod.delete();
        let end = pod.gone().await;
        let lost = request.await.expect("the client does not panic");
        lost.expect_err("an endless request cannot end");
        assert_eq!(end.report.outcome, "grace-over", "{}", end.report_text);
        assert_eq!(end.report.cut, 1, "{}", end.report_text);
        let left = end.exited(TIDEGATE) - end.sigterm(TIDEGATE);
        assert!(left < KUBELET_MINIMUM, "{left:?}");
        assert!(
            !end.timeline
                .iter()
                .any(|event| event.container == TIDEGATE && event.what == What::Killed)
        );
    });
}
