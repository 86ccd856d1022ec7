//! The sandbox's process, as a process.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::LIMIT;
use super::wait::{until, within};
use crate::pause;

const CHILD: &str = "LAB_APP_TEST_PAUSE_CHILD";

/// It changes what signals do, so it runs in a child: this same test, told so.
#[test]
fn it_reaps_children_and_ends_with_sigterm() {
    if std::env::var_os(CHILD).is_some() {
        for _ in 0..2 {
            #[expect(clippy::zombie_processes, reason = "to be reaped by what is tested")]
            let orphan = std::process::Command::new("true").spawn().unwrap();
            println!("\norphan {}", orphan.id());
        }
        assert_eq!(pause::main().unwrap(), 0);
        return;
    }
    let runtime = crate::wire::runtime().unwrap();
    runtime.block_on(async {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tests::pause::it_reaps_children_and_ends_with_sigterm",
            ])
            .arg("--nocapture")
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..2 {
            let orphan = loop {
                let line = within(LIMIT, "a line", lines.next_line())
                    .await
                    .unwrap()
                    .unwrap();
                if let Some(id) = line.strip_prefix("orphan ") {
                    break format!("/proc/{id}");
                }
            };
            until(LIMIT, "a child that is reaped", || {
                !Path::new(&orphan).exists()
            })
            .await;
        }
        let id = child.id().unwrap().cast_signed();
        kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
        let status = within(LIMIT, "the exit", child.wait()).await.unwrap();
        assert!(status.success(), "{status}");
    });
}
