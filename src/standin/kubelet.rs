//! The kubelet's end of a pod: hooks, signals, order, grace period.
//!
//! Modelled (`kuberuntime_container.go`, `handlers.go`, `termination_order.go`): all containers at
//! once; each its preStop hook, then (native sidecars) its turn, SIGTERM, SIGKILL after what is left
//! of the grace period, at least 2 s. An HTTP hook succeeds on any status, is never retried, reads at
//! most 10 KiB and follows ten redirects within its host; one that overruns the grace period is left
//! running. Not modelled: the delay from the deletion to the first action (0.01 to 2 s on a real
//! node), probes, images, restarts (start a new process oneself).

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, header};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Exit, Process, Scale, client};

/// The least that a container gets between SIGTERM and SIGKILL (`minimumGracePeriodInSeconds`).
const MINIMUM_GRACE: Duration = Duration::from_secs(2);
/// What is read of a hook's answer.
const HOOK_BODY_MAX: usize = 10 * 1024;
/// How many redirects a hook follows.
const REDIRECTS_MAX: usize = 10;

/// A container of the pod.
#[derive(Clone, Debug)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its preStop hook.
    pub pre_stop: PreStop,
    /// What runs in it.
    pub process: Process,
    /// Whether it is an init container with restartPolicy Always.
    pub native_sidecar: bool,
}

impl Container {
    /// A regular container.
    pub fn regular(name: &str, process: Process, pre_stop: PreStop) -> Container {
        Container {
            name: name.to_owned(),
            pre_stop,
            process,
            native_sidecar: false,
        }
    }

    /// A native sidecar.
    pub fn native(name: &str, process: Process, pre_stop: PreStop) -> Container {
        Container {
            native_sidecar: true,
            ..Container::regular(name, process, pre_stop)
        }
    }
}

/// A preStop hook.
#[derive(Clone)]
pub enum PreStop {
    /// None.
    None,
    /// `httpGet`.
    HttpGet {
        /// Where to.
        addr: SocketAddr,
        /// The path, with its query.
        path: String,
    },
    /// `exec`: an error is a non-zero exit.
    Exec(Exec),
    /// `sleep`, in modelled time.
    Sleep(Duration),
}

/// The command of an exec hook.
pub type Exec =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

impl PreStop {
    /// An exec hook that runs `command`.
    pub fn exec<F>(command: impl Fn() -> F + Send + Sync + 'static) -> PreStop
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        PreStop::Exec(Arc::new(move || Box::pin(command())))
    }

    /// An HTTP hook.
    pub fn http(addr: SocketAddr, path: &str) -> PreStop {
        PreStop::HttpGet {
            addr,
            path: path.to_owned(),
        }
    }
}

impl std::fmt::Debug for PreStop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PreStop::None => f.write_str("None"),
            PreStop::HttpGet { addr, path } => write!(f, "HttpGet(http://{addr}{path})"),
            PreStop::Exec(_) => f.write_str("Exec"),
            PreStop::Sleep(duration) => write!(f, "Sleep({duration:?})"),
        }
    }
}

/// A line of the timeline.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// Which container.
    pub container: String,
    /// What.
    pub what: What,
}

/// What happened to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Its hook was called.
    HookStarted,
    /// Its hook succeeded.
    HookEnded,
    /// Its hook failed (event FailedPreStopHook), and why.
    HookFailed(String),
    /// Its hook overran the grace period.
    HookAbandoned,
    /// It got SIGTERM.
    Sigterm,
    /// It got SIGKILL.
    Killed,
    /// It ended.
    Exited(super::How),
}

/// A kubelet with one pod. Dropping it drops the hooks that it left running.
#[derive(Debug)]
pub struct Kubelet {
    scale: Scale,
    containers: Vec<Container>,
    timeline: Timeline,
    hooks: Arc<Mutex<JoinSet<()>>>,
}

#[derive(Clone, Debug)]
struct Timeline(watch::Sender<Vec<Event>>);

impl Timeline {
    fn add(&self, container: &str, at: Instant, what: What) {
        let container = container.to_owned();
        self.0.send_modify(|events| {
            // An exit is known a little after it was.
            let place = events.partition_point(|event| event.at <= at);
            events.insert(
                place,
                Event {
                    at,
                    container,
                    what,
                },
            );
        });
    }
}

impl Kubelet {
    /// A pod of `containers`; native sidecars in the order of initContainers.
    pub fn new(scale: Scale, containers: Vec<Container>) -> Kubelet {
        let timeline = Timeline(watch::Sender::new(Vec::new()));
        Kubelet {
            scale,
            containers,
            timeline,
            hooks: Arc::default(),
        }
    }

    /// What has happened so far, in order of time, to look at or to wait on.
    pub fn timeline(&self) -> watch::Receiver<Vec<Event>> {
        self.timeline.0.subscribe()
    }

    /// Deletes the pod with a grace period (modelled) and returns when its last container has ended.
    pub async fn delete(&self, grace: Duration) {
        let grace_ends = Instant::now() + self.scale.real(grace);
        let mut stops = JoinSet::new();
        for (index, container) in self.containers.iter().enumerate() {
            let before = self.before(index);
            let stop = self.stop(container.clone());
            stops.spawn(async move { stop.run(grace_ends, before).await });
        }
        while stops.join_next().await.is_some() {}
    }

    /// Stops one container as a failed liveness probe does: its own hook, then SIGTERM. Does nothing
    /// where there is no such container.
    pub async fn restart(&self, name: &str, grace: Duration) {
        let grace_ends = Instant::now() + self.scale.real(grace);
        if let Some(container) = self
            .containers
            .iter()
            .find(|container| container.name == name)
        {
            self.stop(container.clone())
                .run(grace_ends, Vec::new())
                .await;
        }
    }

    fn stop(&self, container: Container) -> Stop {
        Stop {
            scale: self.scale,
            container,
            timeline: self.timeline.clone(),
            hooks: Arc::clone(&self.hooks),
        }
    }

    /// Who has to be gone before a container's SIGTERM: for a native sidecar all regular containers
    /// and the sidecars after it.
    fn before(&self, index: usize) -> Vec<Process> {
        if !self.containers[index].native_sidecar {
            return Vec::new();
        }
        let others = self
            .containers
            .iter()
            .enumerate()
            .filter(|(other, container)| {
                *other != index && (!container.native_sidecar || *other > index)
            });
        others
            .map(|(_, container)| container.process.clone())
            .collect()
    }
}

/// The end of one container.
struct Stop {
    scale: Scale,
    container: Container,
    timeline: Timeline,
    hooks: Arc<Mutex<JoinSet<()>>>,
}

impl Stop {
    async fn run(self, grace_ends: Instant, before: Vec<Process>) {
        let Container {
            name,
            pre_stop,
            process,
            ..
        } = &self.container;
        if process.is_running() {
            if !matches!(pre_stop, PreStop::None) {
                self.hook(grace_ends).await;
            }
            let turn = async {
                for other in before {
                    other.exited().await;
                }
            };
            // Out of time: its SIGTERM comes all the same.
            let _ = tokio::time::timeout_at(grace_ends, turn).await;
        }
        if process.is_running() {
            self.add(What::Sigterm);
            process.sigterm();
            let killed = grace_ends.max(Instant::now() + self.scale.real(MINIMUM_GRACE));
            if tokio::time::timeout_at(killed, process.exited())
                .await
                .is_err()
            {
                self.add(What::Killed);
                process.kill();
            }
        }
        let Exit { at, how } = process.exited().await;
        self.timeline.add(name, at, What::Exited(how));
    }

    async fn hook(&self, grace_ends: Instant) {
        self.add(What::HookStarted);
        let (tell, told) = tokio::sync::oneshot::channel();
        let hook = call(self.container.pre_stop.clone(), self.scale);
        let task = async move {
            // Nobody listens any more where the hook was abandoned.
            let _ = tell.send(hook.await);
        };
        self.hooks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .spawn(task);
        match tokio::time::timeout_at(grace_ends, told).await {
            Ok(Ok(Ok(()))) => self.add(What::HookEnded),
            Ok(Ok(Err(reason))) => self.add(What::HookFailed(reason)),
            Ok(Err(_)) => self.add(What::HookFailed("the hook panicked".to_owned())),
            Err(_) => self.add(What::HookAbandoned),
        }
    }

    fn add(&self, what: What) {
        self.timeline
            .add(&self.container.name, Instant::now(), what);
    }
}

async fn call(pre_stop: PreStop, scale: Scale) -> Result<(), String> {
    match pre_stop {
        PreStop::None => Ok(()),
        PreStop::Sleep(duration) => {
            tokio::time::sleep(scale.real(duration)).await;
            Ok(())
        }
        PreStop::Exec(command) => command().await,
        PreStop::HttpGet { addr, path } => {
            let mut seen = BTreeSet::from([path.clone()]);
            let mut next = get(addr, &path).await.map_err(|error| error.to_string())?;
            while let Some(path) = next {
                if seen.len() > REDIRECTS_MAX {
                    return Err(format!("stopped after {REDIRECTS_MAX} redirects"));
                }
                seen.insert(path.clone());
                next = get(addr, &path).await.map_err(|error| error.to_string())?;
            }
            Ok(())
        }
    }
}

/// One GET; the path of a redirect within the host, if it was one.
async fn get(addr: SocketAddr, path: &str) -> Result<Option<String>, client::Error> {
    let host = addr.to_string();
    let request = Request::get(path)
        .header(header::HOST, &host)
        .header(header::USER_AGENT, "kube-lifecycle/1.36")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    client::exchange(addr, request, |response| async move {
        if response.status().is_redirection() {
            let location = response.headers().get(header::LOCATION);
            let location = location
                .and_then(|location| location.to_str().ok())
                .unwrap_or_default();
            let within = location
                .strip_prefix(&format!("http://{host}"))
                .unwrap_or(location);
            return Ok(within.starts_with('/').then(|| within.to_owned()));
        }
        let mut body = response.into_body();
        let mut read = 0;
        while read < HOOK_BODY_MAX
            && let Some(frame) = body.frame().await
        {
            read += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(None)
    })
    .await
}

#[cfg(test)]
mod tests;
