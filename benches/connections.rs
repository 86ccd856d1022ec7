//! What many connections cost the gate: memory for each, idle and busy, and CPU while none of them
//! says anything. Prints it, and fails where a connection costs more memory than it may.
//!
//! Workload, gate and clients are a process each. Where the open files that a process may have are too
//! few, some of the idle clients have not said anything yet: they cost the gate one file each, not two.
//!
//! `cargo bench --profile load --bench connections [-- IDLE BUSY]`

use std::error::Error;
use std::io::{BufRead, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate::gate::{Bound, GateConfig, Limits, Mode, Route};
use tidegate::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What a connection may cost, in KiB: the contract.
const MOST_KIB: f64 = 10.0;
const IDLE: usize = 10_000;
const BUSY: usize = 1_000;
const SETTLE: Duration = Duration::from_secs(1);
const IDLE_FOR: Duration = Duration::from_secs(10);
const BUSY_FOR: Duration = Duration::from_secs(5);
/// How long the workload takes: busy connections have a request in flight nearly all the time.
const WORK: Duration = Duration::from_millis(20);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
/// A connection more than that would have to wait for the listener's queue.
const AT_ONCE: usize = 200;

// ===== the gate and the workload, in processes of their own =====

/// Serves until its standard input ends.
fn gate(upstream: SocketAddr) -> Result<()> {
    raise_open_files();
    let config = GateConfig {
        mode: Mode::Http,
        routes: vec![Route {
            listen: 0,
            upstream,
        }],
        tls: None,
        limits: Limits {
            connections: usize::MAX,
            ..Limits::default()
        },
        announce: Duration::ZERO,
    };
    let bound = Bound::bind(&config)?;
    let port = bound.addrs()[0].port();
    let _gate = bound.serve(&Arc::new(Metrics::new()))?;
    println!("{port}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Answers until its standard input ends.
fn workload() -> Result<()> {
    raise_open_files();
    runtime()?.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener: TcpListener = socket.listen(4_096)?;
        println!("{}", listener.local_addr()?.port());
        let serving = async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(answer(tcp));
            }
        };
        let told = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            () = serving => {}
            _ = told => {}
        }
        Ok(())
    })
}

async fn answer(mut tcp: TcpStream) {
    let mut head = [0; REQUEST.len()];
    while tcp.read_exact(&mut head).await.is_ok() {
        sleep(WORK).await;
        if tcp.write_all(REPLY).await.is_err() {
            return;
        }
    }
}

/// A process of this program, which ends with it.
struct Other {
    child: Child,
    addr: SocketAddr,
}

impl Other {
    fn start(args: &[&str]) -> Result<Other> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut port = String::new();
        std::io::BufReader::new(stdout).read_line(&mut port)?;
        let addr = (Ipv4Addr::LOCALHOST, port.trim().parse()?).into();
        Ok(Other { child, addr })
    }

    fn rss_kib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        Ok(kib.ok_or("no VmRSS")?.parse()?)
    }

    /// Of all its threads, in seconds.
    fn cpu(&self) -> Result<f64> {
        let mut nanos = 0.0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
            nanos += stat.split(' ').next().ok_or("empty")?.parse::<f64>()?;
        }
        Ok(nanos / 1e9)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

// ===== around it =====

/// As many as may be; root may have more than it was given.
fn raise_open_files() -> u64 {
    let wanted = 100_000;
    let all = Rlimit {
        current: Some(wanted),
        maximum: Some(wanted),
    };
    if setrlimit(Resource::Nofile, all).is_ok() {
        return wanted;
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    limit.current.unwrap_or(wanted)
}

async fn ask(tcp: &mut TcpStream) -> Result<()> {
    let mut reply = [0; REPLY.len()];
    tcp.write_all(REQUEST).await?;
    tcp.read_exact(&mut reply).await?;
    Ok(())
}

/// Connections that have had one answer, so that each has its own to the workload; or that have not
/// said anything yet.
async fn connect(to: SocketAddr, count: usize, asks: bool) -> Result<Vec<TcpStream>> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let mut group = JoinSet::new();
        for _ in 0..AT_ONCE.min(count - all.len()) {
            group.spawn(async move {
                let mut tcp = TcpStream::connect(to).await?;
                if asks {
                    ask(&mut tcp).await?;
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(tcp)
            });
        }
        while let Some(connected) = group.join_next().await {
            all.push(connected??);
        }
    }
    Ok(all)
}

async fn measure(idle: usize, silent: usize, busy: usize) -> Result<()> {
    let workload = Other::start(&["workload"])?;
    let gate = Other::start(&["gate", &workload.addr.to_string()])?;
    let warm = connect(gate.addr, 1, true).await?;
    let before = gate.rss_kib()?;
    println!("{before:.0} KiB resident with {} connection", warm.len());

    let quiet = connect(gate.addr, idle - silent, true).await?;
    let mute = connect(gate.addr, silent, false).await?;
    // Those that say nothing cannot tell when they were accepted.
    sleep(SETTLE).await;
    let each_idle = (gate.rss_kib()? - before) / idle as f64;
    let cpu = gate.cpu()?;
    let started = Instant::now();
    sleep(IDLE_FOR).await;
    let spent = gate.cpu()? - cpu;
    let part = spent / started.elapsed().as_secs_f64() * 100.0;
    println!(
        "{idle} idle connections, {silent} of them silent: {each_idle:.2} KiB each, {:.1} ms of CPU in {IDLE_FOR:?} ({part:.3} %)",
        spent * 1e3
    );

    let between = gate.rss_kib()?;
    let asking = connect(gate.addr, busy, true).await?;
    let cpu = gate.cpu()?;
    let until = Instant::now() + BUSY_FOR;
    let mut all = JoinSet::new();
    for mut tcp in asking {
        all.spawn(async move {
            let mut answers = 0_u64;
            while Instant::now() < until {
                ask(&mut tcp).await?;
                answers += 1;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>((answers, tcp))
        });
    }
    sleep(BUSY_FOR / 2).await;
    let each_busy = (gate.rss_kib()? - between) / busy as f64;
    let mut answers = 0;
    let mut kept = Vec::new();
    while let Some(done) = all.join_next().await {
        let (answered, tcp) = done??;
        answers += answered;
        kept.push(tcp);
    }
    let spent = gate.cpu()? - cpu;
    println!(
        "{busy} busy ones beside them: {each_busy:.2} KiB each, {answers} requests, {:.1} us of CPU each",
        spent / answers as f64 * 1e6
    );
    drop((warm, quiet, mute, kept));
    if each_idle > MOST_KIB || each_busy > MOST_KIB {
        return Err(format!("a connection costs more than {MOST_KIB} KiB").into());
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn main() -> Result<()> {
    // Cargo says so to all benches.
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["gate", upstream] => return gate(upstream.parse()?),
        ["workload"] => return workload(),
        _ => {}
    }
    let number = |at: usize, or| args.get(at).map_or(Ok(or), |arg| arg.parse());
    let (idle, busy) = (number(0, IDLE)?, number(1, BUSY)?);
    let files = usize::try_from(raise_open_files())?;
    // The gate needs one for each client, one for the workload of each that has asked, and some more.
    let silent = (2 * (idle + busy) + 100).saturating_sub(files);
    if silent > idle {
        return Err(format!("{files} open files are too few: raise the limit (ulimit -n)").into());
    }
    runtime()?.block_on(measure(idle, silent, busy))
}
