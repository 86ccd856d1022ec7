//! kubectl, and what it says.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::tied::tied;
use crate::wait::within;

/// How long one call may take; it takes 0.1 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(30);
/// How kubectl begins a line that passes on what the API server or a webhook warns of.
const WARNING: &str = "Warning: ";

/// Runs kubectl on one cluster.
pub(crate) struct Kubectl {
    command: Vec<OsString>,
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// `command` runs it: its path, after what leads to where the API server can be reached. `home` is
    /// where it keeps what it has learnt of the API.
    pub(crate) fn new(command: Vec<OsString>, home: &Path, kubeconfig: PathBuf) -> Kubectl {
        Kubectl {
            command,
            home: home.to_owned(),
            kubeconfig,
        }
    }

    /// kubectl without arguments, with nothing of the environment but where programs lie.
    pub(crate) fn command(&self) -> Command {
        let mut command = tied(&self.command[0]);
        command
            .args(&self.command[1..])
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Runs it, with this on its standard input.
    pub(crate) async fn run(&self, arguments: &[&str], input: Option<&str>) -> Outcome {
        let mut command = self.command();
        command
            .args(arguments)
            .stdin(match input {
                Some(_) => Stdio::piped(),
                None => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl starts");
        let stdin = child.stdin.take();
        let fed = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // It may have failed before it read all, and then says why.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let what = format!("kubectl {arguments:?}");
        let both = async { tokio::join!(fed, child.wait_with_output()).1 };
        let output = within(LIMIT, &what, both).await.expect("kubectl's output");
        Outcome {
            success: output.status.success(),
            stdout: String::from_utf8(output.stdout).expect("kubectl writes UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("kubectl writes UTF-8"),
        }
    }
}

/// How a call of kubectl ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) success: bool,
    stdout: String,
    stderr: String,
}

impl Outcome {
    /// What it printed; panics where it failed.
    #[track_caller]
    pub(crate) fn stdout(self) -> String {
        assert!(self.success, "kubectl failed: {}", self.stderr);
        self.stdout
    }

    /// The object that it printed with `-o json`; panics where it failed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let mut objects = self.jsons();
        assert_eq!(objects.len(), 1, "not one object: {objects:?}");
        objects.remove(0)
    }

    /// The objects that it printed with `-o json`, one after the other; panics where it failed.
    #[track_caller]
    pub(crate) fn jsons(&self) -> Vec<Value> {
        assert!(self.success, "kubectl failed: {}", self.stderr);
        let objects = serde_json::Deserializer::from_str(&self.stdout).into_iter();
        let objects = objects.collect::<Result<_, _>>();
        objects.expect("kubectl -o json prints JSON")
    }

    /// Why it failed; panics where it did not.
    #[track_caller]
    pub(crate) fn failure(self) -> String {
        assert!(!self.success, "kubectl did not fail: {}", self.stdout);
        self.stderr
    }

    /// What the API server and the webhooks warned of.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        let lines = self.stderr.lines();
        lines
            .filter_map(|line| line.strip_prefix(WARNING))
            .collect()
    }
}
