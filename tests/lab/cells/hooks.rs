//! Many classic pods deleted at once: does any preStop hook go to istio-proxy's agent, or nowhere?

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;

use super::configurations;
use super::facts::failed_hooks;
use super::play::READY_LIMIT;
use super::stage::{Stage, Tokens};
use crate::cluster::{Lab, NAMESPACE};
use crate::record::PodRecord;

/// Pods deleted together, and how often.
const WAVE: usize = 10;
const WAVES: usize = 4;
/// From the DELETE; an idle pod takes 31 s.
const GONE_LIMIT: Duration = Duration::from_secs(120);
/// Hooks of a pod: the user container's and queue-proxy's.
const HOOKS: u64 = 2;
/// The configuration whose hooks Istio leads through its agent.
const CONFIGURATION: &str = "classic-5s";

/// What became of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) pods: usize,
    /// Pods of which Tidegate has answered all hooks, by its own report.
    pub(crate) answered: usize,
    /// Events FailedPreStopHook.
    pub(crate) failed: usize,
}

impl Hooks {
    /// Whether all were answered and none failed.
    pub(crate) fn is_good(&self) -> bool {
        self.answered == self.pods && self.failed == 0
    }

    fn and(self, other: Hooks) -> Hooks {
        Hooks {
            pods: self.pods + other.pods,
            answered: self.answered + other.answered,
            failed: self.failed + other.failed,
        }
    }
}

impl fmt::Display for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hooks {
            pods,
            answered,
            failed,
        } = self;
        write!(
            f,
            "{pods} classic pods deleted: hooks of {answered} answered by Tidegate, {failed} FailedPreStopHook"
        )
    }
}

/// Creates the pods and deletes them, wave by wave.
pub(crate) async fn run(lab: &Lab, stage: &Stage, tokens: Tokens<'_>) -> Result<Hooks> {
    let waves = try_join_all((0..WAVES).map(|number| wave(lab, stage, number))).await?;
    drop(tokens);
    Ok(waves.into_iter().fold(Hooks::default(), Hooks::and))
}

async fn wave(lab: &Lab, stage: &Stage, number: usize) -> Result<Hooks> {
    let names: Vec<String> = (0..WAVE)
        .map(|pod| format!("hooks-{number}-{pod}"))
        .collect();
    try_join_all(names.iter().map(|name| start(lab, stage, name))).await?;
    let deletions = names.iter().map(|name| lab.delete_pod(NAMESPACE, name));
    try_join_all(deletions).await?;
    let mut hooks = Hooks::default();
    for name in &names {
        lab.wait_gone(NAMESPACE, name, GONE_LIMIT).await?;
        hooks = hooks.and(judged(&lab.record(NAMESPACE, name)?));
    }
    Ok(hooks)
}

async fn start(lab: &Lab, stage: &Stage, name: &str) -> Result<()> {
    let configuration = configurations::ALL
        .iter()
        .find(|configuration| configuration.name == CONFIGURATION);
    let Some(configuration) = configuration else {
        anyhow::bail!("no configuration is called {CONFIGURATION}");
    };
    let _starting = stage.start().await;
    lab.create_pod(&configuration.pod(name).object()?).await?;
    lab.wait_ready(NAMESPACE, name, READY_LIMIT).await
}

fn judged(pod: &PodRecord) -> Hooks {
    let answered = pod.report().is_some_and(|report| report.hooks >= HOOKS);
    Hooks {
        pods: 1,
        answered: usize::from(answered),
        failed: failed_hooks(pod),
    }
}
