//! What became of requests, as lab-app's client tells it.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::clock;
use crate::record::PodRecord;

/// A request, or a load.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) name: String,
    /// Unix milliseconds, as all times here.
    pub(crate) started: f64,
    pub(crate) first_byte: Option<f64>,
    pub(crate) last_byte: Option<f64>,
    pub(crate) ended: f64,
    pub(crate) status: Option<u16>,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<String>,
    pub(crate) load: Option<Load>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Ok,
    Refused,
    Cut,
    Lost,
}

/// What became of a load's requests.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Load {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) cut: u64,
    pub(crate) refused: u64,
    pub(crate) skipped: u64,
    pub(crate) failures: Vec<Failure>,
}

/// One of a load that was not ok.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Failure {
    pub(crate) started: f64,
    pub(crate) ended: f64,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<String>,
}

impl Answer {
    /// Reads the client's records.
    pub(crate) fn read(records: Vec<Value>) -> Result<Vec<Answer>> {
        let read = |record| serde_json::from_value(record).context("a record of lab-app's");
        records.into_iter().map(read).collect()
    }

    /// One of each name: the pieces of a load.
    pub(crate) fn merged(pieces: Vec<Answer>) -> Vec<Answer> {
        let mut merged: Vec<Answer> = Vec::new();
        for piece in pieces {
            match merged.iter_mut().find(|answer| answer.name == piece.name) {
                Some(answer) => answer.add(piece),
                None => merged.push(piece),
            }
        }
        merged
    }

    fn add(&mut self, other: Answer) {
        let least = |one: Option<f64>, other| one.into_iter().chain(other).reduce(f64::min);
        let most = |one: Option<f64>, other| one.into_iter().chain(other).reduce(f64::max);
        self.started = self.started.min(other.started);
        self.first_byte = least(self.first_byte, other.first_byte);
        self.last_byte = most(self.last_byte, other.last_byte);
        self.ended = self.ended.max(other.ended);
        if self.outcome == Outcome::Ok {
            (self.outcome, self.status, self.error) = (other.outcome, other.status, other.error);
        }
        if let (Some(load), Some(other)) = (&mut self.load, other.load) {
            load.sent += other.sent;
            load.lost += other.lost;
            load.cut += other.cut;
            load.refused += other.refused;
            load.skipped += other.skipped;
            load.failures.extend(other.failures);
        }
    }

    /// Requests in it.
    pub(crate) fn sent(&self) -> u64 {
        self.load
            .as_ref()
            .map_or(1, |load| load.sent + load.skipped)
    }

    /// Those that got no answer, or not the one that was due.
    pub(crate) fn lost(&self) -> u64 {
        match &self.load {
            Some(load) => load.lost + load.refused + load.skipped,
            None => u64::from(matches!(self.outcome, Outcome::Lost | Outcome::Refused)),
        }
    }

    /// Those whose answer ended early.
    pub(crate) fn cut(&self) -> u64 {
        match &self.load {
            Some(load) => load.cut,
            None => u64::from(self.outcome == Outcome::Cut),
        }
    }

    /// What went wrong, for people: of a load, the first that did.
    pub(crate) fn why(&self) -> Option<String> {
        let failure = self.load.as_ref().and_then(|load| load.failures.first());
        let (status, error) = match failure {
            Some(failure) => (failure.status, &failure.error),
            None if self.outcome == Outcome::Ok => return None,
            None => (self.status, &self.error),
        };
        let status = status.map(|status| status.to_string());
        let said = [status, error.clone()];
        Some(said.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Seconds from a pod's DELETE to a moment of a client's.
pub(crate) fn after_delete(pod: &PodRecord, millis: f64) -> Option<f64> {
    pod.after_delete(Some(clock::from_millis(millis)))
}
