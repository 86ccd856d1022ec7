//! Kills processes inside containers, from outside: as a crash would, and without a word to anybody.

use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Kills all processes of this name that live in a container's cgroup.
///
/// # Errors
///
/// There is none.
pub(crate) fn kill(container: &str, process: &str) -> Result<()> {
    let mut killed = 0;
    for entry in fs::read_dir("/proc").context("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let file = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        if file("comm").trim_end() == process
            && file("cgroup").contains(container)
            && let Some(pid) = Pid::from_raw(pid)
        {
            kill_process(pid, Signal::KILL)?;
            killed += 1;
        }
    }
    ensure!(killed > 0, "no process {process} in container {container}");
    Ok(())
}
