//! Starts a real Envoy as istio-proxy's inbound half: static listener and cluster, admin on loopback.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::{ANY_PORT, Process, Scale, client};

/// How long Envoy may take to start.
const START_MAX: Duration = Duration::from_secs(30);

/// How an Envoy is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program.
    pub program: PathBuf,
    /// A directory for its bootstrap; it must exist and outlive the process.
    pub directory: PathBuf,
    /// The inbound listener.
    pub inbound: SocketAddr,
    /// The admin interface.
    pub admin: SocketAddr,
    /// queue-proxy.
    pub upstream: SocketAddr,
    /// The port in the cluster's name `inbound|PORT||`.
    pub cluster_port: u16,
    /// `--drain-time-s` (modelled; Envoy takes whole seconds, at least one).
    pub drain_time: Duration,
    /// How fast it lives.
    pub scale: Scale,
}

impl Config {
    /// As Istio starts it, in front of `upstream`.
    pub fn new(program: &Path, directory: &Path, upstream: SocketAddr) -> Config {
        Config {
            program: program.to_owned(),
            directory: directory.to_owned(),
            inbound: ANY_PORT,
            admin: ANY_PORT,
            upstream,
            cluster_port: 8012,
            drain_time: Duration::from_secs(45),
            scale: Scale::REAL,
        }
    }
}

/// A running Envoy.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The inbound listener.
    pub inbound: SocketAddr,
    /// The admin interface.
    pub admin: SocketAddr,
    /// The process.
    pub process: Process,
}

/// Why Envoy did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be run.
    #[error("cannot run {program}: {source}; give the path of an envoy executable")]
    Run {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its bootstrap cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It left, or did not get ready in time.
    #[error("envoy did not start; check that it is an Envoy 1.24 or later: {log}")]
    Start {
        /// The end of its log.
        log: String,
    },
}

/// Starts Envoy and waits until it is live.
pub async fn start(config: Config) -> Result<Handle, Error> {
    let directory = config.directory.clone();
    let bootstrap = directory.join("envoy.json");
    let write = |path: &Path, source| Error::Write {
        path: path.to_owned(),
        source,
    };
    std::fs::write(&bootstrap, self::bootstrap(&config).to_string())
        .map_err(|source| write(&bootstrap, source))?;
    let admin_file = directory.join("admin-address");
    let log = directory.join("envoy.log");
    let log_file = std::fs::File::create(&log).map_err(|source| write(&log, source))?;
    let drain_time = config
        .scale
        .real(config.drain_time)
        .as_secs_f64()
        .round()
        .max(1.0);
    let child = tokio::process::Command::new(&config.program)
        .arg("-c")
        .arg(&bootstrap)
        .args(["--drain-time-s", &drain_time.to_string()])
        .args(["--drain-strategy", "immediate", "--disable-hot-restart"])
        .args(["--concurrency", "1", "--log-level", "warning"])
        .arg("--admin-address-path")
        .arg(&admin_file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log_file)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| Error::Run {
            program: config.program.clone(),
            source,
        })?;
    let process = Process::adopt("envoy", child);
    let live = async {
        loop {
            if let Some(admin) = admin_address(&admin_file)
                && let Some(inbound) = listener(admin).await
            {
                return (admin, inbound);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        (admin, inbound) = live => Ok(Handle { inbound, admin, process }),
        _ = process.exited() => Err(Error::Start { log: tail(&log) }),
        () = tokio::time::sleep(START_MAX) => Err(Error::Start { log: tail(&log) }),
    }
}

/// The last lines of a log, at most.
fn tail(log: &Path) -> String {
    const LINES: usize = 5;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    match lines.len() {
        0 => "it logged nothing".to_owned(),
        count => lines[count.saturating_sub(LINES)..].join("\n"),
    }
}

fn admin_address(file: &Path) -> Option<SocketAddr> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The inbound listener's address, once Envoy is live.
async fn listener(admin: SocketAddr) -> Option<SocketAddr> {
    let get = |path| client::request(Method::GET, admin, path, Duration::from_secs(1));
    let (status, _) = get("/ready").await.ok()?;
    if status != StatusCode::OK {
        return None;
    }
    let (_, body) = get("/listeners").await.ok()?;
    let text = std::str::from_utf8(&body).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("virtualInbound::"))?
        .trim()
        .parse()
        .ok()
}

/// What pilot-agent would render, as far as inbound goes, with Istio's default statistics.
fn bootstrap(config: &Config) -> Value {
    let address = |addr: SocketAddr| json!({"socket_address": {"address": addr.ip().to_string(), "port_value": addr.port()}});
    let cluster = format!("inbound|{}||", config.cluster_port);
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": format!("inbound_0.0.0.0_{};", config.cluster_port),
        "route_config": {"virtual_hosts": [{
            "name": "inbound", "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster, "timeout": "0s"}}],
        }]},
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
        }],
    });
    json!({
        "admin": {"address": address(config.admin)},
        "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": [
            {"prefix": "cluster_manager"}, {"prefix": "listener_manager"}, {"prefix": "server"},
        ]}}},
        "static_resources": {
            "listeners": [{
                "name": "virtualInbound",
                "traffic_direction": "INBOUND",
                "address": address(config.inbound),
                "filter_chains": [{"filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": manager,
                }]}],
            }],
            "clusters": [{
                "name": cluster,
                "type": "STATIC",
                "connect_timeout": "1s",
                "load_assignment": {"cluster_name": cluster, "endpoints": [{
                    "lb_endpoints": [{"endpoint": {"address": address(config.upstream)}}],
                }]},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_envoy_is_told_apart() {
        let directory = tempfile::tempdir().expect("a directory");
        let start = |program| start(Config::new(Path::new(program), directory.path(), ANY_PORT));
        let missing = start("/nonexistent/envoy").await.expect_err("cannot run");
        assert!(matches!(missing, Error::Run { .. }), "{missing}");
        // Takes none of Envoy's flags, and says so.
        let other = start("/bin/ls").await.expect_err("leaves at once");
        assert!(
            matches!(&other, Error::Start { log } if log.contains("ls")),
            "{other}"
        );
    }
}
