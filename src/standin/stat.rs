//! queue-proxy's autoscaling report: protobuf `Stat` (knative/serving `pkg/autoscaler/metrics/stat.proto`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::Scale;

/// Counts requests, and once a window says what it saw.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    pod_name: Arc<str>,
    scale: Scale,
    started: Instant,
    window: Arc<Mutex<Window>>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    changed: Instant,
    in_flight: u64,
    /// Request-seconds before `changed`.
    busy: f64,
    arrived: u64,
}

/// One request; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Counted(Stats);

impl Stats {
    pub(crate) fn new(pod_name: &str, scale: Scale) -> Stats {
        let now = Instant::now();
        let window = Window {
            began: now,
            changed: now,
            in_flight: 0,
            busy: 0.0,
            arrived: 0,
        };
        Stats {
            pod_name: pod_name.into(),
            scale,
            started: now,
            window: Arc::new(Mutex::new(window)),
        }
    }

    pub(crate) fn enter(&self) -> Counted {
        let mut window = self.window();
        window.move_to(Instant::now());
        window.in_flight += 1;
        window.arrived += 1;
        Counted(self.clone())
    }

    /// Ends the window: field 1 the pod's name, 2 average concurrency, 4 arrivals, 6 seconds since
    /// the start (modelled ones). Zeros are left out, as proto3 does.
    pub(crate) fn report(&self) -> Vec<u8> {
        let now = Instant::now();
        let mut window = self.window();
        window.move_to(now);
        let length = now.duration_since(window.began).as_secs_f64();
        let average = if length > 0.0 {
            window.busy / length
        } else {
            0.0
        };
        // Arrivals within one window are far below 2^53.
        let arrived = window.arrived as f64;
        (window.began, window.busy, window.arrived) = (now, 0.0, 0);
        drop(window);
        let uptime = self
            .scale
            .modelled(now.duration_since(self.started))
            .as_secs_f64();
        encode(&self.pod_name, &[(2, average), (4, arrived), (6, uptime)])
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn move_to(&mut self, now: Instant) {
        let passed = now.duration_since(self.changed).as_secs_f64();
        self.busy += self.in_flight as f64 * passed;
        self.changed = now;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut window = self.0.window();
        window.move_to(Instant::now());
        window.in_flight -= 1;
    }
}

/// Field 1 as a string, then doubles by field number.
fn encode(name: &str, doubles: &[(u8, f64)]) -> Vec<u8> {
    const LENGTH_DELIMITED: u8 = 2;
    const SIXTY_FOUR_BIT: u8 = 1;
    // One length byte: a pod's name is a DNS label, at most 63 bytes.
    let name = &name.as_bytes()[..name.len().min(63)];
    let mut bytes = vec![1 << 3 | LENGTH_DELIMITED, name.len() as u8];
    bytes.extend_from_slice(name);
    for (field, value) in doubles.iter().filter(|(_, value)| *value != 0.0) {
        bytes.push(field << 3 | SIXTY_FOUR_BIT);
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use std::time::Duration;

    #[derive(Clone, PartialEq, Message)]
    struct Stat {
        #[prost(string, tag = "1")]
        pod_name: String,
        #[prost(double, tag = "2")]
        average_concurrent_requests: f64,
        #[prost(double, tag = "4")]
        request_count: f64,
        #[prost(double, tag = "6")]
        process_uptime: f64,
    }

    #[tokio::test(start_paused = true)]
    async fn prost_reads_what_was_counted() {
        let stats = Stats::new("pod-1", Scale::new(0.5));
        let idle = Stat::decode(&stats.report()[..]).expect("a Stat");
        assert_eq!(
            (idle.pod_name.as_str(), idle.average_concurrent_requests),
            ("pod-1", 0.0)
        );

        let first = stats.enter();
        tokio::time::advance(Duration::from_millis(500)).await;
        let second = stats.enter();
        drop(first);
        tokio::time::advance(Duration::from_millis(250)).await;
        drop(second);
        tokio::time::advance(Duration::from_millis(250)).await;
        let busy = Stat::decode(&stats.report()[..]).expect("a Stat");
        assert!(
            (busy.average_concurrent_requests - 0.75).abs() < 1e-9,
            "{busy:?}"
        );
        assert!((busy.request_count - 2.0).abs() < f64::EPSILON);
        assert!(
            (busy.process_uptime - 2.0).abs() < 1e-9,
            "modelled seconds: {busy:?}"
        );
        let after = Stat::decode(&stats.report()[..]).expect("a Stat");
        assert!(after.request_count == 0.0 && after.average_concurrent_requests == 0.0);
    }
}
