//! What a played cell comes to, in numbers: seconds after the first pod's DELETE.

use std::fmt;
use std::time::{Duration, SystemTime};

use tidegate::drain::record::Report;

use super::answers::{Answer, after_delete};
use super::kinds::Play;
use super::matrix::{Cell, Tidegate};
use super::play::Played;
use crate::clock::seconds;
use crate::record::PodRecord;

/// A pod's containers, in the order in which they ought to go.
pub(crate) const CONTAINERS: [&str; 4] =
    ["user-container", "queue-proxy", "tidegate", "istio-proxy"];
/// Tidegate's own `min-drain`, and what a measurement of the time after it leaves alone beside it.
const MIN_DRAIN: f64 = 10.0;
const BESIDE_MIN_DRAIN: f64 = 0.5;

/// How long a container was waited for to be let go, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// Until Tidegate let it go, by its own log.
    pub(crate) hold: f64,
    /// Until the kubelet, its hook over, had it sent SIGTERM.
    pub(crate) sigterm: f64,
}

impl Release {
    fn of(pod: &PodRecord, container: &str, since: SystemTime, message: &str) -> Option<Release> {
        let hold = pod.container("tidegate")?.said(message)?;
        let sigterm = pod.container(container)?.last()?.kill?;
        Some(Release {
            hold: seconds(since, hold),
            sigterm: seconds(since, sigterm),
        })
    }
}

/// A cell's numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) cut: u64,
    /// Of those, the ones that nothing allows.
    pub(crate) due: u64,
    pub(crate) first_byte: Option<f64>,
    pub(crate) last_byte: Option<f64>,
    /// preStop hooks that failed, of all the cell's pods.
    pub(crate) hooks_failed: usize,
    /// When each of [`CONTAINERS`] of the first pod went.
    pub(crate) out: [Option<f64>; 4],
    /// When the last container had ended: of several pods, the longest time.
    pub(crate) ended: Option<f64>,
    /// When the pod was gone: of several, the longest time.
    pub(crate) gone: Option<f64>,
    /// Tidegate's own, of the first pod.
    pub(crate) report: Option<Report>,
    /// What became of the first request that was lost or cut, with its name.
    pub(crate) why: Option<String>,
    /// From the last byte that a client got, where nothing else had to be waited for.
    pub(crate) released: Option<Release>,
    /// From the end of the workload's last container, of an istio-proxy whose hook Tidegate holds.
    pub(crate) proxy_released: Vec<Release>,
    /// The same, to istio-proxy's end, held or not.
    pub(crate) proxy_out: Vec<f64>,
}

impl Facts {
    pub(crate) fn of(cell: &Cell, played: &Played) -> Facts {
        let Played { answers, pods, .. } = played;
        let Some(first) = pods.first() else {
            return Facts::default();
        };
        let at = |millis: Option<f64>| after_delete(first, millis?);
        let bytes = |of: fn(&Answer) -> Option<f64>| answers.iter().filter_map(move |a| at(of(a)));
        let longest = |of: fn(&PodRecord) -> Option<SystemTime>| {
            let times: Option<Vec<f64>> =
                pods.iter().map(|pod| pod.after_delete(of(pod))).collect();
            times?.into_iter().reduce(f64::max)
        };
        let mut facts = Facts {
            sent: answers.iter().map(Answer::sent).sum(),
            lost: answers.iter().map(Answer::lost).sum(),
            cut: answers.iter().map(Answer::cut).sum(),
            due: answers
                .iter()
                .filter(|answer| cell.kind.may_lose(&answer.name).is_none())
                .map(|answer| answer.lost() + answer.cut())
                .sum(),
            first_byte: bytes(|answer| answer.first_byte).reduce(f64::min),
            last_byte: bytes(|answer| answer.last_byte).reduce(f64::max),
            hooks_failed: pods.iter().map(failed_hooks).sum(),
            out: CONTAINERS.map(|name| out(first, name)),
            ended: longest(PodRecord::ended),
            gone: longest(|pod| pod.gone),
            report: first.report(),
            why: answers.iter().find_map(|answer| {
                let why = answer.why()?;
                Some(format!("{}: {why}", answer.name))
            }),
            ..Facts::default()
        };
        if cell.tidegate == Tidegate::With {
            facts.released = released(cell, first, facts.last_byte);
            if cell.kind.play == Play::Drain || cell.kind.play == Play::Rollout {
                facts.proxy_released = pods.iter().filter_map(proxy_released).collect();
                facts.proxy_out = pods.iter().filter_map(proxy_out).collect();
            }
        }
        facts
    }

    /// Lost or cut.
    pub(crate) fn failed(&self) -> u64 {
        self.lost + self.cut
    }
}

/// In one line, for who watches a run.
impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts {
            sent,
            lost,
            cut,
            hooks_failed,
            gone,
            report,
            ..
        } = self;
        write!(f, "{sent} sent, {lost} lost, {cut} cut")?;
        if *hooks_failed > 0 {
            write!(f, ", {hooks_failed} hooks failed")?;
        }
        match gone {
            Some(gone) => write!(f, ", gone after {gone:.1} s")?,
            None => write!(f, ", not gone")?,
        }
        if let Some(report) = report {
            write!(f, ", {}", report.outcome)?;
        }
        if let Some(released) = self.released {
            write!(f, ", released {:.2} s after the last byte", released.hold)?;
        }
        match &self.why {
            Some(why) => write!(f, " ({why})"),
            None => Ok(()),
        }
    }
}

pub(crate) fn failed_hooks(pod: &PodRecord) -> usize {
    pod.events("FailedPreStopHook").len()
}

fn out(pod: &PodRecord, name: &str) -> Option<f64> {
    pod.after_delete(pod.container(name)?.exited())
}

/// Only where the last byte came after `min-drain`, no request came late, so that `quiet` was over, and
/// the client took it as it came.
fn released(cell: &Cell, pod: &PodRecord, last_byte: Option<f64>) -> Option<Release> {
    let measured = cell.kind.play == Play::Drain
        && cell.kind.losses.is_empty()
        && cell.kind.name != "slow-reader";
    let trigger = pod.container("tidegate")?.last()?.hook;
    let floor = pod.after_delete(trigger)? + MIN_DRAIN + BESIDE_MIN_DRAIN;
    let last_byte = last_byte.filter(|at| measured && *at > floor)?;
    let last_byte = pod.deleted? + Duration::from_secs_f64(last_byte);
    let report = pod.report()?;
    let drained = report.outcome == "drained" && report.late == 0;
    let release = Release::of(pod, "user-container", last_byte, "workload released")?;
    drained.then_some(release)
}

/// When the last of the workload had ended, where Tidegate has waited for that.
fn workload_out(pod: &PodRecord) -> Option<SystemTime> {
    let exited = |name| pod.container(name)?.exited();
    let workload = exited("queue-proxy")?.max(exited("user-container")?);
    (pod.report()?.outcome == "drained").then_some(workload)
}

fn proxy_released(pod: &PodRecord) -> Option<Release> {
    pod.container("istio-proxy")?.last()?.hook?;
    Release::of(
        pod,
        "istio-proxy",
        workload_out(pod)?,
        "istio-proxy released",
    )
}

fn proxy_out(pod: &PodRecord) -> Option<f64> {
    let exited = pod.container("istio-proxy")?.exited()?;
    Some(seconds(workload_out(pod)?, exited))
}
