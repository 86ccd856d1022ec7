//! The real `tidegate run` as a child process, and what it logs.

use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidegate::drain::Phase;
use tidegate::drain::record::Report;
use tidegate::standin::Process;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::manifest::{BINARY, Program};
use crate::wait::within;
use crate::{http, netns};

/// The binary under test.
pub(crate) const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
/// The hook port, as it is by default.
pub(crate) const HOOKS: u16 = 18022;

/// How long it may take to serve; it takes milliseconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long a log line may be in coming.
const LINE_LIMIT: Duration = Duration::from_secs(40);
/// How long one of the short commands may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// A line of the log.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// When it was read.
    pub(crate) at: Instant,
    /// The object; a string where the line is no JSON.
    pub(crate) json: Value,
}

/// A running sidecar.
#[derive(Clone, Debug)]
pub(crate) struct Sidecar {
    pub(crate) process: Process,
    hooks: u16,
    pid: Pid,
    log: watch::Receiver<Vec<Line>>,
}

impl Sidecar {
    /// Starts one and waits until it serves.
    pub(crate) async fn start(program: &Program) -> Sidecar {
        let mut command = command_of(program);
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("tidegate starts");
        let pid = child.id().expect("a process not waited for has a pid");
        let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
        let out = child.stdout.take().expect("a pipe was asked for");
        let (to_log, log) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut lines = BufReader::new(out).lines();
            while let Ok(Some(text)) = lines.next_line().await {
                // Shown where the test fails.
                println!("{text}");
                let at = Instant::now();
                let json = serde_json::from_str(&text).unwrap_or(Value::String(text));
                to_log.send_modify(|log| log.push(Line { at, json }));
            }
        });
        let sidecar = Sidecar {
            process: Process::adopt("tidegate", child),
            hooks: program.hook_port(),
            pid,
            log,
        };
        within(START_LIMIT, "tidegate run serves", async {
            while http::get(sidecar.hooks, "/livez").await.is_err() {
                assert!(sidecar.process.is_running(), "tidegate run has ended");
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        sidecar
    }

    /// Sends it a signal. One that has ended gets none.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }

    /// Waits until it logs that a phase has begun; says when.
    pub(crate) async fn phase(&self, phase: Phase) -> Instant {
        let is_it = |line: &Line| line.json["phase"] == phase.name();
        let mut log = self.log.clone();
        let found = log.wait_for(|log| log.iter().any(is_it));
        let log = timeout(LINE_LIMIT, found)
            .await
            .unwrap_or_else(|_| panic!("no phase {} within {LINE_LIMIT:?}", phase.name()))
            .unwrap_or_else(|_| panic!("the log ends without phase {}", phase.name()));
        log.iter().find(|line| is_it(line)).expect("was found").at
    }

    /// The whole log, once the process has ended.
    pub(crate) async fn whole_log(&self) -> Vec<Line> {
        let mut log = self.log.clone();
        within(LINE_LIMIT, "the end of the log", async {
            while log.changed().await.is_ok() {}
        })
        .await;
        log.borrow().clone()
    }

    /// What `/readyz` answers.
    pub(crate) async fn ready(&self) -> u16 {
        let answer = http::get(self.hooks, "/readyz").await;
        answer.expect("the hook port answers").status
    }
}

/// The drain report in a log.
pub(crate) fn logged_report(log: &[Line]) -> (String, Report) {
    let text = log
        .iter()
        .find_map(|line| line.json["report"].as_str())
        .expect("a report is in the log");
    let report = serde_json::from_str(text).expect("the logged report is a report");
    (text.to_owned(), report)
}

/// A container's program, as a process of this machine.
fn command_of(program: &Program) -> Command {
    let (binary, args) = program.words.split_first().expect("a program");
    assert_eq!(binary, BINARY, "the image has no other");
    let mut command = netns::tied(TIDEGATE);
    command.args(args).envs(&program.env);
    command
}

/// Runs a short command of the binary to its end, by hand.
pub(crate) async fn command(args: &[&str]) -> Output {
    run(&Program::new(args, &[])).await
}

/// Runs a program that ends by itself to its end.
pub(crate) async fn run(program: &Program) -> Output {
    let mut command = command_of(program);
    let output = command.output();
    within(COMMAND_LIMIT, "the command ends", output)
        .await
        .expect("tidegate starts")
}
