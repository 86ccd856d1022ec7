//! One test for each transition of the state machine, up to the workload's release.

use super::*;

// ===== serving =====

#[test]
fn a_restart_is_answered_once_idle_and_calls_nobody() {
    let mut pod = Pod::new(settings(Mode::Hold));
    let hook = pod.hook(1);
    pod.run(10.0);
    near(pod.when(Action::Answer(hook)), 2.01);
    assert_eq!(pod.begun(), []);
    assert_eq!(pod.machine.phase(), Phase::Serving);
    assert_eq!(pod.machine.polling(pod.now), Polling::default());
}

#[test]
fn a_restart_under_load_is_answered_at_restart_hold() {
    let mut pod = Pod::new(settings(Mode::Hold));
    pod.in_flight(3, 3);
    let hook = pod.hook(1);
    pod.run(10.0);
    near(pod.when(Action::Answer(hook)), 5.0);
}

#[test]
fn a_restart_with_unknown_sources_is_answered_at_restart_hold() {
    let mut pod = Pod::new(settings(Mode::Hold));
    pod.envoy = Reading::Unknown(Cause::Timeout);
    pod.queue = Reading::Unknown(Cause::Timeout);
    pod.sockets = Reading::Unknown(Cause::Malformed);
    let hook = pod.hook(1);
    pod.run(10.0);
    near(pod.when(Action::Answer(hook)), 5.0);
}

#[test]
fn a_drain_after_a_restart_is_a_whole_drain() {
    let mut pod = Pod::new(settings(Mode::Hold));
    pod.hook(1);
    pod.run(10.0);
    let hook = pod.hook(2);
    pod.tell(Event::Trigger(Trigger::PreStop));
    pod.run(12.0);
    near(pod.when(Action::Answer(hook)), 20.04);
}

#[test]
fn a_hook_before_its_trigger_belongs_to_the_drain() {
    let mut pod = Pod::new(settings(Mode::Hold));
    let hook = pod.hook(1);
    pod.run(1.9);
    pod.tell(Event::Trigger(Trigger::PreStop));
    pod.run(8.0);
    assert_eq!(pod.when(Action::Answer(hook)), None);
}

#[test]
fn a_waiter_that_hung_up_is_forgotten() {
    let mut pod = triggered(Mode::Hold);
    let hook = pod.hook(1);
    assert_eq!(pod.machine.hooks_held(), 1);
    pod.tell(Event::HookClosed { hook });
    assert_eq!(pod.machine.hooks_held(), 0);
    pod.run(12.0);
    assert_eq!(pod.when(Action::Answer(hook)), None);
}

// ===== the trigger and the mode =====

#[test]
fn either_trigger_announces_at_once_and_a_second_changes_nothing() {
    for trigger in [Trigger::PreStop, Trigger::Sigterm] {
        let mut pod = Pod::new(settings(Mode::Hold));
        pod.tell(Event::Trigger(trigger));
        assert_eq!(pod.entered(Phase::Announcing), Some(0.0));
        let before = pod.machine.deadline();
        pod.run(1.0);
        pod.tell(Event::Trigger(Trigger::Sigterm));
        pod.tell(Event::Trigger(Trigger::PreStop));
        pod.run(1.0);
        assert_eq!(pod.machine.deadline(), before);
        assert_eq!(pod.machine.phase(), Phase::Announcing);
    }
}

#[test]
fn auto_with_sigterm_soon_after_our_pre_stop_is_hold() {
    let mut pod = triggered(Mode::Auto);
    pod.run(0.5);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    assert_eq!(pod.machine.mode(), Mode::Hold);
}

#[test]
fn auto_without_sigterm_is_native() {
    let mut pod = triggered(Mode::Auto);
    pod.run(2.5);
    assert_eq!(pod.machine.mode(), Mode::Native);
}

#[test]
fn auto_with_a_waiting_proxy_is_hold() {
    let mut pod = triggered(Mode::Auto);
    pod.tell(Event::ReleasedPolled { released: false });
    pod.run(2.5);
    assert_eq!(pod.machine.mode(), Mode::Hold);
}

#[test]
fn auto_where_both_refuse_is_no_mesh() {
    let mut pod = triggered(Mode::Auto);
    pod.tell(Event::Mesh { present: false });
    pod.run(3.5);
    assert_eq!(pod.machine.mode(), Mode::NoMesh);
    assert_eq!(pod.begun(), []);
}

#[test]
fn a_mesh_that_was_seen_does_not_vanish() {
    let mut pod = triggered(Mode::Auto);
    pod.tell(Event::Mesh { present: true });
    pod.tell(Event::Mesh { present: false });
    pod.run(3.5);
    assert_eq!(pod.machine.mode(), Mode::Native);
}

// ===== announcing to releasing the workload =====

#[test]
fn an_idle_pod_drains_at_min_drain() {
    let mut pod = triggered(Mode::Hold);
    let hook = pod.hook(1);
    pod.run(12.0);
    near(pod.entered(Phase::Draining), 3.0);
    near(pod.entered(Phase::ClosingDoor), 10.0);
    near(pod.entered(Phase::Flushing), 10.04);
    near(pod.entered(Phase::ReleasingWorkload), 10.04);
    near(pod.when(Action::Answer(hook)), 10.04);
    assert_eq!(pod.begun(), [Call::DrainInbound, Call::CloseDoor]);
    assert_eq!(
        pod.released().map(|it| (it.1, it.2)),
        Some((Outcome::Drained, 0))
    );
}

#[test]
fn a_request_in_flight_holds_the_drain_until_it_has_settled() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(1, 1);
    pod.run(40.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    pod.in_flight(0, 1);
    pod.run(1.0);
    near(pod.entered(Phase::ClosingDoor), 40.23);
    near(pod.entered(Phase::ReleasingWorkload), 40.29);
}

#[test]
fn new_requests_restart_the_quiet_time_until_quiet_max() {
    let mut pod = triggered(Mode::Hold);
    for second in 0..20_u32 {
        pod.in_flight(0, second.into());
        pod.run(1.0);
    }
    assert_eq!(pod.machine.phase(), Phase::Draining);
    assert_eq!(pod.machine.late(), 19);
    pod.run(5.0);
    near(pod.entered(Phase::ClosingDoor), 24.01);

    let mut prober = triggered(Mode::Hold);
    for second in 0..40_u32 {
        prober.in_flight(0, second.into());
        prober.run(1.0);
    }
    near(prober.entered(Phase::ClosingDoor), 30.0);
}

#[test]
fn the_door_closes_a_second_before_the_deadline_whatever_is_in_flight() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(1, 1);
    pod.run(296.5);
    assert_eq!(pod.begun(), [Call::DrainInbound, Call::CloseDoor]);
    near(pod.entered(Phase::ClosingDoor), 296.0);
    pod.run(1.0);
    let (at, outcome, cut) = pod.released().unwrap();
    near(Some(at), 297.0);
    assert_eq!((outcome, cut), (Outcome::Deadline, 1));

    let mut ends = triggered(Mode::Hold);
    ends.in_flight(1, 1);
    ends.run(296.5);
    ends.in_flight(0, 1);
    ends.run(1.0);
    assert_eq!(ends.machine.outcome(), Some(Outcome::Drained));
}

#[test]
fn a_prober_faster_than_zero_settles_does_not_hold_the_pod() {
    let mut pod = triggered(Mode::Hold);
    for look in 0..800_u32 {
        pod.in_flight(0, look.into());
        pod.run(0.05);
    }
    assert!(pod.machine.late() > 600, "{}", pod.machine.late());
    // Zero was broken for the last time at 29.95 s.
    near(pod.entered(Phase::ClosingDoor), 30.15);
    let (at, outcome, cut) = pod.released().unwrap();
    near(Some(at), 30.22);
    assert_eq!((outcome, cut), (Outcome::Drained, 0));
}

#[test]
fn a_request_between_two_looks_breaks_zero() {
    let mut pod = triggered(Mode::Hold);
    pod.run(9.95);
    pod.in_flight(0, 1);
    pod.run(0.1);
    assert_eq!(pod.machine.phase(), Phase::Draining);
}

#[test]
fn an_envoy_that_was_replaced_is_not_a_burst() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(0, 5_000);
    pod.run(1.0);
    pod.in_flight(1, 40);
    pod.run(1.0);
    assert_eq!(pod.machine.late(), 1);
}

#[test]
fn the_door_waits_for_zero_again() {
    let mut pod = triggered(Mode::Hold);
    pod.calls = |call| (call != Call::CloseDoor).then_some(CallResult::Done);
    pod.run(10.04);
    assert_eq!(pod.machine.phase(), Phase::ClosingDoor);
    pod.in_flight(1, 1);
    pod.tell(Event::Called {
        call: Call::CloseDoor,
        result: CallResult::Done,
    });
    pod.run(6.0);
    assert_eq!(pod.machine.phase(), Phase::ClosingDoor);
    pod.in_flight(0, 1);
    pod.run(1.0);
    near(pod.entered(Phase::Flushing), 16.26);
}

#[test]
fn a_door_that_cannot_be_closed_is_left_after_five_seconds() {
    let mut pod = triggered(Mode::Hold);
    pod.calls = |call| (call != Call::CloseDoor).then_some(CallResult::Done);
    pod.run(20.0);
    near(pod.entered(Phase::Flushing), 15.0);
    assert!(pod.when(Action::Abandon(Call::CloseDoor)).is_some());
}

#[test]
fn flushing_waits_for_two_empty_looks_and_at_most_flush_max() {
    let mut pod = triggered(Mode::Hold);
    pod.unsent(48_000);
    pod.run(13.0);
    assert_eq!(pod.machine.phase(), Phase::Flushing);
    pod.unsent(0);
    pod.run(0.01);
    assert_eq!(pod.machine.phase(), Phase::Flushing);
    pod.run(0.01);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);

    let mut stuck = triggered(Mode::Hold);
    stuck.unsent(48_000);
    stuck.run(17.0);
    near(stuck.entered(Phase::ReleasingWorkload), 15.04);
}

#[test]
fn the_workloads_end_is_watched_closely_while_that_is_cheap() {
    let mut pod = triggered(Mode::Hold);
    pod.run(12.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
    let pace = |pod: &Pod| pod.machine.polling(pod.now).sockets;
    assert_eq!(pace(&pod), Some(Duration::from_millis(20)));
    // What Envoy holds does not matter yet.
    let envoy = pod.machine.polling(pod.now).envoy;
    assert_eq!(envoy, Some(Duration::from_secs(1)));
    // queue-proxy has closed its ports: from now on each look reads the kernel's tables.
    pod.sockets = Reading::Known(Sockets {
        established: 1,
        ..Sockets::default()
    });
    pod.run(1.0);
    assert_eq!(pace(&pod), Some(Duration::from_millis(50)));
    let ended = pod.now.as_secs_f64();
    pod.workload_leaves();
    pod.run(1.0);
    assert!(pod.entered(Phase::ReleasingProxy).unwrap() - ended < 0.07);
}

#[test]
fn a_request_while_flushing_is_served_first() {
    let mut pod = triggered(Mode::Hold);
    pod.unsent(1);
    pod.run(11.0);
    pod.in_flight(1, 1);
    pod.unsent(0);
    pod.run(8.0);
    assert_eq!(pod.machine.phase(), Phase::Flushing);
    pod.in_flight(0, 1);
    pod.run(0.5);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));
}

#[test]
fn no_mesh_has_no_door_and_calls_nobody() {
    let mut pod = triggered(Mode::NoMesh);
    pod.envoy = Reading::Unknown(Cause::Refused);
    pod.run(12.0);
    pod.workload_leaves();
    pod.run(1.0);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    assert_eq!(pod.begun(), []);
    assert_eq!(pod.entered(Phase::ClosingDoor), None);
    assert_eq!(pod.machine.phase(), Phase::Done);
}

#[test]
fn a_workload_that_left_by_itself_is_not_waited_for() {
    let mut pod = triggered(Mode::Hold);
    pod.run(4.0);
    pod.workload_leaves();
    // The sockets are looked at once a second.
    pod.run(2.0);
    assert_eq!(pod.machine.phase(), Phase::Done);
}

// ===== unknown sources =====

#[test]
fn errors_of_envoy_never_end_what_it_held() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(2, 2);
    pod.run(5.0);
    pod.envoy = Reading::Unknown(Cause::Timeout);
    pod.run(60.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    pod.in_flight(0, 2);
    pod.run(1.0);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));
}

#[test]
fn with_envoy_gone_queue_proxy_tells() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(2, 2);
    pod.queue = Reading::Known(QueueRequests {
        active: 1,
        ..QueueRequests::default()
    });
    pod.run(5.0);
    pod.envoy = Reading::Unknown(Cause::Refused);
    pod.run(20.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    pod.queue = Reading::Known(QueueRequests::default());
    pod.run(4.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
}

#[test]
fn with_all_unknown_the_sockets_tell() {
    let mut pod = triggered(Mode::Hold);
    pod.envoy = Reading::Unknown(Cause::Broken);
    pod.queue = Reading::Unknown(Cause::Status);
    pod.run(60.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    pod.sockets = Reading::Known(Sockets {
        listening: 3,
        ..Sockets::default()
    });
    pod.run(1.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
}

#[test]
fn ports_that_never_listened_tell_nothing() {
    let mut pod = triggered(Mode::Hold);
    pod.envoy = Reading::Unknown(Cause::Malformed);
    pod.queue = Reading::Unknown(Cause::Refused);
    pod.sockets = Reading::Known(Sockets::default());
    pod.run(296.9);
    assert_eq!(pod.released(), None);
    pod.run(0.2);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Deadline));
}

#[test]
fn the_lag_of_queue_proxy_does_not_hold_what_envoy_has_seen_end() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(1, 1);
    pod.queue = Reading::Known(QueueRequests {
        active: 1,
        ..QueueRequests::default()
    });
    pod.run(20.0);
    pod.in_flight(0, 1);
    pod.run(0.7);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
}

#[test]
fn requests_that_only_queue_proxy_sees_hold_the_drain() {
    let mut pod = triggered(Mode::Hold);
    pod.queue = Reading::Known(QueueRequests {
        active: 2,
        ..QueueRequests::default()
    });
    pod.run(60.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
}
