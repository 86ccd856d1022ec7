//! What the lab was made of, and when.

use std::process::Command;

use anyhow::{Context, Result};

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

/// Today, in UTC.
pub(crate) fn date() -> Result<String> {
    said("date", &["-u", "+%Y-%m-%d"])
}

/// The version that a go.mod asks for.
fn required(module: &str, name: &str) -> Result<String> {
    let mut words = module.split_whitespace().skip_while(|word| *word != name);
    let version = words
        .nth(1)
        .with_context(|| format!("no {name} in go.mod"))?;
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
