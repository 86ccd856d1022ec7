//! Says in one line what the machine lacks, before anything is started.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cgroups;
use crate::paths::Paths;

/// What the node and its images take at most; the parts are built before.
const DISK: u64 = 6_000_000_000;
/// Built by `tests/lab/build.sh`.
const PARTS: [&str; 13] = [
    "etcd",
    "kube-apiserver",
    "kubectl",
    "kubelet",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "coredns",
    "queue-proxy",
    "pilot-agent",
    "pilot-discovery",
    "istioctl",
    "envoy_bootstrap.json",
];
/// From Debian: what is looked for, and its package.
const PACKAGES: [(&str, &str); 7] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
];
/// The node has its own of these.
const HIDDEN: [&str; 3] = ["/run", "/var/log", "/var/lib"];

/// Finds all that is missing.
///
/// # Errors
///
/// One line that names it, and how to get it.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the lab needs root for namespaces, mounts and cgroups: run as root");
    }
    let parts = PARTS.iter().map(|part| paths.part(part));
    let files = [&paths.envoy, &paths.tidegate_image, &paths.app];
    let missing: Vec<String> = parts
        .chain(files.into_iter().cloned())
        .filter(|path| !path.exists())
        .map(|path| path.display().to_string())
        .collect();
    if !missing.is_empty() {
        bail!("missing: {}; ./test lab builds them", missing.join(", "));
    }
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(what, _)| !has(what))
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() {
        bail!("missing: apt-get install {}", missing.join(" "));
    }
    let namespaces = [
        "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "true",
    ];
    if !Command::new("unshare")
        .args(namespaces)
        .status()
        .is_ok_and(|s| s.success())
    {
        bail!("root here may not make namespaces: a container needs --privileged");
    }
    cgroups::check()?;
    folder(&paths.dir)
}

fn has(what: &str) -> bool {
    let mut folders = [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ]
    .iter();
    if what.starts_with('/') {
        Path::new(what).exists()
    } else {
        folders.any(|folder| Path::new(folder).join(what).exists())
    }
}

/// The lab's folder holds containers: their layers need a file system of their own kind.
fn folder(dir: &Path) -> Result<()> {
    let shown = dir.display();
    if let Some(hidden) = HIDDEN.iter().find(|hidden| dir.starts_with(hidden)) {
        bail!("{shown} is below {hidden}, which the node hides: set TIDEGATE_LAB_DIR");
    }
    std::fs::create_dir_all(dir)?;
    let stat = rustix::fs::statvfs(dir)?;
    let free = stat.f_bavail * stat.f_frsize;
    if free < DISK {
        bail!(
            "{shown} has {} MB free, the lab needs {}: free some, or set TIDEGATE_LAB_DIR",
            free / 1_000_000,
            DISK / 1_000_000
        );
    }
    /// `OVERLAYFS_SUPER_MAGIC` of linux/magic.h.
    const OVERLAY: i64 = 0x794c_7630;
    if rustix::fs::statfs(dir)?.f_type == OVERLAY {
        bail!("{shown} is on an overlay, which cannot carry another: set TIDEGATE_LAB_DIR");
    }
    Ok(())
}
