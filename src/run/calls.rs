//! Calls to Envoy and its agent, each retried with backoff until it succeeds, until there is nobody
//! to call, or until the state machine says that it no longer matters.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::driver::Input;
use crate::config::Config;
use crate::drain::{Call, CallResult};
use crate::envoy::admin::Admin;
use crate::envoy::agent::Agent;
use crate::envoy::backoff::Backoff;
use crate::envoy::http::CallError;
use crate::envoy::version::{Version, outbound_notified};

/// Attempts to learn Envoy's version before it is drained in the way that every version knows.
const VERSION_ATTEMPTS: u32 = 3;

/// How long an agent without `/drain` may take to get its SIGTERM, once released, before Envoy is
/// quit all the same.
const AGENT_SIGNALLED: Duration = Duration::from_secs(1);

/// How often that agent is looked at.
const AGENT_LOOK: Duration = Duration::from_millis(50);

/// Makes the calls.
pub(super) struct Caller {
    admin: Admin,
    agent: Agent,
    inputs: mpsc::Sender<Input>,
    running: BTreeMap<Call, AbortHandle>,
}

impl Caller {
    pub(super) fn new(config: &Config, inputs: mpsc::Sender<Input>) -> Caller {
        Caller {
            admin: Admin::new(config.envoy_admin.clone()),
            agent: Agent::new(config.agent.clone()),
            inputs,
            running: BTreeMap::new(),
        }
    }

    /// Begins a call; its end comes as [`Input::Called`], each failure as [`Input::CallFailed`].
    pub(super) fn begin(&mut self, call: Call, tasks: &mut JoinSet<()>) {
        let attempts = Attempts {
            admin: self.admin.clone(),
            agent: self.agent.clone(),
            inputs: self.inputs.clone(),
            call,
            backoff: Backoff::default(),
        };
        self.running.insert(call, tasks.spawn(attempts.run()));
    }

    /// Stops trying; `true`: it had not succeeded.
    pub(super) fn abandon(&mut self, call: Call) -> bool {
        let Some(handle) = self.running.remove(&call) else {
            return false;
        };
        // It may have ended already, its word still on the way to the driver.
        let ended = handle.is_finished();
        handle.abort();
        !ended
    }

    /// Forgets a call that has ended.
    pub(super) fn ended(&mut self, call: Call) {
        self.running.remove(&call);
    }

    /// Looks for a mesh until one answers; each look comes as [`Input::Mesh`].
    pub(super) fn find_mesh(&self, tasks: &mut JoinSet<()>) {
        let (admin, agent, inputs) = (self.admin.clone(), self.agent.clone(), self.inputs.clone());
        tasks.spawn(async move {
            let mut backoff = Backoff::default();
            loop {
                let (envoy, agent) = tokio::join!(admin.server_info(), agent.listening());
                let refused = |error| error == CallError::Refused;
                let present = !(envoy.is_err_and(refused) && agent.is_err_and(refused));
                let found = Input::Mesh {
                    present,
                    version: envoy.ok(),
                };
                if inputs.send(found).await.is_err() || envoy.is_ok() {
                    return;
                }
                sleep(backoff.delay()).await;
            }
        });
    }
}

/// One call and its attempts.
struct Attempts {
    admin: Admin,
    agent: Agent,
    inputs: mpsc::Sender<Input>,
    call: Call,
    backoff: Backoff,
}

impl Attempts {
    async fn run(mut self) {
        let result = match self.call {
            Call::DrainInbound => self.drain_inbound().await,
            Call::CloseDoor => {
                self.until_done(async |calls| calls.admin.close_door().await)
                    .await
            }
            Call::DrainAgent => {
                self.until_done(async |calls| calls.agent.drain().await)
                    .await
            }
            Call::QuitEnvoy => {
                self.until_done(async |calls| calls.admin.quit().await)
                    .await
            }
            Call::QuitEnvoyAfterAgent => {
                self.agent_signalled().await;
                self.until_done(async |calls| calls.admin.quit().await)
                    .await
            }
        };
        self.tell(Input::Called {
            call: self.call,
            result,
        })
        .await;
    }

    async fn until_done(
        &mut self,
        attempt: impl AsyncFn(&Attempts) -> Result<(), CallError>,
    ) -> CallResult {
        loop {
            match attempt(self).await {
                Ok(()) => return CallResult::Done,
                Err(error) => {
                    self.failed(error).await;
                    match error {
                        CallError::Refused => return CallResult::Gone,
                        CallError::Status(404 | 405) => return CallResult::Unsupported,
                        _ => sleep(self.backoff.delay()).await,
                    }
                }
            }
        }
    }

    /// An Envoy that refuses may be on its way up, so this one goes on until it is abandoned.
    async fn drain_inbound(&mut self) -> CallResult {
        let version = self.version().await;
        if outbound_notified(version) {
            tracing::warn!(
                version = version.map(|version| version.to_string()),
                "this Envoy marks outbound answers `connection: close` too while it drains"
            );
        }
        loop {
            match self.admin.drain_inbound(version).await {
                Ok(()) => return CallResult::Done,
                Err(error) => self.failed(error).await,
            }
            sleep(self.backoff.delay()).await;
        }
    }

    async fn version(&mut self) -> Option<Version> {
        let mut attempts = 0;
        loop {
            match self.admin.server_info().await {
                Ok(version) => return Some(version),
                Err(error) => {
                    self.failed(error).await;
                    // Where there is nobody to drain, asking for the version later is as good.
                    attempts += u32::from(error != CallError::Refused);
                }
            }
            if attempts == VERSION_ATTEMPTS {
                return None;
            }
            sleep(self.backoff.delay()).await;
        }
    }

    /// Waits until the agent closes its port, which is the first thing it does on SIGTERM.
    async fn agent_signalled(&self) {
        let deadline = Instant::now() + AGENT_SIGNALLED;
        while Instant::now() < deadline {
            if self.agent.listening().await == Err(CallError::Refused) {
                return;
            }
            sleep(AGENT_LOOK).await;
        }
    }

    async fn failed(&self, error: CallError) {
        let call = self.call;
        self.tell(Input::CallFailed { call, error }).await;
    }

    /// The driver is gone only where the whole process is about to be.
    async fn tell(&self, input: Input) {
        let _ = self.inputs.send(input).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Address;

    #[tokio::test]
    async fn a_call_that_has_just_ended_is_not_given_up() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = Config::resolve(|_| None, |_| None).unwrap();
        config.envoy_admin = Address::Tcp(closed.local_addr().unwrap());
        drop(closed);
        let (inputs, mut told) = mpsc::channel(4);
        let mut caller = Caller::new(&config, inputs);
        let mut tasks = JoinSet::new();
        caller.begin(Call::QuitEnvoy, &mut tasks);
        assert!(caller.abandon(Call::QuitEnvoy), "not begun yet");
        caller.begin(Call::QuitEnvoy, &mut tasks);
        let mut ended = false;
        while !ended {
            ended = matches!(told.recv().await, Some(Input::Called { .. }));
        }
        tokio::task::yield_now().await;
        assert!(!caller.abandon(Call::QuitEnvoy));
    }
}
