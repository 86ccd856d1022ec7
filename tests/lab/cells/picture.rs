//! Draws two drains of the lab, without and with Tidegate, from the times that were measured.

use std::time::Duration;

use serde_json::Value;
use tidegate::demo::scene::{Kind, Row, Scene, Span};
use tidegate::demo::svg;
use tidegate::drain::Phase;
use tidegate::standin::How;
use tidegate::standin::kubelet::What;

use super::Outcome;
use super::answers::{self, Answer, after_delete};
use super::facts::failed_hooks;
use super::matrix::Tidegate;
use crate::clock;
use crate::record::{Life, PodRecord};

/// The pictures: a file's name, the configuration and the kind of its cells.
pub(crate) const PICTURES: [(&str, &str, &str); 2] = [
    ("lab-classic.svg", "classic-5s", "40s"),
    ("lab-native.svg", "native", "50s-exits"),
];
/// Containers from top to bottom.
const ORDER: [&str; 4] = ["user-container", "queue-proxy", "istio-proxy", "tidegate"];
/// Before the DELETE.
const BEGINS: f64 = -4.0;
/// What fits beside a bar.
const NOTE_MAX: usize = 26;

/// The picture of a configuration and a kind, where both its cells were played.
pub(crate) fn draw(outcomes: &[Outcome], configuration: &str, kind: &str) -> Option<String> {
    let scene = |tidegate| {
        let outcome = outcomes.iter().find(|outcome| {
            let cell = &outcome.cell;
            cell.configuration.name == configuration
                && cell.kind.name == kind
                && cell.tidegate == tidegate
        });
        scene(outcome?)
    };
    Some(svg::draw(&[
        scene(Tidegate::Without)?,
        scene(Tidegate::With)?,
    ]))
}

fn scene(outcome: &Outcome) -> Option<Scene> {
    let pod = outcome.played.pods.first()?;
    let mut rows: Vec<Row> = outcome
        .played
        .answers
        .iter()
        .filter_map(|answer| request(pod, answer))
        .collect();
    rows.sort_by(|one, other| one.label.cmp(&other.label));
    rows.extend(ORDER.iter().filter_map(|name| container(pod, name)));
    Some(Scene {
        title: match outcome.cell.tidegate {
            Tidegate::Without => "without Tidegate",
            Tidegate::With => "with Tidegate",
        },
        sent: outcome.facts.sent,
        lost: outcome.facts.lost + outcome.facts.cut,
        gone: outcome.facts.gone?,
        released: outcome
            .facts
            .released
            .map(|after| Duration::from_secs_f64(after.hold.max(0.0))),
        rows,
        phases: phases(pod).unwrap_or_default(),
        why: outcome.facts.why.clone().unwrap_or_default(),
    })
}

fn request(pod: &PodRecord, answer: &Answer) -> Option<Row> {
    let (from, to) = (
        after_delete(pod, answer.started)?,
        after_delete(pod, answer.ended)?,
    );
    let whole = answer.outcome == answers::Outcome::Ok;
    let mut note = if whole {
        format!("whole at {to:.1}")
    } else {
        let status = answer.status.map(|status| format!(": {status}"));
        format!("cut at {to:.1}{}", status.unwrap_or_default())
    };
    note.truncate(NOTE_MAX);
    Some(Row {
        label: answer.name.clone(),
        spans: vec![Span {
            from,
            to,
            kind: Kind::Request,
        }],
        cuts: if whole { Vec::new() } else { vec![to] },
        note,
    })
}

fn container(pod: &PodRecord, name: &str) -> Option<Row> {
    let life = pod.container(name)?.last()?;
    let hook_failed = name == "user-container" && failed_hooks(pod) > 0;
    Some(Row::container(
        name,
        BEGINS,
        &events(pod, life, hook_failed),
    ))
}

fn events(pod: &PodRecord, life: &Life, hook_failed: bool) -> Vec<(f64, What)> {
    let at = |moment| pod.after_delete(moment);
    let mut events = Vec::new();
    if let Some(hook) = at(life.hook) {
        events.push((hook, What::HookStarted));
    }
    if let Some(over) = at(life.hook_over.or(life.kill)) {
        let how = if hook_failed {
            What::HookFailed(String::new())
        } else {
            What::HookEnded
        };
        events.push((over, how));
    }
    events.extend(at(life.kill).map(|kill| (kill, What::Sigterm)));
    if let Some((exit, code)) = life
        .exit
        .and_then(|exit| Some((at(Some(exit.at))?, exit.code)))
    {
        let code = u8::try_from(code).unwrap_or(u8::MAX);
        events.push((exit, What::Exited(How::Exited(code))));
    }
    events
}

/// Tidegate's own, which count from its trigger; when that was says its log.
fn phases(pod: &PodRecord) -> Option<Vec<(Phase, f64)>> {
    let report = pod.report()?;
    let announcing = pod.container("tidegate")?.log.iter().find_map(|line| {
        let line: Value = serde_json::from_str(&line.text).ok()?;
        let is_it = line["message"] == "phase" && line["phase"] == Phase::Announcing.name();
        is_it.then(|| clock::parse(line["timestamp"].as_str()?).ok())?
    });
    let trigger = pod.after_delete(announcing)?;
    let phases = report.phases.iter().filter_map(|entered| {
        let named = |phase: &Phase| phase.name() == entered.phase;
        let phase = Phase::ALL.into_iter().find(named)?;
        Some((phase, trigger + entered.at))
    });
    Some(phases.collect())
}
