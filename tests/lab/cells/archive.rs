//! Keeps what is known of cells beside the node's own logs, where a run's failure is looked for.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::matrix::Cell;
use super::play::Played;
use crate::clock;
use crate::cluster::{Lab, NAMESPACE};
use crate::record::PodRecord;

/// Writes the answers, events and logs of a cell.
pub(crate) fn cell(lab: &Lab, cell: &Cell, played: &Played) -> Result<()> {
    let mut text = String::new();
    for answer in &played.answers {
        writeln!(text, "{answer:?}")?;
    }
    for record in played.pods.iter().chain(&played.others) {
        pod(&mut text, record)?;
    }
    write(lab, &cell.service(), &text)
}

/// Writes the logs of a client pod.
pub(crate) fn client(lab: &Lab, name: &str) -> Result<()> {
    let mut text = String::new();
    pod(&mut text, &lab.record(NAMESPACE, name)?)?;
    write(lab, name, &text)
}

fn pod(text: &mut String, pod: &PodRecord) -> Result<()> {
    let name = pod.object["metadata"]["name"].as_str().unwrap_or_default();
    let known = |moment| pod.after_delete(moment);
    writeln!(
        text,
        "== {name}: ready {:?}, DELETE answered {:?}, gone {:?}; sent at {:?}",
        known(pod.ready),
        known(pod.delete_answered),
        known(pod.gone),
        pod.deleted.map(clock::to_millis),
    )?;
    let at = |moment| pod.after_delete(Some(moment)).unwrap_or_default();
    for event in &pod.events {
        let (reason, field) = (&event.reason, &event.field);
        writeln!(
            text,
            "{:9.3} {reason} {field} {}",
            at(event.seen),
            event.message.trim()
        )?;
    }
    for container in &pod.containers {
        for life in &container.lives {
            let moment = |moment: Option<_>| pod.after_delete(moment);
            let exit = life.exit.map(|exit| (at(exit.at), exit.code));
            writeln!(
                text,
                "-- {}: hook {:?}, SIGTERM {:?}, end {exit:?}",
                container.name,
                moment(life.hook),
                moment(life.kill),
            )?;
        }
        for line in &container.log {
            writeln!(text, "{:9.3} {}", at(line.at), line.text)?;
        }
    }
    Ok(())
}

fn write(lab: &Lab, name: &str, text: &str) -> Result<()> {
    let folder: PathBuf = lab.node().dir().join("logs/cells");
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{name}.log"));
    fs::write(&file, text).with_context(|| file.display().to_string())
}
