//! Puts a load on a port: wrk, h2load, or this program's own WebSocket clients.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::backend::{WS_ACCEPT, WS_KEY};
use crate::measure::{self, Load, Protocol, Seen};
use crate::{Result, netns};

/// What a generator may take longer than it was told to.
const SLACK: Duration = Duration::from_secs(20);
/// The longest header of a WebSocket frame: two bytes, the length, the mask.
const FRAME_HEAD: usize = 14;

/// Puts `load` on `port` for so many whole seconds. `dir` is for files in between.
pub(crate) async fn drive(load: &Load, port: u16, seconds: u64, dir: &Path) -> Result<Seen> {
    let url = format!("http://127.0.0.1:{port}/{}", load.bytes);
    let time = seconds.to_string();
    let connections = load.connections.to_string();
    let log = dir.join("h2load.log");
    let mut command;
    match load.protocol {
        Protocol::H1 | Protocol::H1Close => {
            command = netns::tied("wrk");
            command.args(["--threads=1", "--latency"]);
            command.args(["--connections", &connections, "--duration", &time]);
            if load.protocol == Protocol::H1Close {
                command.args(["--header", "Connection: close"]);
            }
            command.arg(url);
        }
        Protocol::H2c => {
            if log.exists() {
                std::fs::remove_file(&log)?;
            }
            command = netns::tied("h2load");
            command.args(["--threads=1", "--clients", &connections, "-D", &time]);
            command.args(["-m", &load.streams.to_string(), "--log-file"]);
            command.arg(&log).arg(url);
        }
        Protocol::WebSocket => {
            command = netns::tied(std::env::current_exe()?);
            command.arg("websocket").args([
                &port.to_string(),
                &load.bytes.to_string(),
                &connections,
                &time,
            ]);
        }
    }
    let output = output(command, Duration::from_secs(seconds) + SLACK).await?;
    let seen = match load.protocol {
        Protocol::H1 | Protocol::H1Close => measure::wrk(&output)?,
        Protocol::H2c => {
            let in_flight = (load.connections * load.streams) as u64;
            measure::h2load(&output, &std::fs::read_to_string(&log)?, in_flight)?
        }
        Protocol::WebSocket => parse_clients(&output)?,
    };
    if seen.requests == 0 {
        return Err(format!("nothing was answered: {output}").into());
    }
    // A little is lost where the generator rounds.
    if seen.bytes < 0.98 * seen.requests as f64 * load.bytes as f64 {
        return Err(format!("replies are too short: {output}").into());
    }
    Ok(seen)
}

/// What the command writes to its standard output; all it writes as an error, where it fails.
pub(crate) async fn output(mut command: Command, limit: Duration) -> Result<String> {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let output = timeout(limit, child.wait_with_output())
        .await
        .map_err(|_| format!("{:?} did not end within {limit:?}", command.as_std()))??;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{:?}: {stdout}{stderr}", command.as_std()).into());
    }
    Ok(stdout.into_owned())
}

// ===== the WebSocket clients =====

/// One thread of clients, each of which sends a message and awaits it back, for so many seconds.
/// Prints what they saw.
pub(crate) async fn websocket(
    port: u16,
    bytes: usize,
    connections: usize,
    seconds: u64,
) -> Result<()> {
    let began = Instant::now();
    let until = began + Duration::from_secs(seconds);
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        clients.spawn(client(port, bytes, until));
    }
    let (mut times, mut errors) = (Vec::new(), 0);
    while let Some(client) = clients.join_next().await {
        match client? {
            Ok(more) => times.extend(more),
            Err(error) => {
                eprintln!("websocket: {error}");
                errors += 1;
            }
        }
    }
    let seen = json!({
        "requests": times.len(),
        "errors": errors,
        "seconds": began.elapsed().as_secs_f64(),
        "bytes": times.len() * bytes,
        "p50_micros": measure::percentile(&mut times, 50),
        "p99_micros": measure::percentile(&mut times, 99),
    });
    println!("{seen}");
    Ok(())
}

fn parse_clients(output: &str) -> Result<Seen> {
    let seen: Value = serde_json::from_str(output)?;
    let number = |name: &str| {
        seen[name]
            .as_f64()
            .ok_or(format!("no {name} in what the WebSocket clients saw"))
    };
    Ok(Seen {
        requests: number("requests")? as u64,
        errors: number("errors")? as u64,
        bytes: number("bytes")?,
        seconds: number("seconds")?,
        p50_micros: number("p50_micros")?,
        p99_micros: number("p99_micros")?,
    })
}

/// How long each message took, in microseconds.
async fn client(port: u16, bytes: usize, until: Instant) -> Result<Vec<u64>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let hello = format!(
        "GET /websocket HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nupgrade: websocket\r\n\
         connection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {WS_KEY}\r\n\r\n"
    );
    stream.write_all(hello.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // Byte by byte: what follows is the first frame's.
        head.push(timeout(SLACK, stream.read_u8()).await??);
    }
    let head = String::from_utf8(head)?;
    if !head.starts_with("HTTP/1.1 101") || !head.contains(WS_ACCEPT) {
        return Err(format!("no upgrade: {head}").into());
    }
    let message = frame(bytes, true);
    let mut reply = frame(bytes, false);
    let expected = reply.clone();
    let mut times = Vec::new();
    while Instant::now() < until {
        let sent = Instant::now();
        stream.write_all(&message).await?;
        timeout(SLACK, stream.read_exact(&mut reply)).await??;
        times.push(sent.elapsed().as_micros() as u64);
    }
    if reply != expected {
        return Err("another message came back than was sent".into());
    }
    Ok(times)
}

/// A binary message in one frame. The mask, which clients must use, is zero: it changes nothing.
fn frame(bytes: usize, masked: bool) -> Vec<u8> {
    let mask_bit = if masked { 0x80 } else { 0 };
    let mut frame = Vec::with_capacity(FRAME_HEAD + bytes);
    frame.push(0x82);
    match bytes {
        0..126 => frame.push(mask_bit | bytes as u8),
        126..65_536 => {
            frame.push(mask_bit | 126);
            frame.extend((bytes as u16).to_be_bytes());
        }
        _ => {
            frame.push(mask_bit | 127);
            frame.extend((bytes as u64).to_be_bytes());
        }
    }
    if masked {
        frame.extend([0; 4]);
    }
    frame.resize(frame.len() + bytes, b'x');
    frame
}
