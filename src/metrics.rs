//! What Prometheus sees: registered once, every handle resolved before it is used.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use crate::drain::{Call, CallResult, Phase};
use crate::gate;
use crate::inflight::Source;

#[cfg(test)]
mod tests;

/// How `/metrics` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics text 1.0.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Prometheus,
}

impl Format {
    /// The format that an `Accept` header asks for; Prometheus text where it does not matter.
    pub fn from_accept(accept: Option<&str>) -> Format {
        let (mut open, mut text) = (0.0, 0.0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let wanted = match parts.next() {
                Some("application/openmetrics-text") => &mut open,
                Some("text/plain" | "text/*" | "*/*") => &mut text,
                _ => continue,
            };
            let quality = parts
                .find_map(|p| p.strip_prefix("q="))
                .map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0));
            *wanted = quality.max(*wanted);
        }
        if open > 0.0 && open >= text {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }

    /// The `Content-Type` of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

pub(crate) type Labels<const N: usize> = [(&'static str, &'static str); N];
type Seconds = Gauge<f64, AtomicU64>;

/// All metrics of `tidegate run`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    phases: [Gauge; Phase::ALL.len()],
    in_flight: Family<Labels<1>, Gauge<u64, AtomicU64>>,
    source_up: Family<Labels<1>, Gauge>,
    hooks_open: Gauge,
    admin_calls: [[Counter; CallResult::ALL.len()]; Call::ALL.len()],
    drain_seconds: Seconds,
    drain_deadline: Family<Labels<0>, Seconds>,
    /// Where the gate's figures go.
    pub(crate) gate: gate::Slot,
    /// Hooks answered.
    pub hooks_answered: Counter,
    /// Hooks whose waiter hung up before the answer.
    pub hooks_abandoned: Counter,
    /// Connections to the hook port refused because too many were open.
    pub connections_refused: Counter,
    /// Requests that arrived after the trigger.
    pub late_arrivals: Counter,
    /// Requests in flight when the workload was released before it was idle.
    pub requests_cut: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl Metrics {
    /// Registers everything; the phase is `serving`.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("tidegate");
        let r = &mut registry;

        add_build_info(r);

        let phase: Family<Labels<1>, Gauge> = add(r, "phase", "1 for the phase of the drain");
        let phases = Phase::ALL.map(|p| phase.get_or_create_owned(&[("phase", p.name())]));

        let calls: Family<Labels<2>, Counter> =
            add(r, "admin_calls", "Calls to Envoy and its agent that ended");
        let admin_calls = Call::ALL.map(|call| {
            CallResult::ALL.map(|result| {
                calls.get_or_create_owned(&[("call", call.name()), ("result", result.name())])
            })
        });

        let metrics = Metrics {
            phases,
            admin_calls,
            in_flight: add(
                r,
                "in_flight",
                "In flight by source; absent while the source is unknown",
            ),
            source_up: add(
                r,
                "source_up",
                "1 where the last look at the source succeeded; absent before the first",
            ),
            hooks_open: add(r, "hooks_open", "Hooks held open"),
            hooks_answered: add(r, "hooks_answered", "Hooks answered"),
            hooks_abandoned: add(
                r,
                "hooks_abandoned",
                "Hooks whose waiter hung up before the answer",
            ),
            connections_refused: add(
                r,
                "connections_refused",
                "Connections to the hook port refused because too many were open",
            ),
            late_arrivals: add(
                r,
                "late_arrivals",
                "Requests that arrived after the trigger",
            ),
            requests_cut: add(
                r,
                "requests_cut",
                "Requests in flight when the workload was released before it was idle",
            ),
            drain_seconds: add(r, "drain_seconds", "Since the trigger; 0 before it"),
            drain_deadline: add(
                r,
                "drain_deadline_seconds",
                "Left until the deadline of the drain; absent before the trigger",
            ),
            gate: gate::Slot::register(r),
            registry,
        };
        metrics.set_phase(Phase::Serving);
        metrics
    }

    /// Makes `phase` the current one.
    pub fn set_phase(&self, phase: Phase) {
        for (other, gauge) in Phase::ALL.iter().zip(&self.phases) {
            gauge.set((*other == phase).into());
        }
    }

    /// Notes a look at `source`: what is in flight, or `None` where it is unknown.
    pub fn set_in_flight(&self, source: Source, in_flight: Option<u64>) {
        let label = [("source", source.name())];
        self.source_up
            .get_or_create(&label)
            .set(in_flight.is_some().into());
        match in_flight {
            Some(n) => {
                self.in_flight.get_or_create(&label).set(n);
            }
            None => {
                self.in_flight.remove(&label);
            }
        }
    }

    /// Counts a call to Envoy or its agent that has ended.
    pub fn admin_call(&self, call: Call, result: CallResult) {
        self.admin_calls[call as usize][result as usize].inc();
    }

    /// Notes where the drain's clock stands: seconds since the trigger, and seconds to the deadline.
    pub fn set_drain_clock(&self, since_trigger: f64, to_deadline: f64) {
        self.drain_seconds.set(since_trigger);
        self.drain_deadline.get_or_create(&[]).set(to_deadline);
    }

    /// Counts a hook as open until the guard is dropped.
    pub fn hook_opened(&self) -> OpenGuard {
        self.hooks_open.inc();
        OpenGuard(self.hooks_open.clone())
    }

    /// The whole exposition.
    pub fn encode(&self, format: Format) -> String {
        encode(&self.registry, format)
    }
}

/// Something open, counted by a gauge while this lives.
#[derive(Debug)]
pub struct OpenGuard(Gauge);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Registers a new metric and returns its handle.
pub(crate) fn add<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Registers the version.
pub(crate) fn add_build_info(registry: &mut Registry) {
    let build: Family<Labels<1>, Gauge> = add(registry, "build_info", "Always 1; the version");
    build
        .get_or_create(&[("version", env!("CARGO_PKG_VERSION"))])
        .set(1);
}

/// The whole exposition of a registry.
pub(crate) fn encode(registry: &Registry, format: Format) -> String {
    let mut out = String::new();
    let written = match format {
        Format::OpenMetrics => text::encode(&mut out, registry),
        Format::Prometheus => prometheus_text::encode(&mut out, registry),
    };
    written.expect("a String takes whatever is written to it");
    out
}
