//! Pods that are created while Tidegate's webhook is down, or restarted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::time::{Instant, sleep};

use super::shape::has;
use super::webhook::{in_use, pods, scale, settled, signal, until_restarted};
use super::{Kind, LOOK, NAMESPACE, NOTICE_LIMIT, gated, here};
use crate::cluster::Lab;
use crate::installed;
use crate::pods::Pod;

/// What `tidegate install` asks for.
const REPLICAS: usize = 2;
/// How long the API server waits for the webhook: `timeoutSeconds` of its configuration.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(5);
const READY_LIMIT: Duration = Duration::from_secs(120);
const GONE_LIMIT: Duration = Duration::from_secs(60);
/// At least so many pods are created during a restart.
const PODS: usize = 20;
/// How long a process stands still: less than its livenessProbe bears.
const STOPPED_FOR: Duration = Duration::from_secs(8);
/// No pod takes longer, whatever the webhook does: two reviews that time out, and what there is else.
const CREATION_LIMIT: Duration = Duration::from_secs(12);
/// Between two of them.
const PACE: Duration = Duration::from_millis(100);

// ===== down =====

/// Without any webhook, pods are created and start, without Tidegate; with one, they are injected.
pub(super) async fn down(lab: &Lab) -> Result<()> {
    scale(lab, 0).await?;
    settled(lab, 0, &[]).await?;
    let name_of = |kind: Kind| format!("{}-down", kind.name());
    for kind in Kind::ALL {
        let name = name_of(kind);
        let object = here(&kind.pod(&name))?;
        let sent = Instant::now();
        let pod = lab.create_pod(&object).await?;
        let took = sent.elapsed();
        ensure!(took < WEBHOOK_TIMEOUT, "{name} was created in {took:?}");
        ensure!(has(&pod, "istio-proxy"), "{name} has no istio-proxy: {pod}");
        ensure!(!has(&pod, "tidegate"), "{name} has Tidegate: {pod}");
        println!("{name}: created in {} ms", took.as_millis());
    }
    for kind in Kind::ALL {
        let name = name_of(kind);
        lab.wait_ready(NAMESPACE, &name, READY_LIMIT).await?;
        let now = ["delete", "pod", &name, "-n", NAMESPACE, "--grace-period=1"];
        lab.kubectl(&[&now[..], &["--wait=false"]].concat()).await?;
    }
    for kind in Kind::ALL {
        lab.wait_gone(NAMESPACE, &name_of(kind), GONE_LIMIT).await?;
    }
    scale(lab, REPLICAS).await?;
    settled(lab, REPLICAS, &[]).await?;
    let took = until_injected(lab).await?;
    println!("up again: pods are injected {} ms after", took.as_millis());
    Ok(())
}

/// How long it took.
async fn until_injected(lab: &Lab) -> Result<Duration> {
    let pod = gated(&Pod::new("up"))?;
    let begun = Instant::now();
    loop {
        let would_be = lab.dry_run(&pod).await?.object()?;
        if has(&would_be, "tidegate") {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > NOTICE_LIMIT {
            bail!("not injected after {NOTICE_LIMIT:?}: {would_be}");
        }
        sleep(LOOK).await;
    }
}

// ===== restarted =====

/// What happens to the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// All its pods are replaced, one after the other, as by a new version.
    Rollout,
    /// A pod is deleted, as when its node is drained.
    Deleted,
    /// A process gets SIGKILL, as when it is out of memory.
    Killed,
    /// A process stands still for [`STOPPED_FOR`], as on a node that is overloaded.
    Stopped,
}

impl Event {
    const ALL: [Event; 4] = [
        Event::Rollout,
        Event::Deleted,
        Event::Killed,
        Event::Stopped,
    ];

    fn name(self) -> &'static str {
        match self {
            Event::Rollout => "rollout",
            Event::Deleted => "deleted",
            Event::Killed => "killed",
            Event::Stopped => "stopped",
        }
    }

    /// Whether the webhook can see to it that no pod goes without Tidegate.
    fn is_announced(self) -> bool {
        matches!(self, Event::Rollout | Event::Deleted)
    }
}

/// What became of pods that were created one after the other.
#[derive(Debug, Default)]
struct Tally {
    created: usize,
    without: usize,
    refused: Vec<String>,
    longest: Duration,
}

/// While webhooks come and go no pod is refused, and none goes without Tidegate where a webhook is told
/// to go.
pub(super) async fn restarted(lab: &Lab) -> Result<()> {
    for event in Event::ALL {
        let name = event.name();
        let mut tally = Tally::default();
        let begun = Instant::now();
        let over = AtomicBool::new(false);
        let happening = async {
            let how = happens(lab, event).await;
            over.store(true, Ordering::Relaxed);
            how
        };
        // To the end of each, since one that is dropped may have created its pod.
        let creations = async {
            while !over.load(Ordering::Relaxed) {
                create(lab, name, &mut tally).await?;
                sleep(PACE).await;
            }
            Ok(())
        };
        tokio::try_join!(happening, creations)?;
        while tally.created < PODS {
            create(lab, name, &mut tally).await?;
        }
        println!(
            "webhook {name}: {} pods in {:.1} s, {} without Tidegate, {} refused; the slowest took {} ms",
            tally.created,
            begun.elapsed().as_secs_f64(),
            tally.without,
            tally.refused.len(),
            tally.longest.as_millis(),
        );
        ensure!(tally.refused.is_empty(), "{name}: {:?}", tally.refused);
        ensure!(tally.longest < CREATION_LIMIT, "{name}: {tally:?}");
        ensure!(
            tally.without == 0 || !event.is_announced(),
            "{name}: {tally:?}"
        );
        until_injected(lab).await?;
    }
    Ok(())
}

async fn create(lab: &Lab, prefix: &str, tally: &mut Tally) -> Result<()> {
    let kind = Kind::ALL[tally.created % Kind::ALL.len()];
    let pod = gated(&kind.pod(&format!("{prefix}-{}", tally.created)))?;
    let sent = Instant::now();
    match lab.create_pod(&pod).await {
        Ok(pod) => tally.without += usize::from(!has(&pod, "tidegate")),
        Err(error) => tally.refused.push(format!("{error:#}")),
    }
    tally.longest = tally.longest.max(sent.elapsed());
    tally.created += 1;
    Ok(())
}

/// Lets it happen, and returns once there are as many webhooks as before.
async fn happens(lab: &Lab, event: Event) -> Result<()> {
    let pods = pods(lab).await?;
    // The one that hurts.
    let pod = &in_use(lab, &gated(&Pod::new("in-use"))?).await?;
    match event {
        Event::Rollout => {
            let deployment = format!("deployment/{}", installed::NAME);
            lab.kubectl(&[
                "rollout",
                "restart",
                &deployment,
                "-n",
                installed::NAMESPACE,
            ])
            .await?;
            settled(lab, REPLICAS, &pods).await
        }
        Event::Deleted => {
            lab.kubectl(&[
                "delete",
                "pod",
                pod,
                "-n",
                installed::NAMESPACE,
                "--wait=false",
            ])
            .await?;
            settled(lab, REPLICAS, std::slice::from_ref(pod)).await
        }
        Event::Killed => {
            signal(lab, pod, "SIGKILL").await?;
            until_restarted(lab, pod).await?;
            settled(lab, REPLICAS, &[]).await
        }
        Event::Stopped => {
            signal(lab, pod, "SIGSTOP").await?;
            sleep(STOPPED_FOR).await;
            signal(lab, pod, "SIGCONT").await?;
            settled(lab, REPLICAS, &[]).await
        }
    }
}
