//! `tidegate install`: prints the objects that run the webhook, as YAML for `kubectl apply`.

mod certs;
mod objects;
#[cfg(test)]
mod tests;

use std::io::Write;

use serde_json::Value;

use crate::exit;
use crate::inject::{Cluster, yaml};

pub use certs::{CertsError, SelfSigned};
pub use objects::objects;

/// The name of everything that is installed, the configuration apart.
pub const NAME: &str = "tidegate-webhook";
/// The name of the MutatingWebhookConfiguration. The API server calls configurations in the order of
/// their names, and this one comes before Istio's and KServe's.
pub const CONFIGURATION: &str = "drain.tidegate.dev";
/// A namespace with this label "disabled" is left alone.
pub const NAMESPACE_LABEL: &str = "tidegate.dev/injection";
/// How long the certificates of [`Certs::SelfSigned`] are valid.
pub const SELF_SIGNED_DAYS: u32 = 3650;

/// Who makes the webhook's certificate and tells the API server whom to trust.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certs {
    /// `tidegate install`, once.
    #[default]
    SelfSigned,
    /// cert-manager, which also renews it.
    CertManager,
    /// OpenShift's service CA, which also renews it.
    OpenShift,
}

impl Certs {
    /// All of them.
    pub const ALL: [Certs; 3] = [Certs::SelfSigned, Certs::CertManager, Certs::OpenShift];

    /// What the flag calls it.
    pub fn name(self) -> &'static str {
        match self {
            Certs::SelfSigned => "self-signed",
            Certs::CertManager => "cert-manager",
            Certs::OpenShift => "openshift",
        }
    }
}

/// What `tidegate install` was told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The webhook's namespace.
    pub namespace: String,
    /// How many webhooks run.
    pub replicas: u32,
    /// Who makes the certificate.
    pub certs: Certs,
    /// Whether the webhook's pods get a NetworkPolicy.
    pub network_policy: bool,
    /// What the webhook injects with; its image is the webhook's own as well.
    pub cluster: Cluster,
}

/// Prints the objects; returns the process's exit code.
pub fn main(options: &Options) -> u8 {
    let tls = match options.certs {
        Certs::SelfSigned => match SelfSigned::generate(NAME, &options.namespace) {
            Ok(tls) => Some(tls),
            Err(error) => {
                eprintln!("tidegate: {error}");
                return exit::SOFTWARE;
            }
        },
        Certs::CertManager | Certs::OpenShift => None,
    };
    let text = match print(&objects(options, tls.as_ref())) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("tidegate: {error}");
            return exit::SOFTWARE;
        }
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("tidegate: cannot write: {error}");
            exit::IO
        }
    }
}

fn print(objects: &[Value]) -> Result<String, String> {
    let mut text = String::new();
    for object in objects {
        text += "---\n";
        text += &yaml::print(object)?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}
