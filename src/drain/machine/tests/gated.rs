//! With a gate: its count decides, its zero counts at once, and it is closed before anybody is let go.

use super::*;

fn pod(mode: Mode) -> Pod {
    let mut settings = settings(mode);
    settings.gate = Gate::Http;
    let mut pod = Pod::new(settings);
    pod.tell(Event::Trigger(Trigger::PreStop));
    pod
}

impl Pod {
    /// So many are in the gate, so many of them streams, and the gate says so.
    fn in_gate(&mut self, active: u64, streams: u64) {
        let arrived = active.saturating_sub(self.gate.active);
        self.gate = GateRequests {
            active,
            streams,
            total: self.gate.total + arrived,
        };
        self.tell(Event::Gate(self.gate));
    }

    fn stages(&self) -> Vec<(f64, Stage)> {
        let stages = self.log.iter().filter_map(|(at, action)| match action {
            Action::Gate(stage) => Some((at.as_secs_f64(), *stage)),
            _ => None,
        });
        stages.collect()
    }
}

#[test]
fn the_last_byte_lets_everybody_go_within_a_few_looks() {
    for mode in [Mode::Hold, Mode::NoMesh] {
        let mut pod = pod(mode);
        let hook = pod.hook(1);
        pod.in_gate(1, 0);
        pod.in_flight(1, 1);
        // Its report says "one" for two seconds more.
        pod.queue = Reading::Known(QueueRequests {
            active: 1,
            ..QueueRequests::default()
        });
        pod.run(20.0);
        assert_eq!(pod.machine.load(), Load::Busy(1));
        pod.in_flight(0, 1);
        let end = pod.now.as_secs_f64();
        pod.in_gate(0, 0);
        pod.run(1.0);
        let answered = pod.when(Action::Answer(hook)).expect("it is answered");
        // Two looks after the door, two at the queues: 10 ms each here, since this pod looks no oftener.
        assert!(answered - end < 0.055, "{mode:?}: {}", answered - end);
        assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));
    }
}

#[test]
fn an_old_word_of_envoy_is_not_taken_for_its_zero() {
    let mut pod = pod(Mode::Hold);
    pod.in_gate(1, 0);
    pod.in_flight(1, 1);
    pod.run(20.0);
    pod.in_gate(0, 0);
    assert_eq!(pod.machine.phase(), Phase::ClosingDoor);
    assert_eq!(pod.machine.load(), Load::Busy(1), "as Envoy said last");
    // A look that had begun before the gate's zero, then one that began after it.
    pod.in_flight(0, 1);
    pod.tell(Event::Envoy(pod.envoy));
    assert_eq!(pod.machine.load(), Load::Unknown);
    pod.tell(Event::Envoy(pod.envoy));
    assert_eq!(pod.machine.load(), Load::Idle(Source::Gate));
}

#[test]
fn what_envoy_holds_beside_the_gate_keeps_the_door_open() {
    let mut pod = pod(Mode::Hold);
    pod.in_gate(1, 0);
    pod.in_flight(2, 2);
    pod.run(20.0);
    pod.in_flight(1, 2);
    pod.in_gate(0, 0);
    pod.run(20.0);
    assert_eq!(pod.machine.phase(), Phase::Draining);
    pod.in_flight(0, 2);
    pod.run(0.5);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));
}

#[test]
fn what_envoy_holds_beside_the_gate_counts() {
    let mut pod = pod(Mode::Hold);
    pod.run(9.0);
    // Raw TCP to another port, or a request that has not reached the gate.
    pod.in_flight(1, 1);
    pod.run(20.0);
    assert_eq!(pod.machine.load(), Load::Busy(1));
    // An error does not end it; Envoy's end does.
    pod.envoy = Reading::Unknown(Cause::Timeout);
    pod.run(20.0);
    assert_eq!(pod.machine.load(), Load::Busy(1));
    pod.envoy = Reading::Unknown(Cause::Refused);
    pod.run(1.0);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));
}

#[test]
fn an_envoy_that_says_nothing_leaves_the_gates_word() {
    let mut pod = pod(Mode::Hold);
    pod.in_gate(1, 0);
    pod.in_flight(1, 1);
    pod.run(15.0);
    pod.envoy = Reading::Unknown(Cause::Timeout);
    pod.run(5.0);
    pod.in_gate(0, 0);
    pod.run(1.0);
    assert_eq!(
        pod.released().map(|it| (it.1, it.2)),
        Some((Outcome::Drained, 0))
    );
}

#[test]
fn what_comes_in_at_the_last_moment_is_waited_for() {
    let mut pod = pod(Mode::Hold);
    pod.surprises = 1;
    pod.run(10.5);
    let asked = |pod: &Pod| {
        let log = pod.log.iter();
        log.filter(|(_, action)| *action == Action::CloseGate)
            .count()
    };
    assert_eq!(asked(&pod), 2, "asked again once zero was confirmed again");
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));

    let mut pod = self::pod(Mode::Hold);
    pod.surprises = 1;
    pod.run(9.9);
    while asked(&pod) == 0 {
        pod.run(0.01);
    }
    pod.in_gate(1, 0);
    pod.run(10.0);
    assert_eq!(pod.released(), None);
    pod.in_gate(0, 0);
    pod.run(0.2);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));
}

#[test]
fn its_stages_are_the_drains() {
    let mut pod = pod(Mode::Hold);
    pod.run(12.0);
    let stages = pod.stages();
    let names: Vec<_> = stages.iter().map(|(_, stage)| *stage).collect();
    assert_eq!(names, [Stage::Announcing, Stage::Draining, Stage::Closed]);
    near(Some(stages[1].0), 3.0);
    let closed = pod
        .log
        .iter()
        .position(|(_, it)| *it == Action::Gate(Stage::Closed));
    let released = pod
        .log
        .iter()
        .position(|(_, it)| matches!(it, Action::WorkloadReleased { .. }));
    assert!(closed < released, "closed before anybody is let go");
}

#[test]
fn tunnels_are_ended_at_their_limit_or_a_second_before_the_deadline() {
    for (grace, at) in [
        (None, 296.0),
        (Some(20), 20.0),
        (Some(1), 3.0),
        (Some(1_000), 296.0),
    ] {
        let mut settings = settings(Mode::Hold);
        settings.gate = Gate::Http;
        settings.timing.upgrade_grace = grace.map(Duration::from_secs);
        let mut pod = Pod::new(settings);
        pod.tell(Event::Trigger(Trigger::PreStop));
        pod.in_gate(1, 1);
        pod.in_flight(1, 1);
        pod.run(300.0);
        let stages = pod.stages();
        let ended = stages
            .iter()
            .find(|(_, stage)| *stage == Stage::EndingUpgrades);
        near(ended.map(|(at, _)| *at), at);
        let closed = stages.iter().find(|(_, stage)| *stage == Stage::Closed);
        near(closed.map(|(at, _)| *at), 297.0);
    }
}

#[test]
fn its_streams_hold_queue_proxy_and_its_requests_do_not() {
    for (streams, held) in [(0, false), (1, true)] {
        let mut pod = pod(Mode::Hold);
        let hook = pod.queue_hook(1);
        assert_eq!(
            pod.machine.polling(pod.now).upgrades,
            None,
            "Envoy is not asked"
        );
        pod.in_flight(2, 2);
        pod.in_gate(2, streams);
        pod.run(5.0);
        assert_eq!(pod.machine.queue_proxy_held(), held);
        assert_eq!(pod.when(Action::Answer(hook)), (!held).then_some(0.0));
        pod.in_gate(1, 0);
        assert!(pod.when(Action::Answer(hook)).is_some());
    }
}

#[test]
fn traffic_past_the_gate_is_queue_proxys_to_tell() {
    // queue-proxy's own TLS port, say.
    let mut pod = pod(Mode::NoMesh);
    pod.queue = Reading::Known(QueueRequests {
        active: 1,
        ..QueueRequests::default()
    });
    pod.run(20.0);
    assert_eq!(pod.machine.load(), Load::Busy(1));
    pod.queue = Reading::Known(QueueRequests::default());
    pod.run(1.0);
    assert_eq!(pod.released().map(|it| it.1), Some(Outcome::Drained));
}

#[test]
fn a_prober_that_never_stops_does_not_hold_the_pod() {
    let mut pod = pod(Mode::Hold);
    for _ in 0..4_500 {
        pod.gate.total += 1;
        pod.tell(Event::Gate(pod.gate));
        pod.in_flight(0, pod.gate.total);
        pod.run(0.01);
    }
    let (at, outcome, _) = pod.released().expect("it is released");
    assert_eq!(outcome, Outcome::Drained);
    assert!((30.0..31.0).contains(&at), "{at}");
}
