//! Writes what was measured for people: docs/lab-results.md.

use std::fmt::Write;
use std::time::Duration;

use super::configurations::{self, Configuration};
use super::facts::{CONTAINERS, Facts, Release};
use super::hooks::Hooks;
use super::kinds::{self, Kind};
use super::matrix::Tidegate;
use super::picture::PICTURES;
use super::{Outcome, versions};

/// A run of all cells.
pub(crate) struct Run<'a> {
    pub(crate) outcomes: &'a [Outcome],
    pub(crate) hooks: &'a Hooks,
    pub(crate) took: Duration,
    /// How much of that time the machine's cores worked, in percent.
    pub(crate) busy: u64,
}

const WORKLOAD_OUT: &str = "the end of queue-proxy and the user container";

impl Run<'_> {
    /// The whole page.
    pub(crate) fn page(&self) -> anyhow::Result<String> {
        let mut page = String::new();
        self.head(&mut page)?;
        self.summary(&mut page)?;
        self.matrix(&mut page)?;
        self.allowed(&mut page)?;
        for configuration in &configurations::ALL {
            self.details(&mut page, configuration)?;
        }
        Ok(page)
    }

    fn head(&self, page: &mut String) -> anyhow::Result<()> {
        let date = versions::date()?;
        let took = self.took.as_secs();
        writeln!(
            page,
            "# What the lab has measured\n\n\
             Written by `./test lab` on {date}: {} cells in {} min {} s. Each is a pod of its own (or a few), shaped \
             as Knative\nshapes it, on a real kubelet with a real istiod, Envoy and queue-proxy, STRICT mTLS; it is \
             deleted under traffic, and what\nclients got and when containers went is written down. Nothing is \
             scaled, nothing is a stand-in; how it works:\n[tests/lab/README.md](../tests/lab/README.md).\n",
            self.outcomes.len(),
            took / 60,
            took % 60,
        )?;
        writeln!(page, "| part | version |\n|---|---|")?;
        for (part, version) in versions::all(self.outcomes)? {
            writeln!(page, "| {part} | {version} |")?;
        }
        writeln!(page, "| busy meanwhile | {} % |", self.busy)?;
        writeln!(page)?;
        Ok(())
    }

    fn of(&self, tidegate: Tidegate) -> impl Iterator<Item = &Outcome> {
        let outcomes = self.outcomes.iter();
        outcomes.filter(move |outcome| outcome.cell.tidegate == tidegate)
    }

    // ===== in short =====

    fn summary(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "## In short\n\n| | without Tidegate | with Tidegate |\n|---|---:|---:|"
        )?;
        let mut row = |label: &str, value: &dyn Fn(&Outcome) -> u64| {
            let sum = |tidegate| grouped(self.of(tidegate).map(value).sum());
            let (without, with) = (sum(Tidegate::Without), sum(Tidegate::With));
            writeln!(page, "| {label} | {without} | {with} |")
        };
        row("cells", &|_| 1)?;
        row("requests", &|outcome| outcome.facts.sent)?;
        row(
            "lost or cut, though the grace period allowed for them",
            &|outcome| outcome.facts.due,
        )?;
        row("cells that lost or cut such a request", &|outcome| {
            u64::from(outcome.facts.due > 0)
        })?;
        row(
            "events FailedPreStopHook",
            &|outcome| match outcome.cell.kind.hooks_fail {
                Some(_) => 0,
                None => outcome.facts.hooks_failed as u64,
            },
        )?;
        let Hooks {
            pods,
            answered,
            failed,
        } = self.hooks;
        writeln!(
            page,
            "\n{pods} more classic pods with Tidegate, deleted ten at a time: the hooks of {answered} were answered by \
             Tidegate, {failed} failed.\n\n\
             How fast Tidegate was, in seconds, over all its cells of which nothing else had to be waited for:\n\n\
             | from | to | times | p50 | p99 |\n|---|---|---:|---:|---:|"
        )?;
        self.released(page, "the last byte at the client", |it| {
            it.is_mesh() && !it.is_gated()
        })?;
        self.released(page, "the same, with the gate", Configuration::is_gated)?;
        let no_mesh = "the same, no mesh: queue-proxy tells, once a second";
        self.released(page, no_mesh, |it| !it.is_mesh())?;
        let releases = self.of(Tidegate::With);
        let releases = releases.flat_map(|outcome| outcome.facts.proxy_released.clone());
        release(page, WORKLOAD_OUT, "a classic istio-proxy", releases)?;
        for native in [false, true] {
            let sidecar = if native { "a native" } else { "a classic" };
            let cells = self
                .of(Tidegate::With)
                .filter(|outcome| (outcome.cell.configuration.name == "native") == native);
            let times = cells.flat_map(|outcome| outcome.facts.proxy_out.clone());
            let to = format!("the end of {sidecar} istio-proxy");
            speed(page, WORKLOAD_OUT, &to, times)?;
        }
        writeln!(page)?;
        for (file, configuration, kind) in PICTURES {
            writeln!(page, "![{configuration}, {kind}]({file})\n")?;
        }
        Ok(())
    }

    fn released(
        &self,
        page: &mut String,
        from: &str,
        is_meant: fn(&Configuration) -> bool,
    ) -> anyhow::Result<()> {
        let cells = self.of(Tidegate::With);
        let cells = cells.filter(|outcome| is_meant(outcome.cell.configuration));
        let releases = cells.filter_map(|outcome| outcome.facts.released);
        release(page, from, "the user container", releases)
    }

    // ===== all cells =====

    fn matrix(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "## All cells\n\nRequests lost or cut, without Tidegate → with it; a dot: no such cell. With a star: \
             [allowed](#what-may-be-lost).\n"
        )?;
        let titles = configurations::ALL.iter().map(|it| it.title);
        writeln!(page, "| | {} |", titles.collect::<Vec<_>>().join(" | "))?;
        writeln!(page, "|---|{}", "---|".repeat(configurations::ALL.len()))?;
        for kind in &kinds::ALL {
            write!(page, "| {} |", kind.title)?;
            for configuration in &configurations::ALL {
                let entry = |tidegate| self.entry(configuration, kind, tidegate);
                let (without, with) = (entry(Tidegate::Without), entry(Tidegate::With));
                write!(page, " {without} → {with} |")?;
            }
            writeln!(page)?;
        }
        writeln!(page)?;
        for configuration in &configurations::ALL {
            let Configuration { title, about, .. } = configuration;
            writeln!(page, "- {title}: {about}")?;
        }
        writeln!(page)?;
        Ok(())
    }

    fn entry(&self, configuration: &Configuration, kind: &Kind, tidegate: Tidegate) -> String {
        let outcome = self.of(tidegate).find(|outcome| {
            outcome.cell.configuration.name == configuration.name
                && outcome.cell.kind.name == kind.name
        });
        match outcome.map(|outcome| &outcome.facts) {
            None => "·".to_owned(),
            Some(facts) if facts.due > 0 => format!("**{}**", grouped(facts.failed())),
            Some(facts) if facts.failed() > 0 => format!("{}*", grouped(facts.failed())),
            Some(_) => "0".to_owned(),
        }
    }

    fn allowed(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(page, "## What may be lost\n")?;
        for kind in kinds::ALL.iter().filter(|kind| !kind.losses.is_empty()) {
            for loss in kind.losses {
                writeln!(page, "- {}, {}: {}", kind.title, loss.request, loss.why)?;
            }
        }
        for kind in &kinds::ALL {
            if let Some(why) = kind.hooks_fail {
                writeln!(page, "- {}, preStop hooks: {why}", kind.title)?;
            }
        }
        writeln!(page)?;
        Ok(())
    }

    // ===== one by one =====

    fn details(&self, page: &mut String, configuration: &Configuration) -> anyhow::Result<()> {
        writeln!(
            page,
            "## {}\n\nSeconds after the DELETE; of several pods, the first one's, and the longest until it is gone.\n",
            configuration.title
        )?;
        writeln!(
            page,
            "| | Tidegate | sent | lost | cut | first byte | last byte | hooks failed | {} | pod gone | report | |",
            CONTAINERS.map(|name| format!("{name} out")).join(" | ")
        )?;
        writeln!(page, "|---|---|{}---|---|", "---:|".repeat(11))?;
        let cells = self
            .outcomes
            .iter()
            .filter(|outcome| outcome.cell.configuration.name == configuration.name);
        let mut cells: Vec<_> = cells.collect();
        let place = |outcome: &&Outcome| {
            let kind = kinds::ALL
                .iter()
                .position(|kind| kind.name == outcome.cell.kind.name);
            (kind, outcome.cell.tidegate == Tidegate::With)
        };
        cells.sort_by_key(place);
        for outcome in cells {
            detail(page, outcome)?;
        }
        writeln!(page)?;
        Ok(())
    }
}

fn detail(page: &mut String, outcome: &Outcome) -> anyhow::Result<()> {
    let Facts {
        sent,
        lost,
        cut,
        first_byte,
        last_byte,
        hooks_failed,
        out,
        gone,
        report,
        why,
        ..
    } = &outcome.facts;
    let with = match outcome.cell.tidegate {
        Tidegate::Without => "",
        Tidegate::With => "yes",
    };
    let report = report.as_ref().map(|report| report.outcome.as_str());
    let why = why.as_deref().unwrap_or_default().replace('|', "\\|");
    writeln!(
        page,
        "| {} | {with} | {} | {} | {} | {} | {} | {hooks_failed} | {} | {} | {} | {why} |",
        outcome.cell.kind.title,
        grouped(*sent),
        grouped(*lost),
        grouped(*cut),
        at(*first_byte),
        at(*last_byte),
        out.map(at).join(" | "),
        at(*gone),
        report.unwrap_or_default(),
    )?;
    Ok(())
}

fn at(moment: Option<f64>) -> String {
    moment.map_or_else(String::new, |moment| format!("{moment:.2}"))
}

fn release(
    page: &mut String,
    from: &str,
    container: &str,
    releases: impl Iterator<Item = Release>,
) -> anyhow::Result<()> {
    let releases: Vec<Release> = releases.collect();
    let times = |of: fn(&Release) -> f64| releases.iter().map(of);
    let hold = format!("Tidegate releases {container}");
    speed(page, from, &hold, times(|release| release.hold))?;
    let sigterm = format!("SIGTERM of {container}");
    speed(page, from, &sigterm, times(|release| release.sigterm))
}

fn speed(
    page: &mut String,
    from: &str,
    to: &str,
    times: impl Iterator<Item = f64>,
) -> anyhow::Result<()> {
    let times = Times::of(times);
    let (count, p50, p99) = (times.0.len(), times.percentile(50), times.percentile(99));
    writeln!(page, "| {from} | {to} | {count} | {p50:.2} | {p99:.2} |")?;
    Ok(())
}

/// Times in order.
struct Times(Vec<f64>);

impl Times {
    fn of(times: impl Iterator<Item = f64>) -> Times {
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        Times(times)
    }

    /// By nearest rank; of none, not a number.
    fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(rank).copied().unwrap_or(f64::NAN)
    }
}

/// `11000` as `11,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}
