//! Runs a test in a network namespace of its own, so that fixed ports are free.
//!
//! The test executable starts itself once more inside `unshare --net`, for the one test; that second
//! process runs the body. Needs root.

use std::fs;
use std::future::Future;
use std::net::Ipv4Addr;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::Command;
use tokio::runtime;
use tokio::time::timeout;

pub(crate) use crate::tied::tied;

/// How long a body may take before its process is killed.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// The pod's address, for what comes from outside of it; see [`add_pod_ip`].
pub(crate) const POD_IP: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 7);

/// Set in the process that runs the body, to the test's name.
const INSIDE: &str = "TIDEGATE_TEST_IN_NETNS";

/// Runs `body` with a loopback interface of its own, on a runtime of two threads.
///
/// `name` is the test's full name below this crate (`module::function`): the executable is asked to
/// run exactly that one. Panics where the body panics, takes longer than [`LIMIT`], where no test has
/// this name, and without root.
pub(crate) fn test<F: Future<Output = ()>>(name: &str, body: impl FnOnce() -> F) {
    test_within(LIMIT, name, body);
}

/// As [`test`], with a limit of one's own.
pub(crate) fn test_within<F: Future<Output = ()>>(
    limit: Duration,
    name: &str,
    body: impl FnOnce() -> F,
) {
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        run_inside(body);
    } else {
        run_outside(limit, name);
    }
}

fn run_inside<F: Future<Output = ()>>(body: impl FnOnce() -> F) {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        ip(&["link", "set", "lo", "up"]).await;
        body().await;
    });
}

/// Gives the namespace's loopback interface [`POD_IP`]: who connects to it comes from it, and so is
/// no loopback peer.
pub(crate) async fn add_pod_ip() {
    ip(&["address", "add", &format!("{POD_IP}/32"), "dev", "lo"]).await;
}

async fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().await;
    let status = status.expect("ip starts; it comes with iproute2");
    assert!(status.success(), "ip {args:?}: {status}");
}

fn run_outside(limit: Duration, name: &str) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root for a network namespace: run as root, or ./test unit"
    );
    let (status, output) = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(start_inside(limit, name));
    // Through `print!`, so that the harness shows it for a test that fails.
    print!("{output}");
    match status {
        None => panic!("{name} has not ended within {limit:?} and was killed"),
        Some(status) => assert!(
            status.success(),
            "{name} failed inside its namespace: {status}"
        ),
    }
    assert!(
        output.contains("test result: ok. 1 passed"),
        "no test is called {name}"
    );
}

/// The exit status, absent where the limit came first, and all that was written.
async fn start_inside(limit: Duration, name: &str) -> (Option<ExitStatus>, String) {
    // A file, not a pipe: what was written before a kill is kept.
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let writer = || log.as_file().try_clone().expect("a second handle");
    let mut child = tied("unshare")
        .args(["--net", "--"])
        .arg(std::env::current_exe().expect("the path of the test executable"))
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, name)
        .stdout(writer())
        .stderr(writer())
        .spawn()
        .expect("setpriv and unshare start; they come with util-linux");
    let status = match timeout(limit, child.wait()).await {
        Ok(status) => Some(status.expect("the exit status of the test")),
        Err(_) => {
            child.kill().await.expect("the test can be killed");
            None
        }
    };
    let output = fs::read(log.path()).expect("the output of the test");
    (status, String::from_utf8_lossy(&output).into_owned())
}
