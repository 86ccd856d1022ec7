//! The kernel's TCP tables, `/proc/net/tcp` and `tcp6`: who listens, who is connected, which bytes
//! have not been acknowledged.
//!
//! All containers of a pod share one network namespace, so its tables show queue-proxy, the user
//! containers and Envoy alike, whoever reads them.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use crate::inflight::{Cause, Reading, Sockets};

#[cfg(test)]
mod tests;

/// Envoy's inbound listeners in an istio-proxy: redirected traffic, and HBONE. A redirected
/// connection has this local port, not the one that its client asked for.
pub const ENVOY_INBOUND: [u16; 2] = [15006, 15008];

/// The longest table that is read, in bytes: some 400,000 sockets.
pub const TABLE_MAX: u64 = 64 << 20;

const IPV4: &str = "/proc/net/tcp";
const IPV6: &str = "/proc/net/tcp6";

/// Which local ports count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Those of queue-proxy and the user containers.
    pub workload: Vec<u16>,
    /// Those on which requests enter the pod.
    pub inbound: Vec<u16>,
}

impl Ports {
    /// The workload's ports, and as inbound ones the same with Envoy's.
    pub fn new(workload: &[u16]) -> Ports {
        Ports {
            workload: workload.to_vec(),
            inbound: [&ENVOY_INBOUND, workload].concat(),
        }
    }
}

/// The tables' text, kept between two looks so that a look allocates nothing.
#[derive(Debug, Default)]
pub struct Buffers {
    tcp: String,
    tcp6: String,
}

/// Reads both tables and parses them. The reads do not wait for anything but the kernel.
///
/// The kernel hands a table out in pages, so a socket that comes or goes meanwhile may be seen twice
/// or not at all: act on two looks that agree.
pub fn read(ports: &Ports, buffers: &mut Buffers) -> Reading<Sockets> {
    read_from(IPV4, IPV6, ports, buffers)
}

fn read_from(ipv4: &str, ipv6: &str, ports: &Ports, buffers: &mut Buffers) -> Reading<Sockets> {
    let tables = load(ipv4, &mut buffers.tcp).and_then(|()| match load(ipv6, &mut buffers.tcp6) {
        // IPv6 is off.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    });
    match tables {
        Ok(()) => parse(&buffers.tcp, &buffers.tcp6, ports),
        Err(error) if error.kind() == ErrorKind::InvalidData => Reading::Unknown(Cause::Malformed),
        Err(_) => Reading::Unknown(Cause::Broken),
    }
}

fn load(path: &str, into: &mut String) -> io::Result<()> {
    into.clear();
    let length = File::open(path)?.take(TABLE_MAX + 1).read_to_string(into)?;
    if length as u64 > TABLE_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(())
}

/// Parses both tables; `tcp6` is empty where IPv6 is off.
pub fn parse(tcp: &str, tcp6: &str, ports: &Ports) -> Reading<Sockets> {
    let mut tally = Tally {
        ports,
        listening: vec![false; ports.workload.len()],
        sockets: Sockets::default(),
    };
    let whole =
        tally.table(tcp, 8).is_some() && (tcp6.is_empty() || tally.table(tcp6, 32).is_some());
    if whole {
        Reading::Known(tally.sockets)
    } else {
        Reading::Unknown(Cause::Malformed)
    }
}

struct Tally<'a> {
    ports: &'a Ports,
    /// For each workload port, whether it has been seen to LISTEN.
    listening: Vec<bool>,
    sockets: Sockets,
}

impl Tally<'_> {
    /// One table; `address` is the number of hex digits of an address. `None` where it is malformed.
    fn table(&mut self, table: &str, address: usize) -> Option<()> {
        let mut lines = table.strip_suffix('\n')?.split('\n');
        let header = lines.next()?.trim_start();
        if !header.starts_with("sl ") || !header.contains(" st tx_queue rx_queue ") {
            return None;
        }
        for line in lines {
            let row = Row::parse(line, address)?;
            self.row(&row)?;
        }
        Some(())
    }

    fn row(&mut self, row: &Row) -> Option<()> {
        let workload = self
            .ports
            .workload
            .iter()
            .position(|port| *port == row.port);
        match (row.state, workload) {
            // Once a port, though it may have a row for each address.
            (State::Listen, Some(index)) if !self.listening[index] => {
                self.listening[index] = true;
                self.sockets.listening = self.sockets.listening.checked_add(1)?;
            }
            (State::Established, Some(_)) => {
                self.sockets.established = self.sockets.established.checked_add(1)?;
            }
            _ => {}
        }
        if row.state.sends() && self.ports.inbound.contains(&row.port) {
            self.sockets.unsent = self.sockets.unsent.checked_add(row.tx_queue.into())?;
        }
        Some(())
    }
}

/// What counts of one row: `sl local rem st tx_queue:rx_queue tr:when retrnsmt uid timeout inode ...`
/// (net/ipv4/tcp_ipv4.c, `tcp4_seq_show`).
struct Row {
    port: u16,
    state: State,
    tx_queue: u32,
}

impl Row {
    fn parse(line: &str, address: usize) -> Option<Row> {
        let mut fields = line.split_ascii_whitespace();
        number(fields.next()?.strip_suffix(':')?)?;
        let port = endpoint(fields.next()?, address)?;
        endpoint(fields.next()?, address)?;
        let state = State::new(hex(fields.next()?, 2)?);
        let (tx_queue, rx_queue) = fields.next()?.split_once(':')?;
        let tx_queue = hex(tx_queue, 8)?;
        hex(rx_queue, 8)?;
        // Timer, retransmits, uid, timeout, inode: a row without them was cut short.
        fields.nth(3)?;
        number(fields.next()?)?;
        Some(Row {
            port,
            state,
            tx_queue,
        })
    }
}

/// The port of `ADDRESS:PORT`.
fn endpoint(field: &str, address: usize) -> Option<u16> {
    let (ip, port) = field.split_once(':')?;
    if ip.len() != address || !ip.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u16::try_from(hex(port, 4)?).ok()
}

fn hex(field: &str, digits: usize) -> Option<u32> {
    // from_str_radix alone would take a sign.
    if field.len() != digits || !field.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(field, 16).ok()
}

fn number(field: &str) -> Option<()> {
    (!field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit())).then_some(())
}

/// The states that matter (include/net/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Established,
    /// FIN_WAIT1, CLOSE_WAIT, LAST_ACK, CLOSING: one side has closed, and ours may still have bytes
    /// under way. An application that has closed is gone from here on; its last bytes are not.
    HalfClosed,
    /// Its tx_queue is the limit of the accept queue, not bytes.
    Listen,
    /// No bytes of ours under way: SYN_SENT, SYN_RECV, FIN_WAIT2, TIME_WAIT, CLOSE.
    Other,
}

impl State {
    fn new(code: u32) -> State {
        match code {
            0x01 => State::Established,
            0x04 | 0x08 | 0x09 | 0x0B => State::HalfClosed,
            0x0A => State::Listen,
            _ => State::Other,
        }
    }

    fn sends(self) -> bool {
        matches!(self, State::Established | State::HalfClosed)
    }
}
