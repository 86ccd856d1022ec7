//! The cgroup folder that the node's pods live in: one in each hierarchy of the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

/// How long the kernel may take to forget processes that were killed.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
/// What the kubelet insists on.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// How much of the CPU all pods together get where others want it too, four times what one process gets:
/// times are measured in them. Of cgroup v1 and of v2.
const SHARES: u64 = 4 * 1_024;
const WEIGHT: u64 = 4 * 100;

/// A hierarchy, by where it is mounted.
#[derive(Debug)]
enum Hierarchy {
    V1(PathBuf),
    V2(PathBuf),
}

/// Sets a share, where the hierarchy has the controller.
fn share(file: &Path, share: u64) -> io::Result<()> {
    if file.exists() {
        fs::write(file, share.to_string())?;
    }
    Ok(())
}

impl Hierarchy {
    fn root(&self) -> &Path {
        match self {
            Hierarchy::V1(root) | Hierarchy::V2(root) => root,
        }
    }

    fn create(&self, name: &str) -> io::Result<()> {
        let folder = self.root().join(name);
        match self {
            Hierarchy::V1(root) => {
                create_folder(&folder)?;
                // A new cpuset is empty, and takes no process until it has something.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    if root.join(file).exists() {
                        fs::write(folder.join(file), fs::read(root.join(file))?)?;
                    }
                }
                share(&folder.join("cpu.shares"), SHARES)
            }
            Hierarchy::V2(root) => {
                let there = controllers(root);
                let there = NEEDED
                    .iter()
                    .filter(|needed| there.iter().any(|have| have == *needed));
                for controller in there {
                    fs::write(
                        root.join("cgroup.subtree_control"),
                        format!("+{controller}"),
                    )?;
                }
                create_folder(&folder)?;
                share(&folder.join("cpu.weight"), WEIGHT)
            }
        }
    }
}

/// Whether the kubelet finds the controllers it needs.
pub(crate) fn check() -> Result<()> {
    let hierarchies = hierarchies()?;
    let there: Vec<String> = hierarchies
        .iter()
        .flat_map(|hierarchy| match hierarchy {
            Hierarchy::V1(root) => mounted_controllers(root),
            Hierarchy::V2(root) => controllers(root),
        })
        .collect();
    let missing: Vec<&str> = NEEDED
        .into_iter()
        .filter(|needed| !there.iter().any(|have| have == needed))
        .collect();
    if !missing.is_empty() {
        bail!(
            "no cgroup controller {}: mount /sys/fs/cgroup with it; a container needs --privileged --cgroupns=host",
            missing.join(", ")
        );
    }
    Ok(())
}

/// Makes the folder everywhere.
pub(crate) fn create(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        hierarchy.create(name).with_context(|| {
            format!(
                "no cgroup in {}: a container needs --privileged --cgroupns=host",
                hierarchy.root().display()
            )
        })?;
    }
    Ok(())
}

/// Removes the folder and all below it, once no process is left there.
pub(crate) async fn remove(name: &str) -> Result<()> {
    let deadline = Instant::now() + EMPTY_LIMIT;
    for folder in folders(name)? {
        while let Err(error) = remove_tree(&folder) {
            if Instant::now() > deadline {
                return Err(error).with_context(|| format!("{} stays", folder.display()));
            }
            sleep(LOOK).await;
        }
    }
    Ok(())
}

/// The folders of this name that exist.
pub(crate) fn folders(name: &str) -> Result<Vec<PathBuf>> {
    let folders = hierarchies()?;
    let folders = folders.iter().map(|hierarchy| hierarchy.root().join(name));
    Ok(folders.filter(|folder| folder.exists()).collect())
}

/// All that are mounted.
fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mounts = fs::read_to_string("/proc/mounts").context("/proc is not mounted")?;
    Ok(mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let root = PathBuf::from(words.next()?);
            match words.next()? {
                "cgroup" => Some(Hierarchy::V1(root)),
                "cgroup2" => Some(Hierarchy::V2(root)),
                _ => None,
            }
        })
        .collect())
}

/// Those of cgroup v2 that no v1 hierarchy has taken.
fn controllers(root: &Path) -> Vec<String> {
    let there = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    there.split_whitespace().map(str::to_owned).collect()
}

/// Those of a v1 hierarchy: its folder is named after them, as `cpu,cpuacct`.
fn mounted_controllers(root: &Path) -> Vec<String> {
    let name = root.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default()
        .split(',')
        .map(str::to_owned)
        .collect()
}

fn create_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// A cgroup's files are the kernel's: only its folders are removed.
fn remove_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}
