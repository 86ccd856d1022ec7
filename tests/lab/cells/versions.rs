//! What the lab was made of, and when.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Outcome;

const KUBERNETES: &str = include_str!("../go/kubernetes/go.mod");
const ISTIO: &str = include_str!("../go/istio/go.mod");
const SERVING: &str = include_str!("../go/serving/go.mod");

/// Each part with its version.
pub(crate) fn all(outcomes: &[Outcome]) -> Result<Vec<(&'static str, String)>> {
    let reports = outcomes.iter().filter_map(|it| it.facts.report.as_ref());
    let envoy = reports.map(|report| report.envoy.clone()).max();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(vec![
        ("Tidegate", env!("CARGO_PKG_VERSION").to_owned()),
        ("Kubernetes", required(KUBERNETES, "k8s.io/kubernetes")?),
        ("Istio", required(ISTIO, "istio.io/istio")?),
        ("Envoy", envoy.unwrap_or_default()),
        (
            "Knative Serving (queue-proxy)",
            required(SERVING, "knative.dev/serving")?,
        ),
        ("containerd", said("containerd", &["--version"])?),
        ("runc", said("runc", &["--version"])?),
        ("kernel", said("uname", &["-r"])?),
        ("cores", cores.to_string()),
    ])
}

/// What the machine's cores have done since it started, in ticks: of work, and in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    busy: u64,
    all: u64,
}

impl Cpu {
    pub(crate) fn now() -> Result<Cpu> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        let ticks = line.split_whitespace().skip(1).map(str::parse);
        let ticks: Vec<u64> = ticks.collect::<Result<_, _>>()?;
        let [_, _, _, idle, waits, ..] = ticks[..] else {
            bail!("/proc/stat: {line}");
        };
        let all = ticks.iter().sum();
        Ok(Cpu {
            busy: all - idle - waits,
            all,
        })
    }

    /// How much of the time since then they worked, in percent.
    pub(crate) fn busy_since(self, then: Cpu) -> u64 {
        100 * (self.busy - then.busy) / (self.all - then.all).max(1)
    }
}

/// Today, in UTC.
pub(crate) fn date() -> Result<String> {
    said("date", &["-u", "+%Y-%m-%d"])
}

/// The version that a go.mod asks for.
fn required(module: &str, name: &str) -> Result<String> {
    let lines = module.lines().map(str::split_whitespace);
    let mut versions = lines.filter_map(|mut words| {
        let version = words.find(|word| *word == name).and(words.next());
        version.filter(|version| version.starts_with('v'))
    });
    let version = versions.next_back();
    let version = version.with_context(|| format!("no {name} in go.mod"))?;
    Ok(version.to_owned())
}

/// The first line that a command prints, without its name.
fn said(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| program.to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default();
    let number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let version = line.split_whitespace().find(number);
    Ok(version.unwrap_or(line).to_owned())
}
