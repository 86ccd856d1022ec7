//! Processes beside the test: programs that run to their end, and servers that live as long as it.

use std::ffi::OsStr;
use std::fs;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::netns;
use crate::wait::until;

/// How long a server may take to listen; it takes milliseconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A command that ends with the test, and has nothing of its environment but where programs lie.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = netns::tied(program);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// What a program came to that ran to its end.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// All that it wrote.
    pub(crate) output: String,
}

/// Runs it to its end; panics with what it wrote where it has not ended after `limit`.
pub(crate) async fn run(name: &str, command: Command, limit: Duration) -> Ended {
    let mut process = Process::start(name, command);
    match timeout(limit, process.child.wait()).await {
        Ok(status) => Ended {
            status: status.expect("the exit status of a child"),
            output: process.log(),
        },
        Err(_) => panic!("{name} still runs after {limit:?}: {}", process.log()),
    }
}

/// A process with a log, killed when dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: NamedTempFile,
}

impl Process {
    /// Starts it.
    pub(crate) fn start(name: &str, mut command: Command) -> Process {
        let log = NamedTempFile::new().expect("a temporary file");
        let writer = || log.as_file().try_clone().expect("a second handle");
        command.stdout(writer()).stderr(writer());
        let child = command.spawn();
        Process {
            name: name.to_owned(),
            child: child.unwrap_or_else(|error| panic!("{name}: {error}")),
            log,
        }
    }

    /// Starts a server, and waits until it listens on a port of this namespace.
    pub(crate) async fn serve(name: &str, command: Command, port: u16) -> Process {
        let mut process = Process::start(name, command);
        until(START_LIMIT, &format!("{name} listens on {port}"), || {
            process.must_run();
            listens(port)
        })
        .await;
        process
    }

    /// Panics with what it wrote where it has ended.
    pub(crate) fn must_run(&mut self) {
        if let Some(status) = self.child.try_wait().expect("the state of a child") {
            panic!("{} has ended: {status}: {}", self.name, self.log());
        }
    }

    /// All that it has written.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.log.path()).expect("the log of a child");
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Sends it a signal. One that has ended gets none.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits until it has ended by itself; panics with its log where it has not after `limit`.
    pub(crate) async fn ended(&mut self, limit: Duration) -> ExitStatus {
        match timeout(limit, self.child.wait()).await {
            Ok(status) => status.expect("the exit status of a child"),
            Err(_) => panic!("{} still runs after {limit:?}: {}", self.name, self.log()),
        }
    }
}

/// Whether something listens on a port of this namespace. Told by the kernel, since a connection made
/// to find out would be one more that the server sees.
pub(crate) fn listens(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let local = format!(":{port:04X}");
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .iter()
        .flat_map(fs::read_to_string)
        .any(|table| {
            table.lines().any(|line| {
                let fields: Vec<&str> = line.split_whitespace().take(4).collect();
                matches!(fields[..], [_, address, _, LISTEN] if address.ends_with(&local))
            })
        })
}
