//! queue-proxy's own hook: answered at once where it would cut nothing, held while it would.

use super::*;

fn pod(policy: HoldQueueProxy, workload_protocol: Protocol) -> Pod {
    Pod::new(Settings {
        hold_queue_proxy: policy,
        workload_protocol,
        ..settings(Mode::Hold)
    })
}

/// A pod that is deleted with queue-proxy's hook as its first; `before` sets it up.
fn deleted(protocol: Protocol, before: impl FnOnce(&mut Pod)) -> (Pod, HookId) {
    let mut pod = pod(HoldQueueProxy::Auto, protocol);
    before(&mut pod);
    let hook = pod.queue_hook(1);
    pod.run(0.05);
    pod.tell(Event::Trigger(Trigger::PreStop));
    (pod, hook)
}

fn answered(pod: &Pod, hook: HookId) -> Option<f64> {
    Some(pod.when(Action::Answer(hook))? - 0.05)
}

#[test]
fn a_hold_of_its_own_follows_its_setting() {
    for (policy, at) in [
        (HoldQueueProxy::Never, 0.0),
        (HoldQueueProxy::Always, 10.04),
    ] {
        let mut pod = pod(policy, Protocol::Http1);
        pod.upgraded(1);
        pod.tell(Event::Trigger(Trigger::PreStop));
        let hook = pod.queue_hook(1);
        assert_eq!(pod.machine.polling(pod.now).upgrades, None, "{policy:?}");
        pod.run(12.0);
        near(pod.when(Action::Answer(hook)), at);
    }
}

#[test]
fn an_idle_pod_and_plain_requests_hold_no_queue_proxy() {
    for in_flight in [0, 3] {
        let (mut pod, hook) = deleted(Protocol::Http1, |pod| pod.in_flight(in_flight, 3));
        pod.run(1.0);
        near(answered(&pod, hook), 0.01);
        assert_eq!(
            pod.machine.polling(pod.now).upgrades,
            None,
            "nobody asks any more"
        );
    }
    let (mut pod, hook) = deleted(Protocol::H2c, |_| {});
    pod.run(1.0);
    near(answered(&pod, hook), 0.02);
}

#[test]
fn open_streams_hold_queue_proxy_until_they_have_ended() {
    for protocol in Protocol::ALL {
        let set = |pod: &mut Pod, many| {
            pod.in_flight(many, 2);
            // Nobody asks for them where all that is in flight counts.
            pod.upgraded(if protocol == Protocol::Http1 { many } else { 0 });
        };
        let (mut pod, hook) = deleted(protocol, |pod| set(pod, 2));
        let user = pod.hook(2);
        pod.run(60.0);
        assert!(pod.machine.queue_proxy_held(), "{protocol:?}");
        if protocol == Protocol::Http1 {
            let pace = pod.machine.polling(pod.now).upgrades;
            assert_eq!(pace, Some(Duration::from_millis(250)));
        }
        set(&mut pod, 1);
        pod.run(10.0);
        assert_eq!(answered(&pod, hook), None, "{protocol:?}");
        set(&mut pod, 0);
        pod.run(2.0);
        let at = answered(&pod, hook).expect("it is answered");
        assert!((70.0..70.3).contains(&at), "{protocol:?}: {at}");
        // queue-proxy's quiet period runs while the drain goes on as always.
        let user = pod.when(Action::Answer(user)).expect("it is answered");
        assert!(user > at + 0.1, "{protocol:?}: {user}");
        assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));
    }
}

#[test]
fn where_nobody_can_tell_it_is_answered_as_if_there_were_none() {
    // Hidden, as on a default istio-proxy; an Envoy that is gone; one that hangs.
    for (cause, at) in [
        (Cause::Hidden, 0.01),
        (Cause::Refused, 0.01),
        (Cause::Timeout, 2.0),
        (Cause::Malformed, 2.0),
    ] {
        let (mut pod, hook) = deleted(Protocol::Http1, |pod| {
            pod.upgrades = Reading::Unknown(cause);
            pod.in_flight(1, 1);
        });
        pod.run(3.0);
        near(answered(&pod, hook), at);
    }
    let (mut pod, hook) = deleted(Protocol::H2c, |pod| {
        pod.envoy = Reading::Unknown(Cause::Timeout);
        pod.queue = Reading::Unknown(Cause::Timeout);
        pod.sockets = Reading::Unknown(Cause::Malformed);
    });
    pod.run(3.0);
    near(answered(&pod, hook), 2.0);
}

#[test]
fn a_report_that_lags_does_not_let_an_h2c_revision_go() {
    let (mut pod, hook) = deleted(Protocol::H2c, |_| {});
    // Its last second was over before the stream began.
    pod.tell(Event::Queue(Reading::Known(QueueRequests::default())));
    assert_eq!(answered(&pod, hook), None, "Envoy has not been looked at");
    pod.in_flight(1, 1);
    pod.run(5.0);
    assert!(pod.machine.queue_proxy_held());

    for mode in [Mode::Hold, Mode::NoMesh] {
        let mut pod = Pod::new(Settings {
            workload_protocol: Protocol::H2c,
            ..settings(mode)
        });
        pod.envoy = Reading::Unknown(Cause::Refused);
        pod.tell(Event::Trigger(Trigger::PreStop));
        let hook = pod.queue_hook(1);
        pod.run(1.0);
        near(pod.when(Action::Answer(hook)), 0.01);
    }
}

#[test]
fn without_a_mesh_upgrades_cannot_be_told_from_requests() {
    let mut pod = Pod::new(settings(Mode::NoMesh));
    pod.tell(Event::Trigger(Trigger::PreStop));
    let hook = pod.queue_hook(1);
    assert_eq!(pod.when(Action::Answer(hook)), Some(0.0));
}

#[test]
fn what_was_open_is_not_ended_by_a_look_that_fails() {
    for cause in [Cause::Timeout, Cause::Hidden, Cause::Broken] {
        let (mut pod, hook) = deleted(Protocol::Http1, |pod| {
            pod.upgraded(1);
            pod.in_flight(1, 1);
        });
        pod.run(1.0);
        pod.upgrades = Reading::Unknown(cause);
        pod.run(100.0);
        assert_eq!(answered(&pod, hook), None, "{cause:?}");
        pod.upgrades = Reading::Unknown(Cause::Refused);
        pod.run(1.0);
        assert!(answered(&pod, hook).is_some(), "{cause:?}");
    }
}

#[test]
fn the_release_of_the_workload_is_its_release_too() {
    let (mut pod, hook) = deleted(Protocol::Http1, |pod| {
        pod.upgraded(1);
        pod.in_flight(1, 1);
    });
    pod.run(300.0);
    near(answered(&pod, hook), 297.0);
    assert_eq!(
        pod.released().map(|it| (it.1, it.2)),
        Some((Outcome::Deadline, 1))
    );
}

#[test]
fn a_restart_of_queue_proxy_alone_is_a_restart() {
    let mut pod = pod(HoldQueueProxy::Auto, Protocol::Http1);
    let hook = pod.queue_hook(1);
    pod.run(10.0);
    near(pod.when(Action::Answer(hook)), 2.01);
}

#[test]
fn a_late_hook_is_judged_by_a_look_of_its_own() {
    let mut pod = pod(HoldQueueProxy::Auto, Protocol::Http1);
    pod.tell(Event::Trigger(Trigger::PreStop));
    let first = pod.queue_hook(1);
    pod.run(1.0);
    near(pod.when(Action::Answer(first)), 0.01);
    pod.upgraded(1);
    pod.in_flight(1, 1);
    let second = pod.queue_hook(2);
    assert_eq!(pod.when(Action::Answer(second)), None, "by an old word");
    pod.run(5.0);
    assert!(pod.machine.queue_proxy_held());
}

#[test]
fn envoy_is_not_asked_to_drain_what_it_would_cut() {
    let (mut pod, _) = deleted(Protocol::Http1, |pod| {
        pod.in_flight(1, 1);
        pod.upgraded(1);
    });
    pod.run(2.5);
    // Where Envoy does not answer in time, what it has said holds.
    pod.upgrades = Reading::Unknown(Cause::Timeout);
    pod.run(57.5);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    assert_eq!(pod.begun(), []);
    pod.upgraded(0);
    pod.run(0.5);
    assert_eq!(
        pod.begun(),
        [Call::DrainInbound],
        "a request is still there"
    );
    pod.in_flight(0, 1);
    pod.run(5.0);
    assert_eq!(pod.begun()[..2], [Call::DrainInbound, Call::CloseDoor]);

    // An h2 stream always ends whole.
    let (mut pod, _) = deleted(Protocol::H2c, |pod| pod.in_flight(1, 1));
    pod.run(4.0);
    assert_eq!(pod.begun(), [Call::DrainInbound]);
}
