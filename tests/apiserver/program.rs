//! The processes beside the test: what they are started with, their logs, their end.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::tied::tied;

/// How long the kernel may take to end a process that was killed.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// What of a log is shown where its process failed.
const LOG_TAIL_LINES: usize = 20;

/// A command that ends with the test, and has nothing of its environment but where programs lie: a
/// proxy, say, would not lead into the namespace.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = tied(program);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// A process with a log, killed when dropped.
pub(crate) struct Program {
    name: &'static str,
    process: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it in `dir`, where its log will be.
    pub(crate) fn start(name: &'static str, mut command: Command, dir: &Path) -> Program {
        let log = dir.join(format!("{name}.log"));
        let writer = File::create(&log).expect("a log in the temporary directory");
        command
            .stdout(Stdio::null())
            .stderr(writer)
            .current_dir(dir);
        Program {
            name,
            process: command
                .spawn()
                .unwrap_or_else(|error| panic!("{name}: {error}")),
            log,
        }
    }

    /// Panics with the end of its log where it has ended.
    pub(crate) fn must_run(&mut self) {
        if let Some(status) = self.process.try_wait().expect("the state of a child") {
            panic!("{} has ended: {status}: {}", self.name, self.log_tail());
        }
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Program {
    /// Waits, so that nothing writes any more into the folder that is about to be removed.
    fn drop(&mut self) {
        let deadline = Instant::now() + KILL_LIMIT;
        if self.process.start_kill().is_ok() {
            while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::yield_now();
            }
        }
    }
}
