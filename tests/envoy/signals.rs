//! The signals of the real process, and a thousand hooks on it.

use std::time::Duration;

use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use tidegate::config::Mode;
use tidegate::drain::Phase;
use tidegate::standin::How;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{ended, slow};
use crate::manifest::Program;
use crate::netns::{self, POD_IP};
use crate::pod::{Pod, Spec};
use crate::sidecar::{HOOKS, Sidecar, logged_report};
use crate::wait::within;

/// What SIGINT is given; it should take a tenth of it.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(1);
/// What a thousand answers are given; they should take a hundredth of it.
const ANSWERS_LIMIT: Duration = Duration::from_secs(5);
/// Time that the test's machine may need on top of what is awaited.
const SLACK: Duration = Duration::from_secs(10);

#[test]
fn a_second_sigterm_changes_nothing_under_hold() {
    netns::test(
        "signals::a_second_sigterm_changes_nothing_under_hold",
        || a_second_sigterm(Mode::Hold),
    );
}

#[test]
fn a_second_sigterm_changes_nothing_under_annotate() {
    netns::test(
        "signals::a_second_sigterm_changes_nothing_under_annotate",
        || a_second_sigterm(Mode::Annotate),
    );
}

async fn a_second_sigterm(mode: Mode) {
    let mut pod = Pod::start(Spec::new(mode)).await;
    let request = slow(Duration::from_secs(4));
    pod.busy(1).await;
    pod.delete();
    for phase in [Phase::Announcing, Phase::Draining] {
        pod.phase(phase).await;
        pod.sidecar.signal(Signal::TERM);
        pod.sidecar.signal(Signal::TERM);
    }
    let last_byte = ended(request).await;
    let end = pod.gone().await;
    end.assert_drained();
    end.assert_released_after(last_byte);
}

#[test]
fn sigint_ends_an_idle_sidecar_at_once() {
    netns::test("signals::sigint_ends_an_idle_sidecar_at_once", || async {
        let sidecar = Sidecar::start(&Program::new(
            &["run"],
            &[("TIDEGATE_REPORT_PATH", "/dev/null")],
        ))
        .await;
        interrupted(&sidecar).await;
    });
}

#[test]
fn sigint_ends_a_drain_and_its_hooks_at_once() {
    netns::test(
        "signals::sigint_ends_a_drain_and_its_hooks_at_once",
        || async {
            let mut pod = Pod::start(Spec::new(Mode::Hold)).await;
            let _request = slow(Duration::from_secs(4));
            pod.busy(1).await;
            pod.delete();
            pod.phase(Phase::Draining).await;
            let mut hook = hook().await;
            interrupted(&pod.sidecar).await;
            let answer = within(SLACK, "the hook's end", read_answer(&mut hook)).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        },
    );
}

/// Sends SIGINT and measures.
async fn interrupted(sidecar: &Sidecar) {
    let sent = Instant::now();
    sidecar.signal(Signal::INT);
    let exit = within(SLACK, "the exit", sidecar.process.exited()).await;
    let took = exit.at - sent;
    println!("measured: SIGINT to exit: {} ms", took.as_millis());
    assert_eq!(exit.how, How::Exited(130));
    assert!(took < INTERRUPT_LIMIT, "{took:?}");
    let (_, report) = logged_report(&sidecar.whole_log().await);
    assert_eq!(report.outcome, "interrupted");
}

#[test]
fn a_thousand_hooks_are_answered_at_once() {
    const HOOKS: usize = 1_000;
    netns::test("signals::a_thousand_hooks_are_answered_at_once", || async {
        // Each is an open file here, too.
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).expect("the limit of open files");
        let mut pod = Pod::start(Spec::new(Mode::Hold).set("min-drain", "4s")).await;
        pod.delete();
        pod.phase(Phase::Announcing).await;
        let mut hooks = JoinSet::new();
        for _ in 0..HOOKS {
            let mut hook = hook().await;
            hooks.spawn(async move {
                let answer = read_answer(&mut hook).await;
                (Instant::now(), answer)
            });
        }
        let opened = Instant::now();
        let released = pod.phase(Phase::ReleasingWorkload).await;
        assert!(opened < released, "the hooks were opened too slowly");
        let answers = within(SLACK, "all answers", hooks.join_all()).await;
        assert_eq!(answers.len(), HOOKS);
        for (at, answer) in &answers {
            assert!(*at > opened, "answered before the release");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        }
        let first = answers.iter().map(|(at, _)| *at).min().expect("answers");
        let last = answers.iter().map(|(at, _)| *at).max().expect("answers");
        let (spread, took) = (last - first, last.saturating_duration_since(released));
        println!(
            "measured: first to last of 1000 hooks answered: {spread:?}, {took:?} after the log"
        );
        assert!(spread < ANSWERS_LIMIT, "{spread:?}");
        let end = pod.gone().await;
        end.assert_drained();
        // And those of the user container and of queue-proxy.
        assert_eq!(end.report.hooks, HOOKS as u64 + 2);
    });
}

/// A hook, as the kubelet calls it, opened.
async fn hook() -> TcpStream {
    let mut stream = TcpStream::connect((POD_IP, HOOKS)).await.expect("connects");
    let request = "GET /wait-for-drain?container=user-container HTTP/1.1\r\n\
                   Host: pod\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream
}

async fn read_answer(hook: &mut TcpStream) -> String {
    let mut answer = String::new();
    hook.read_to_string(&mut answer).await.expect("an answer");
    answer
}
