//! Writes the node's configuration: the files below `node/`, its certificates, its kubeconfig.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::images;
use crate::pki::{self, Authority, Identity};

/// The node's own address.
pub(crate) const NODE: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 1);
/// Where pods get their addresses from.
pub(crate) const PODS: &str = "10.88.0.0/23";
/// Where Services get theirs from, and the API server's own.
pub(crate) const SERVICES: &str = "10.90.0.0/22";
const API_SERVICE: &str = "10.90.0.1";

const INIT: &str = include_str!("node/init.sh");

/// Writes everything into `dir` for a node whose pods live in this cgroup; returns the script that
/// starts it.
pub(crate) fn write(dir: &Path, cgroup: &str) -> Result<PathBuf> {
    for folder in ["cni", "pki", "logs", "pod-logs"] {
        fs::create_dir_all(dir.join(folder))?;
    }
    let shown = dir.to_str().context("the lab's folder is not UTF-8")?;
    let node = NODE.to_string();
    let values = [
        ("dir", shown),
        ("cgroup", cgroup),
        ("pause", images::PAUSE),
        ("node", &node),
        ("pods", PODS),
    ];
    let templates = [
        ("containerd.toml", include_str!("node/containerd.toml")),
        ("cni/lab.conflist", include_str!("node/lab.conflist")),
        ("kubelet.yaml", include_str!("node/kubelet.yaml")),
        ("kube-proxy.yaml", include_str!("node/kube-proxy.yaml")),
        ("Corefile", include_str!("node/Corefile")),
    ];
    for (file, template) in templates {
        fs::write(dir.join(file), render(template, &values)?)?;
    }
    certificates(dir)?;
    kubeconfig(dir)?;
    let init = dir.join("init.sh");
    fs::write(&init, INIT)?;
    Ok(init)
}

/// Puts values in the place of `{{NAME}}`.
pub(crate) fn render(template: &str, values: &[(&str, &str)]) -> Result<String> {
    let filled = values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{{{name}}}}}"), value)
        });
    match filled.find("{{") {
        Some(at) => bail!("nothing fills {:?}", filled[at..].lines().next()),
        None => Ok(filled),
    }
}

fn certificates(dir: &Path) -> Result<()> {
    let pki = dir.join("pki");
    let authority = Authority::new("the lab");
    fs::write(pki.join("ca.crt"), authority.pem())?;
    let node = NODE.to_string();
    let server = authority.server(&[
        "127.0.0.1",
        &node,
        API_SERVICE,
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]);
    write_identity(&pki, "apiserver", &server)?;
    write_identity(&pki, "admin", &authority.client("lab", "system:masters"))?;
    let accounts = pki::key();
    fs::write(pki.join("accounts.pub"), accounts.public_key_pem())?;
    fs::write(pki.join("accounts.key"), accounts.serialize_pem())?;
    Ok(())
}

fn write_identity(pki: &Path, name: &str, identity: &Identity) -> Result<()> {
    fs::write(pki.join(format!("{name}.crt")), &identity.cert)?;
    fs::write(pki.join(format!("{name}.key")), &identity.key)?;
    Ok(())
}

/// The administrator's, for everything in the node that talks to the API server.
fn kubeconfig(dir: &Path) -> Result<()> {
    let pki = dir.join("pki");
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "lab",
            "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority": pki.join("ca.crt")},
        }],
        "users": [{
            "name": "admin",
            "user": {"client-certificate": pki.join("admin.crt"), "client-key": pki.join("admin.key")},
        }],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "admin"}}],
        "current-context": "lab",
    });
    fs::write(dir.join("kubeconfig"), config.to_string())?;
    Ok(())
}
