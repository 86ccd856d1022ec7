//! What the gate costs next to other proxies: `./test bench` runs it on the static binary; needs root.

mod backend;
mod config;
mod drive;
mod measure;
// All but the test harness's part.
#[allow(dead_code, reason = "shared with tests, which use more of it")]
#[path = "../../tests/support/netns.rs"]
mod netns;
mod peers;
mod plain;
mod report;
#[path = "../../tests/support/tied.rs"]
mod tied;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use measure::{Load, Sample, Usage, loads};
use peers::{Cpus, Peer, Programs, Running};
use report::{Setting, Table};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Set in the process that has a network of its own.
const INSIDE: &str = "TIDEGATE_BENCH_IN_NETNS";
const ROUNDS: usize = 5;
const SECONDS: u64 = 1;
/// Between two looks at the memory of a proxy under load.
const LOOK: Duration = Duration::from_millis(100);
/// More than all of it takes.
const LIMIT: Duration = Duration::from_secs(3600);

fn arguments() -> clap::Command {
    let list = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_delimiter(',')
            .action(ArgAction::Append)
            .help(help)
    };
    let path = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name("FILE");
        arg.value_parser(value_parser!(PathBuf)).help(help)
    };
    clap::Command::new("gate_load")
        .about("Compares the gate with other proxies under load; needs root")
        .arg(
            Arg::new("quick")
                .long("quick")
                .action(ArgAction::SetTrue)
                .help("One round: whether all works, not how fast"),
        )
        .arg(list(
            "only",
            "These peers: direct, tidegate (or tidegate-http, tidegate-tcp), haproxy (or haproxy-splice, haproxy-tcp, haproxy-tcp-splice), nginx, envoy, hyper",
        ))
        .arg(list(
            "load",
            "These loads, by the start of their names: h1/, h1-close/, h2c/, ws/, with 100, 16k, 64k, 1m: h1/100",
        ))
        .arg(
            Arg::new("runs")
                .long("runs")
                .value_name("N")
                .value_parser(value_parser!(u16).range(1..))
                .help("Rounds in which all take turns [default: 5]"),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=600))
                .help("Of each run [default: 1]"),
        )
        .arg(path("json", "Write all samples there"))
        .arg(path("page", "Write docs/performance.md there; only for a run of all peers and loads"))
        // Cargo says so to every benchmark.
        .arg(Arg::new("bench").long("bench").hide(true).action(ArgAction::SetTrue))
}

/// What is to be run.
struct Plan {
    peers: Vec<Peer>,
    loads: Vec<Load>,
    rounds: usize,
    seconds: u64,
    json: Option<PathBuf>,
    page: Option<PathBuf>,
}

impl Plan {
    fn new(args: &ArgMatches) -> Result<Plan> {
        let names = |name: &str| -> Option<Vec<&String>> {
            args.get_many(name).map(|values| values.collect())
        };
        let mut peers = Peer::ALL.to_vec();
        if let Some(only) = names("only") {
            if let Some(name) = only
                .iter()
                .find(|name| !peers.iter().any(|it| it.is_called(name)))
            {
                return Err(format!("no peer is called {name}; see --help").into());
            }
            peers.retain(|peer| only.iter().any(|name| peer.is_called(name)));
        }
        let mut loads = loads();
        if let Some(only) = names("load") {
            loads.retain(|load| {
                only.iter()
                    .any(|it| load.to_string().starts_with(it.as_str()))
            });
        }
        if loads.is_empty() {
            return Err("no load begins like that; see --help".into());
        }
        let page: Option<&PathBuf> = args.get_one("page");
        let all = peers.len() == Peer::ALL.len() && loads.len() == measure::loads().len();
        if page.is_some() && !all {
            return Err(
                "the page is of all peers and all loads: leave out --only and --load".into(),
            );
        }
        let quick = args.get_flag("quick");
        let runs: Option<&u16> = args.get_one("runs");
        Ok(Plan {
            peers,
            loads,
            rounds: runs.map_or(if quick { 1 } else { ROUNDS }, |runs| usize::from(*runs)),
            seconds: args.get_one("seconds").copied().unwrap_or(SECONDS),
            json: args.get_one("json").cloned(),
            page: page.cloned(),
        })
    }
}

// ===== the run =====

/// One run of `load` through `peer`.
async fn sample(load: &Load, peer: &Running, seconds: u64, dir: &Path) -> Result<Sample> {
    peer.forget_peak()?;
    let before = peer.usage()?;
    let mut rss_kib = 0;
    let driven = drive::drive(load, peer.ports.of(load.protocol), seconds, dir);
    tokio::pin!(driven);
    let seen = loop {
        tokio::select! {
            seen = &mut driven => break seen?,
            () = sleep(LOOK) => {
                rss_kib = peer.usage()?.map_or(0, |usage| usage.rss_kib);
            }
        }
    };
    let usage = match (before, peer.usage()?) {
        (Some(before), Some(after)) => Some(Usage {
            cpu_seconds: after.cpu_seconds - before.cpu_seconds,
            rss_kib,
            // The kernel counts pages for each thread and sums up late.
            peak_kib: after.peak_kib.max(rss_kib),
        }),
        _ => None,
    };
    Ok(Sample { seen, usage })
}

/// All rounds of one load, on processes of its own.
async fn table(load: Load, plan: &Plan, programs: &Programs, cpus: Option<&Cpus>) -> Result<Table> {
    let dir = tempfile::tempdir()?;
    let backend = Running::backend(dir.path()).await?;
    let mut running = Vec::new();
    for &peer in &plan.peers {
        running.push(Running::start(peer, programs, cpus, dir.path()).await?);
    }
    let mut rows: Vec<_> = plan
        .peers
        .iter()
        .map(|it| (it.name(), Vec::new()))
        .collect();
    for _ in 0..plan.rounds {
        for (peer, (name, samples)) in running.iter().zip(&mut rows) {
            let sample = sample(&load, peer, plan.seconds, dir.path()).await;
            samples.push(sample.map_err(|error| format!("{load} through {name}: {error}"))?);
        }
    }
    for peer in running {
        peer.stop().await?;
    }
    backend.stop().await?;
    Ok(Table { load, rows })
}

async fn run(plan: &Plan, cpus: Option<&Cpus>) -> Result<()> {
    let programs = Programs::find();
    if plan.peers.iter().any(|peer| peer.is_called("tidegate")) {
        programs.check_gate().await?;
    }
    let setting = Setting {
        date: today().await?,
        machine: machine()?,
        versions: programs.versions(&plan.peers).await?,
        rounds: plan.rounds,
        seconds: plan.seconds,
    };
    println!("{}\n{}\n", setting.machine, setting.versions.join("\n"));
    let mut tables = Vec::new();
    for &load in &plan.loads {
        let table = table(load, plan, &programs, cpus).await?;
        println!("{}", table.markdown());
        tables.push(table);
    }
    println!("{}", report::aims(&tables));
    if let Some(path) = &plan.json {
        std::fs::write(path, format!("{:#}\n", report::json(&tables)))?;
    }
    if let Some(path) = &plan.page {
        std::fs::write(path, report::page(&tables, &setting))?;
        println!("wrote {}", path.display());
    }
    let failed = tables
        .iter()
        .flat_map(|table| &table.rows)
        .any(|(name, samples)| {
            name.starts_with("tidegate") && samples.iter().any(|sample| sample.seen.errors > 0)
        });
    if failed {
        return Err("requests failed through tidegate: see above".into());
    }
    Ok(())
}

async fn today() -> Result<String> {
    let mut date = Command::new("date");
    date.args(["--utc", "+%F"]);
    Ok(drive::output(date, LIMIT).await?.trim().to_owned())
}

fn machine() -> Result<String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo")?;
    let value = |line: &str| {
        line.split_once(':')
            .map(|(_, value)| value.trim().to_owned())
    };
    let mut models = cpuinfo
        .lines()
        .filter(|line| line.starts_with("model name"));
    let model = models.next().and_then(value);
    let model = model.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let virtual_machine = cpuinfo.contains(" hypervisor");
    // Not those of this process, which leaves one to the proxy.
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor"));
    let cpus = cpus.count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel: Vec<&str> = kernel.trim().split(['.', '-']).take(2).collect();
    Ok(format!(
        "{cpus} CPUs{} ({model}), Linux {}",
        if virtual_machine {
            " of a virtual machine"
        } else {
            ""
        },
        kernel.join(".")
    ))
}

// ===== processes =====

/// Starts this program once more, in a network namespace and on the CPUs that are not the proxy's.
async fn outside(cpus: Option<&Cpus>) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root for a network namespace: run as root".into());
    }
    let mut command = netns::tied("unshare");
    command.args(["--net", "--"]);
    if let Some(cpus) = cpus {
        command.args(["taskset", "--cpu-list", &cpus.others]);
    }
    command
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(
            INSIDE,
            cpus.map_or(String::new(), |cpus| cpus.proxy.clone()),
        );
    let mut child = command.spawn()?;
    let status = timeout(LIMIT, child.wait())
        .await
        .map_err(|_| format!("it did not end within {LIMIT:?}"))??;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn inside(plan: &Plan, proxy: String) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(["link", "set", "lo", "up"]);
    drive::output(ip, LIMIT).await?;
    // A connection a request takes many, each for a minute; ports below are for who listens.
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "10240 65535")?;
    let cpus = (!proxy.is_empty()).then_some(Cpus {
        proxy,
        others: String::new(),
    });
    run(plan, cpus.as_ref()).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    dispatch().await.unwrap_or_else(|error| {
        eprintln!("gate_load: {error}");
        ExitCode::FAILURE
    })
}

/// This program is some of the parties, too, each a process of its own.
async fn dispatch() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let role = args.next().unwrap_or_default();
    let numbers: Vec<usize> = args.filter_map(|it| it.parse().ok()).collect();
    let port = |number: usize| u16::try_from(number);
    match (role.as_str(), numbers.as_slice()) {
        ("backend", &[h1, h2]) => backend::serve(port(h1)?, port(h2)?).await?,
        ("plain-proxy", &[h1, h1_up, h2, h2_up]) => {
            plain::serve((port(h1)?, port(h1_up)?), (port(h2)?, port(h2_up)?)).await?;
        }
        ("websocket", &[at, bytes, connections, seconds]) => {
            drive::websocket(port(at)?, bytes, connections, seconds as u64).await?;
        }
        _ => {
            let plan = Plan::new(&arguments().get_matches())?;
            match std::env::var(INSIDE) {
                Ok(proxy) => inside(&plan, proxy).await?,
                Err(_) => return outside(Cpus::divide()?.as_ref()).await,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
