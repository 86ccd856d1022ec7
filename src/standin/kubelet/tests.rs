//! The order in which a pod ends, as observed on a real kubelet.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::standin::front::{self, Fault};
use crate::standin::{ANY_PORT, How, app};

const LONG: Duration = Duration::from_secs(300);
/// A second is 10 ms.
const SCALE: f64 = 0.01;

/// Ends on SIGTERM, at once.
fn polite(name: &str) -> Process {
    Process::start(name, |mut scope| async move {
        scope.sigterm().await;
        0
    })
}

fn stubborn(name: &str) -> Process {
    Process::start(name, |_scope| std::future::pending())
}

fn hook(modelled: u64) -> PreStop {
    PreStop::Sleep(Duration::from_secs(modelled))
}

/// Deletes the pod; the timeline as `container event`.
async fn delete(containers: Vec<Container>, grace: Duration) -> (Kubelet, Vec<String>) {
    let kubelet = Kubelet::new(Scale::new(SCALE), containers);
    kubelet.delete(grace).await;
    let lines = lines(&kubelet);
    (kubelet, lines)
}

fn lines(kubelet: &Kubelet) -> Vec<String> {
    let events = kubelet.timeline().borrow().clone();
    events
        .into_iter()
        .map(|event| format!("{} {:?}", event.container, event.what))
        .collect()
}

fn at(lines: &[String], line: &str) -> usize {
    lines
        .iter()
        .position(|seen| seen == line)
        .unwrap_or_else(|| panic!("no `{line}` in {lines:#?}"))
}

fn in_order(lines: &[String], order: &[&str]) {
    let places: Vec<_> = order.iter().map(|line| at(lines, line)).collect();
    assert!(places.is_sorted(), "not in order {order:?}: {lines:#?}");
}

#[tokio::test]
async fn classic_containers_end_side_by_side() {
    let app = Container::regular("app", polite("app"), hook(10));
    let proxy = Container::regular("proxy", polite("proxy"), PreStop::None);
    let (_, lines) = delete(vec![app, proxy], LONG).await;
    in_order(
        &lines,
        &[
            "app HookStarted",
            "proxy Exited(Exited(0))",
            "app HookEnded",
            "app Sigterm",
        ],
    );
    in_order(&lines, &["proxy Sigterm", "app HookEnded"]);
}

#[tokio::test]
async fn native_sidecars_run_their_hooks_at_once_and_end_last_in_reverse() {
    let containers = vec![
        Container::native("drain", polite("drain"), hook(1)),
        Container::native("mesh", polite("mesh"), PreStop::None),
        Container::regular("app", polite("app"), hook(20)),
    ];
    let (_, lines) = delete(containers, LONG).await;
    in_order(
        &lines,
        &[
            "drain HookEnded",
            "app HookEnded",
            "app Sigterm",
            "app Exited(Exited(0))",
            "mesh Sigterm",
            "mesh Exited(Exited(0))",
            "drain Sigterm",
        ],
    );
    in_order(&lines, &["drain HookStarted", "app HookEnded"]);
}

#[tokio::test]
async fn grace_over_gives_everyone_two_seconds() {
    let containers = vec![
        Container::native("drain", polite("drain"), PreStop::None),
        Container::native("mesh", stubborn("mesh"), PreStop::None),
        Container::regular("app", stubborn("app"), hook(6000)),
    ];
    let start = Instant::now();
    // A second is 50 ms: the minimum of 2 s leaves a loaded machine room.
    let kubelet = Kubelet::new(Scale::new(0.05), containers);
    kubelet.delete(Duration::from_secs(6)).await;
    assert!(start.elapsed() >= Duration::from_millis(400), "6 s and 2 s");
    let lines = lines(&kubelet);
    in_order(
        &lines,
        &[
            "app HookAbandoned",
            "app Sigterm",
            "app Killed",
            "app Exited(Killed)",
        ],
    );
    // The sidecars do not wait for the app's end, nor for each other's.
    in_order(&lines, &["drain Sigterm", "app Killed"]);
    in_order(&lines, &["drain Exited(Exited(0))", "mesh Killed"]);
}

#[tokio::test]
async fn an_http_hook_fails_by_transport_only() {
    let target = app::start(app::Config::default()).await.expect("app");
    let reset = front::start(ANY_PORT, target.addr, Fault::Reset)
        .await
        .expect("front");
    let error = front::start(ANY_PORT, target.addr, Fault::Status500)
        .await
        .expect("front");
    let container = |name, addr| Container::regular(name, polite(name), PreStop::http(addr, "/"));
    let (_, lines) = delete(
        vec![
            container("reset", reset.addr),
            container("error", error.addr),
        ],
        LONG,
    )
    .await;
    in_order(
        &lines,
        &["error HookStarted", "error HookEnded", "error Sigterm"],
    );
    let failed = lines
        .iter()
        .position(|line| line.starts_with("reset HookFailed"));
    assert!(
        failed.expect("failed") < at(&lines, "reset Sigterm"),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn redirects_are_followed_within_the_host() {
    let listener = TcpListener::bind(ANY_PORT).await.expect("binds");
    let addr = listener.local_addr().expect("addr");
    let server = tokio::spawn(async move {
        let mut asked = Vec::new();
        for location in ["/second", "http://elsewhere.invalid/"] {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            let mut head = [0; 1024];
            let length = stream.read(&mut head).await.expect("reads");
            let line = String::from_utf8_lossy(&head[..length]).into_owned();
            asked.push(line.split(' ').nth(1).unwrap_or_default().to_owned());
            let answer =
                format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.expect("writes");
        }
        asked
    });
    let (_, lines) = delete(
        vec![Container::regular(
            "app",
            polite("app"),
            PreStop::http(addr, "/first"),
        )],
        LONG,
    )
    .await;
    at(&lines, "app HookEnded");
    assert_eq!(server.await.expect("server"), ["/first", "/second"]);
}

#[tokio::test]
async fn a_restart_concerns_one_container() {
    let other = polite("other");
    let containers = vec![
        Container::regular(
            "app",
            polite("app"),
            PreStop::exec(|| async { Err("exit 1".into()) }),
        ),
        Container::native("drain", other.clone(), hook(1)),
    ];
    let kubelet = Kubelet::new(Scale::new(SCALE), containers);
    kubelet.restart("app", LONG).await;
    let lines = lines(&kubelet);
    let expected = [
        "app HookStarted",
        "app HookFailed(\"exit 1\")",
        "app Sigterm",
        "app Exited(Exited(0))",
    ];
    assert_eq!(lines, expected);
    assert!(other.is_running() && other.sigterms() == 0);
}

#[tokio::test]
async fn a_dead_container_has_no_hook() {
    let dead = Process::start("app", |_scope| async { 3 });
    dead.exited().await;
    let (_, lines) = delete(vec![Container::regular("app", dead, hook(1))], LONG).await;
    assert_eq!(lines, [format!("app Exited({:?})", How::Exited(3))]);
}
