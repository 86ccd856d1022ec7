//! Much, both ways at once: copied, spliced, and where there is no pipe to be had.

use bytes::Bytes;
use ring::digest::{Context, SHA256};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::*;
use crate::gate::engine::{Direction, Stage, State, Step};

const MUCH: usize = 32 << 20;

/// Bytes that do not repeat where blocks do.
async fn pour(mut to: OwnedWriteHalf, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut hash = Context::new(&SHA256);
    let mut left = MUCH;
    let mut block = vec![0; 100_003];
    while left > 0 {
        for chunk in block.chunks_mut(8) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            chunk.copy_from_slice(&state.to_be_bytes()[..chunk.len()]);
        }
        let bytes = block.len().min(left);
        hash.update(&block[..bytes]);
        to.write_all(&block[..bytes]).await.expect("sent");
        left -= bytes;
    }
    to.shutdown().await.expect("closed");
    hash.finish().as_ref().to_vec()
}

async fn drain(mut from: OwnedReadHalf) -> (usize, Vec<u8>) {
    let mut hash = Context::new(&SHA256);
    let mut total = 0;
    let mut block = vec![0; 300_000];
    loop {
        match from.read(&mut block).await.expect("received") {
            0 => return (total, hash.finish().as_ref().to_vec()),
            read => {
                hash.update(&block[..read]);
                total += read;
            }
        }
    }
}

/// Sends both ways through `pump` and compares.
async fn both_ways(pump: Pump, client: TcpStream, listener: TcpListener) {
    let task = tokio::spawn(pump);
    let (from_gate, to_gate) = client.into_split();
    let sent_up = tokio::spawn(pour(to_gate, 1));
    let (workload, _) = within(listener.accept()).await.expect("connected");
    let (from_client, to_client) = workload.into_split();
    let sent_down = tokio::spawn(pour(to_client, 2));
    let got_up = tokio::spawn(drain(from_client));
    let got_down = tokio::spawn(drain(from_gate));
    let sent_up = within(sent_up).await.expect("no panic");
    let sent_down = within(sent_down).await.expect("no panic");
    assert_eq!(within(got_up).await.expect("no panic"), (MUCH, sent_up));
    assert_eq!(within(got_down).await.expect("no panic"), (MUCH, sent_down));
    within(task).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_moves_much_both_ways_through_pipes_that_come_back() {
    let shared = quiet();
    let (listener, upstream) = workload().await;
    let (pump, client) = connection(&shared, upstream, Mode::Tcp).await;
    both_ways(pump, client, listener).await;
    let (made, borrowed) = shared.pipes.count();
    assert!((1..=2).contains(&made), "{made} pipes");
    assert_eq!(borrowed, 0);
    assert_eq!((shared.counter.in_flight(), shared.counter.cut()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_pipe_it_is_copied() {
    let limits = Limits {
        pipes: 0,
        ..Limits::default()
    };
    let shared = shared(limits, Duration::ZERO);
    let (listener, upstream) = workload().await;
    let (pump, client) = connection(&shared, upstream, Mode::Tcp).await;
    both_ways(pump, client, listener).await;
    assert_eq!(shared.pipes.count(), (0, 0));
}

/// Blocks of opaque bytes, each with a header byte that it must see: what is moved is counted to the
/// byte, or it sees another one.
struct Blocks {
    left: [u64; 2],
    next: [usize; 2],
}

/// Sizes on both sides of what is spliced.
const SIZES: [u64; 5] = [700_000, 1, 524_288, 100, 2_000_003];

impl Engine for Blocks {
    fn step(&mut self, direction: Direction, input: &[u8]) -> Step {
        let lane = direction as usize;
        if self.left[lane] > 0 {
            let bytes = self.left[lane].min(input.len() as u64);
            self.left[lane] -= bytes;
            return Step::Pass(bytes as usize);
        }
        assert_eq!(input[0], b'#', "the header of block {}", self.next[lane]);
        self.left[lane] = SIZES[self.next[lane] % SIZES.len()];
        self.next[lane] += 1;
        Step::Pass(1)
    }

    fn opaque(&self, direction: Direction) -> u64 {
        self.left[direction as usize]
    }

    fn moved(&mut self, direction: Direction, bytes: u64) {
        self.left[direction as usize] -= bytes;
    }

    fn inject(&mut self, _direction: Direction) -> Option<Bytes> {
        None
    }

    fn stage(&mut self, _stage: Stage) {}

    fn end(&mut self, _direction: Direction, _cut: bool) {}

    fn upstream_lost(&mut self) -> Option<Bytes> {
        None
    }

    fn state(&self) -> State {
        State::Busy
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_spliced_to_their_last_byte_and_not_beyond() {
    let shared = quiet();
    let (listener, upstream) = workload().await;
    let engine = Box::new(Blocks {
        left: [0; 2],
        next: [0; 2],
    });
    let (pump, client) = driven(&shared, upstream, engine).await;
    tokio::spawn(pump);
    let mut sent = Vec::new();
    for round in 0..20 {
        let size = SIZES[round % SIZES.len()] as usize;
        sent.push(b'#');
        sent.extend((0..size).map(|at| (at % 251) as u8 ^ round as u8 | 0x80));
    }
    let (_from_gate, mut to_gate) = client.into_split();
    let expected = sent.clone();
    tokio::spawn(async move {
        to_gate.write_all(&sent).await.expect("sent");
        to_gate.shutdown().await.expect("closed");
    });
    let (mut workload, _) = within(listener.accept()).await.expect("connected");
    let got = rest(&mut workload).await;
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
    let (made, borrowed) = shared.pipes.count();
    assert_eq!((made, borrowed), (1, 0));
}
