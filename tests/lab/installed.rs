//! Tidegate on the node, as its own documentation installs it.

use std::time::Duration;

use anyhow::Result;
use tokio::process::Command;

use crate::cluster::Lab;
use crate::node::output_of;

/// Where `tidegate install` puts the webhook, and its name.
pub(crate) const NAMESPACE: &str = "tidegate";
pub(crate) const NAME: &str = "tidegate-webhook";
/// The image that it names, as containerd spells it: a name without a registry is Docker's.
pub(crate) const REPOSITORY: &str = "docker.io/library/tidegate";

const INSTALL_LIMIT: Duration = Duration::from_secs(20);
const READY_LIMIT: Duration = Duration::from_secs(120);

/// `tidegate install | kubectl apply -f -`, and waits until the webhook's Deployment is available.
pub(crate) async fn install(lab: &Lab) -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("install").env_clear().kill_on_drop(true);
    let manifest = output_of(command, INSTALL_LIMIT, "tidegate install").await?;
    lab.kubectl_with(&manifest, &["apply", "-f", "-"]).await?;
    lab.wait_available(NAMESPACE, NAME, READY_LIMIT).await
}
