//! Watches every pod of the node while it lives, so that nothing of it is lost with it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::api::Api;
use crate::clock;
use crate::record::{ContainerRecord, Exit, Life, LogLine, PodEvent, PodRecord};
use crate::tail::Tail;

/// Before a watch that has ended is begun again.
const AGAIN: Duration = Duration::from_millis(200);

/// Sees the node's pods, events and logs, from when it was started.
pub(crate) struct Observer {
    seen: Arc<Seen>,
    tasks: [JoinHandle<()>; 2],
}

struct Seen {
    state: Mutex<State>,
    changed: Notify,
    /// Where the kubelet keeps the logs of pods.
    pod_logs: PathBuf,
}

#[derive(Default)]
struct State {
    /// By namespace and name; a new pod of an old one's name takes its place.
    pods: HashMap<(String, String), Pod>,
    /// By the pod's uid and the event's own name.
    events: HashMap<String, HashMap<String, PodEvent>>,
    marks: Marks,
    logs: Option<[Tail; 2]>,
}

/// What the node's logs say of containers, by the container's id.
#[derive(Default)]
struct Marks {
    hooks: HashMap<String, SystemTime>,
    hooks_over: HashMap<String, SystemTime>,
    kills: HashMap<String, SystemTime>,
    exits: HashMap<String, Exit>,
}

#[derive(Default)]
struct Pod {
    uid: String,
    object: Value,
    ready: Option<SystemTime>,
    deleted: Option<SystemTime>,
    delete_answered: Option<SystemTime>,
    gone: Option<SystemTime>,
    /// The containers' ids so far, with the name and the termination message of each.
    lives: Vec<(String, String, Option<String>)>,
    /// By their path below the pod's folder, `CONTAINER/RESTART.log`.
    logs: HashMap<PathBuf, (Tail, Vec<LogLine>)>,
}

impl Observer {
    /// Begins to watch. The logs are those of the kubelet and of `ctr events`.
    pub(crate) fn start(
        api: &Api,
        pod_logs: PathBuf,
        kubelet: &Path,
        events: &Path,
    ) -> Result<Observer> {
        let open = |path: &Path| Tail::open(path).with_context(|| path.display().to_string());
        let seen = Arc::new(Seen {
            state: Mutex::default(),
            changed: Notify::new(),
            pod_logs,
        });
        seen.state().logs = Some([open(kubelet)?, open(events)?]);
        let pods = watch(api.clone(), "/api/v1/pods", Arc::clone(&seen), Seen::pod);
        let events = watch(
            api.clone(),
            "/api/v1/events",
            Arc::clone(&seen),
            Seen::event,
        );
        let tasks = [tokio::spawn(pods), tokio::spawn(events)];
        Ok(Observer { seen, tasks })
    }

    /// Whether it is there and its condition `Ready` is true.
    pub(crate) fn is_ready(&self, namespace: &str, name: &str) -> bool {
        let state = self.seen.state();
        let pod = state.pods.get(&key(namespace, name));
        pod.is_some_and(|pod| pod.gone.is_none() && ready(&pod.object))
    }

    /// How often a container has been started.
    pub(crate) fn starts(&self, namespace: &str, pod: &str, container: &str) -> usize {
        let state = self.seen.state();
        let lives = state.pods.get(&key(namespace, pod)).map(|pod| &pod.lives);
        let lives = lives.into_iter().flatten();
        lives.filter(|(name, _, _)| name == container).count()
    }

    /// What containerd calls the container that runs, or ran last.
    pub(crate) fn container_id(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Option<String> {
        let state = self.seen.state();
        let lives = &state.pods.get(&key(namespace, pod))?.lives;
        let last = lives.iter().rfind(|(name, _, _)| name == container);
        last.map(|(_, id, _)| id.clone())
    }

    /// When it was gone, where it is.
    pub(crate) fn gone(&self, namespace: &str, name: &str) -> Option<SystemTime> {
        let state = self.seen.state();
        state
            .pods
            .get(&key(namespace, name))
            .and_then(|pod| pod.gone)
    }

    /// Remembers when the pod was told to go.
    pub(crate) fn deleted(
        &self,
        namespace: &str,
        name: &str,
        sent: SystemTime,
        answered: SystemTime,
    ) {
        if let Some(pod) = self.seen.state().pods.get_mut(&key(namespace, name)) {
            pod.deleted = Some(sent);
            pod.delete_answered = Some(answered);
        }
    }

    /// Looks after every change of a pod or an event, until it finds something.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.seen.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }

    /// All that is known of a pod by now.
    ///
    /// # Errors
    ///
    /// No pod of this name was ever seen; or a log cannot be read, or reads like none that is known.
    pub(crate) fn record(&self, namespace: &str, name: &str) -> Result<PodRecord> {
        let mut state = self.seen.state();
        let State {
            pods,
            events,
            marks,
            logs,
        } = &mut *state;
        if let Some([kubelet, containerd]) = logs {
            for line in kubelet.lines()? {
                marks.kubelet(&line);
            }
            for line in containerd.lines()? {
                marks.containerd(&line)?;
            }
        }
        let pod = pods
            .get_mut(&key(namespace, name))
            .with_context(|| format!("no pod {namespace}/{name} was seen"))?;
        pod.read_logs()?;
        let events = events.get(&pod.uid).into_iter().flat_map(HashMap::values);
        let mut events: Vec<PodEvent> = events.cloned().collect();
        events.sort_by_key(|event| event.seen);
        Ok(PodRecord {
            object: pod.object.clone(),
            ready: pod.ready,
            deleted: pod.deleted,
            delete_answered: pod.delete_answered,
            gone: pod.gone,
            containers: pod.containers(marks),
            events,
        })
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Watches a list for ever: the API server ends a watch now and then.
async fn watch(api: Api, path: &str, seen: Arc<Seen>, change: impl Fn(&Seen, &str, Value)) {
    loop {
        if let Ok(mut watch) = api.watch(path).await {
            while let Ok(Some((kind, object))) = watch.next().await {
                change(&seen, &kind, object);
                seen.changed.notify_waiters();
            }
        }
        sleep(AGAIN).await;
    }
}

impl Seen {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pod(&self, kind: &str, object: Value) {
        let now = SystemTime::now();
        let metadata = &object["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        let uid = text("uid");
        let mut state = self.state();
        let pod = match state.pods.entry((text("namespace"), text("name"))) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Pod::default()),
        };
        if pod.uid != uid {
            *pod = Pod {
                uid,
                ..Pod::default()
            };
        }
        pod.object = object;
        if pod.ready.is_none() && ready(&pod.object) {
            pod.ready = Some(now);
        }
        if kind == "DELETED" {
            pod.gone = Some(now);
        }
        pod.see_lives();
        pod.open_logs(&self.pod_logs);
    }

    fn event(&self, _kind: &str, object: Value) {
        let text = |pointer: &str| {
            let text = object.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let event = PodEvent {
            seen: SystemTime::now(),
            reason: text("/reason"),
            field: text("/involvedObject/fieldPath"),
            message: text("/message"),
        };
        let mut state = self.state();
        let of_pod = state.events.entry(text("/involvedObject/uid")).or_default();
        // It comes again when it has happened again.
        of_pod.entry(text("/metadata/name")).or_insert(event);
    }
}

impl Pod {
    /// Opens the logs that have come; they can be read when the pod, and they with it, has gone.
    fn open_logs(&mut self, pod_logs: &Path) {
        let text = |name: &str| self.object["metadata"][name].as_str().unwrap_or_default();
        let folder = format!("{}_{}_{}", text("namespace"), text("name"), text("uid"));
        let folder = pod_logs.join(folder);
        for container in entries(&folder) {
            for file in entries(&container) {
                let inside = file.strip_prefix(&folder).unwrap_or(&file).to_owned();
                if let Entry::Vacant(vacant) = self.logs.entry(inside)
                    && let Ok(tail) = Tail::open(&file)
                {
                    vacant.insert((tail, Vec::new()));
                }
            }
        }
    }

    fn read_logs(&mut self) -> Result<()> {
        for (tail, lines) in self.logs.values_mut() {
            for line in tail.lines()? {
                lines.push(log_line(&line)?);
            }
        }
        Ok(())
    }

    /// A container that is started again has a new id, and the status shows but the last two.
    fn see_lives(&mut self) {
        for status in statuses(&self.object) {
            let name = status["name"].as_str().unwrap_or_default();
            for state in [&status["lastState"], &status["state"]] {
                let terminated = &state["terminated"];
                let id = terminated["containerID"].as_str();
                let running = status["containerID"]
                    .as_str()
                    .filter(|_| !state["running"].is_null());
                let Some(id) = id.or(running).map(short_id).filter(|id| !id.is_empty()) else {
                    continue;
                };
                let message = terminated["message"].as_str().map(str::to_owned);
                match self.lives.iter_mut().find(|(_, known, _)| known == id) {
                    Some((_, _, known)) => *known = message.or(known.take()),
                    None => self.lives.push((name.to_owned(), id.to_owned(), message)),
                }
            }
        }
    }

    fn containers(&self, marks: &Marks) -> Vec<ContainerRecord> {
        let names = statuses(&self.object).filter_map(|status| status["name"].as_str());
        names.map(|name| self.container(name, marks)).collect()
    }

    fn container(&self, name: &str, marks: &Marks) -> ContainerRecord {
        let lives = self
            .lives
            .iter()
            .filter(|(container, _, _)| container == name);
        let lives = lives.map(|(_, id, message)| Life {
            hook: marks.hooks.get(id).copied(),
            hook_over: marks.hooks_over.get(id).copied(),
            kill: marks.kills.get(id).copied(),
            exit: marks.exits.get(id).copied(),
            message: message.clone(),
        });
        let logs = self.logs.iter().filter(|(path, _)| path.starts_with(name));
        let mut log: Vec<LogLine> = logs.flat_map(|(_, (_, lines))| lines.clone()).collect();
        log.sort_by_key(|line| line.at);
        ContainerRecord {
            name: name.to_owned(),
            lives: lives.collect(),
            log,
        }
    }
}

impl Marks {
    /// A line of the kubelet's log, as JSON; the first of a kind counts.
    fn kubelet(&mut self, line: &str) {
        const COMPLETED: &str = "\"PreStop hook completed\"";
        const FAILED: &str = "\"PreStop hook failed\"";
        const OVERRUN: &str = "\"PreStop hook not completed in grace period\"";
        let says = |message: &str| line.contains(message);
        let times = if says("\"Running preStop hook\"") {
            &mut self.hooks
        } else if [COMPLETED, FAILED, OVERRUN].into_iter().any(says) {
            &mut self.hooks_over
        } else if says("\"Killing container with a grace period\"") {
            &mut self.kills
        } else {
            return;
        };
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            return;
        };
        if let (Some(millis), Some(id)) = (line["ts"].as_f64(), line["containerID"].as_str()) {
            let id = short_id(id).to_owned();
            times
                .entry(id)
                .or_insert_with(|| clock::from_millis(millis));
        }
    }

    /// A line of `ctr events`: `TIME NAMESPACE TOPIC JSON`.
    fn containerd(&mut self, line: &str) -> Result<()> {
        let Some((before, event)) = line.split_once(" /tasks/exit ") else {
            return Ok(());
        };
        let event: Value = serde_json::from_str(event).context("an event of containerd")?;
        // An exec has an id of its own.
        if let Some(id) = event["container_id"].as_str()
            && event["id"] == event["container_id"]
        {
            let written = before.rsplit_once(' ').map_or(before, |(time, _)| time);
            let at = clock::parse(event["exited_at"].as_str().unwrap_or(written))?;
            // Zero is left out.
            let code = event["exit_status"].as_u64().unwrap_or_default();
            self.exits.insert(id.to_owned(), Exit { at, code });
        }
        Ok(())
    }
}

/// A line as containerd keeps it: `TIME STREAM TAGS TEXT`.
fn log_line(line: &str) -> Result<LogLine> {
    let mut words = line.splitn(4, ' ');
    let at = clock::parse(words.next().unwrap_or_default())?;
    Ok(LogLine {
        at,
        text: words.nth(2).unwrap_or_default().to_owned(),
    })
}

/// Sidecars first, as the API has two lists.
fn statuses(object: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .flat_map(|list| object["status"][list].as_array().into_iter().flatten())
}

/// Without `containerd://`.
fn short_id(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn ready(object: &Value) -> bool {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}
