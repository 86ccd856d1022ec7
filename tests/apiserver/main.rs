//! Tests on a real Kubernetes API server, each in a network namespace of its own: run them by
//! `./test apiserver`, as root.

mod admission;
mod cluster;
mod fixtures;
mod harness;
mod installed;
mod istio;
#[path = "../support/kubectl.rs"]
mod kubectl;
mod mesh;
#[path = "../support/netns.rs"]
mod netns;
#[path = "../support/pki.rs"]
mod pki;
#[path = "../support/pods.rs"]
mod pods;

mod program;
mod selection;
#[path = "../support/tied.rs"]
mod tied;
#[path = "../support/wait.rs"]
mod wait;
