//! Agents of other versions than today's, and agents that answer badly.

use std::time::Duration;

use tidegate::config::Mode;
use tidegate::standin::agent::Manners;
use tidegate::standin::front::Fault;

use crate::client::{ended, slow};
use crate::end::End;
use crate::netns;
use crate::pod::{AGENT_DRAIN, PROXY, Pod, Spec};

const FOUR: Duration = Duration::from_secs(4);

/// Longer than all that may happen after the agent's SIGTERM, but its own drain.
const LONG_DRAIN: Duration = Duration::from_secs(8);

/// One slow request, whole, whatever the agent is.
async fn drains(spec: Spec) -> End {
    let mut pod = Pod::start(spec).await;
    let request = slow(FOUR);
    pod.busy(1).await;
    pod.delete();
    let last_byte = ended(request).await;
    let end = pod.gone().await;
    end.assert_drained();
    end.assert_released_after(last_byte);
    end.print_times(last_byte);
    end
}

#[test]
fn an_agent_without_drain_leaves_with_envoy() {
    let name = "agents::an_agent_without_drain_leaves_with_envoy";
    netns::test(name, || async {
        let end = drains(Spec {
            // Istio 1.20.3.
            manners: Manners {
                drain_endpoint: false,
                quit_disables_drain: false,
                termination_drain: LONG_DRAIN,
                ..Manners::default()
            },
            ..Spec::new(Mode::Hold)
        })
        .await;
        assert_eq!(end.report.agent, "no-drain", "{}", end.report_text);
        let quit = end.calls.iter().find(|it| it.what == "POST /quitquitquit");
        let quit = quit.expect("Envoy was quit").at;
        // Before its SIGTERM the agent would take Envoy's end for a crash.
        assert!(quit > end.sigterm(PROXY));
        let took = end.exited(PROXY) - end.sigterm(PROXY);
        assert!(took < LONG_DRAIN / 2, "the agent took {took:?}");
    });
}

#[test]
fn an_old_agent_sleeps_out_its_drain() {
    netns::test("agents::an_old_agent_sleeps_out_its_drain", || async {
        let end = drains(Spec {
            // Istio 1.12 to 1.20.2.
            manners: Manners {
                early_exit: false,
                drain_endpoint: false,
                quit_disables_drain: false,
                termination_drain: AGENT_DRAIN,
                ..Manners::default()
            },
            ..Spec::new(Mode::Hold)
        })
        .await;
        assert_eq!(end.report.agent, "no-drain", "{}", end.report_text);
        let took = end.exited(PROXY) - end.sigterm(PROXY);
        assert!(took >= AGENT_DRAIN, "the agent took {took:?}");
    });
}

macro_rules! answers_badly {
    ($($name:ident: $fault:expr,)*) => {$(
        #[test]
        fn $name() {
            netns::test(concat!("agents::", stringify!($name)), || answers_badly($fault));
        }
    )*};
}

answers_badly! {
    an_agent_that_hangs: Fault::Hang,
    an_agent_that_resets: Fault::Reset,
    an_agent_that_closes_without_a_word: Fault::Empty,
    an_agent_that_answers_500: Fault::Status500,
    an_agent_that_answers_garbage: Fault::NotHttp,
}

/// The agent's word is needed at the release alone; without it Envoy is quit, and the agent leaves with
/// Envoy.
async fn answers_badly(fault: Fault) {
    let mut pod = Pod::start(Spec {
        manners: Manners {
            termination_drain: LONG_DRAIN,
            ..Manners::default()
        },
        agent_front: true,
        ..Spec::new(Mode::Hold)
    })
    .await;
    let front = pod.mesh().agent_front.clone();
    front.expect("the spec asks for a front").set(fault);
    let request = slow(FOUR);
    pod.busy(1).await;
    pod.delete();
    let last_byte = ended(request).await;
    let end = pod.gone().await;
    end.assert_drained();
    end.assert_released_after(last_byte);
    let took = end.exited(PROXY) - end.sigterm(PROXY);
    assert!(took < LONG_DRAIN / 2, "the agent took {took:?}");
}
