//! What goes on in a pod while it is deleted, and what may be lost of it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::pods::Protocol;

/// A kind of cell.
#[derive(Debug)]
pub(crate) struct Kind {
    /// In the names of cells and pods.
    pub(crate) name: &'static str,
    /// For readers.
    pub(crate) title: &'static str,
    /// The arguments of the app.
    pub(crate) app: &'static [&'static str],
    /// The revision's, seconds.
    pub(crate) timeout: u64,
    pub(crate) protocol: Protocol,
    pub(crate) requests: &'static [Request],
    pub(crate) play: Play,
    /// The grace period that the DELETE asks for, where it is not the pod's own; seconds.
    pub(crate) grace: Option<u64>,
    /// The longest from the DELETE until the last container has ended, with Tidegate; seconds. What the
    /// kubelet then does until the pod is gone takes it as long as it is busy.
    pub(crate) ends_within: f64,
    /// What may be lost or cut in spite of Tidegate.
    pub(crate) losses: &'static [Loss],
    /// Why a preStop hook may fail in spite of Tidegate, where one may.
    pub(crate) hooks_fail: Option<&'static str>,
    /// An annotation that a configuration of this name needs.
    pub(crate) annotation: Option<(&'static str, &'static str, &'static str)>,
    pub(crate) needs: Needs,
    pub(crate) turn: Turn,
}

/// A request that is in flight when the pod is deleted.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) name: &'static str,
    pub(crate) ask: Ask,
    /// Seconds from its start to the DELETE.
    pub(crate) before: f64,
}

/// What is asked of the app; seconds.
#[derive(Debug)]
pub(crate) enum Ask {
    Slow { seconds: u64, headers: &'static str },
    Stream { seconds: u64 },
    Grpc { seconds: u64 },
    WebSocket { seconds: u64 },
    Big { bytes: u64, rate: u64 },
}

/// How a cell goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Play {
    /// The pod is deleted under its requests.
    Drain,
    /// The same, and so long after the DELETE all processes of this name in a container are killed.
    Kill {
        after: Duration,
        container: &'static str,
        process: &'static str,
    },
    /// The user container fails its livenessProbe under load; then the pod is deleted.
    Restart,
    /// One of two pods under load is deleted, then both are replaced.
    Rollout,
}

/// What may be lost in spite of Tidegate.
#[derive(Debug)]
pub(crate) struct Loss {
    /// The request's name.
    pub(crate) request: &'static str,
    pub(crate) why: &'static str,
}

/// What there must be for a cell to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Mesh,
    /// Beside the path.
    Tidegate,
    /// In the path.
    Gate,
}

/// When it is played: cells of one turn run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Begun first, since it lasts.
    Long,
    /// Few at once.
    Load,
    /// All others.
    Short,
    /// Without istiod, and so without new pods in the mesh.
    Last,
}

const DRAIN: Kind = Kind {
    name: "",
    title: "",
    app: &[],
    timeout: 300,
    protocol: Protocol::Http1,
    requests: &[],
    play: Play::Drain,
    grace: None,
    ends_within: 50.0,
    losses: &[],
    hooks_fail: None,
    annotation: None,
    needs: Needs::Nothing,
    turn: Turn::Short,
};

const fn slow(name: &'static str, seconds: u64, headers: &'static str) -> Request {
    Request {
        name,
        ask: Ask::Slow { seconds, headers },
        before: 2.0,
    }
}

const fn request(name: &'static str, ask: Ask) -> Request {
    Request {
        name,
        ask,
        before: 2.0,
    }
}

/// Nobody can tell Tidegate of a WebSocket where there is no Envoy, as the README says.
const WEBSOCKETS_WITHOUT_MESH: Option<(&str, &str, &str)> =
    Some(("no-mesh", "tidegate.dev/hold-queue-proxy", "always"));

/// From the DELETE until something is killed: Tidegate drains by then.
const MID_DRAIN: Duration = Duration::from_secs(8);

/// All of them, in the order in which readers see them.
pub(crate) static ALL: [Kind; 18] = [
    Kind {
        name: "idle",
        title: "idle",
        ..DRAIN
    },
    Kind {
        name: "20s",
        title: "20 s requests",
        requests: &[
            slow("headers first", 20, "first"),
            slow("headers last", 20, "last"),
        ],
        ..DRAIN
    },
    Kind {
        name: "40s",
        title: "40 s requests",
        requests: &[
            slow("headers first", 40, "first"),
            slow("headers last", 40, "last"),
        ],
        ends_within: 55.0,
        ..DRAIN
    },
    Kind {
        name: "50s-exits",
        title: "50 s request, app exits on SIGTERM",
        app: &["--on-sigterm", "exit"],
        requests: &[slow("request", 50, "last")],
        ends_within: 65.0,
        ..DRAIN
    },
    Kind {
        name: "timeout-10",
        title: "timeoutSeconds 10, 9 s request",
        timeout: 10,
        requests: &[Request {
            before: 0.5,
            ..slow("request", 9, "last")
        }],
        ..DRAIN
    },
    Kind {
        name: "h2c-45s",
        title: "h2c stream of 45 s",
        protocol: Protocol::H2c,
        requests: &[request("stream", Ask::Stream { seconds: 45 })],
        ends_within: 90.0,
        ..DRAIN
    },
    Kind {
        name: "h2c-120s",
        title: "h2c stream of 120 s",
        protocol: Protocol::H2c,
        requests: &[request("stream", Ask::Stream { seconds: 120 })],
        ends_within: 165.0,
        turn: Turn::Long,
        ..DRAIN
    },
    Kind {
        name: "ws-60s",
        title: "WebSocket of 60 s",
        requests: &[request("websocket", Ask::WebSocket { seconds: 60 })],
        ends_within: 105.0,
        annotation: WEBSOCKETS_WITHOUT_MESH,
        ..DRAIN
    },
    Kind {
        name: "ws-120s",
        title: "WebSocket of 120 s",
        requests: &[request("websocket", Ask::WebSocket { seconds: 120 })],
        ends_within: 165.0,
        annotation: WEBSOCKETS_WITHOUT_MESH,
        turn: Turn::Long,
        ..DRAIN
    },
    Kind {
        name: "grpc-45s",
        title: "gRPC stream of 45 s",
        protocol: Protocol::H2c,
        requests: &[request("stream", Ask::Grpc { seconds: 45 })],
        ends_within: 90.0,
        ..DRAIN
    },
    Kind {
        name: "slow-reader",
        title: "12 MB, read slowly",
        requests: &[request(
            "download",
            Ask::Big {
                bytes: 12_000_000,
                rate: 300_000,
            },
        )],
        ends_within: 55.0,
        ..DRAIN
    },
    Kind {
        name: "rollout",
        title: "200 rps while pods are replaced",
        play: Play::Rollout,
        ends_within: 120.0,
        turn: Turn::Load,
        ..DRAIN
    },
    Kind {
        name: "restart",
        title: "liveness restart under load",
        requests: &[Request {
            before: 0.0,
            ..slow("request", 6, "last")
        }],
        play: Play::Restart,
        losses: &[Loss {
            request: "load",
            why: "the only user container is down while it is started again",
        }],
        ..DRAIN
    },
    Kind {
        name: "grace-short",
        title: "DELETE with a grace period of 20 s",
        requests: &[slow("15 s", 15, "last"), slow("40 s", 40, "last")],
        grace: Some(20),
        losses: &[Loss {
            request: "40 s",
            why: "it takes longer than the grace period that the DELETE leaves",
        }],
        hooks_fail: Some("the kubelet ends them with the grace period"),
        ..DRAIN
    },
    Kind {
        name: "tidegate-killed",
        title: "Tidegate killed",
        timeout: 30,
        requests: &[
            slow("headers first", 20, "first"),
            slow("headers last", 20, "last"),
        ],
        play: Play::Kill {
            after: MID_DRAIN,
            container: "tidegate",
            process: "tidegate",
        },
        // istio-proxy waits for a release that does not come, for the grace period of 63 s.
        ends_within: 80.0,
        hooks_fail: Some("who would answer them was killed"),
        needs: Needs::Tidegate,
        ..DRAIN
    },
    Kind {
        name: "gate-killed",
        title: "Tidegate killed, in the path",
        timeout: 30,
        requests: &[slow("request", 20, "last")],
        play: Play::Kill {
            after: MID_DRAIN,
            container: "tidegate",
            process: "tidegate",
        },
        ends_within: 80.0,
        losses: &[Loss {
            request: "request",
            why: "it ran through the gate that was killed",
        }],
        hooks_fail: Some("who would answer them was killed"),
        needs: Needs::Gate,
        ..DRAIN
    },
    Kind {
        name: "envoy-killed",
        title: "Envoy killed",
        requests: &[slow("request", 20, "last")],
        play: Play::Kill {
            // Before the 5 s after which Istio's default ends it anyway.
            after: Duration::from_secs(4),
            container: "istio-proxy",
            process: "envoy",
        },
        losses: &[Loss {
            request: "request",
            why: "it ran through the Envoy that was killed",
        }],
        hooks_fail: Some("istio-proxy's own ends with it"),
        needs: Needs::Mesh,
        ..DRAIN
    },
    Kind {
        name: "istiod-gone",
        title: "istiod gone, 20 s requests",
        requests: &[
            slow("headers first", 20, "first"),
            slow("headers last", 20, "last"),
        ],
        needs: Needs::Mesh,
        turn: Turn::Last,
        ..DRAIN
    },
];

impl Kind {
    /// Why this request may be lost in spite of Tidegate, where it may.
    pub(crate) fn may_lose(&self, request: &str) -> Option<&'static str> {
        let loss = self.losses.iter().find(|loss| loss.request == request);
        loss.map(|loss| loss.why)
    }

    /// From the first request to the DELETE, in seconds.
    pub(crate) fn lead(&self) -> f64 {
        let leads = self.requests.iter().map(|request| request.before);
        leads.fold(0.0, f64::max)
    }
}

impl Ask {
    /// As a plan of lab-app's says it.
    pub(crate) fn plan(&self) -> Value {
        match *self {
            Ask::Slow { seconds, headers } => {
                json!({"kind": "slow", "seconds": seconds, "headers": headers})
            }
            Ask::Stream { seconds } => json!({"kind": "stream", "seconds": seconds}),
            Ask::Grpc { seconds } => json!({"kind": "grpc", "seconds": seconds}),
            Ask::WebSocket { seconds } => json!({"kind": "websocket", "seconds": seconds}),
            Ask::Big { bytes, rate } => json!({"kind": "big", "bytes": bytes, "rate": rate}),
        }
    }
}
