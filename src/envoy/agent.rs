//! pilot-agent's status port: the process that runs Envoy in an istio-proxy.

use std::time::Duration;

use crate::config::Address;
use crate::envoy::http::{CallError, Client};

#[cfg(test)]
mod tests;

/// A pilot-agent, by its status port.
#[derive(Clone, Debug)]
pub struct Agent {
    client: Client,
}

impl Agent {
    /// The agent whose status port is at `address`.
    pub fn new(address: Address) -> Agent {
        Agent {
            client: Client::new(address),
        }
    }

    /// The same with another time limit for each call.
    pub fn with_timeout(self, timeout: Duration) -> Agent {
        Agent {
            client: self.client.with_timeout(timeout),
        }
    }

    /// Makes the agent leave at once on its SIGTERM, in place of its own wait (Istio 1.21 and newer).
    /// Asked twice, it does nothing more. [`CallError::Status`] of 404: this agent has no such call.
    pub async fn drain(&self) -> Result<(), CallError> {
        self.client.post("/drain").await
    }

    /// Whether the status port accepts connections; [`CallError::Refused`] once the agent has got its
    /// SIGTERM, since it closes the port first of all.
    pub async fn listening(&self) -> Result<(), CallError> {
        self.client.connect().await
    }
}
