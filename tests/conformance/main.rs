//! Conformance suites, each run direct to its backend and through the gate: every case must end the
//! same way. Run them by `./test conformance`, as root.

mod autobahn;
mod curl;
mod drain;
mod grpc;
mod h2spec;
mod harness;
mod hold;
mod http1;
#[path = "../support/netns.rs"]
#[expect(dead_code, reason = "no client here comes from outside of the pod")]
mod netns;
mod process;
mod proxy;
mod relay;
mod script;
#[path = "../support/tied.rs"]
mod tied;
mod tools;
mod verdicts;
#[path = "../support/wait.rs"]
mod wait;
