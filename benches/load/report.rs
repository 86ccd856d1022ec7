//! What the runs come to: medians, ratios within a round, aims, as tables and as JSON. Pure.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::measure::{Load, Protocol, Sample, median, spread};

/// Whose ratios to all others are shown.
const OURS: [&str; 2] = ["tidegate-http", "tidegate-tcp"];

/// All samples of one load: a row for each peer, in the order they ran in; a column for each round.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) load: Load,
    pub(crate) rows: Vec<(&'static str, Vec<Sample>)>,
}

/// What a table is about.
#[derive(Clone, Copy, Debug)]
enum Figure {
    CpuPerRequest,
    CpuPerGb,
    Peak,
    P99,
}

/// What Tidegate wants to be.
struct Aim {
    load: &'static str,
    figure: Figure,
    ours: &'static str,
    /// At most so many times the figure of this peer.
    bound: (f64, &'static str),
}

const AIMS: [Aim; 9] = [
    Aim::new("h1/100", Figure::CpuPerRequest, OURS[0], 1.0, "haproxy"),
    Aim::new("h1/100", Figure::CpuPerRequest, OURS[0], 0.5, "envoy"),
    Aim::new("h1/100", Figure::P99, OURS[0], 1.0, "nginx"),
    Aim::new("h2c/100", Figure::CpuPerRequest, OURS[0], 0.5, "envoy"),
    Aim::new("h2c/100", Figure::CpuPerRequest, OURS[0], 1.0, "nginx"),
    Aim::new("h1/1m", Figure::CpuPerGb, OURS[0], 1.0, "haproxy"),
    Aim::new("h1/1m", Figure::CpuPerGb, OURS[0], 1.0, "haproxy-splice"),
    Aim::new("h1/1m", Figure::CpuPerGb, OURS[1], 1.0, "haproxy-tcp"),
    Aim::new(
        "h1/1m",
        Figure::CpuPerGb,
        OURS[1],
        1.0,
        "haproxy-tcp-splice",
    ),
];

/// Under these loads Tidegate holds less than so many MiB.
const MEMORY: [(&str, f64); 2] = [("h1/100", 6.0), ("h2c/100", 6.0)];

impl Aim {
    const fn new(
        load: &'static str,
        figure: Figure,
        ours: &'static str,
        times: f64,
        peer: &'static str,
    ) -> Aim {
        Aim {
            load,
            figure,
            ours,
            bound: (times, peer),
        }
    }
}

impl Figure {
    fn of(self, load: &Load, sample: &Sample) -> Option<f64> {
        match self {
            Figure::CpuPerRequest => sample.cpu_micros(),
            Figure::CpuPerGb => sample.cpu_seconds_per_gb(load),
            Figure::Peak => sample.usage.map(|usage| mib(usage.peak_kib)),
            Figure::P99 => Some(sample.seen.p99_micros),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Figure::CpuPerRequest => "CPU per request",
            Figure::CpuPerGb => "CPU per GB",
            Figure::Peak => "peak memory",
            Figure::P99 => "p99",
        }
    }
}

impl Table {
    fn samples(&self, peer: &str) -> Option<&[Sample]> {
        let row = self.rows.iter().find(|(name, _)| *name == peer);
        row.map(|(_, samples)| samples.as_slice())
    }

    fn median(&self, peer: &str, figure: Figure) -> Option<f64> {
        let samples = self.samples(peer)?;
        median(samples.iter().filter_map(|it| figure.of(&self.load, it)))
    }

    /// The median of `figure(ours) / figure(other)` of each round: what slows the machine for a while
    /// slows both.
    fn ratio(
        &self,
        ours: &str,
        other: &str,
        figure: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        let rounds = self.samples(ours)?.iter().zip(self.samples(other)?);
        median(rounds.filter_map(|(ours, other)| Some(figure(ours)? / figure(other)?)))
    }

    /// Whether a body is large enough for its bytes to be what costs.
    fn per_gb(&self) -> bool {
        self.load.bytes >= 1 << 10
    }

    /// As a table of Markdown.
    pub(crate) fn markdown(&self) -> String {
        let ours: Vec<&str> = OURS
            .into_iter()
            .filter(|name| self.samples(name).is_some())
            .collect();
        let unit = match self.load.protocol {
            Protocol::WebSocket => "message",
            _ => "request",
        };
        let mut columns = vec![
            String::new(),
            format!("{unit}s/s"),
            "of direct".into(),
            "p50".into(),
            "p99".into(),
            format!("CPU/{unit}"),
            "±".into(),
        ];
        if self.per_gb() {
            columns.push("CPU/GB".into());
        }
        columns.push("RSS, peak".into());
        columns.extend(ours.iter().map(|name| format!("CPU of {name}")));
        let mut text = format!("### {}\n\n", self.load.title());
        _ = writeln!(text, "| {} |", columns.join(" | "));
        _ = writeln!(text, "|---|{}", "--:|".repeat(columns.len() - 1));
        for (name, samples) in &self.rows {
            _ = writeln!(text, "| {} |", self.cells(name, samples, &ours).join(" | "));
        }
        let errors: Vec<String> = self
            .rows
            .iter()
            .map(|(name, samples)| (name, samples.iter().map(|it| it.seen.errors).sum::<u64>()))
            .filter(|(_, errors)| *errors > 0)
            .map(|(name, errors)| format!("{name} {errors}"))
            .collect();
        if !errors.is_empty() {
            _ = writeln!(text, "\nFailed: {}.", errors.join(", "));
        }
        text
    }

    fn cells(&self, name: &str, samples: &[Sample], ours: &[&str]) -> Vec<String> {
        let of = |figure: fn(&Sample) -> Option<f64>| median(samples.iter().filter_map(figure));
        let show = |value: Option<f64>, text: fn(f64) -> String| value.map_or("".into(), text);
        let cpu: Vec<f64> = samples.iter().filter_map(Sample::cpu_micros).collect();
        let mut cells = vec![
            name.to_owned(),
            show(of(|it| Some(it.rate())), |it| format!("{it:.0}")),
            show(self.ratio(name, "direct", |it| Some(it.rate())), |it| {
                format!("{it:.2}")
            }),
            show(of(|it| Some(it.seen.p50_micros)), time),
            show(of(|it| Some(it.seen.p99_micros)), time),
            show(of(Sample::cpu_micros), |it| format!("{it:.1} µs")),
            show(spread(&cpu), |it| format!("{:.0} %", it * 100.0)),
        ];
        if self.per_gb() {
            let per_gb = self.median(name, Figure::CpuPerGb);
            cells.push(show(per_gb, |it| format!("{:.0} ms", it * 1_000.0)));
        }
        let rss = of(|it| it.usage.map(|usage| mib(usage.rss_kib)));
        let peak = self.median(name, Figure::Peak);
        cells.push(match (rss, peak) {
            (Some(rss), Some(peak)) => format!("{rss:.1}, {peak:.1} MiB"),
            _ => String::new(),
        });
        cells.extend(ours.iter().map(|us| {
            let ratio = self.ratio(us, name, Sample::cpu_micros);
            show(ratio, |it| format!("× {it:.2}"))
        }));
        cells
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|(name, samples)| {
            let samples: Vec<Value> = samples
                .iter()
                .map(|it| {
                    json!({
                        "requests": it.seen.requests,
                        "errors": it.seen.errors,
                        "seconds": it.seen.seconds,
                        "p50_micros": it.seen.p50_micros,
                        "p99_micros": it.seen.p99_micros,
                        "cpu_seconds": it.usage.map(|usage| usage.cpu_seconds),
                        "rss_kib": it.usage.map(|usage| usage.rss_kib),
                        "peak_kib": it.usage.map(|usage| usage.peak_kib),
                    })
                })
                .collect();
            ((*name).to_owned(), Value::from(samples))
        });
        json!({
            "load": self.load.to_string(),
            "bytes": self.load.bytes,
            "connections": self.load.connections,
            "streams": self.load.streams,
            "peers": rows.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn time(micros: f64) -> String {
    if micros < 1_000.0 {
        format!("{micros:.0} µs")
    } else {
        format!("{:.1} ms", micros / 1_000.0)
    }
}

/// A table of what is aimed at and what was reached, of the aims whose peers took part; empty without
/// any.
pub(crate) fn aims(tables: &[Table]) -> String {
    let find = |load: &str| tables.iter().find(|it| it.load.to_string() == load);
    let verdict = |met: bool| if met { "met" } else { "**missed**" };
    let mut rows = String::new();
    for aim in &AIMS {
        let (times, peer) = aim.bound;
        let reached = find(aim.load).and_then(|table| {
            table.ratio(aim.ours, peer, |sample| aim.figure.of(&table.load, sample))
        });
        if let Some(reached) = reached {
            _ = writeln!(
                rows,
                "| {}, {} of {} | at most × {times} of {peer} | × {reached:.2} | {} |",
                aim.load,
                aim.figure.words(),
                aim.ours,
                verdict(reached <= times)
            );
        }
    }
    for (load, most) in MEMORY {
        let peak = find(load).and_then(|table| table.median(OURS[0], Figure::Peak));
        if let Some(peak) = peak {
            _ = writeln!(
                rows,
                "| {load}, {} of {} | under {most} MiB | {peak:.1} MiB | {} |",
                Figure::Peak.words(),
                OURS[0],
                verdict(peak < most)
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!("| | aim | reached | |\n|---|---|---|---|\n{rows}")
}

/// All samples.
pub(crate) fn json(tables: &[Table]) -> Value {
    tables.iter().map(Table::json).collect()
}

/// Where and how the tables came about.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// `2026-11-30`.
    pub(crate) date: String,
    pub(crate) machine: String,
    pub(crate) versions: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
}

/// The page that is kept: docs/performance.md.
pub(crate) fn page(tables: &[Table], setting: &Setting) -> String {
    let Setting {
        date,
        machine,
        versions,
        rounds,
        seconds,
    } = setting;
    let versions = versions.join(", ");
    let mut text = format!(
        "# What the gate costs\n\n\
         Written by `./test bench`; run that to repeat it, on a machine that has nothing else to do.\n\n\
         - {date}, {machine}\n\
         - {versions}\n\
         - medians of {rounds} rounds of {seconds} s each; in a round all take turns, and ratios are \
         medians of each round's own ratio\n\n\
         {HOW}\n"
    );
    let aims = aims(tables);
    if !aims.is_empty() {
        _ = write!(text, "## Aims\n\n{aims}\n");
    }
    text.push_str("## Tables\n\n");
    let tables: Vec<String> = tables.iter().map(Table::markdown).collect();
    text.push_str(&tables.join("\n"));
    text
}

/// What a reader must know to judge the tables.
const HOW: &str = "\
## How it is measured

Everything runs on loopback, in a network namespace of its own, before one backend with fixed replies. The proxy
has a CPU for itself, load and backend share the others; so a proxy that is faster than those is not busy all the
time, wakes up more often for less, and *requests/s* is the whole chain's. What compares is the **CPU** a proxy
takes: nanoseconds of all its threads from `schedstat`, kernel included. *CPU of tidegate* is Tidegate's share of
what that peer takes: below 1 Tidegate is cheaper. *CPU/GB* is for 10^9 bytes of bodies that came back. *±* is half
the distance between the cheapest and the dearest round. Each load starts fresh processes, so memory is that load's:
*RSS* towards its end, and the *peak* (`VmHWM`).

wrk drives HTTP/1.1, h2load h2c with prior knowledge, a small client of this project WebSockets, each with one
thread, as fast as replies come: p50 and p99 are those of a chain that is saturated.

What is not alike, and what was done about it:

- Every peer has one worker, no access log, and idle upstream connections kept (`http-reuse always`, `keepalive`).
  Envoy's main thread counts, too, and does next to nothing. nginx runs without its master, so that its memory is
  one process's.
- Tidegate opens one connection to the backend for each of a client and keeps no pool, by design. With a
  connection a request it therefore opens two where the others open one: that load shows what it costs.
- nginx speaks HTTP/1.1 to its upstream even for h2c, which spares it frames and costs it
  multiplexing.
- *haproxy* and *haproxy-tcp* have `option splice-auto`, with which this load hardly ever makes HAProxy splice.
  *haproxy-splice* and *haproxy-tcp-splice* have `option splice-request` and `splice-response`: they always do.
- nginx may not write bodies to temporary files, Envoy makes no request ids. HTTP/2 windows, buffers and all else
  are each one's defaults.
- *hyper* is as plain a proxy as one can write with hyper-util's client pool: one thread, no timeouts, no metrics,
  glibc's allocator; optimized, without link-time optimization. Tidegate is the static binary that goes into the
  image.
- Client, proxy and backend share caches and memory bandwidth, and the kernel accounts loopback's receiving side to
  the sender. Both are the same for all.
";
