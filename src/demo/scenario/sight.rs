//! A run as its clients and the kubelet saw it, told in modelled seconds after the deletion.

use std::time::Duration;

use tokio::time::Instant;

use super::super::scene::{Kind, Row, Scene, Span};
use super::{APP, ENDPOINT_LAG, Ended, LEAD, Seen, What};
use crate::drain::Phase;
use crate::standin::Scale;
use crate::standin::kubelet::{self, Event};
use crate::standin::load::{self, Outcome};

/// Longest part of a loss's reason that fits beside a bar.
const REASON_MAX: usize = 16;

/// Turns instants into modelled seconds after the deletion.
pub(super) struct Sight {
    pub(super) scale: Scale,
    pub(super) deleted: Instant,
}

impl Sight {
    fn at(&self, instant: Instant) -> f64 {
        match instant.checked_duration_since(self.deleted) {
            Some(after) => self.scale.modelled(after).as_secs_f64(),
            None => -self.scale.modelled(self.deleted - instant).as_secs_f64(),
        }
    }

    pub(super) fn scene(
        &self,
        title: &'static str,
        seen: Seen,
        events: &[Event],
        gone: Instant,
        phases: Vec<(Phase, Instant)>,
    ) -> Scene {
        let begins = -LEAD.as_secs_f64();
        let Seen {
            tally,
            mut others,
            slow_began,
        } = seen;
        others.sort_by_key(|ended| match ended.what {
            What::Slow(length) => (0, length),
            What::Idle => (1, Duration::ZERO),
        });
        let (mut sent, mut lost) = (tally.sent, tally.lost);
        let mut why = tally
            .losses
            .first()
            .map(|loss| loss.reason.clone())
            .unwrap_or_default();
        let mut rows = vec![self.load_row(begins, &tally)];
        for ended in &others {
            match &ended.outcome {
                Outcome::Ok => sent += 1,
                Outcome::Elsewhere => {}
                Outcome::Lost(reason) => {
                    (sent, lost) = (sent + 1, lost + 1);
                    why.clone_from(reason);
                }
            }
            rows.push(self.row(ended, begins, self.at(slow_began)));
        }
        let mut names: Vec<&str> = Vec::new();
        for event in events {
            if !names.contains(&event.container.as_str()) {
                names.push(&event.container);
            }
        }
        names.sort_by_key(|name| ORDER.iter().position(|known| known == name));
        for name in names {
            let own = events.iter().filter(|event| event.container == name);
            let own: Vec<_> = own
                .map(|event| (self.at(event.at), event.what.clone()))
                .collect();
            rows.push(Row::container(name, begins, &own));
        }
        let released = if phases.is_empty() {
            None
        } else {
            released(&others, events)
        };
        let phases = phases
            .into_iter()
            .map(|(phase, at)| (phase, self.at(at)))
            .collect();
        Scene {
            title,
            sent,
            lost,
            gone: self.at(gone),
            released,
            rows,
            phases,
            why,
        }
    }

    fn load_row(&self, begins: f64, tally: &load::Tally) -> Row {
        let ends = ENDPOINT_LAG.as_secs_f64();
        Row {
            label: "steady load".to_owned(),
            spans: vec![Span {
                from: begins,
                to: ends,
                kind: Kind::Request,
            }],
            cuts: tally
                .losses
                .iter()
                .map(|loss| self.at(loss.at).min(ends))
                .collect(),
            note: format!("{} of {} lost", tally.lost, tally.sent),
        }
    }

    fn row(&self, ended: &Ended, begins: f64, slow_began: f64) -> Row {
        let at = self.at(ended.at);
        let (label, from, kind) = match ended.what {
            What::Idle => ("idle keep-alive".to_owned(), begins, Kind::Idle),
            What::Slow(length) => (
                format!("{} s request", length.as_secs()),
                slow_began,
                Kind::Request,
            ),
        };
        let (cuts, note) = match (&ended.outcome, kind) {
            (Outcome::Ok, Kind::Idle) => (vec![], format!("closed at {at:.1}")),
            (Outcome::Ok, _) => (vec![], format!("whole at {at:.1}")),
            (Outcome::Elsewhere, _) => (vec![], "refused".to_owned()),
            (Outcome::Lost(reason), _) if reason.len() <= REASON_MAX => {
                (vec![at], format!("cut at {at:.1}: {reason}"))
            }
            (Outcome::Lost(_), _) => (vec![at], format!("cut at {at:.1}")),
        };
        Row {
            label,
            spans: vec![Span { from, to: at, kind }],
            cuts,
            note,
        }
    }
}

/// From the last byte of the last request until the app's hook was answered, on the machine's clock.
fn released(others: &[Ended], events: &[Event]) -> Option<Duration> {
    let slow = others
        .iter()
        .filter(|ended| matches!(ended.what, What::Slow(_)));
    let last = slow.map(|ended| ended.at).max()?;
    let answered = events
        .iter()
        .find(|event| event.container == APP && event.what == kubelet::What::HookEnded)?;
    Some(answered.at.saturating_duration_since(last))
}

/// Containers from top to bottom.
const ORDER: [&str; 4] = [APP, "queue-proxy", "istio-proxy", "tidegate"];
