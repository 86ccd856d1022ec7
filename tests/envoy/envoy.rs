//! A real Envoy beside the test: started with Istio's arguments, asked through its admin, killed when
//! dropped.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use hyper::Method;
use tempfile::TempDir;
use tidegate::standin::Process;
use tokio::net::{TcpStream, UnixStream};
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use crate::bootstrap::{ADMIN, Admin, bootstrap};
use crate::http::{self, Answer};
use crate::netns;

/// How long Envoy may take to be ready; it takes 0.2 s on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Istio's default drainDuration, in seconds.
const DRAIN_TIME_S: u32 = 45;

/// A running Envoy.
pub(crate) struct Envoy {
    process: Child,
    pid: u32,
    admin: Admin,
    // Holds the configuration, and the admin's socket where it is a unix one.
    _dir: TempDir,
}

impl Envoy {
    /// Starts one with its admin on `127.0.0.1:15000` and waits until it is ready.
    pub(crate) async fn start() -> Envoy {
        Envoy::start_with_admin_at(ADMIN).await
    }

    /// Starts one with its admin on another port of 127.0.0.1 and waits until it is ready.
    pub(crate) async fn start_with_admin_at(port: u16) -> Envoy {
        Envoy::start_showing(port, "").await
    }

    /// The same, with more stats than Istio's: what matches these regular expressions, with commas
    /// between.
    pub(crate) async fn start_showing(port: u16, stats_regexps: &str) -> Envoy {
        let dir = TempDir::new().expect("a temporary directory");
        Envoy::start_with(dir, Admin::Tcp(port), stats_regexps).await
    }

    /// Starts one with its admin on a unix socket and waits until it is ready.
    pub(crate) async fn start_with_unix_admin() -> Envoy {
        let dir = TempDir::new().expect("a temporary directory");
        let admin = Admin::Unix(dir.path().join("admin.sock"));
        Envoy::start_with(dir, admin, "").await
    }

    async fn start_with(dir: TempDir, admin: Admin, stats_regexps: &str) -> Envoy {
        let config = dir.path().join("envoy.json");
        let bootstrap = bootstrap(&admin, stats_regexps).to_string();
        std::fs::write(&config, bootstrap).expect("the bootstrap is written");
        let process = netns::tied(binary())
            .arg("--config-path")
            .arg(&config)
            .args(["--drain-time-s", &DRAIN_TIME_S.to_string()])
            .args(["--drain-strategy", "immediate"])
            .arg("--disable-hot-restart")
            .args(["--concurrency", "2"])
            .args(["--log-level", "warning"])
            .spawn()
            .expect("Envoy starts");
        let pid = process.id().expect("a process not waited for has a pid");
        let mut envoy = Envoy {
            process,
            pid,
            admin,
            _dir: dir,
        };
        envoy.wait_until_ready().await;
        envoy
    }

    async fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.process.try_wait().expect("the state of Envoy") {
                panic!("Envoy has ended before it was ready: {status}");
            }
            let answer = self.ask(Method::GET, "/ready").await;
            if matches!(&answer, Ok(answer) if answer.status == 200) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "Envoy is not ready after {START_LIMIT:?}: {answer:?}"
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Where its admin interface listens.
    pub(crate) fn admin(&self) -> &Admin {
        &self.admin
    }

    /// `GET` from its admin; panics where there is no answer.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path)
            .await
            .expect("Envoy's admin answers")
    }

    /// `POST` to its admin; panics where there is no answer.
    pub(crate) async fn post(&self, path: &str) -> Answer {
        self.ask(Method::POST, path)
            .await
            .expect("Envoy's admin answers")
    }

    async fn ask(&self, method: Method, path: &str) -> anyhow::Result<Answer> {
        match &self.admin {
            Admin::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port)).await?;
                http::exchange(stream, method, path).await
            }
            Admin::Unix(socket) => {
                let stream = UnixStream::connect(socket).await?;
                http::exchange(stream, method, path).await
            }
        }
    }

    /// Kills it, as the agent does at the end of its drain, and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("Envoy can be killed");
    }

    /// Hands it to the stand-ins, as a process that can be signalled and killed; its configuration,
    /// which it has read, goes.
    pub(crate) fn into_process(self) -> Process {
        Process::adopt("envoy", self.process)
    }

    /// Waits until it has ended by itself; panics where it has not after `limit`.
    pub(crate) async fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        timeout(limit, self.process.wait())
            .await
            .unwrap_or_else(|_| panic!("Envoy still runs after {limit:?}"))
            .expect("the exit status of Envoy")
    }
}

/// `$TIDEGATE_TEST_ENVOY`, else what `./test` has installed.
fn binary() -> PathBuf {
    let installed = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        target
            .expect("the parent of target/tmp")
            .join("tools/bin/envoy")
    };
    let path = std::env::var_os("TIDEGATE_TEST_ENVOY").map_or_else(installed, PathBuf::from);
    assert!(
        path.exists(),
        "no Envoy at {}: run ./test envoy, which installs one, or set TIDEGATE_TEST_ENVOY",
        path.display()
    );
    path
}
