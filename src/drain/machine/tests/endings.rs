//! One test for each way a drain ends: istio-proxy's by mode, the deadline, the end of grace.

use super::*;

// ===== the end =====

#[test]
fn hold_tells_the_agent_before_the_proxy_is_released() {
    let mut pod = triggered(Mode::Hold);
    pod.tell(Event::ReleasedPolled { released: false });
    pod.run(15.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
    pod.calls = |_| None;
    pod.workload_leaves();
    pod.run(0.1);
    assert_eq!(pod.begun().last(), Some(&Call::DrainAgent));
    assert_eq!(pod.when(Action::ReleaseProxy), None);
    pod.tell(Event::Called {
        call: Call::DrainAgent,
        result: CallResult::Done,
    });
    assert!(pod.when(Action::ReleaseProxy).is_some());
    assert_eq!(pod.machine.phase(), Phase::ReleasingProxy);
    pod.tell(Event::ReleasedPolled { released: true });
    assert_eq!(pod.machine.phase(), Phase::Done);
    assert_eq!(pod.log.last().map(|it| it.1), Some(Action::Exit));
}

#[test]
fn hold_with_an_agent_that_cannot_be_told_quits_envoy() {
    for result in [
        CallResult::Unsupported,
        CallResult::Gone,
        CallResult::Failed,
    ] {
        let mut pod = triggered(Mode::Hold);
        pod.run(15.0);
        pod.calls = |_| None;
        pod.workload_leaves();
        pod.run(0.1);
        pod.tell(Event::Called {
            call: Call::DrainAgent,
            result,
        });
        assert_eq!(
            pod.begun().last(),
            Some(&Call::QuitEnvoyAfterAgent),
            "{result:?}"
        );
        assert_eq!(pod.machine.phase(), Phase::ReleasingProxy);
        let call = Call::QuitEnvoyAfterAgent;
        pod.tell(Event::Called {
            call,
            result: CallResult::Done,
        });
        assert_eq!(pod.machine.phase(), Phase::Done);
    }
}

#[test]
fn silence_of_agent_envoy_and_waiter_is_bounded() {
    let mut pod = triggered(Mode::Hold);
    pod.tell(Event::ReleasedPolled { released: false });
    pod.run(15.0);
    pod.calls = |_| None;
    pod.workload_leaves();
    pod.run(3.2);
    assert_eq!(pod.machine.phase(), Phase::Done);
    assert!(pod.when(Action::Abandon(Call::DrainAgent)).is_some());
    assert!(
        pod.when(Action::Abandon(Call::QuitEnvoyAfterAgent))
            .is_some()
    );
}

#[test]
fn annotate_quits_envoy() {
    let mut pod = triggered(Mode::Annotate);
    pod.run(15.0);
    pod.workload_leaves();
    pod.run(0.1);
    assert_eq!(pod.begun().last(), Some(&Call::QuitEnvoy));
    assert_eq!(pod.machine.phase(), Phase::Done);
}

#[test]
fn native_tells_the_agent_last_and_never_quits_envoy() {
    let mut pod = triggered(Mode::Native);
    pod.run(15.0);
    pod.workload_leaves();
    pod.run(0.1);
    assert_eq!(
        pod.begun(),
        [Call::DrainInbound, Call::CloseDoor, Call::DrainAgent]
    );
    assert_eq!(pod.machine.phase(), Phase::ReleasingProxy);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    assert_eq!(pod.machine.phase(), Phase::Done);
}

#[test]
fn a_native_sidecar_does_not_meet_its_own_stop_on_its_way_out() {
    for mode in [Mode::Native, Mode::NoMesh] {
        let mut pod = triggered(mode);
        pod.run(15.0);
        pod.workload_leaves();
        pod.run(29.0);
        assert_eq!(pod.machine.phase(), Phase::ReleasingProxy, "{mode:?}");
        pod.run(2.0);
        assert_eq!(pod.machine.phase(), Phase::Done, "{mode:?}: no kubelet");
    }
}

#[test]
fn the_proxy_waits_for_the_workload_and_its_last_bytes() {
    let mut pod = triggered(Mode::Hold);
    pod.run(30.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
    pod.workload_leaves();
    pod.unsent(1_000);
    pod.in_flight(1, 1);
    pod.run(3.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
    pod.in_flight(0, 1);
    pod.unsent(0);
    pod.run(0.1);
    assert_eq!(pod.machine.phase(), Phase::Done);
}

#[test]
fn hooks_after_the_release_are_answered_at_once() {
    let mut pod = triggered(Mode::Hold);
    pod.run(12.0);
    let hook = pod.hook(7);
    assert_eq!(pod.when(Action::Answer(hook)), Some(pod.now.as_secs_f64()));
}

// ===== deadline and grace =====

#[test]
fn the_deadline_releases_the_workload_then_the_proxy() {
    let mut pod = triggered(Mode::Hold);
    let hook = pod.hook(1);
    pod.in_flight(4, 4);
    pod.run(300.0);
    near(pod.when(Action::Answer(hook)), 297.0);
    assert_eq!(pod.released(), Some((297.0, Outcome::Deadline, 4)));
    near(pod.when(Action::ReleaseProxy), 298.0);
    assert_eq!(pod.machine.phase(), Phase::Done);
}

#[test]
fn a_workload_that_stays_does_not_hold_the_proxy_beyond_the_deadline() {
    let mut pod = triggered(Mode::Hold);
    pod.run(300.0);
    near(pod.entered(Phase::ReleasingWorkload), 10.04);
    near(pod.when(Action::ReleaseProxy), 298.0);
    assert_eq!(pod.machine.outcome(), Some(Outcome::Deadline));
    assert_eq!(pod.released().map(|it| it.2), Some(0));
}

#[test]
fn max_drain_is_a_deadline_of_ones_own() {
    let mut settings = settings(Mode::Hold);
    settings.timing.max_drain = Some(Duration::from_secs(20));
    let mut pod = Pod::new(settings);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.in_flight(1, 1);
    pod.run(25.0);
    assert_eq!(pod.released(), Some((20.0, Outcome::Deadline, 1)));
}

#[test]
fn sigterm_to_a_native_sidecar_while_the_workload_lives_is_the_end_of_grace() {
    let mut pod = triggered(Mode::Native);
    pod.in_flight(2, 2);
    pod.run(100.0);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.run(2.0);
    assert_eq!(pod.released(), Some((100.01, Outcome::GraceOver, 2)));
    assert_eq!(pod.machine.phase(), Phase::Done);
}

#[test]
fn sigterm_to_a_native_sidecar_whose_workload_has_gone_ends_the_drain() {
    let mut pod = triggered(Mode::Native);
    pod.run(1.0);
    pod.sockets = Reading::Known(Sockets::default());
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.run(0.5);
    assert_eq!(pod.machine.phase(), Phase::Done);
    assert_eq!(pod.machine.outcome(), Some(Outcome::Drained));
}

#[test]
fn a_workload_that_died_of_the_same_sigterm_was_not_drained() {
    let mut pod = triggered(Mode::Native);
    pod.in_flight(2, 2);
    pod.run(100.0);
    // The kubelet kills queue-proxy in the same moment, whose SIGTERM came with the deletion.
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.workload_leaves();
    pod.in_flight(0, 2);
    pod.run(1.0);
    let released = pod.released().unwrap();
    assert_eq!((released.1, released.2), (Outcome::GraceOver, 2));
    near(Some(released.0), 100.05);
}

#[test]
fn sigterm_to_a_native_sidecar_that_cannot_see_is_taken_for_the_end_of_grace() {
    let mut pod = triggered(Mode::Native);
    pod.sockets = Reading::Unknown(Cause::Malformed);
    pod.run(5.0);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.run(2.0);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::GraceOver));
    assert_eq!(pod.machine.phase(), Phase::Done);
}

#[test]
fn the_end_of_grace_also_bounds_a_released_workload() {
    let mut pod = triggered(Mode::Native);
    pod.run(20.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.run(2.0);
    assert_eq!(pod.machine.phase(), Phase::Done);
}
