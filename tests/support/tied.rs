//! Processes that end with the test that started them.

use std::ffi::OsStr;
use std::process::Stdio;

use tokio::process::Command;

/// A command whose process is killed when the thread that started it ends, however that happens:
/// not even a test that is killed leaves a process behind.
///
/// Its process is the program itself, so [`tokio::process::Child::id`] is the program's. Start it
/// from the test's own thread or a task, not from `spawn_blocking`, whose threads end when idle.
pub(crate) fn tied(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}
