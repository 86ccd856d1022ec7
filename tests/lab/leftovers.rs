//! What a node takes of the machine, and that all of it is given back: also after a runner that was
//! killed.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::cgroups;
use crate::config::PODS;
use crate::images::sha256_hex;

/// How long the kernel may take to end a node that was killed.
const KILL_LIMIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
/// The namespaces of a process, below `/proc/PID/ns`.
const NAMESPACES: [&str; 5] = ["pid", "net", "mnt", "ipc", "uts"];
/// What a kubelet, a containerd or a CNI plugin would leave on a machine that is theirs.
const FOLDERS: [&str; 8] = [
    "/etc/cni",
    "/run/containerd",
    "/run/netns",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
];

/// The one runner that may use a lab's folder.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Fails where another runner holds it; a runner that was killed does not.
    pub(crate) fn take(lab: &Path) -> Result<Lock> {
        fs::create_dir_all(lab)?;
        let path = lab.join("lock");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => bail!(
                "another ./test lab uses {}: wait for it, or set TIDEGATE_LAB_DIR",
                lab.display()
            ),
            Err(TryLockError::Error(error)) => Err(error).context("no lock"),
        }
    }
}

/// What belongs to the node in a lab's folder, whoever started it.
pub(crate) struct Owned {
    lab: PathBuf,
    cgroup: String,
}

impl Owned {
    pub(crate) fn of(lab: &Path) -> Owned {
        let place = sha256_hex(lab.as_os_str().as_bytes());
        Owned {
            lab: lab.to_owned(),
            cgroup: format!("tidegate-lab-{}", &place[..8]),
        }
    }

    /// Makes its folder and its cgroup.
    pub(crate) fn claim(lab: &Path) -> Result<Owned> {
        let owned = Owned::of(lab);
        fs::create_dir_all(owned.node())?;
        cgroups::create(&owned.cgroup)?;
        Ok(owned)
    }

    pub(crate) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    fn node(&self) -> PathBuf {
        self.lab.join("node")
    }

    /// Where the logs of the node's programs are once it is down, until the next one is.
    pub(crate) fn logs(&self) -> PathBuf {
        self.lab.join("logs")
    }

    fn pid_file(&self) -> PathBuf {
        self.node().join("pid")
    }

    fn kept_file(&self) -> PathBuf {
        self.node().join("kept")
    }

    /// Remembers the process that holds the node, and when it started: its number may be another's
    /// later.
    pub(crate) fn started(&self, pid: u32) -> Result<()> {
        let birth = birth(pid).context("the node ended at once")?;
        fs::write(self.pid_file(), format!("{pid} {birth}"))?;
        Ok(())
    }

    /// Remembers that the node is to stay.
    pub(crate) fn keep(&self) -> Result<()> {
        fs::write(self.kept_file(), "")?;
        Ok(())
    }

    /// Whether it runs and is to stay.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept_file().exists() && self.holder().is_some()
    }

    fn holder(&self) -> Option<u32> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        let (pid, born) = text.split_once(' ')?;
        let pid = pid.parse().ok()?;
        (birth(pid)? == born).then_some(pid)
    }

    /// Ends the node, if it runs, and removes all that is its but the logs. Returns the namespaces it had.
    pub(crate) async fn take_down(&self) -> Result<Namespaces> {
        let mut namespaces = Namespaces::default();
        if let Some(holder) = self.holder() {
            namespaces = Namespaces::of_child(holder);
            kill(holder)?;
            let deadline = Instant::now() + KILL_LIMIT;
            while !namespaces.members().is_empty() {
                if Instant::now() > deadline {
                    bail!("processes {:?} do not end", namespaces.members());
                }
                sleep(LOOK).await;
            }
        }
        cgroups::remove(&self.cgroup).await?;
        let logs = self.node().join("logs");
        if logs.exists() {
            let _ = fs::remove_dir_all(self.logs());
            fs::rename(logs, self.logs())?;
        }
        match fs::remove_dir_all(self.node()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("{} stays", self.node().display()))
            }
            _ => Ok(namespaces),
        }
    }
}

/// When a process started, as the kernel counts; absent where there is none.
fn birth(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is its name, which may hold anything; this is the 22nd.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19).map(str::to_owned)
}

fn kill(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match kill_process(pid.context("no process")?, Signal::KILL) {
        Err(error) if error != rustix::io::Errno::SRCH => Err(error).context("the node stays"),
        _ => Ok(()),
    }
}

// ===== what must not be left =====

/// A node's namespaces, as the links below `/proc/PID/ns` name them.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(BTreeSet<PathBuf>);

impl Namespaces {
    /// Those of `unshare` and of its child, the only one in the one for processes, that are not the
    /// machine's.
    pub(crate) fn of_child(holder: u32) -> Namespaces {
        let children = format!("/proc/{holder}/task/{holder}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let own: BTreeSet<PathBuf> = links(&holder.to_string()).collect();
        let theirs = children.split_whitespace().flat_map(links);
        let machine: BTreeSet<PathBuf> = links("self").collect();
        Namespaces(
            theirs
                .chain(own)
                .filter(|link| !machine.contains(link))
                .collect(),
        )
    }

    /// The processes in any of them.
    pub(crate) fn members(&self) -> Vec<String> {
        let Ok(processes) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        processes
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            .filter(|pid| links(pid).any(|link| self.0.contains(&link)))
            .collect()
    }
}

fn links(pid: &str) -> impl Iterator<Item = PathBuf> {
    let folder = format!("/proc/{pid}/ns");
    NAMESPACES
        .into_iter()
        .filter_map(move |kind| fs::read_link(format!("{folder}/{kind}")).ok())
}

/// The machine before a run, to compare it with later.
pub(crate) struct Before {
    folders: BTreeSet<&'static str>,
    links: BTreeSet<String>,
    rules: BTreeSet<String>,
}

impl Before {
    pub(crate) fn look() -> Before {
        Before {
            folders: folders(),
            links: network_links(),
            rules: rules(),
        }
    }

    /// What a node of this lab has left: one line each.
    pub(crate) fn left(&self, lab: &Path, namespaces: &Namespaces) -> Result<Vec<String>> {
        let owned = Owned::of(lab);
        let mut left = Vec::new();
        left.extend(
            namespaces
                .members()
                .iter()
                .map(|pid| format!("process {pid}")),
        );
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let node = owned.node().display().to_string();
        let mounts = mounts.lines().filter(|line| line.contains(&node));
        left.extend(mounts.map(|line| format!("mount {line}")));
        let cgroups = cgroups::folders(&owned.cgroup)?;
        left.extend(
            cgroups
                .iter()
                .map(|folder| format!("cgroup {}", folder.display())),
        );
        left.extend(owned.node().exists().then(|| format!("folder {node}")));
        let new = |what: &str, now: BTreeSet<String>, before: &BTreeSet<String>| {
            now.difference(before)
                .map(|name| format!("{what} {name}"))
                .collect::<Vec<_>>()
        };
        left.extend(new("network link", network_links(), &self.links));
        left.extend(new("iptables rule", rules(), &self.rules));
        left.extend(
            folders()
                .difference(&self.folders)
                .map(|folder| format!("folder {folder}")),
        );
        Ok(left)
    }
}

fn folders() -> BTreeSet<&'static str> {
    FOLDERS
        .into_iter()
        .filter(|folder| Path::new(folder).exists())
        .collect()
}

/// Those that a node or a CNI plugin might have made.
fn network_links() -> BTreeSet<String> {
    let Ok(links) = fs::read_dir("/sys/class/net") else {
        return BTreeSet::new();
    };
    links
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name == "node" || name.starts_with("veth"))
        .collect()
}

/// Those that a kube-proxy, an istio-init or a CNI plugin might have made; others' come and go.
fn rules() -> BTreeSet<String> {
    let ours = |line: &&str| {
        let network = PODS.trim_end_matches("0/23");
        ["KUBE-", "ISTIO_", "CNI-", network]
            .iter()
            .any(|sign| line.contains(sign))
    };
    let output = Command::new("iptables-save").output();
    let saved = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    saved
        .unwrap_or_default()
        .lines()
        .filter(ours)
        .map(str::to_owned)
        .collect()
}
