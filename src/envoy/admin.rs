//! Envoy's admin interface: what it is, what it has in flight, and the calls of a drain.

use std::time::Duration;

use crate::config::Address;
use crate::envoy::http::{CallError, Client};
use crate::envoy::version::{self, DOOR_PATH, QUIT_PATH, Version};
use crate::inflight::envoy::Clusters;
use crate::inflight::{EnvoyRequests, EnvoyUpgrades, Reading, upgrades};

#[cfg(test)]
mod tests;

/// Inbound clusters only, by the regular expression `^(inbound|InboundPassthroughCluster|xds-grpc).*`:
/// a mesh of a thousand services otherwise answers with megabytes. An Envoy that does not know
/// `filter` ignores it. `xds-grpc` is in every istio-proxy, so that one without inbound clusters
/// does not answer with an empty body, which could not be believed.
const CLUSTERS_PATH: &str =
    "/clusters?filter=%5E(inbound%7CInboundPassthroughCluster%7Cxds-grpc).*";

/// The longest answer to `/clusters` that is read, in bytes.
const CLUSTERS_MAX: u64 = 64 << 20;

/// The gauges of upgraded inbound connections, by a regular expression that needs no escape, which an
/// older Envoy would not undo.
const UPGRADES_PATH: &str = "/stats?filter=nbound.*downstream_cx_upgrades_active$";

/// The longest answer to it that is read, in bytes: a line a listener.
const UPGRADES_MAX: u64 = 1 << 20;

/// The longest answer to `/server_info` that is read, in bytes. Envoy 1.40's is 100 KiB, most of it a
/// list of extensions.
const SERVER_INFO_MAX: u64 = 4 << 20;

/// An Envoy, by its admin interface.
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
}

impl Admin {
    /// The Envoy whose admin interface is at `address`.
    pub fn new(address: Address) -> Admin {
        Admin {
            client: Client::new(address),
        }
    }

    /// The same with another time limit for each call.
    pub fn with_timeout(self, timeout: Duration) -> Admin {
        Admin {
            client: self.client.with_timeout(timeout),
        }
    }

    /// Its version.
    pub async fn server_info(&self) -> Result<Version, CallError> {
        let mut answer = Vec::new();
        let sink = |piece: &[u8]| answer.extend_from_slice(piece);
        self.client
            .get("/server_info", None, SERVER_INFO_MAX, sink)
            .await?;
        let info = version::parse_server_info(&answer).ok_or(CallError::Malformed)?;
        tracing::debug!(version = %info.version, state = ?info.state, "envoy found");
        Ok(info.version)
    }

    /// What is in flight.
    pub async fn clusters(&self) -> Reading<EnvoyRequests> {
        let mut clusters = Clusters::default();
        let sink = |piece: &[u8]| clusters.feed(piece);
        match self
            .client
            .get(CLUSTERS_PATH, None, CLUSTERS_MAX, sink)
            .await
        {
            Ok(()) => clusters.finish(),
            Err(error) => Reading::Unknown(error.into()),
        }
    }

    /// How many upgraded connections are open.
    pub async fn upgrades(&self) -> Reading<EnvoyUpgrades> {
        let mut answer = Vec::new();
        let sink = |piece: &[u8]| answer.extend_from_slice(piece);
        match self
            .client
            .get(UPGRADES_PATH, None, UPGRADES_MAX, sink)
            .await
        {
            Ok(()) => upgrades::parse(&answer),
            Err(error) => Reading::Unknown(error.into()),
        }
    }

    /// Asks inbound clients to leave, in the way this version needs; refuses nobody.
    pub async fn drain_inbound(&self, version: Option<Version>) -> Result<(), CallError> {
        self.client.post(version::drain_path(version)).await
    }

    /// Refuses new inbound connections from now on.
    pub async fn close_door(&self) -> Result<(), CallError> {
        self.client.post(DOOR_PATH).await
    }

    /// Ends Envoy at once, whatever is in flight. It may die before its answer is out, so that a
    /// connection that breaks after the request was sent is success.
    pub async fn quit(&self) -> Result<(), CallError> {
        self.client.post_last(QUIT_PATH).await
    }
}
