//! What a run was, in modelled seconds after the pod's deletion: what the charts draw.

use std::time::Duration;

use crate::drain::Phase;
use crate::standin::kubelet::What;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Above its bars.
    pub title: &'static str,
    /// Requests.
    pub sent: u64,
    /// Those that were lost or cut.
    pub lost: u64,
    /// When the last container had gone.
    pub gone: f64,
    /// From the last byte of the last request until the app's hook was answered: not modelled, but as
    /// long as it took. Absent where Tidegate was not there.
    pub released: Option<Duration>,
    /// Its bars, from top to bottom.
    pub rows: Vec<Row>,
    /// Tidegate's phases; empty where it was not there.
    pub phases: Vec<(Phase, f64)>,
    /// The first loss, in words.
    pub why: String,
}

impl Scene {
    /// The line under the chart.
    pub fn summary(&self) -> String {
        let Scene {
            title,
            sent,
            lost,
            gone,
            ..
        } = self;
        let mut line = format!(
            "{:<18}{sent} sent, {lost} lost, pod gone after {gone:.1} s",
            format!("{title}:")
        );
        if let Some(released) = self.released_ms() {
            line.push_str(&format!(
                ", hooks answered {released:.0} ms after the last byte"
            ));
        }
        line
    }

    /// [`Scene::released`] in milliseconds.
    pub(super) fn released_ms(&self) -> Option<f64> {
        self.released.map(|released| released.as_secs_f64() * 1e3)
    }

    /// When its first bar begins.
    pub fn begins(&self) -> f64 {
        let starts = self
            .rows
            .iter()
            .flat_map(|row| row.spans.iter().map(|span| span.from));
        starts.fold(0.0, f64::min)
    }
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// On its left.
    pub label: String,
    /// What it is made of.
    pub spans: Vec<Span>,
    /// When requests were cut.
    pub cuts: Vec<f64>,
    /// On its right.
    pub note: String,
}

/// A stretch of a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// When it begins.
    pub from: f64,
    /// When it ends.
    pub to: f64,
    /// What it means.
    pub kind: Kind,
}

/// What a stretch means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests are under way.
    Request,
    /// A connection is open and idle.
    Idle,
    /// A container runs.
    Runs,
    /// A container runs and its preStop hook is held.
    Held,
    /// A container has got SIGTERM.
    Stopping,
}

impl Row {
    /// A container's bar from what the kubelet saw of it, `events` in order of time.
    pub fn container(name: &str, begins: f64, events: &[(f64, What)]) -> Row {
        let mut row = Row {
            label: name.to_owned(),
            spans: Vec::new(),
            cuts: Vec::new(),
            note: String::new(),
        };
        let (mut since, mut kind) = (begins, Kind::Runs);
        let mut failed = false;
        for (at, what) in events {
            let next = match what {
                What::HookStarted => Kind::Held,
                What::HookFailed(_) => {
                    failed = true;
                    Kind::Runs
                }
                What::HookEnded | What::HookAbandoned => Kind::Runs,
                What::Sigterm | What::Killed => Kind::Stopping,
                What::Exited(_) => {
                    row.push(since, *at, kind);
                    let gone = format!("gone at {at:.1}");
                    row.note = if failed {
                        format!("hook failed; {gone}")
                    } else {
                        gone
                    };
                    break;
                }
            };
            row.push(since, *at, kind);
            (since, kind) = (*at, next);
        }
        row
    }

    fn push(&mut self, from: f64, to: f64, kind: Kind) {
        if to > from {
            self.spans.push(Span { from, to, kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standin::How;

    #[test]
    fn a_containers_bar_follows_the_kubelet() {
        let events = [
            (0.0, What::HookStarted),
            (38.0, What::HookEnded),
            (38.0, What::Sigterm),
            (39.0, What::Exited(How::Exited(0))),
        ];
        let row = Row::container("app", -3.0, &events);
        let spans: Vec<_> = row
            .spans
            .iter()
            .map(|span| (span.from, span.to, span.kind))
            .collect();
        let expected = [
            (-3.0, 0.0, Kind::Runs),
            (0.0, 38.0, Kind::Held),
            (38.0, 39.0, Kind::Stopping),
        ];
        assert_eq!(spans, expected);
        assert_eq!(row.note, "gone at 39.0");

        let events = [
            (0.0, What::HookStarted),
            (0.1, What::HookFailed("reset".into())),
            (0.1, What::Sigterm),
            (5.0, What::Exited(How::Killed)),
        ];
        assert_eq!(
            Row::container("app", -3.0, &events).note,
            "hook failed; gone at 5.0"
        );
    }
}
