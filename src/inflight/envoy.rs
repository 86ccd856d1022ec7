//! Envoy's `GET /clusters`: how many requests its inbound clusters have in flight.
//!
//! The hosts' `rq_active` is the one count that a default istio-proxy shows: Istio's stats matcher
//! hides every `downstream_*` stat. Nothing here takes a missing answer for zero: a reply that is
//! empty, cut short or strange is [`Cause::Malformed`].

use serde::Deserialize;
use serde_json::Value;

use crate::inflight::{Cause, EnvoyRequests, Reading};

#[cfg(test)]
mod tests;

/// The longest line of the text form, in bytes. Envoy's are under 200.
pub const LINE_MAX: usize = 4096;

/// The longest reply in JSON form, in bytes, since it is held whole.
pub const JSON_MAX: usize = 8 << 20;

/// Where traffic goes whose port no inbound cluster names; Istio before 1.24 has one for each IP
/// family.
const PASSTHROUGH: [&[u8]; 3] = [
    b"InboundPassthroughCluster",
    b"InboundPassthroughClusterIpv4",
    b"InboundPassthroughClusterIpv6",
];

/// Fields of a host whose value is free text and could look like a count.
const FREE_TEXT: [&[u8]; 4] = [b"::hostname", b"::region", b"::zone", b"::sub_zone"];

/// A reply in either form, told apart by its first byte.
#[derive(Debug, Default)]
pub enum Clusters {
    /// No byte yet.
    #[default]
    Nothing,
    /// Lines, parsed as they come.
    Text(ClustersText),
    /// JSON so far, at most [`JSON_MAX`] bytes.
    Json(Vec<u8>),
    /// JSON that is longer than [`JSON_MAX`].
    TooLong,
}

impl Clusters {
    /// Takes the next piece of the reply.
    pub fn feed(&mut self, piece: &[u8]) {
        match self {
            Clusters::Nothing => {
                *self = match piece.first() {
                    None => return,
                    Some(b'{') => Clusters::Json(Vec::new()),
                    Some(_) => Clusters::Text(ClustersText::default()),
                };
                self.feed(piece);
            }
            Clusters::Text(text) => text.feed(piece),
            Clusters::Json(json) if json.len() + piece.len() > JSON_MAX => {
                *self = Clusters::TooLong
            }
            Clusters::Json(json) => json.extend_from_slice(piece),
            Clusters::TooLong => {}
        }
    }

    /// The reply has ended.
    pub fn finish(self) -> Reading<EnvoyRequests> {
        match self {
            Clusters::Text(text) => text.finish(),
            Clusters::Json(json) => parse_json(&json),
            Clusters::Nothing | Clusters::TooLong => Reading::Unknown(Cause::Malformed),
        }
    }
}

/// The text form, parsed as it comes, in constant memory.
///
/// A line is `CLUSTER::HOST::STAT::VALUE`; cluster names hold `|` and hosts may be `[::1]:8012`, so
/// only the last two separators are certain.
#[derive(Debug, Default)]
pub struct ClustersText {
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    requests: EnvoyRequests,
    /// A line that can only be Envoy's has been seen.
    recognised: bool,
    malformed: bool,
}

impl ClustersText {
    /// Takes the next piece of the reply, cut anywhere.
    pub fn feed(&mut self, mut piece: &[u8]) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            if self.partial.is_empty() {
                self.line(&piece[..end]);
            } else {
                self.keep(&piece[..end]);
                let line = std::mem::take(&mut self.partial);
                self.line(&line);
                self.partial = line;
                self.partial.clear();
            }
            piece = &piece[end + 1..];
        }
        self.keep(piece);
    }

    /// The reply has ended. Known only where it ended with a whole line and any line was Envoy's.
    pub fn finish(self) -> Reading<EnvoyRequests> {
        if self.malformed || !self.recognised || !self.partial.is_empty() {
            return Reading::Unknown(Cause::Malformed);
        }
        Reading::Known(self.requests)
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.partial.len() + bytes.len() > LINE_MAX {
            self.malformed = true;
        }
        if !self.malformed {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.malformed |= line.len() > LINE_MAX;
        let inbound = is_inbound(cluster_of(line));
        if self.malformed || (self.recognised && !inbound) {
            return;
        }
        match fields(line) {
            Some((host, stat, value)) => {
                self.recognised = true;
                if inbound && add(&mut self.requests, host, stat, value).is_none() {
                    self.malformed = true;
                }
            }
            None => self.malformed |= inbound,
        }
    }
}

/// Adds one line of an inbound cluster; `None` where it should be a count and is not.
fn add(sum: &mut EnvoyRequests, host: &[u8], stat: &[u8], value: &[u8]) -> Option<()> {
    let counter = match stat {
        b"rq_active" => &mut sum.active,
        b"rq_total" => &mut sum.total,
        _ => return Some(()),
    };
    let free_text = |field: &[u8]| host.windows(field.len()).any(|part| part == field);
    if FREE_TEXT.into_iter().any(free_text) {
        return Some(());
    }
    // A count belongs to a host; were it the cluster's own, this is not the format known here.
    separator_before(host)?;
    *counter = counter.checked_add(number(value)?)?;
    Some(())
}

/// `CLUSTER::HOST`, `STAT` and `VALUE`; the host is missing in lines about the cluster itself.
fn fields(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (head, value) = separator_before(line)?;
    let (host, stat) = separator_before(head)?;
    (!host.is_empty() && !stat.is_empty()).then_some((host, stat, value))
}

/// What stands before and after the last `::`.
fn separator_before(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.windows(2).rposition(|pair| pair == b"::")?;
    Some((&line[..at], &line[at + 2..]))
}

fn cluster_of(line: &[u8]) -> &[u8] {
    let end = line.windows(2).position(|pair| pair == b"::");
    &line[..end.unwrap_or(line.len())]
}

/// `inbound|8012||`, older `inbound|8012|http|x.y.svc.cluster.local`, or the passthrough.
fn is_inbound(cluster: &[u8]) -> bool {
    if let Some(rest) = cluster.strip_prefix(b"inbound|") {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        return digits > 0 && rest.get(digits) == Some(&b'|');
    }
    PASSTHROUGH.contains(&cluster)
}

/// Digits only: `u64::from_str` would take a sign.
fn number(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[derive(Deserialize)]
struct Document {
    cluster_statuses: Vec<Cluster>,
}

#[derive(Deserialize)]
struct Cluster {
    name: String,
    #[serde(default)]
    host_statuses: Vec<Host>,
}

#[derive(Deserialize)]
struct Host {
    #[serde(default)]
    stats: Vec<Stat>,
}

#[derive(Deserialize)]
struct Stat {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: Value,
}

/// Parses the JSON form (`/clusters?format=json`): counters are strings or numbers, zeros are left
/// out.
pub fn parse_json(reply: &[u8]) -> Reading<EnvoyRequests> {
    match serde_json::from_slice(reply).ok().and_then(sum_document) {
        Some(requests) => Reading::Known(requests),
        None => Reading::Unknown(Cause::Malformed),
    }
}

fn sum_document(document: Document) -> Option<EnvoyRequests> {
    if document.cluster_statuses.is_empty() {
        return None;
    }
    let inbound = |cluster: &&Cluster| is_inbound(cluster.name.as_bytes());
    let hosts = document.cluster_statuses.iter().filter(inbound);
    let mut sum = EnvoyRequests::default();
    for stat in hosts.flat_map(|c| &c.host_statuses).flat_map(|h| &h.stats) {
        let counter = match stat.name.as_str() {
            "rq_active" => &mut sum.active,
            "rq_total" => &mut sum.total,
            _ => continue,
        };
        let value = match &stat.value {
            Value::Null => 0,
            Value::Number(value) => value.as_u64()?,
            Value::String(value) => number(value.as_bytes())?,
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        *counter = counter.checked_add(value)?;
    }
    Some(sum)
}
