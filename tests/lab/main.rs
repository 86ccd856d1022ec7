//! The lab: a real one-node cluster with a real Istio, in which pods are really deleted. Run it by
//! `./test lab`, as root; `README.md` beside this file says how it is built.

mod admission;
mod api;
mod arguments;
mod cells;
mod cgroups;
mod clock;
mod cluster;
mod config;
mod images;
mod installed;
#[allow(dead_code, reason = "tests/apiserver uses more of it")]
#[path = "../support/kubectl.rs"]
mod kubectl;
mod leftovers;
mod mesh;
mod node;
mod observe;
mod oci;
mod paths;
#[path = "../support/pki.rs"]
mod pki;
mod pods;
mod preflight;
mod processes;
mod progress;
mod record;
mod smoke;
mod tail;
#[path = "../support/tied.rs"]
mod tied;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/wait.rs"]
mod wait;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tidegate::signals;
use tokio::runtime;

use arguments::{Arguments, Task};
use cluster::Lab;
use leftovers::{Before, Lock, Owned};
use node::Keep;
use paths::Paths;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // One thread: what it starts is to end with it, and the kernel ties a process to a thread.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map(|runtime| runtime.block_on(supervise(arguments))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("lab: no runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs, and takes everything down again, however the run has ended.
async fn supervise(arguments: Arguments) -> Result<()> {
    let mut signals = signals::install()?;
    let paths = Paths::from_env();
    let _lock = Lock::take(&paths.dir)?;
    let owned = Owned::of(&paths.dir);
    if arguments.task == Task::Down {
        return owned.take_down().await.map(drop);
    }
    if owned.is_kept() {
        bail!("a node is up that was to be kept; end it: ./test lab --down");
    }
    owned
        .take_down()
        .await
        .context("what an earlier run has left")?;
    preflight::check(&paths)?;
    let before = Before::look();
    // A task of its own, so that a panic ends it alone.
    let mut run = tokio::spawn(run(arguments.clone(), paths.clone()));
    let outcome = tokio::select! {
        outcome = &mut run => outcome.unwrap_or_else(|panic| bail!("{panic}")),
        _ = signals.next() => Err(anyhow::anyhow!("interrupted")),
    };
    if run.is_finished() && owned.is_kept() {
        return outcome;
    }
    run.abort();
    let namespaces = owned.take_down().await?;
    let left = before.left(&paths.dir, &namespaces)?;
    if !left.is_empty() {
        eprintln!("lab: left on the machine:\n  {}", left.join("\n  "));
    }
    if outcome.is_err() {
        eprintln!("lab: the node's logs are in {}", owned.logs().display());
    }
    outcome?;
    if left.is_empty() {
        Ok(())
    } else {
        bail!("the lab has left something on the machine")
    }
}

async fn run(arguments: Arguments, paths: Paths) -> Result<()> {
    let lab = Lab::up(&paths, arguments.keep).await?;
    let outcome = perform(&lab, &arguments.task).await;
    if arguments.keep == Keep::UntilDown {
        Owned::of(&paths.dir).keep()?;
        println!("{}", lab.how_to_use(&paths));
    }
    outcome
}

async fn perform(lab: &Lab, task: &Task) -> Result<()> {
    match task {
        Task::Smoke => smoke::run(lab).await,
        Task::Admission => admission::run(lab).await,
        Task::Cells(None) => {
            admission::run(lab).await?;
            cells::run(lab, None).await
        }
        Task::Cells(pattern) => cells::run(lab, pattern.as_deref()).await,
        Task::Down => Ok(()),
    }
}
