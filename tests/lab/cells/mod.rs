//! The cells: every mesh with every kind of traffic, without Tidegate and with it, on the real parts.

mod answers;
mod archive;
mod configurations;
mod facts;
mod hooks;
mod judge;
mod kinds;
mod matrix;
mod picture;
mod play;
mod restart;
mod results;
mod rollout;
mod stage;
mod versions;

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::{Lab, NAMESPACE};
use crate::pods;
use facts::Facts;
use hooks::Hooks;
use kinds::{Play, Turn};
use matrix::Cell;
use picture::PICTURES;
use play::{CLIENTS, LOAD_CLIENTS, Played, READY_LIMIT};
use results::Run;
use stage::{Ended, Stage};
use versions::Cpu;

/// A cell that was played, and what it comes to.
struct Outcome {
    cell: Cell,
    facts: Facts,
    complaints: Vec<String>,
    played: Played,
}

/// Plays the cells whose name contains `pattern`, or all, and then writes down what was measured; fails
/// where one with Tidegate loses what it should not.
pub(crate) async fn run(lab: &Lab, pattern: Option<&str>) -> Result<()> {
    let begun = Instant::now();
    let cpu = Cpu::now()?;
    let mut cells = matrix::all();
    if let Some(pattern) = pattern {
        cells.retain(|cell| cell.to_string().contains(pattern));
        ensure!(!cells.is_empty(), "no cell's name contains {pattern}");
    }
    // Within a turn the longest first.
    let lasts = |cell: &Cell| cell.kind.ends_within;
    cells.sort_by(|one, other| lasts(other).total_cmp(&lasts(one)));
    prepare(lab, &cells).await?;
    let stage = Stage::new();
    let held = stage.hold_istiod();
    let (outcomes, hooks, istiod) = tokio::join!(
        play_all(lab, &stage, &cells),
        hooks_of_many(lab, &stage, pattern),
        stage.end_istiod(lab, held)
    );
    istiod?;
    let hooks = hooks?;
    for client in [CLIENTS, LOAD_CLIENTS].concat() {
        archive::client(lab, client)?;
    }
    let all_played = outcomes.len() == cells.len();
    if let Some(hooks) = &hooks {
        println!("{hooks}");
        if all_played {
            let took = begun.elapsed();
            let outcomes = &outcomes;
            write(&Run {
                outcomes,
                hooks,
                took,
                busy: Cpu::now()?.busy_since(cpu),
            })?;
        }
    }
    let bad = outcomes.iter().filter(|it| !it.complaints.is_empty());
    let bad: Vec<String> = bad.map(|outcome| outcome.cell.to_string()).collect();
    ensure!(
        bad.is_empty(),
        "with Tidegate this should not be: {}",
        bad.join(", ")
    );
    ensure!(
        hooks.is_none_or(|hooks| hooks.is_good()),
        "hooks were not answered"
    );
    ensure!(all_played, "not all cells were played");
    Ok(())
}

async fn play_all(lab: &Lab, stage: &Stage, cells: &[Cell]) -> Vec<Outcome> {
    let begun = Instant::now();
    let jobs = cells.iter().map(|cell| {
        let tokens = stage.announce(cell.kind.turn);
        async move { (*cell, stage.run(lab, *cell, tokens).await) }
    });
    let mut jobs: FuturesUnordered<_> = jobs.collect();
    let mut outcomes = Vec::new();
    let mut ended = 0;
    while let Some((cell, how)) = jobs.next().await {
        ended += 1;
        print!(
            "{:6.1} s  {ended:3} of {}  ",
            begun.elapsed().as_secs_f64(),
            cells.len()
        );
        match how {
            Ended::Played(played) => outcomes.push(judged(lab, cell, played)),
            Ended::NotPlayed(why) => println!("{cell}: NOT PLAYED: {why}"),
        }
    }
    outcomes
}

/// Only in a run of all cells.
async fn hooks_of_many(lab: &Lab, stage: &Stage, pattern: Option<&str>) -> Result<Option<Hooks>> {
    if pattern.is_some() {
        return Ok(None);
    }
    let tokens = stage.announce(Turn::Short);
    stage.turn(Turn::Short).await;
    hooks::run(lab, stage, tokens).await.map(Some)
}

fn write(run: &Run<'_>) -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    fs::write(docs.join("lab-results.md"), run.page()?)?;
    for (file, configuration, kind) in PICTURES {
        if let Some(picture) = picture::draw(run.outcomes, configuration, kind) {
            fs::write(docs.join(file), picture)?;
        }
    }
    println!("written: {}", docs.join("lab-results.md").display());
    Ok(())
}

/// What all cells share, and their Services: made before the first pod, since each is told to every Envoy.
async fn prepare(lab: &Lab, cells: &[Cell]) -> Result<()> {
    let mut objects = vec![
        sidecar_of_pods(),
        sidecar_of_client(),
        plain_probes(),
        rollout::gateway(),
    ];
    for cell in cells {
        objects.push(cell.pod(&cell.service()).service()?);
        if cell.kind.play == Play::Rollout && cell.configuration.is_mesh() {
            objects.push(rollout::route(&cell.service()));
        }
    }
    lab.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))
        .await?;
    for [inside, outside] in [CLIENTS, LOAD_CLIENTS] {
        lab.create_pod(&pods::client(inside)?).await?;
        lab.create_pod(&pods::client_outside(outside)?).await?;
    }
    for client in [CLIENTS, LOAD_CLIENTS].concat() {
        lab.wait_ready(NAMESPACE, client, READY_LIMIT).await?;
    }
    Ok(())
}

/// The tested pods call nobody: their Envoys need not know of each other.
fn sidecar_of_pods() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Sidecar",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {"egress": [{"hosts": ["istio-system/*"]}]},
    })
}

fn sidecar_of_client() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Sidecar",
        "metadata": {"name": "client", "namespace": NAMESPACE},
        "spec": {
            "workloadSelector": {"labels": {"tidegate.lab/role": "client"}},
            "egress": [{"hosts": ["./*", "istio-system/*"]}],
        },
    })
}

/// Lets the kubelet's own probes through where Istio does not rewrite them; its hook, on port 8022, is
/// for STRICT mTLS to refuse.
fn plain_probes() -> Value {
    let (label, value) = configurations::PLAIN_HOOKS;
    let permissive = json!({"mode": "PERMISSIVE"});
    json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": "plain-probes", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {label: value}},
            "mtls": {"mode": "STRICT"},
            "portLevelMtls": {"8012": permissive, "8013": permissive, "8080": permissive},
        },
    })
}

fn judged(lab: &Lab, cell: Cell, played: Played) -> Outcome {
    let facts = Facts::of(&cell, &played);
    let complaints = judge::complaints(&cell, &played, &facts);
    println!("{cell}: {facts}");
    for complaint in &complaints {
        println!("  BAD: {complaint}");
    }
    if let Err(error) = archive::cell(lab, &cell, &played) {
        println!("{cell}: its logs are not kept: {error:#}");
    }
    Outcome {
        cell,
        facts,
        complaints,
        played,
    }
}
