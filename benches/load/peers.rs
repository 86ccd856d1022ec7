//! The proxies that are compared: how each is configured and started, each alone on a CPU with one
//! worker and without an access log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::config::{Splice, envoy, haproxy, nginx};
use crate::drive::output;
use crate::measure::{Protocol, Usage, cpu_list, cpu_seconds, status_kib};
use crate::{Result, netns};

/// How long a proxy may take until it takes connections.
const START: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);
/// The first port; each peer has ten.
const PORTS: u16 = 8100;
/// How far behind a peer's first port Tidegate's hooks are.
const HOOKS: u16 = 5;

/// The backend's ports.
pub(crate) const BACKEND: Ports = Ports { h1: 8080, h2: 8081 };

/// Where something listens for HTTP/1.1 and WebSockets, and for h2c.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) h1: u16,
    pub(crate) h2: u16,
}

impl Ports {
    pub(crate) fn of(self, protocol: Protocol) -> u16 {
        match protocol {
            Protocol::H1 | Protocol::H1Close | Protocol::WebSocket => self.h1,
            Protocol::H2c => self.h2,
        }
    }
}

/// What the load goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Nothing.
    Direct,
    TidegateHttp,
    TidegateTcp,
    Haproxy,
    HaproxySplice,
    HaproxyTcp,
    HaproxyTcpSplice,
    Nginx,
    Envoy,
    Hyper,
}

impl Peer {
    pub(crate) const ALL: [Peer; 10] = [
        Peer::Direct,
        Peer::TidegateHttp,
        Peer::TidegateTcp,
        Peer::Haproxy,
        Peer::HaproxySplice,
        Peer::HaproxyTcp,
        Peer::HaproxyTcpSplice,
        Peer::Nginx,
        Peer::Envoy,
        Peer::Hyper,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Direct => "direct",
            Peer::TidegateHttp => "tidegate-http",
            Peer::TidegateTcp => "tidegate-tcp",
            Peer::Haproxy => "haproxy",
            Peer::HaproxySplice => "haproxy-splice",
            Peer::HaproxyTcp => "haproxy-tcp",
            Peer::HaproxyTcpSplice => "haproxy-tcp-splice",
            Peer::Nginx => "nginx",
            Peer::Envoy => "envoy",
            Peer::Hyper => "hyper",
        }
    }

    /// Whether `name` means this one: its own, or that of its program, as in `tidegate`.
    pub(crate) fn is_called(self, name: &str) -> bool {
        let own = self.name();
        own == name || own.split('-').next() == Some(name)
    }

    fn ports(self) -> Ports {
        match self {
            Peer::Direct => BACKEND,
            peer => {
                let h1 = PORTS + 10 * peer as u16;
                Ports { h1, h2: h1 + 1 }
            }
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) tidegate: PathBuf,
    pub(crate) envoy: PathBuf,
}

impl Programs {
    /// `$TIDEGATE_BENCH_BINARY`, else the one that Cargo has built; `$TIDEGATE_TEST_ENVOY`, else what
    /// `./test` has installed.
    pub(crate) fn find() -> Programs {
        let from_env = |name| std::env::var_os(name).map(PathBuf::from);
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        let installed = target.map(|target| target.join("tools/bin/envoy"));
        Programs {
            tidegate: from_env("TIDEGATE_BENCH_BINARY")
                .unwrap_or_else(|| env!("CARGO_BIN_EXE_tidegate").into()),
            envoy: from_env("TIDEGATE_TEST_ENVOY")
                .or(installed)
                .unwrap_or_default(),
        }
    }

    /// Name and version of what these peers are, and of what loads them.
    pub(crate) async fn versions(&self, peers: &[Peer]) -> Result<Vec<String>> {
        let mut versions = Vec::new();
        for peer in peers {
            versions.push(match peer {
                Peer::Direct
                | Peer::TidegateTcp
                | Peer::HaproxySplice
                | Peer::HaproxyTcp
                | Peer::HaproxyTcpSplice => continue,
                Peer::TidegateHttp => first_line(&self.tidegate, "--version").await?,
                Peer::Haproxy => {
                    let line = first_line("haproxy", "-v").await?;
                    line.split(' ')
                        .take(3)
                        .collect::<Vec<_>>()
                        .join(" ")
                        .replace("version ", "")
                }
                Peer::Nginx => {
                    let line = first_line("nginx", "-v").await?;
                    line.replace("nginx version: ", "")
                }
                Peer::Envoy => {
                    // `PATH  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`
                    let line = first_line(&self.envoy, "--version").await?;
                    let version = line.rsplit_once("version: ").map(|(_, version)| version);
                    let version = version.and_then(|it| it.split('/').nth(1));
                    format!("Envoy {}", version.unwrap_or("unknown"))
                }
                Peer::Hyper => format!("hyper {}", locked_version("hyper")),
            });
        }
        let wrk = first_line("wrk", "-v").await?;
        versions.push(wrk.split(' ').take(2).collect::<Vec<_>>().join(" "));
        versions.push(first_line("h2load", "--version").await?);
        Ok(versions)
    }

    /// Says so where this Tidegate has no gate.
    pub(crate) async fn check_gate(&self) -> Result<()> {
        let mut command = Command::new(&self.tidegate);
        command.args(["run", "--help"]);
        if output(command, START).await?.contains("--gate-ports") {
            return Ok(());
        }
        Err(format!(
            "{} has no gate: `tidegate run` knows no --gate-ports; build a newer one, or leave it out: \
             --only direct,haproxy,nginx,envoy,hyper",
            self.tidegate.display()
        )
        .into())
    }
}

/// Of whatever stream it is on; some end with an error after it.
async fn first_line(program: impl AsRef<Path>, flag: &str) -> Result<String> {
    let program = program.as_ref();
    let output = Command::new(program).arg(flag).output().await;
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    let line = text.lines().find(|line| !line.trim().is_empty());
    Ok(line.unwrap_or("unknown").trim().to_owned())
}

fn locked_version(name: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let package = lock.split("[[package]]").find_map(|package| {
        let rest = package
            .trim()
            .strip_prefix(&format!("name = \"{name}\"\nversion = \""))?;
        rest.split('"').next()
    });
    package.unwrap_or("unknown")
}

/// Who runs on which CPU: a proxy has the last one for itself; load and backend share all others.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    pub(crate) proxy: String,
    pub(crate) others: String,
}

impl Cpus {
    /// `None` with a single CPU: all share it.
    pub(crate) fn divide() -> Result<Option<Cpus>> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let mut all = cpu_list(list.unwrap_or_default());
        let last = all.pop();
        Ok(last.filter(|_| !all.is_empty()).map(|last| Cpus {
            proxy: last.to_string(),
            others: all
                .iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(","),
        }))
    }
}

/// A process that takes connections.
pub(crate) struct Running {
    pub(crate) ports: Ports,
    process: Option<Process>,
}

struct Process {
    child: Child,
    pid: u32,
}

impl Running {
    /// Starts the peer and waits until it takes connections. `dir` gets its files.
    pub(crate) async fn start(
        peer: Peer,
        programs: &Programs,
        cpus: Option<&Cpus>,
        dir: &Path,
    ) -> Result<Running> {
        let ports = peer.ports();
        if peer == Peer::Direct {
            return Ok(Running {
                ports,
                process: None,
            });
        }
        let file = |name: &str, text: String| {
            let path = dir.join(format!("{}-{name}", peer.name()));
            std::fs::write(&path, text).map(|()| path)
        };
        let (program, args): (PathBuf, Vec<String>) = match peer {
            Peer::TidegateHttp => (programs.tidegate.clone(), tidegate("http", ports)),
            Peer::TidegateTcp => (programs.tidegate.clone(), tidegate("tcp", ports)),
            Peer::Haproxy | Peer::HaproxySplice | Peer::HaproxyTcp | Peer::HaproxyTcpSplice => {
                let (tcp, splice) = match peer {
                    Peer::HaproxySplice => (false, Splice::Always),
                    Peer::HaproxyTcp => (true, Splice::Auto),
                    Peer::HaproxyTcpSplice => (true, Splice::Always),
                    _ => (false, Splice::Auto),
                };
                let path = file("haproxy.cfg", haproxy(tcp, splice, ports))?;
                let args = ["-db", "-f"].map(str::to_owned);
                ("haproxy".into(), [&args[..], &[text(&path)]].concat())
            }
            Peer::Nginx => {
                let path = file("nginx.conf", nginx(dir, ports))?;
                let args = ["-e", "stderr", "-c"].map(str::to_owned);
                ("nginx".into(), [&args[..], &[text(&path)]].concat())
            }
            Peer::Envoy => {
                let path = file("envoy.json", envoy(ports).to_string())?;
                let args = [
                    "--concurrency",
                    "1",
                    "--disable-hot-restart",
                    "-l",
                    "error",
                    "-c",
                ];
                let args = args.map(str::to_owned);
                (programs.envoy.clone(), [&args[..], &[text(&path)]].concat())
            }
            Peer::Hyper | Peer::Direct => {
                let ports = [ports.h1, BACKEND.h1, ports.h2, BACKEND.h2];
                let mut args = vec!["plain-proxy".to_owned()];
                args.extend(ports.iter().map(u16::to_string));
                (std::env::current_exe()?, args)
            }
        };
        let log = dir.join(format!("{}.log", peer.name()));
        let process = Process::spawn(&program, &args, cpus.map(|it| &*it.proxy), &log)?;
        let mut running = Running {
            ports,
            process: Some(process),
        };
        running.ready(peer.name(), &log).await?;
        Ok(running)
    }

    /// The backend, as another [`Running`] of which nothing is measured.
    pub(crate) async fn backend(dir: &Path) -> Result<Running> {
        let args = [
            "backend".to_owned(),
            BACKEND.h1.to_string(),
            BACKEND.h2.to_string(),
        ];
        let log = dir.join("backend.log");
        let mut running = Running {
            ports: BACKEND,
            process: Some(Process::spawn(
                &std::env::current_exe()?,
                &args,
                None,
                &log,
            )?),
        };
        running.ready("backend", &log).await?;
        Ok(running)
    }

    async fn ready(&mut self, name: &str, log: &Path) -> Result<()> {
        let deadline = Instant::now() + START;
        for port in [self.ports.h1, self.ports.h2] {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                let ended = match &mut self.process {
                    Some(process) => process.child.try_wait()?,
                    None => None,
                };
                if ended.is_some() || Instant::now() > deadline {
                    let said = std::fs::read_to_string(log).unwrap_or_default();
                    return Err(
                        format!("{name} does not take connections on {port}: {said}").into(),
                    );
                }
                sleep(LOOK).await;
            }
        }
        Ok(())
    }

    pub(crate) async fn stop(self) -> Result<()> {
        if let Some(mut process) = self.process {
            process.child.kill().await?;
        }
        Ok(())
    }

    /// What it has used: CPU since it started; memory, at its peak since the last
    /// [`forget_peak`](Running::forget_peak). `None` where there is no proxy.
    pub(crate) fn usage(&self) -> Result<Option<Usage>> {
        self.process.as_ref().map(Process::usage).transpose()
    }

    /// Begins a new peak.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        if let Some(process) = &self.process {
            // proc(5): 5 resets VmHWM.
            std::fs::write(format!("/proc/{}/clear_refs", process.pid), "5")?;
        }
        Ok(())
    }
}

impl Process {
    fn spawn(program: &Path, args: &[String], cpus: Option<&str>, log: &Path) -> Result<Process> {
        let mut command = match cpus {
            Some(cpus) => {
                let mut command = netns::tied("taskset");
                command.args(["--cpu-list", cpus]).arg(program);
                command
            }
            None => netns::tied(program),
        };
        let log = File::create(log)?;
        command.args(args).stdout(log.try_clone()?).stderr(log);
        // A setting of the caller would change what is measured.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(name);
            }
        }
        let child = command.stdin(Stdio::null()).spawn()?;
        let pid = child.id().ok_or("it ended at once")?;
        Ok(Process { child, pid })
    }

    fn usage(&self) -> Result<Usage> {
        let proc = PathBuf::from(format!("/proc/{}", self.pid));
        let mut schedstats = Vec::new();
        for task in std::fs::read_dir(proc.join("task"))? {
            // A thread may have ended since.
            schedstats.extend(std::fs::read_to_string(task?.path().join("schedstat")));
        }
        let status = std::fs::read_to_string(proc.join("status"))?;
        let kib = |field: &str| status_kib(&status, field).ok_or(format!("no {field}"));
        Ok(Usage {
            cpu_seconds: cpu_seconds(schedstats),
            rss_kib: kib("VmRSS")?,
            peak_kib: kib("VmHWM")?,
        })
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn tidegate(gate: &str, ports: Ports) -> Vec<String> {
    let pairs = [(ports.h1, BACKEND.h1), (ports.h2, BACKEND.h2)];
    let pairs = pairs.map(|(listen, upstream)| format!("{listen}:{upstream}"));
    vec![
        "run".to_owned(),
        format!("--gate={gate}"),
        format!("--gate-ports={}", pairs.join(",")),
        format!("--hook-port={}", ports.h1 + HOOKS),
        "--mode=no-mesh".to_owned(),
    ]
}
