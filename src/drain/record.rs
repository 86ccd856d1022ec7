//! What a drain was: gathered step by step, written as the drain report.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Action, Call, Event, Machine, Now, Phase, Trigger};
use crate::inflight::Source;

/// The longest report, in bytes. The kubelet reads 4,096 of a termination message, but its status
/// manager shares 12 KiB among all containers of a pod: with eight, 1,536 are left for each.
pub const REPORT_MAX: usize = 1_536;

/// The longest name in a report, in bytes: a DNS label.
const TEXT_MAX: usize = 63;

/// The drain report: one JSON object of at most [`REPORT_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Tidegate's version; its presence marks a JSON object as a drain report.
    pub tidegate: String,
    /// The pod's name (the hostname), empty where unknown.
    pub pod: String,
    /// `drained`, `deadline`, `grace-over`; `draining` while it is not over; `interrupted` by SIGINT.
    pub outcome: String,
    /// `pre-stop` or `sigterm`.
    pub trigger: String,
    /// `hold`, `annotate`, `native`, `no-mesh`; `auto` while it is not known.
    pub mode: String,
    /// From the trigger to now (or to the end).
    pub seconds: f64,
    /// When each phase began, in seconds after the trigger, in order.
    pub phases: Vec<PhaseAt>,
    /// In flight by source: `envoy`, `queue-proxy`, `sockets`, `gate` where there is one.
    pub in_flight: Vec<SourcePeak>,
    /// Requests that arrived after the trigger.
    pub late: u64,
    /// Requests in flight when the workload was released before it was idle.
    pub cut: u64,
    /// Hooks answered over the life of the process.
    pub hooks: u64,
    /// Envoy's version, empty where unknown.
    pub envoy: String,
    /// What the agent is: `drain` (has `/drain`), `no-drain`, `gone`; empty where it was not asked.
    pub agent: String,
    /// Calls to Envoy or its agent that failed to the end: `CALL: REASON`.
    pub errors: Vec<String>,
}

/// A phase and when it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseAt {
    /// The phase's name.
    pub phase: String,
    /// Seconds after the trigger.
    pub at: f64,
}

/// The highest and the last value of a source; absent where it was never known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourcePeak {
    /// The source's name.
    pub source: String,
    /// The highest value seen since the trigger.
    pub peak: Option<u64>,
    /// The last value seen, absent where the last look failed.
    pub last: Option<u64>,
}

/// Gathers a drain as it happens. Pure: fed with what the machine is told and what it answers.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    pod: String,
    trigger: Option<(Trigger, Now)>,
    phases: Vec<(Phase, Now)>,
    /// In the order of [`Source::ALL`].
    tracks: [Track; Source::ALL.len()],
    cut: u64,
    hooks: u64,
    envoy_version: String,
    agent: &'static str,
    errors: Vec<(Call, &'static str)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Track {
    peak: Option<u64>,
    last: Option<u64>,
}

impl Track {
    fn saw(&mut self, value: Option<u64>) {
        self.last = value;
        self.peak = self.peak.max(value);
    }

    fn named(self, source: &str) -> SourcePeak {
        SourcePeak {
            source: source.to_owned(),
            peak: self.peak,
            last: self.last,
        }
    }
}

impl Recorder {
    /// An empty record of the pod of that name.
    pub fn new(pod: &str) -> Recorder {
        Recorder {
            pod: shortened(pod),
            ..Recorder::default()
        }
    }

    /// Takes what the machine was told.
    pub fn saw(&mut self, now: Now, event: &Event) {
        if let Event::Trigger(trigger) = *event
            && self.trigger.is_none()
        {
            self.trigger = Some((trigger, now));
            self.tracks = Default::default();
        }
        if let Some((source, in_flight)) = event.look() {
            self.tracks[source as usize].saw(in_flight);
        }
    }

    /// Takes what the machine answered.
    pub fn did(&mut self, now: Now, action: &Action) {
        match *action {
            Action::Answer(_) => self.hooks += 1,
            Action::Entered(phase) => self.phases.push((phase, now)),
            Action::WorkloadReleased { in_flight, .. } => self.cut = in_flight,
            _ => {}
        }
    }

    /// Envoy's version is known.
    pub fn envoy_version(&mut self, version: &str) {
        self.envoy_version = shortened(version);
    }

    /// What the agent turned out to be.
    pub fn agent(&mut self, agent: &'static str) {
        self.agent = agent;
    }

    /// A call failed to the end, for the reason of that short name.
    pub fn failed(&mut self, call: Call, reason: &'static str) {
        if !self.errors.iter().any(|(known, _)| *known == call) {
            self.errors.push((call, reason));
        }
    }

    /// The report as it stands.
    pub fn report(&self, now: Now, machine: &Machine) -> Report {
        let (trigger, began) = match self.trigger {
            Some((trigger, at)) => (trigger.name(), at),
            None => ("", now),
        };
        Report {
            tidegate: env!("CARGO_PKG_VERSION").to_owned(),
            pod: self.pod.clone(),
            outcome: machine
                .outcome()
                .map_or("draining", |outcome| outcome.name())
                .to_owned(),
            trigger: trigger.to_owned(),
            mode: machine.mode().name().to_owned(),
            seconds: seconds(now.saturating_sub(began)),
            phases: self
                .phases
                .iter()
                .map(|(phase, at)| PhaseAt {
                    phase: phase.name().to_owned(),
                    at: seconds(at.saturating_sub(began)),
                })
                .collect(),
            in_flight: Source::ALL
                .into_iter()
                .map(|source| (source, self.tracks[source as usize]))
                // Most pods have no gate.
                .filter(|(source, track)| *source != Source::Gate || track.peak.is_some())
                .map(|(source, track)| track.named(source.name()))
                .collect(),
            late: machine.late(),
            cut: self.cut,
            hooks: self.hooks,
            envoy: self.envoy_version.clone(),
            agent: self.agent.to_owned(),
            errors: self
                .errors
                .iter()
                .map(|(call, reason)| format!("{}: {reason}", call.name()))
                .collect(),
        }
    }
}

/// Seconds, to the millisecond.
fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1_000.0
}

/// At most [`TEXT_MAX`] bytes, cut at a character, without control characters (each would take six
/// bytes of JSON).
fn shortened(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if short.len() + c.len_utf8() > TEXT_MAX {
            break;
        }
        short.push(c);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;
    use crate::drain::machine::tests::settings;
    use crate::drain::{HookId, Outcome};
    use crate::inflight::{Cause, EnvoyRequests, GateRequests, Reading};

    #[test]
    fn peaks_and_last_values_are_those_since_the_trigger() {
        let mut recorder = Recorder::new("pod-1");
        let at = Duration::from_secs;
        let envoy = |active| Event::Envoy(Reading::Known(EnvoyRequests { active, total: 9 }));
        recorder.saw(at(1), &envoy(40));
        recorder.saw(at(2), &Event::Trigger(Trigger::PreStop));
        recorder.saw(at(3), &envoy(7));
        recorder.saw(at(4), &envoy(2));
        recorder.saw(at(5), &Event::Envoy(Reading::Unknown(Cause::Timeout)));
        let report = recorder.report(at(6), &Machine::new(settings(Mode::Hold)));
        assert_eq!(
            report.in_flight[0],
            SourcePeak {
                source: "envoy".into(),
                peak: Some(7),
                last: None
            }
        );
        assert_eq!(report.seconds, 4.0);
    }

    #[test]
    fn the_longest_report_fits_a_termination_message() {
        let long = "\u{1}\"\\ä".repeat(2_000);
        let mut recorder = Recorder::new(&long);
        let now = Duration::from_secs(9_999_999);
        recorder.saw(now, &Event::Trigger(Trigger::PreStop));
        let most = Event::Gate(GateRequests {
            active: u64::MAX,
            ..GateRequests::default()
        });
        recorder.saw(now, &most);
        for phase in Phase::ALL {
            recorder.did(now, &Action::Entered(phase));
        }
        for _ in 0..20 {
            recorder.did(now, &Action::Answer(HookId(u64::MAX)));
        }
        recorder.did(
            now,
            &Action::WorkloadReleased {
                outcome: Outcome::GraceOver,
                in_flight: u64::MAX,
            },
        );
        for call in Call::ALL {
            recorder.failed(call, "no answer yet");
        }
        recorder.envoy_version(&long);
        let report = recorder.report(now * 2, &Machine::new(settings(Mode::Auto)));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(report.errors.len(), 5);
        assert!(text.len() <= REPORT_MAX, "{} bytes", text.len());
    }
}
