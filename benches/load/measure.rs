//! What is measured and how it is read: the output of the load generators, a process's usage, medians.
//! Pure.

use std::fmt;

/// Microseconds in a second.
const MICROS: f64 = 1_000_000.0;

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, connections kept.
    H1,
    /// HTTP/1.1, a connection for each request.
    H1Close,
    /// HTTP/2 without TLS, with prior knowledge.
    H2c,
    /// One message after the other, each sent back.
    WebSocket,
}

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) protocol: Protocol,
    /// Of a reply's body, or of a message.
    pub(crate) bytes: usize,
    pub(crate) connections: usize,
    /// In flight at a time on each connection.
    pub(crate) streams: usize,
}

/// All loads, in the order they are run in.
pub(crate) fn loads() -> Vec<Load> {
    let sizes = [100, 16 << 10, 64 << 10, 1 << 20];
    let mut all = Vec::new();
    for protocol in [Protocol::H1, Protocol::H1Close, Protocol::H2c] {
        all.extend(sizes.map(|bytes| Load::new(protocol, bytes)));
    }
    all.extend([100, 64 << 10].map(|bytes| Load::new(Protocol::WebSocket, bytes)));
    all
}

impl Load {
    fn new(protocol: Protocol, bytes: usize) -> Load {
        let large = bytes >= 1 << 20;
        let (connections, streams) = match protocol {
            Protocol::H2c if large => (4, 2),
            Protocol::H2c => (8, 8),
            _ if large => (8, 1),
            _ => (32, 1),
        };
        Load {
            protocol,
            bytes,
            connections,
            streams,
        }
    }

    /// What a person reads above its table.
    pub(crate) fn title(&self) -> String {
        let size = match self.bytes {
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} B"),
        };
        let connections = self.connections;
        match self.protocol {
            Protocol::H1 => format!("HTTP/1.1, keep-alive, {size}, {connections} connections"),
            Protocol::H1Close => {
                format!("HTTP/1.1, a connection a request, {size}, {connections} at a time")
            }
            Protocol::H2c => format!(
                "h2c, {size}, {connections} connections with {} streams each",
                self.streams
            ),
            Protocol::WebSocket => {
                format!("WebSocket echo, messages of {size}, {connections} connections")
            }
        }
    }
}

/// Its name on the command line: `h1/100`, `h1-close/16k`, `h2c/1m`, `ws/100`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.protocol {
            Protocol::H1 => "h1/",
            Protocol::H1Close => "h1-close/",
            Protocol::H2c => "h2c/",
            Protocol::WebSocket => "ws/",
        })?;
        match self.bytes {
            bytes if bytes >= 1 << 20 => write!(f, "{}m", bytes >> 20),
            bytes if bytes >= 1 << 10 => write!(f, "{}k", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

/// What a load generator saw in one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    /// Answered well; messages that came back, with a WebSocket.
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    /// Received; with heads, where the generator counts those.
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
}

/// What a proxy took for one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    /// Towards the end of the run.
    pub(crate) rss_kib: u64,
    /// The most during the run.
    pub(crate) peak_kib: u64,
}

/// One run. Without a proxy there is no usage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) seen: Seen,
    pub(crate) usage: Option<Usage>,
}

impl Sample {
    pub(crate) fn rate(&self) -> f64 {
        self.seen.requests as f64 / self.seen.seconds
    }

    /// Of the proxy, for one request.
    pub(crate) fn cpu_micros(&self) -> Option<f64> {
        let usage = self.usage?;
        (self.seen.requests > 0).then(|| usage.cpu_seconds * MICROS / self.seen.requests as f64)
    }

    /// Of the proxy, for 10^9 bytes of bodies.
    pub(crate) fn cpu_seconds_per_gb(&self, load: &Load) -> Option<f64> {
        // 10^9 bytes and 10^6 microseconds.
        self.cpu_micros()
            .map(|micros| micros * 1_000.0 / load.bytes as f64)
    }
}

// ===== load generators =====

/// What `wrk --latency` has printed; what is missing as an error.
pub(crate) fn wrk(output: &str) -> Result<Seen, String> {
    let percentile = |name: &str| {
        let line = output
            .lines()
            .find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|text| micros(text.trim()))
            .ok_or(format!("wrk printed no {name}: {output}"))
    };
    let total = output.lines().find_map(|line| {
        // `  86889 requests in 1.01s, 13.67MB read`
        let (requests, rest) = line.trim().split_once(" requests in ")?;
        let (time, read) = rest.split_once(", ")?;
        let read = size(read.strip_suffix(" read")?)?;
        Some((requests.parse().ok()?, micros(time)? / MICROS, read))
    });
    let (requests, seconds, bytes) =
        total.ok_or(format!("wrk printed no number of requests: {output}"))?;
    let bad_status = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("Non-2xx or 3xx responses: "));
    let bad_status = bad_status.map_or(0, number_in);
    // `Socket errors: connect 0, read 0, write 0, timeout 0`
    let sockets = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("Socket errors: "));
    let sockets: u64 = sockets.map_or(0, |line| line.split(',').map(number_in).sum());
    Ok(Seen {
        // wrk counts those of another status, too.
        requests: u64::saturating_sub(requests, bad_status),
        errors: bad_status + sockets,
        bytes,
        seconds,
        p50_micros: percentile("50%")?,
        p99_micros: percentile("99%")?,
    })
}

/// What `h2load -D` has printed, and its log: lines of when, status and microseconds.
///
/// What was in flight when the time was over, `in_flight` at most, h2load counts as errors; they are
/// none.
pub(crate) fn h2load(output: &str, log: &str, in_flight: u64) -> Result<Seen, String> {
    let missing = |what: &str| format!("h2load printed no {what}: {output}");
    let rest = |name: &str| output.lines().find_map(|line| line.strip_prefix(name));
    let seconds = rest("finished in ")
        .and_then(|line| micros(line.split(',').next()?))
        .ok_or_else(|| missing("duration"))?
        / MICROS;
    // `requests: 4005 total, 4012 started, 4005 done, 4000 succeeded, 5 failed, 5 errored, 0 timeout`
    let requests = rest("requests: ").ok_or_else(|| missing("requests"))?;
    let count = |name: &str| {
        let part = requests.split(',').find(|part| part.ends_with(name));
        part.map(number_in).ok_or_else(|| missing(name))
    };
    let failed = count("failed")?;
    // `traffic: 328.38KB (336264) total, 191.41KB (196000) headers (space savings 50.51%), 66.41KB (68000) data`
    let bytes = rest("traffic: ")
        .and_then(|line| line.rsplit_once('(')?.1.strip_suffix(") data"))
        .and_then(|bytes| bytes.parse().ok())
        .ok_or_else(|| missing("traffic"))?;
    let mut times: Vec<u64> = log.lines().filter_map(good_time).collect();
    Ok(Seen {
        requests: count("succeeded")?,
        errors: if failed <= in_flight { 0 } else { failed },
        bytes,
        seconds,
        p50_micros: percentile(&mut times, 50),
        p99_micros: percentile(&mut times, 99),
    })
}

fn good_time(line: &str) -> Option<u64> {
    let mut fields = line.split('\t').skip(1);
    let status: u16 = fields.next()?.parse().ok()?;
    if !(200..400).contains(&status) {
        return None;
    }
    fields.next()?.parse().ok()
}

/// The first number in `text`, 0 without one.
fn number_in(text: &str) -> u64 {
    let digits = text
        .split(|c: char| !c.is_ascii_digit())
        .find(|s| !s.is_empty());
    digits.and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// `44.00us`, `2.40ms`, `1.01s`, `1.00m` in microseconds.
fn micros(text: &str) -> Option<f64> {
    let (number, unit) = split_unit(text)?;
    Some(
        number
            * match unit {
                "us" => 1.0,
                "ms" => 1_000.0,
                "s" => MICROS,
                "m" => 60.0 * MICROS,
                _ => return None,
            },
    )
}

/// wrk's sizes in bytes: `13.67MB`, which are 2^20 each.
fn size(text: &str) -> Option<f64> {
    let (number, unit) = split_unit(text)?;
    let power = ["B", "KB", "MB", "GB", "TB"]
        .iter()
        .position(|it| *it == unit)?;
    Some(number * 1024_f64.powi(power as i32))
}

fn split_unit(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    Some((text[..at].parse().ok()?, &text[at..]))
}

/// Sorts; 0 of nothing.
pub(crate) fn percentile(times: &mut [u64], percent: usize) -> f64 {
    times.sort_unstable();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).map_or(0.0, |time| *time as f64)
}

// ===== processes =====

/// Seconds on a CPU from the `schedstat` files of a process's threads, which count nanoseconds: the
/// ticks of `stat` are too coarse for a run of a second.
pub(crate) fn cpu_seconds<S: AsRef<str>>(schedstats: impl IntoIterator<Item = S>) -> f64 {
    let nanos = schedstats.into_iter().map(|it| number_in(it.as_ref()));
    nanos.sum::<u64>() as f64 / 1e9
}

/// A field of `/proc/PID/status` that is in kB: `VmRSS`, `VmHWM`.
pub(crate) fn status_kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.strip_prefix(':')?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()
}

/// The CPUs of a list such as `0-3,8`, as in `Cpus_allowed_list`.
pub(crate) fn cpu_list(list: &str) -> Vec<usize> {
    let mut all = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse()) {
            all.extend(first..=last);
        }
    }
    all
}

// ===== figures =====

/// `None` of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// How far values lie apart: half the way from the least to the most, as a part of the median. `None`
/// of fewer than two.
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    median(values.iter().copied()).map(|median| (most - least) / 2.0 / median)
}
