//! Drain reports as a table for people and as JSON for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::drain::Outcome;
use crate::drain::record::Report;
use crate::report::Row;

/// All reports in a few numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    /// Lines of the table. A pod whose sidecar was restarted in its drain has two.
    pub pods: usize,
    /// Nothing was in flight and all was flushed.
    pub drained: usize,
    /// The deadline came first.
    pub deadline: usize,
    /// The kubelet ended the grace period.
    pub grace_over: usize,
    /// Still draining when the report was written, or an outcome of another version.
    pub other: usize,
    /// Requests cut, over all pods.
    pub cut: u64,
    /// Requests that arrived after the trigger, over all pods.
    pub late: u64,
    /// How long the drains took.
    pub seconds: Option<Seconds>,
}

/// The spread of the drains' lengths, in seconds, by nearest rank: the p-th percentile of n values is
/// the `ceil(p / 100 * n)`-th smallest. It is always one of the values, never between two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Seconds {
    /// Half of the drains took no longer.
    pub p50: f64,
    /// 99 of 100 drains took no longer.
    pub p99: f64,
    /// The longest drain.
    pub max: f64,
}

/// The p-th percentile of ascending values by nearest rank; `None` where there are none.
/// `percent` above 100 counts as 100, 0 gives the smallest value.
pub(super) fn nearest_rank(ascending: &[f64], percent: usize) -> Option<f64> {
    let rank = (ascending.len() * percent.min(100)).div_ceil(100);
    ascending.get(rank.saturating_sub(1)).copied()
}

/// Counts and adds up.
pub(super) fn summarize(rows: &[Row]) -> Summary {
    let count = |outcome: Outcome| {
        rows.iter()
            .filter(|row| row.report.outcome == outcome.name())
            .count()
    };
    let total = |of: fn(&Report) -> u64| {
        rows.iter()
            .fold(0, |sum: u64, row| sum.saturating_add(of(&row.report)))
    };
    let mut seconds: Vec<f64> = rows.iter().map(|row| row.report.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let (drained, deadline, grace_over) = (
        count(Outcome::Drained),
        count(Outcome::Deadline),
        count(Outcome::GraceOver),
    );
    Summary {
        pods: rows.len(),
        drained,
        deadline,
        grace_over,
        other: rows.len() - drained - deadline - grace_over,
        cut: total(|report| report.cut),
        late: total(|report| report.late),
        seconds: nearest_rank(&seconds, 50)
            .zip(nearest_rank(&seconds, 99))
            .zip(seconds.last().copied())
            .map(|((p50, p99), max)| Seconds { p50, p99, max }),
    }
}

// ---- JSON ----

#[derive(Serialize)]
struct Document<'a> {
    pods: &'a [Row],
    summary: Summary,
}

/// `{"pods": [...], "summary": {...}}`: each pod is its report with `namespace` added.
pub(super) fn json(rows: &[Row]) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(&Document {
        pods: rows,
        summary: summarize(rows),
    })?;
    text.push('\n');
    Ok(text)
}

// ---- Table ----

const COLUMNS: usize = 9;
const HEADER: [&str; COLUMNS] = [
    "POD",
    "OUTCOME",
    "MODE",
    "SECONDS",
    "PEAK",
    "LAST",
    "LATE",
    "CUT",
    "LONGEST PHASE",
];
/// Numbers are right-aligned.
const RIGHT: [bool; COLUMNS] = [false, false, false, true, true, true, true, true, false];

/// A line a report, then the summary. Plain ASCII: what a report holds was written in a pod, and must
/// not move a terminal's cursor.
pub(super) fn text(rows: &[Row]) -> String {
    let lines: Vec<[String; COLUMNS]> = std::iter::once(HEADER.map(str::to_owned))
        .chain(rows.iter().map(cells))
        .collect();
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|i| lines.iter().map(|line| line[i].len()).max().unwrap_or(0));
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (i, cell) in line.iter().enumerate() {
            let pad = " ".repeat(widths[i] - cell.len());
            let gap = if i == 0 { "" } else { "  " };
            let (before, after) = if RIGHT[i] {
                (pad, String::new())
            } else {
                (String::new(), pad)
            };
            text.extend([gap, &before, cell, &after]);
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&summary_text(&summarize(rows)));
    out
}

fn cells(row: &Row) -> [String; COLUMNS] {
    let report = &row.report;
    let pod = match (row.namespace.as_str(), report.pod.as_str()) {
        (_, "") => "-".to_owned(),
        ("", pod) => pod.to_owned(),
        (namespace, pod) => format!("{namespace}/{pod}"),
    };
    let (peak, last) = in_flight(report);
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    [
        printable(&pod),
        printable(&report.outcome),
        printable(&report.mode),
        format!("{:.1}", report.seconds),
        number(peak),
        number(last),
        report.late.to_string(),
        report.cut.to_string(),
        longest_phase(report).map_or("-".to_owned(), |(phase, seconds)| {
            format!("{} {seconds:.1}s", printable(phase))
        }),
    ]
}

fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if matches!(c, ' '..='~') { c } else { '?' })
        .collect()
}

/// The highest and the last number of requests in flight, of the source that saw most. Sockets count
/// connections, idle ones among them, and so speak only where nothing that counts requests does.
fn in_flight(report: &Report) -> (Option<u64>, Option<u64>) {
    let counts_requests = |source: &str| source != "sockets";
    report
        .in_flight
        .iter()
        .filter(|source| source.peak.is_some())
        .max_by_key(|source| (counts_requests(&source.source), source.peak))
        .map_or((None, None), |source| (source.peak, source.last))
}

/// The phase that took longest, the first of equals, and its seconds.
fn longest_phase(report: &Report) -> Option<(&str, f64)> {
    let ends = report
        .phases
        .iter()
        .skip(1)
        .map(|phase| phase.at)
        .chain([report.seconds]);
    report
        .phases
        .iter()
        .zip(ends)
        .map(|(phase, end)| (phase.phase.as_str(), end - phase.at))
        .reduce(|longest, next| if next.1 > longest.1 { next } else { longest })
}

fn summary_text(summary: &Summary) -> String {
    let Summary {
        pods,
        drained,
        deadline,
        grace_over,
        other,
        cut,
        late,
        seconds,
    } = summary;
    let plural = if *pods == 1 { "" } else { "s" };
    let mut out = format!(
        "{pods} pod{plural}: {drained} drained, {deadline} deadline, {grace_over} grace-over"
    );
    // Writing to a String cannot fail.
    if *other > 0 {
        let _ = write!(out, ", {other} other");
    }
    let _ = writeln!(out, "; requests cut {cut}, late {late}");
    if let Some(Seconds { p50, p99, max }) = seconds {
        let _ = writeln!(out, "seconds: p50 {p50:.1}, p99 {p99:.1}, max {max:.1}");
    }
    out
}
