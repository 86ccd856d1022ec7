//! What is known of a pod: its object, and when each of its containers was told to go and went.

use std::fmt;
use std::time::SystemTime;

use serde_json::Value;
use tidegate::drain::record::Report;

use crate::clock::{self, seconds};

/// How much of a container's log is shown.
const LOG_LINES: usize = 5;

/// A pod's life as it was seen; all times are [`SystemTime`]s of one machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodRecord {
    /// As the watch has last shown it, the statuses of its last moment included.
    pub(crate) object: Value,
    /// When it was first seen ready.
    pub(crate) ready: Option<SystemTime>,
    /// When the DELETE was sent.
    pub(crate) deleted: Option<SystemTime>,
    /// When the API server had answered it.
    pub(crate) delete_answered: Option<SystemTime>,
    /// When the object was gone.
    pub(crate) gone: Option<SystemTime>,
    /// Sidecars first, in the order of the pod's lists.
    pub(crate) containers: Vec<ContainerRecord>,
    /// What Kubernetes has said of it, in the order in which it was seen.
    pub(crate) events: Vec<PodEvent>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerRecord {
    pub(crate) name: String,
    /// One for each time it was started.
    pub(crate) lives: Vec<Life>,
    /// What it has written, over all lives.
    pub(crate) log: Vec<LogLine>,
}

/// A container from its start to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// When the kubelet began its preStop hook: "Running preStop hook".
    pub(crate) hook: Option<SystemTime>,
    /// When that was over: "PreStop hook completed", or failed.
    pub(crate) hook_over: Option<SystemTime>,
    /// When the kubelet, its hook over, had it sent SIGTERM: "Killing container with a grace period".
    pub(crate) kill: Option<SystemTime>,
    /// When its first process had ended, by containerd's `/tasks/exit`.
    pub(crate) exit: Option<Exit>,
    /// Its termination message.
    pub(crate) message: Option<String>,
}

impl ContainerRecord {
    /// How it was when the pod went.
    pub(crate) fn last(&self) -> Option<&Life> {
        self.lives.last()
    }

    /// When it first wrote this message, by its own clock: a JSON object a line, as Tidegate logs.
    pub(crate) fn said(&self, message: &str) -> Option<SystemTime> {
        let mut entries = self
            .log
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(&line.text).ok());
        let entry = entries.find(|entry| entry["message"] == message)?;
        clock::parse(entry["timestamp"].as_str()?).ok()
    }

    /// When it went for good.
    pub(crate) fn exited(&self) -> Option<SystemTime> {
        Some(self.last()?.exit?.at)
    }
}

/// The end of a container's first process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    pub(crate) at: SystemTime,
    pub(crate) code: u64,
}

/// A line of a container's log.
#[derive(Clone, Debug)]
pub(crate) struct LogLine {
    /// When containerd read it.
    pub(crate) at: SystemTime,
    pub(crate) text: String,
}

/// An event of the API's kind `Event` about a pod.
#[derive(Clone, Debug)]
pub(crate) struct PodEvent {
    /// When it was first seen; the object itself knows seconds.
    pub(crate) seen: SystemTime,
    /// `FailedPreStopHook`, `Killing`, `Unhealthy`, ...
    pub(crate) reason: String,
    /// `spec.containers{NAME}` where it is about a container.
    pub(crate) field: String,
    pub(crate) message: String,
}

impl PodRecord {
    /// The container of this name.
    pub(crate) fn container(&self, name: &str) -> Option<&ContainerRecord> {
        self.containers
            .iter()
            .find(|container| container.name == name)
    }

    /// When its last container had ended.
    pub(crate) fn ended(&self) -> Option<SystemTime> {
        self.containers
            .iter()
            .filter_map(ContainerRecord::exited)
            .max()
    }

    /// Tidegate's own report, where it has one.
    pub(crate) fn report(&self) -> Option<Report> {
        let message = self.container("tidegate")?.last()?.message.as_deref()?;
        serde_json::from_str(message).ok()
    }

    /// The events for this reason.
    pub(crate) fn events(&self, reason: &str) -> Vec<&PodEvent> {
        self.events
            .iter()
            .filter(|event| event.reason == reason)
            .collect()
    }

    /// Seconds after the DELETE was sent.
    pub(crate) fn after_delete(&self, moment: Option<SystemTime>) -> Option<f64> {
        Some(seconds(self.deleted?, moment?))
    }
}

/// For people: what each container is, the last lines of those that failed, the events.
impl fmt::Display for PodRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for container in &self.containers {
            write!(f, "\n  {}:", container.name)?;
            for life in &container.lives {
                match life.exit {
                    Some(exit) => write!(f, " ended with {},", exit.code)?,
                    None => write!(f, " started,")?,
                }
            }
            let log = &container.log;
            for line in &log[log.len().saturating_sub(LOG_LINES)..] {
                write!(f, "\n    {}", line.text)?;
            }
        }
        for event in &self.events {
            write!(
                f,
                "\n  {} {} {}",
                event.reason,
                event.field,
                event.message.trim()
            )?;
        }
        Ok(())
    }
}
