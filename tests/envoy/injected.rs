//! Fixture pods as a cluster has them, injected: what injection writes is all that their sidecar and
//! their kubelet are told, beside a few of the owner's annotations.

use std::time::Duration;

use tidegate::config::Mode;
use tidegate::standin::kubelet::What;

use crate::bootstrap::QUEUE_PROXY;
use crate::client::{Client, Pending, ended, head_first, slow};
use crate::netns;
use crate::pod::{AGENT_DRAIN, PROXY, Pod, QUEUE_QUIET, Spec, TIDEGATE, USER};

/// Longer than queue-proxy and the agent wait by themselves.
const FOUR: Duration = Duration::from_secs(4);
const _: () = assert!(FOUR.as_secs() > QUEUE_QUIET.as_secs());
const _: () = assert!(FOUR.as_secs() > AGENT_DRAIN.as_secs());

/// What the fixtures' revision of 300 s needs: its timeout, queue-proxy's 30 s and [`Spec`]'s margin.
const GRACE: Duration = Duration::from_secs(332);

macro_rules! drains {
    ($($name:ident: $spec:expr;)*) => {$(
        #[test]
        fn $name() {
            netns::test(concat!("injected::", stringify!($name)), || drains($spec));
        }
    )*};
}

drains! {
    istio_126_classic: Spec::of("classic-rewritten-hook", Mode::Hold);
    istio_124_classic: Spec::of("classic-raw-hook", Mode::Hold);
    istio_127_native: Spec::of("native", Mode::Native);
    a_mesh_that_nobody_may_change: Spec::of("annotate", Mode::Annotate);
    outside_the_mesh: Spec::of("no-mesh", Mode::NoMesh);
    another_hook_port: Spec::of("classic-rewritten-hook", Mode::Hold).set("hook-port", "18122");
    another_hook_port_native: Spec::of("native", Mode::Native).set("hook-port", "18122");
}

/// A slow request is in flight at the deletion, and ends whole; the workload goes after it, and
/// istio-proxy after the workload.
async fn drains(spec: Spec) {
    let mut pod = Pod::start(spec).await;
    assert_eq!(pod.manifest.grace, GRACE);
    // By the downward API: what the owner says, and what nobody does.
    let env = &pod.manifest.sidecar.env;
    assert_eq!(env["TIDEGATE_QUIET"], "500ms");
    assert_eq!(env["TIDEGATE_QUIET_MAX"], "");

    let request = request(pod.spec.mode).await;
    pod.busy(1).await;
    pod.delete();
    let last_byte = ended(request).await;
    let mode = pod.spec.mode;
    let end = pod.gone().await;
    end.assert_drained();
    assert_eq!(end.report.mode, mode.name(), "{}", end.report_text);
    // The user container's and queue-proxy's.
    assert_eq!(end.report.hooks, 2, "{}", end.report_text);
    assert!(end.hook_ended(USER) > last_byte);
    if mode != Mode::NoMesh {
        end.assert_released_after(last_byte);
        let proxy = end.timeline.iter().filter(|it| it.container == PROXY);
        let waits = proxy.filter(|it| it.what == What::HookEnded).count();
        assert_eq!(waits, usize::from(mode == Mode::Hold), "{:?}", end.timeline);
    }
    if mode == Mode::Native {
        // A regular sidecar's SIGTERM follows at once and may be taken first; here it comes last.
        assert_eq!(end.report.trigger, "pre-stop", "{}", end.report_text);
        // No hook holds istio-proxy: its place among the containers does.
        assert!(end.exited(PROXY) > end.exited(TIDEGATE));
    }
    end.print_times(last_byte);
}

async fn request(mode: Mode) -> Pending {
    if mode != Mode::NoMesh {
        return slow(FOUR);
    }
    let client = Client::h1(QUEUE_PROXY).await;
    head_first(client.expect("queue-proxy listens"), FOUR).await
}
