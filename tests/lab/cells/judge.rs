//! What must hold of a cell with Tidegate.

use super::answers::Answer;
use super::facts::{Facts, failed_hooks};
use super::kinds::Play;
use super::matrix::{Cell, Tidegate};
use super::play::Played;
use crate::clock;
use crate::record::PodRecord;

/// From the start of a user container until it answers, in milliseconds: queue-proxy finds out.
const ANSWERS_WITHIN: f64 = 2_000.0;

/// What does not hold, a line each; nothing of a cell without Tidegate.
pub(crate) fn complaints(cell: &Cell, played: &Played, facts: &Facts) -> Vec<String> {
    if cell.tidegate == Tidegate::Without {
        return Vec::new();
    }
    let mut complaints: Vec<String> = played
        .answers
        .iter()
        .filter_map(|answer| lost(cell, played, answer))
        .collect();
    for pod in &played.pods {
        of_pod(cell, pod, &mut complaints);
    }
    if facts.gone.is_none() {
        complaints.push("the pod did not go".to_owned());
    }
    let within = cell.kind.ends_within;
    if let Some(ended) = facts.ended.filter(|ended| *ended > within) {
        complaints.push(format!(
            "its last container ended after {ended:.1} s, not within {within} s"
        ));
    }
    complaints
}

fn lost(cell: &Cell, played: &Played, answer: &Answer) -> Option<String> {
    let failed = answer.lost() + answer.cut();
    if failed == 0 {
        return None;
    }
    let allowed = match (cell.kind.may_lose(&answer.name), &answer.load) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(_), Some(load)) => {
            let down = down(played.pods.first()?);
            down.is_some_and(|(from, to)| {
                let at = |at: f64| (from..=to).contains(&at);
                load.skipped == 0
                    && load
                        .failures
                        .iter()
                        .all(|failure| at(failure.started) || at(failure.ended))
            })
        }
    };
    (!allowed).then(|| {
        let why = answer.why().unwrap_or_default();
        format!(
            "{}: {failed} of {} lost or cut: {why}",
            answer.name,
            answer.sent()
        )
    })
}

/// While the user container was being started again, in Unix milliseconds: from its SIGTERM until the
/// new one listens, and queue-proxy has found that out.
fn down(pod: &PodRecord) -> Option<(f64, f64)> {
    let user = pod.container("user-container")?;
    let mut listens = user
        .log
        .iter()
        .filter(|line| line.text.contains("listening"));
    let again = listens.next_back()?.at;
    let killed = user.lives.first()?.kill?;
    Some((
        clock::to_millis(killed),
        clock::to_millis(again) + ANSWERS_WITHIN,
    ))
}

fn of_pod(cell: &Cell, pod: &PodRecord, complaints: &mut Vec<String>) {
    if cell.kind.hooks_fail.is_none() && failed_hooks(pod) > 0 {
        let failed = pod.events("FailedPreStopHook");
        let failed = failed.iter().map(|event| event.message.trim());
        complaints.push(format!(
            "FailedPreStopHook: {}",
            failed.collect::<Vec<_>>().join("; ")
        ));
    }
    let killed = matches!(
        cell.kind.play,
        Play::Kill {
            container: "tidegate",
            ..
        }
    );
    let may_be_cut = cell.kind.play == Play::Drain && !cell.kind.losses.is_empty();
    match pod.report() {
        _ if killed => {}
        None => complaints.push("Tidegate has left no report".to_owned()),
        Some(report) if !may_be_cut && report.outcome != "drained" => {
            complaints.push(format!("Tidegate reports {:?}", report.outcome));
        }
        Some(_) => {}
    }
}
