//! Fetches queue-proxy's report over HTTP.

use std::time::Duration;

use crate::config::Address;
use crate::envoy::http::Client;
use crate::inflight::{QueueRequests, Reading, queue};

#[cfg(test)]
mod tests;

/// The longest report that is read, in bytes. Real ones are under 200.
const REPORT_MAX: u64 = 64 << 10;

/// As Knative's autoscaler asks; some queue-proxies otherwise answer with Prometheus's text.
const PROTOBUF: &str = "application/protobuf";

/// A queue-proxy, by its metrics port.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    client: Client,
}

impl QueueMetrics {
    /// The queue-proxy whose metrics are at `address`.
    pub fn new(address: Address) -> QueueMetrics {
        QueueMetrics {
            client: Client::new(address),
        }
    }

    /// The same with another time limit for each call.
    pub fn with_timeout(self, timeout: Duration) -> QueueMetrics {
        QueueMetrics {
            client: self.client.with_timeout(timeout),
        }
    }

    /// What is in flight.
    pub async fn read(&self) -> Reading<QueueRequests> {
        let mut report = Vec::new();
        let sink = |piece: &[u8]| report.extend_from_slice(piece);
        match self
            .client
            .get("/metrics", Some(PROTOBUF), REPORT_MAX, sink)
            .await
        {
            Ok(()) => queue::parse(&report),
            Err(error) => Reading::Unknown(error.into()),
        }
    }
}
