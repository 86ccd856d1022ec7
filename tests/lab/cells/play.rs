//! Plays one cell on the node: pods, requests, the DELETE, and what is known afterwards.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::answers::Answer;
use super::kinds::{Kind, Play};
use super::matrix::Cell;
use super::{restart, rollout};
use crate::cluster::{Lab, NAMESPACE};
use crate::pods::Pod;
use crate::record::PodRecord;

/// The client in the mesh, and the one outside it.
pub(crate) const CLIENTS: [&str; 2] = ["client", "outside"];
/// The same for loads, so that nobody else waits for those.
pub(crate) const LOAD_CLIENTS: [&str; 2] = ["load-client", "load-outside"];
/// How long a pod may take until it is ready, on a machine that starts many.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(150);
/// What a pod gets beyond the time that it should take to go.
const GONE_MORE: Duration = Duration::from_secs(60);
/// The longest plan.
pub(crate) const PLAN_LIMIT: Duration = Duration::from_secs(300);

/// A cell that was played.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) answers: Vec<Answer>,
    /// In the order of their deletion.
    pub(crate) pods: Vec<PodRecord>,
    /// Those that took their place, and were there to the end.
    pub(crate) others: Vec<PodRecord>,
}

/// A cell whose pods are ready.
pub(crate) struct Ready<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) cell: Cell,
    /// Where its Service is, and how that is called.
    pub(crate) target: String,
    pub(crate) host: String,
}

impl<'a> Ready<'a> {
    /// Creates what the cell begins with, and waits until clients reach it.
    pub(crate) async fn make(lab: &'a Lab, cell: Cell) -> Result<Ready<'a>> {
        let service = cell.service();
        let ready = Ready {
            lab,
            cell,
            target: lab.service(NAMESPACE, &service).await?,
            host: format!("{service}.{NAMESPACE}.svc.cluster.local"),
        };
        let names = match cell.kind.play {
            Play::Rollout => vec![ready.member('a'), ready.member('b')],
            _ => vec![cell.service()],
        };
        for name in &names {
            ready.create(&ready.pod(name)).await?;
        }
        for name in &names {
            lab.wait_ready(NAMESPACE, name, READY_LIMIT).await?;
        }
        lab.until_reached(ready.client(), &ready.target, &ready.host)
            .await?;
        Ok(ready)
    }

    /// Plays it to its end.
    pub(crate) async fn play(&self) -> Result<Played> {
        match self.cell.kind.play {
            Play::Rollout => rollout::play(self).await,
            Play::Restart => restart::play(self).await,
            Play::Drain | Play::Kill { .. } => self.drain().await,
        }
    }

    /// The name of one of several pods.
    pub(crate) fn member(&self, letter: char) -> String {
        format!("{}-{letter}", self.cell.service())
    }

    pub(crate) fn pod(&self, name: &str) -> Pod {
        match self.cell.kind.play {
            Play::Restart => self.cell.pod(name).liveness(restart::probe()),
            _ => self.cell.pod(name),
        }
    }

    pub(crate) async fn create(&self, pod: &Pod) -> Result<()> {
        self.lab.create_pod(&pod.object()?).await.map(drop)
    }

    /// Who asks.
    pub(crate) fn client(&self) -> &'static str {
        CLIENTS[usize::from(!self.cell.configuration.is_mesh())]
    }

    /// Runs requests; what became of them.
    pub(crate) async fn ask(&self, client: &str, plan: &Value) -> Result<Vec<Answer>> {
        Answer::read(self.lab.run_plan(client, plan, PLAN_LIMIT).await?)
    }

    async fn drain(&self) -> Result<Played> {
        let Kind {
            requests, grace, ..
        } = self.cell.kind;
        let lead = self.cell.kind.lead();
        let pod = self.cell.service();
        let plan = json!({
            "target": self.target,
            "host": self.host,
            "requests": requests.iter().map(|request| json!({
                "name": request.name,
                "after": lead - request.before,
                "ask": request.ask.plan(),
            })).collect::<Vec<_>>(),
        });
        let asking = async {
            if requests.is_empty() {
                return Ok(Vec::new());
            }
            self.ask(self.client(), &plan).await
        };
        let deleting = async {
            sleep(Duration::from_secs_f64(lead)).await;
            self.lab.delete_pod_within(NAMESPACE, &pod, *grace).await?;
            if let Play::Kill {
                after,
                container,
                process,
            } = self.cell.kind.play
            {
                sleep(after).await;
                self.lab.kill(&pod, container, process)?;
            }
            self.until_gone(&pod).await
        };
        let (answers, pod) = tokio::join!(asking, deleting);
        Ok(Played {
            pods: vec![pod?],
            answers: answers?,
            others: Vec::new(),
        })
    }

    /// Waits until a pod is gone, and tells all that is known of it. One that stays is removed by force,
    /// and its record knows of no end.
    pub(crate) async fn until_gone(&self, pod: &str) -> Result<PodRecord> {
        let limit = Duration::from_secs_f64(self.cell.kind.ends_within) + GONE_MORE;
        let gone = self.lab.wait_gone(NAMESPACE, pod, limit).await;
        let record = self.lab.record(NAMESPACE, pod);
        if gone.is_err() {
            self.lab.remove_pod(NAMESPACE, pod).await?;
        }
        record
    }
}
