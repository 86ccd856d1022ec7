//! What Prometheus sees of the gate; nothing of it where there is none.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter as Count};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::counter::{Counter, Kind};
use crate::metrics::Labels;

/// Figures of one gate; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    /// Connections accepted.
    connections: Count,
    open: Gauge,
    /// Connections closed at once because too many were open.
    pub(super) refused: Count,
    /// Connections whose workload could not be reached.
    pub(super) unreachable: Count,
    doubts: Family<Labels<1>, Count>,
}

impl Metrics {
    pub(super) fn opened(&self) {
        self.connections.inc();
        self.open.inc();
    }

    pub(super) fn closed(&self) {
        self.open.dec();
    }

    /// Counts a connection that is not understood any more.
    pub(super) fn doubt(&self, doubt: &'static str) {
        self.doubts.get_or_create(&[("doubt", doubt)]).inc();
    }
}

/// The place of a gate's figures among all metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot(Arc<OnceLock<(Metrics, Counter)>>);

impl Slot {
    /// An empty place in `registry`.
    pub(crate) fn register(registry: &mut Registry) -> Slot {
        let slot = Slot::default();
        registry.register_collector(Box::new(slot.clone()));
        slot
    }

    /// Shows these from now on; there is one gate in a process.
    pub(super) fn show(&self, metrics: &Metrics, counter: &Counter) {
        let _ = self.0.set((metrics.clone(), counter.clone()));
    }
}

impl Collector for Slot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some((metrics, counter)) = self.0.get() else {
            return Ok(());
        };
        let Metrics {
            connections,
            open,
            refused,
            unreachable,
            doubts,
        } = metrics;
        let active: Family<Labels<1>, Gauge> = Family::default();
        for kind in Kind::ALL {
            let count = i64::try_from(counter.active(kind)).unwrap_or(i64::MAX);
            active.get_or_create(&[("kind", kind.name())]).set(count);
        }
        let figures: [(&str, &str, &dyn Figure); 9] = [
            ("gate_connections", "Connections to the gate", connections),
            (
                "gate_connections_open",
                "Connections open in the gate",
                open,
            ),
            (
                "gate_connections_refused",
                "Connections to the gate closed because too many were open",
                refused,
            ),
            (
                "gate_unreachable",
                "Connections whose workload could not be reached",
                unreachable,
            ),
            (
                "gate_doubts",
                "Connections that were passed on without being understood",
                doubts,
            ),
            ("gate_active", "In flight in the gate by kind", &active),
            (
                "gate_in_flight",
                "In flight in the gate, and replies that are not written yet",
                &ConstGauge::new(i64::try_from(counter.in_flight()).unwrap_or(i64::MAX)),
            ),
            (
                "gate_admitted",
                "Requests, streams and tunnels that the gate let in, HTTP/1 probes of the kubelet and of Knative left out",
                &ConstCounter::new(counter.total()),
            ),
            (
                "gate_cut",
                "Requests, streams and tunnels that ended unfinished",
                &ConstCounter::new(counter.cut()),
            ),
        ];
        for (name, help, figure) in figures {
            figure.write(&mut encoder, name, help)?;
        }
        Ok(())
    }
}

/// Any figure.
trait Figure {
    fn write(&self, to: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result;
}

impl<M: EncodeMetric> Figure for M {
    fn write(&self, to: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result {
        self.encode(to.encode_descriptor(name, help, None, self.metric_type())?)
    }
}
