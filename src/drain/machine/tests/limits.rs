//! How long things may take at most, and which word may be trusted how long.

use super::*;

fn seconds(pod: &Pod) -> f64 {
    pod.now.as_secs_f64()
}

// ===== how fast =====

#[test]
fn hooks_are_answered_within_400_ms_of_the_last_request() {
    for offset in 0..20 {
        let mut pod = triggered(Mode::Hold);
        let hook = pod.hook(1);
        pod.in_flight(1, 1);
        pod.run(40.0 + f64::from(offset) * 0.013);
        let ended = seconds(&pod);
        pod.in_flight(0, 1);
        pod.run(1.0);
        let late = pod.when(Action::Answer(hook)).unwrap() - ended;
        // What is left of 400 ms is for the calls themselves.
        assert!((0.25..0.36).contains(&late), "{late} s at offset {offset}");
    }
}

#[test]
fn the_proxy_is_released_within_100_ms_of_the_workloads_end() {
    for offset in 0..20 {
        let mut pod = triggered(Mode::Hold);
        pod.run(15.0 + f64::from(offset) * 0.013);
        let ended = seconds(&pod);
        pod.workload_leaves();
        pod.run(1.0);
        let late = pod.when(Action::ReleaseProxy).unwrap() - ended;
        assert!(late < 0.1, "{late} s at offset {offset}");
    }
}

#[test]
fn a_fast_prober_does_not_hold_the_pod_beyond_quiet_max() {
    let mut pod = triggered(Mode::Hold);
    let mut total = 0;
    while seconds(&pod) < 32.0 {
        total += 1;
        pod.in_flight(0, total);
        pod.run(0.05);
    }
    let released = pod.released().expect("released although probed");
    assert!((30.0..31.0).contains(&released.0), "{released:?}");
    assert_eq!(released.1, Outcome::Drained);
}

#[test]
fn where_nobody_can_refuse_new_requests_they_count_beyond_quiet_max() {
    let mut pod = triggered(Mode::NoMesh);
    pod.queue = Reading::Known(QueueRequests {
        arrived: 1,
        ..QueueRequests::default()
    });
    pod.run(60.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    pod.queue = Reading::Known(QueueRequests::default());
    pod.run(8.0);
    assert_eq!(pod.released().expect("quiet").1, Outcome::Drained);
}

#[test]
fn a_prober_that_is_in_flight_still_counts_beyond_quiet_max() {
    let mut pod = triggered(Mode::Hold);
    for total in 0..800 {
        pod.in_flight(total % 2, total);
        pod.run(0.05);
    }
    assert_eq!(pod.machine.phase(), Phase::Draining);
}

// ===== whose word counts =====

#[test]
fn zero_by_queue_proxys_word_outlasts_a_whole_report() {
    let mut pod = triggered(Mode::NoMesh);
    pod.queue = Reading::Known(QueueRequests {
        active: 1,
        ..QueueRequests::default()
    });
    pod.run(20.0);
    pod.queue = Reading::Known(QueueRequests::default());
    pod.run(1.2);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    // Its report is looked at every 0.5 s, and twice more behind the last second.
    pod.run(1.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
}

#[test]
fn looks_at_others_do_not_renew_envoys_word() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(1, 1);
    pod.run(20.0);
    pod.in_flight(0, 1);
    pod.tell(Event::Envoy(pod.envoy));
    for _ in 0..40 {
        pod.now += LOOK;
        pod.tell(Event::Queue(pod.queue));
        pod.tell(Event::Sockets(pod.sockets));
    }
    assert_eq!(pod.machine.phase(), Phase::Draining);
}

#[test]
fn a_restart_is_not_idle_by_a_look_from_before_it_was_confirmed() {
    let mut pod = Pod::new(settings(Mode::Hold));
    let hook = pod.hook(1);
    pod.run(1.9);
    for _ in 0..40 {
        pod.now += LOOK;
        pod.tell(Event::Tick);
    }
    assert_eq!(pod.when(Action::Answer(hook)), None);
    pod.run(0.1);
    assert!(pod.when(Action::Answer(hook)).is_some());
}

#[test]
fn what_was_known_before_a_hook_or_the_trigger_is_forgotten() {
    let mut pod = Pod::new(settings(Mode::Hold));
    pod.in_flight(3, 3);
    pod.hook(1);
    pod.run(6.0);
    pod.envoy = Reading::Unknown(Cause::Timeout);
    let hook = pod.hook(2);
    pod.run(2.5);
    assert!(
        pod.when(Action::Answer(hook)).is_some(),
        "held for old news"
    );

    let mut pod = Pod::new(settings(Mode::Hold));
    pod.hook(1);
    for total in 0..10 {
        pod.in_flight(0, total);
        pod.run(0.1);
    }
    pod.tell(Event::Trigger(Trigger::PreStop));
    pod.run(1.0);
    assert_eq!(pod.machine.late(), 0, "they came before the trigger");
}

#[test]
fn one_torn_look_at_the_sockets_is_not_the_workloads_end() {
    let mut pod = triggered(Mode::Hold);
    pod.run(15.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
    let whole = pod.sockets;
    for _ in 0..10 {
        pod.tell(Event::Sockets(Reading::Known(Sockets::default())));
        pod.tell(Event::Sockets(whole));
        pod.run(0.05);
    }
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
}

#[test]
fn a_workload_that_only_finishes_is_not_gone() {
    // queue-proxy has closed its listeners; one request is still running.
    let mut pod = triggered(Mode::Hold);
    pod.run(15.0);
    pod.sockets = Reading::Known(Sockets {
        listening: 0,
        established: 1,
        unsent: 0,
    });
    pod.run(20.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);

    let mut native = triggered(Mode::Native);
    native.run(5.0);
    native.sockets = pod.sockets;
    native.tell(Event::Trigger(Trigger::Sigterm));
    native.run(0.5);
    assert_eq!(native.released().map(|it| it.1), Some(Outcome::GraceOver));
}

#[test]
fn sockets_that_cannot_be_read_are_not_the_workloads_end() {
    let mut pod = triggered(Mode::Hold);
    pod.run(15.0);
    pod.sockets = Reading::Unknown(Cause::Broken);
    pod.run(20.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
}

#[test]
fn ports_that_fell_silent_do_not_end_what_envoy_holds() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(1, 1);
    pod.run(5.0);
    pod.workload_leaves();
    pod.run(20.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
}

#[test]
fn errors_of_queue_proxy_never_end_what_it_held() {
    let mut pod = triggered(Mode::Hold);
    pod.queue = Reading::Known(QueueRequests {
        active: 2,
        ..QueueRequests::default()
    });
    pod.run(5.0);
    pod.queue = Reading::Unknown(Cause::Timeout);
    pod.run(60.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    pod.queue = Reading::Unknown(Cause::Refused);
    pod.run(1.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
}

#[test]
fn a_sigterm_too_late_for_hold_and_too_early_for_the_end_of_grace_cuts_nobody() {
    let mut pod = triggered(Mode::Auto);
    pod.in_flight(2, 2);
    pod.run(2.5);
    assert_eq!(pod.machine.mode(), Mode::Native);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.run(60.0);
    assert_eq!(pod.machine.mode(), Mode::Hold);
    assert_eq!(pod.released(), None);
    pod.in_flight(0, 2);
    pod.run(1.0);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));

    let mut native = triggered(Mode::Auto);
    native.run(15.0);
    native.workload_leaves();
    native.tell(Event::Trigger(Trigger::Sigterm));
    native.run(0.2);
    assert_eq!(native.machine.mode(), Mode::Native);
    assert_eq!(native.machine.phase(), Phase::Done);
}

#[test]
fn a_proxy_that_waits_is_a_mesh() {
    let mut pod = triggered(Mode::Auto);
    pod.tell(Event::Mesh { present: false });
    pod.tell(Event::ReleasedPolled { released: false });
    pod.run(3.5);
    assert_eq!(pod.machine.mode(), Mode::Hold);
}

// ===== the way out =====

#[test]
fn the_proxy_waits_for_envoy_alone() {
    let mut pod = triggered(Mode::Hold);
    pod.run(15.0);
    pod.workload_leaves();
    pod.in_flight(1, 1);
    pod.run(20.0);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
    pod.in_flight(0, 1);
    pod.run(0.1);
    assert_eq!(pod.machine.phase(), Phase::Done);
}

#[test]
fn the_proxy_waits_for_last_bytes_alone_and_at_most_flush_max() {
    let mut pod = triggered(Mode::Hold);
    pod.run(15.0);
    pod.workload_leaves();
    pod.unsent(1_000);
    let gone = seconds(&pod);
    pod.run(4.9);
    assert_eq!(pod.machine.phase(), Phase::ReleasingWorkload);
    pod.run(0.3);
    let waited = pod.when(Action::ReleaseProxy).unwrap() - gone;
    assert!((4.9..5.2).contains(&waited), "{waited}");
}

#[test]
fn calls_that_no_longer_matter_are_given_up() {
    let silent: fn(Call) -> Option<CallResult> = |_| None;
    let given_up = Action::Abandon(Call::DrainInbound);

    let mut drained = triggered(Mode::Hold);
    drained.calls = |call| (call != Call::DrainInbound).then_some(CallResult::Done);
    drained.unsent(1);
    drained.run(12.0);
    assert_eq!(drained.when(given_up), drained.entered(Phase::Flushing));
    assert_eq!(drained.machine.phase(), Phase::Flushing);

    let mut left = triggered(Mode::Hold);
    left.calls = silent;
    left.run(4.0);
    left.workload_leaves();
    left.unsent(1);
    left.run(0.2);
    assert_eq!(left.when(given_up), left.entered(Phase::Flushing));

    let mut late = triggered(Mode::Hold);
    late.calls = silent;
    late.in_flight(1, 1);
    late.run(298.0);
    assert_eq!(late.when(given_up), Some(297.0));
    assert_eq!(late.machine.hooks_held(), 0);
}

#[test]
fn released_hooks_are_no_longer_held() {
    let mut pod = triggered(Mode::Hold);
    pod.hook(1);
    pod.run(12.0);
    assert_eq!(pod.machine.hooks_held(), 0);
}

#[test]
fn a_native_sidecars_last_second_counts_from_its_first_sigterm() {
    let mut pod = triggered(Mode::Native);
    pod.in_flight(1, 1);
    pod.run(20.0);
    pod.sockets = Reading::Known(Sockets::default());
    let first = seconds(&pod);
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.run(0.8);
    assert_eq!(pod.released(), None, "Envoy is still busy");
    pod.tell(Event::Trigger(Trigger::Sigterm));
    pod.run(0.3);
    let (at, outcome, cut) = pod.released().expect("released");
    assert!((1.0..1.1).contains(&(at - first)), "{}", at - first);
    assert_eq!((outcome, cut), (Outcome::GraceOver, 1));
}

// ===== istio-proxy restarts alone =====

/// Polls `/released` 100 ms after each answer, as `pilot-agent wait` does, until it says so or time is up.
fn wait_in_proxy(pod: &mut Pod, seconds: f64) -> bool {
    let until = pod.now + Duration::from_secs_f64(seconds);
    while pod.now < until {
        if !pod.proxy_released() {
            pod.tell(Event::ReleasedPolled { released: false });
        }
        // The answer is held back for a moment.
        let said = pod.now + Duration::from_millis(350);
        while pod.now < said && !pod.proxy_released() {
            pod.run(0.01);
        }
        if pod.proxy_released() {
            pod.tell(Event::ReleasedPolled { released: true });
            return true;
        }
        pod.run(0.1);
    }
    false
}

#[test]
fn a_proxy_that_restarts_alone_is_let_go_and_the_next_one_is_held_again() {
    let mut pod = Pod::new(settings(Mode::Hold));
    let began = seconds(&pod);
    assert!(wait_in_proxy(&mut pod, 10.0));
    assert!((5.0..5.05).contains(&(seconds(&pod) - began)));
    assert_eq!(pod.begun(), []);
    assert!(!pod.proxy_released());

    pod.run(60.0);
    pod.tell(Event::Trigger(Trigger::PreStop));
    assert!(!wait_in_proxy(&mut pod, 20.0), "the pod is going now");
    pod.workload_leaves();
    assert!(wait_in_proxy(&mut pod, 1.0));
}

#[test]
fn a_proxy_that_died_waiting_leaves_no_release_behind() {
    let mut pod = Pod::new(settings(Mode::Hold));
    for _ in 0..51 {
        pod.tell(Event::ReleasedPolled { released: false });
        pod.run(0.1);
    }
    assert!(pod.proxy_released());
    let timer = pod
        .machine
        .next_timer(pod.now)
        .expect("it is forgotten in time");
    pod.now = timer;
    pod.tell(Event::Tick);
    assert!(!pod.proxy_released());
    assert_eq!(pod.machine.next_timer(pod.now), None);
}

#[test]
fn a_trigger_takes_back_the_release_of_a_restart() {
    let mut pod = Pod::new(settings(Mode::Hold));
    for _ in 0..51 {
        pod.tell(Event::ReleasedPolled { released: false });
        pod.run(0.1);
    }
    pod.tell(Event::Trigger(Trigger::Sigterm));
    assert!(!pod.proxy_released());
}

#[test]
fn polls_long_before_the_trigger_are_no_waiter() {
    let mut pod = Pod::new(settings(Mode::Auto));
    pod.tell(Event::ReleasedPolled { released: false });
    pod.run(60.0);
    pod.tell(Event::Trigger(Trigger::PreStop));
    pod.run(2.5);
    assert_eq!(pod.machine.mode(), Mode::Native);
}

// ===== a source that answers now and then =====

#[test]
fn zero_by_turns_of_two_sources_is_zero() {
    let mut pod = triggered(Mode::Hold);
    pod.in_flight(0, 1);
    for turn in 0..120 {
        let answers = turn % 2 == 0;
        pod.envoy = match answers {
            true => Reading::Known(EnvoyRequests {
                active: 0,
                total: 1,
            }),
            false => Reading::Unknown(Cause::Status),
        };
        pod.run(0.1);
    }
    let released = pod.released().expect("released though Envoy stammers");
    assert_eq!(released.1, Outcome::Drained);
    assert!(released.0 < 13.0, "{released:?}");
}

#[test]
fn an_envoy_that_will_not_quit_is_not_waited_for_to_the_end_of_grace() {
    let mut settings = settings(Mode::Annotate);
    settings.timing.grace = Duration::from_secs(20);
    settings.timing.margin = Duration::from_secs(2);
    let mut pod = Pod::new(settings);
    pod.calls = |_| None;
    pod.in_flight(1, 1);
    pod.tell(Event::Trigger(Trigger::PreStop));
    pod.run(19.5);
    assert_eq!(pod.machine.phase(), Phase::ReleasingProxy);
    pod.run(0.3);
    assert_eq!(pod.machine.phase(), Phase::Done);
}
