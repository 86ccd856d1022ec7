//! The node: one process with namespaces of its own, and everything in it. It ends with its first
//! process, and that one ends with the runner, unless it is to be kept.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::config::{self, NODE, SERVICES};
use crate::leftovers::Owned;
use crate::paths::Paths;
use crate::tied::tied;

/// How long the first process may take to appear.
const START_LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// What of a log is shown where something failed.
const LOG_TAIL_LINES: usize = 15;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether the node outlives the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It ends with the runner, whatever ends that.
    WithRunner,
    /// It stays until `--down`.
    UntilDown,
}

/// A running node.
pub(crate) struct Node {
    dir: PathBuf,
    process: Child,
    init: u32,
}

impl Node {
    /// Starts it: what is in it comes up by and by. What it takes of the machine is written down before.
    pub(crate) async fn start(paths: &Paths, keep: Keep) -> Result<Node> {
        let dir = paths.node();
        let owned = Owned::claim(&paths.dir)?;
        let script = config::write(&dir, owned.cgroup())?;
        let mut command = match keep {
            Keep::WithRunner => tied("unshare"),
            Keep::UntilDown => Command::new("unshare"),
        };
        command
            .args(["--mount", "--net", "--pid", "--ipc", "--uts", "--fork"])
            .args(["--kill-child", "--mount-proc", "--"])
            .arg("bash")
            .arg(script)
            .args([&dir, &paths.parts])
            .args([NODE.to_string().as_str(), SERVICES])
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", &dir)
            // Times in logs are read.
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.join("logs/init.log"))?)
            // A terminal's Ctrl-C is for the runner.
            .process_group(0);
        let process = command.spawn().context("unshare comes with util-linux")?;
        let pid = process.id().context("the node ended at once")?;
        owned.started(pid)?;
        let mut node = Node {
            dir,
            process,
            init: 0,
        };
        node.init = node.find_init(pid).await?;
        Ok(node)
    }

    /// The first process is the only child of `unshare`, and there once its namespaces are.
    async fn find_init(&mut self, unshare: u32) -> Result<u32> {
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let children = fs::read_to_string(&children).unwrap_or_default();
            if let Some(child) = children.split_whitespace().next() {
                return Ok(child.parse()?);
            }
            self.must_run()?;
            if Instant::now() > deadline {
                bail!("the node has no first process after {START_LIMIT:?}");
            }
            sleep(LOOK).await;
        }
    }

    /// Fails with what its first process said where it has ended.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        if let Some(status) = self.process.try_wait()? {
            let said = fs::read_to_string(self.log("init")).unwrap_or_default();
            let name = said.split_whitespace().next().unwrap_or("init");
            bail!(
                "the node has ended: {status}: {said}{}",
                self.log_tail(name)
            );
        }
        Ok(())
    }

    /// The log of one of its programs, as `init.sh` names them.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("logs/{name}.log"))
    }

    /// The end of a log.
    pub(crate) fn log_tail(&self, name: &str) -> String {
        let log = fs::read_to_string(self.log(name)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Its folder on the machine.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file of the node's, seen from the machine.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    /// What leads a command into the node: to its network and its files.
    pub(crate) fn entrance(&self) -> Vec<std::ffi::OsString> {
        let target = self.init.to_string();
        ["nsenter", "--target", &target, "--net", "--mount", "--"]
            .map(Into::into)
            .into()
    }

    /// A command inside it.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let entrance = self.entrance();
        let mut command = tied(&entrance[0]);
        command
            .args(&entrance[1..])
            .arg(program)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", &self.dir);
        command
    }
}

/// Runs a command to its end and returns what it printed; fails with what it complained of.
pub(crate) async fn output_of(mut command: Command, limit: Duration, what: &str) -> Result<String> {
    let output = tokio::time::timeout(limit, command.output())
        .await
        .with_context(|| format!("{what}: not within {limit:?}"))?
        .with_context(|| format!("{what} does not start"))?;
    if !output.status.success() {
        bail!(
            "{what}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}
