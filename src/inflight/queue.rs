//! queue-proxy's autoscaling report (`GET :9090/metrics`): requests inside queue-proxy, with
//! upgrades and h2c streams, without probes.
//!
//! The report is one protobuf message, `Stat` of Knative's pkg/autoscaler/metrics/stat.proto, about
//! a window of one second. Three numbers out of seven flat fields do not need a protobuf library.

use crate::inflight::{Cause, QueueRequests, Reading};

#[cfg(test)]
mod tests;

/// Requests that no single pod can hold: a larger value is not a report.
const BELIEVABLE_MAX: f64 = 1e9;

/// Float noise of the average, which is a sum of products of short times.
const NOISE: f64 = 1e-6;

/// With no arrivals in the window, how far the average may stay under the count that was in flight
/// throughout.
const WINDOW_SLACK: f64 = 0.05;

/// How deep (deprecated) groups may nest in an unknown field.
const DEPTH_MAX: u32 = 16;

/// Parses a report.
///
/// A message without an uptime is [`Cause::Malformed`]. Every report has one, an idle pod's too; it
/// is the last field, so that a report cut between two fields lacks it; and before its first window
/// queue-proxy sends a pod name alone, which is not an idle pod.
pub fn parse(report: &[u8]) -> Reading<QueueRequests> {
    match Stat::decode(report) {
        Some(stat) => Reading::Known(stat.requests()),
        None => Reading::Unknown(Cause::Malformed),
    }
}

#[derive(Debug, Default)]
struct Stat {
    average_concurrent_requests: f64,
    request_count: f64,
    process_uptime: f64,
}

impl Stat {
    fn decode(mut input: &[u8]) -> Option<Stat> {
        let mut stat = Stat::default();
        while !input.is_empty() {
            let (field, wire) = key(&mut input)?;
            match (field, wire) {
                (2..=6, Wire::Fixed64) => {
                    let bytes = take(&mut input, 8)?.try_into().ok()?;
                    let value = f64::from_le_bytes(bytes);
                    // Also false for NaN.
                    if !(0.0..=f64::MAX).contains(&value) {
                        return None;
                    }
                    match field {
                        2 => stat.average_concurrent_requests = value,
                        4 => stat.request_count = value,
                        6 => stat.process_uptime = value,
                        _ => {}
                    }
                }
                _ => skip(&mut input, field, wire, DEPTH_MAX)?,
            }
        }
        let believable = stat.average_concurrent_requests <= BELIEVABLE_MAX
            && stat.request_count <= BELIEVABLE_MAX;
        (stat.process_uptime > 0.0 && believable).then_some(stat)
    }

    /// What the window says of its end.
    ///
    /// Where nothing arrived, the number in flight can only have fallen, so that the end is at or
    /// under the average: 0.3 means that the last request ended within the window. Where something
    /// arrived, the average says nothing of the end, and at least one is taken to be in flight.
    fn requests(&self) -> QueueRequests {
        let average = self.average_concurrent_requests;
        let arrived = self.request_count.ceil();
        let active = if arrived == 0.0 {
            (average + WINDOW_SLACK).floor()
        } else {
            (average - NOISE).ceil().max(1.0)
        };
        // In range: neither is negative nor over BELIEVABLE_MAX and a little.
        QueueRequests {
            active: active as u64,
            arrived: arrived as u64,
            // Saturates, which no uptime reaches.
            report: (self.process_uptime * 1_000.0) as u64,
        }
    }
}

// ---- protobuf's wire format -----------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wire {
    Varint,
    Fixed64,
    Bytes,
    GroupStart,
    GroupEnd,
    Fixed32,
}

fn key(input: &mut &[u8]) -> Option<(u32, Wire)> {
    let key = u32::try_from(varint(input)?).ok()?;
    let wire = match key & 7 {
        0 => Wire::Varint,
        1 => Wire::Fixed64,
        2 => Wire::Bytes,
        3 => Wire::GroupStart,
        4 => Wire::GroupEnd,
        5 => Wire::Fixed32,
        _ => return None,
    };
    (key >> 3 > 0).then_some((key >> 3, wire))
}

fn varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(input, 1)?[0];
        // The tenth byte has room for one bit.
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(input: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, rest) = input.split_at_checked(count)?;
    *input = rest;
    Some(head)
}

fn skip(input: &mut &[u8], field: u32, wire: Wire, depth: u32) -> Option<()> {
    match wire {
        Wire::Varint => varint(input).map(drop),
        Wire::Fixed64 => take(input, 8).map(drop),
        Wire::Fixed32 => take(input, 4).map(drop),
        Wire::Bytes => {
            let length = usize::try_from(varint(input)?).ok()?;
            take(input, length).map(drop)
        }
        Wire::GroupEnd => None,
        Wire::GroupStart => {
            let depth = depth.checked_sub(1)?;
            loop {
                match key(input)? {
                    (end, Wire::GroupEnd) => return (end == field).then_some(()),
                    (inner, wire) => skip(input, inner, wire, depth)?,
                }
            }
        }
    }
}
