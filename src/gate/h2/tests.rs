//! The engine in conversations written by hand, in random ones, and between a real client and server.

use super::frame::MAX_ID;
use super::*;
use crate::gate::counter::Kind as Counted;
use crate::gate::engine::Engine as _;
use crate::gate::rig::Rig;

mod endings;
mod farewell;
mod properties;
mod real;
mod streams;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const RESET: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PUSH_PROMISE: u8 = 0x5;
const PING_FRAME: u8 = 0x6;
const GO_AWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;

/// A frame, as bytes.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A whole header block.
fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, b"block")
}

/// A whole header block, and the sender's last on the stream.
fn last_head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, b"block")
}

fn data(stream: u32) -> Vec<u8> {
    frame(DATA, 0, stream, b"some data")
}

fn last_data(stream: u32) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, b"the last data")
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RESET, 0, stream, &8_u32.to_be_bytes())
}

fn go_away(last: u32) -> Vec<u8> {
    frame(
        GO_AWAY,
        0,
        0,
        &[&last.to_be_bytes()[..], &[0; 4], b"bye"].concat(),
    )
}

/// What the client sends first.
fn hello() -> Vec<u8> {
    [&PREFACE[..], &settings()].concat()
}

fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])
}

/// A frame that went out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Sent {
    /// The stream, the last id or the increment that the payload begins with.
    fn number(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().unwrap())
    }

    fn code(&self) -> u32 {
        u32::from_be_bytes(
            self.payload[self.payload.len().min(8) - 4..][..4]
                .try_into()
                .unwrap(),
        )
    }
}

/// Reads frames without the scanner.
fn read(mut bytes: &[u8]) -> Vec<Sent> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        frames.push(Sent {
            kind: bytes[3],
            flags: bytes[4],
            stream: u32::from_be_bytes(bytes[5..9].try_into().unwrap()),
            payload: bytes[9..9 + length].to_vec(),
        });
        bytes = &bytes[9 + length..];
    }
    frames
}

/// What went down since this was last asked, by kind and number: GOAWAY's last id, the stream of all
/// others.
fn heard(rig: &mut Rig<Engine>) -> Vec<(u8, u32)> {
    let out = std::mem::take(&mut rig.down.out);
    let number = |frame: &Sent| match frame.kind {
        GO_AWAY => frame.number(),
        _ => frame.stream,
    };
    read(&out)
        .iter()
        .map(|frame| (frame.kind, number(frame)))
        .collect()
}

/// The client's answer to the gate's latest PING.
fn pong(rig: &Rig<Engine>) -> Vec<u8> {
    // What is as long as the head of a GOAWAY may be one, in place of the workload's.
    let own = rig
        .down
        .own
        .iter()
        .filter(|bytes| bytes.len() != GO_AWAY_HEAD);
    let own = own.flat_map(|bytes| read(bytes));
    let ping = own.filter(|frame| frame.kind == PING_FRAME).last().unwrap();
    frame(PING_FRAME, ACK, 0, &ping.payload)
}

/// A connection on which both sides have said hello, and the counter that it counts in.
fn connected() -> (Rig<Engine>, Counter) {
    let counter = Counter::default();
    let mut rig = Rig::new(Engine::new(counter.clone()));
    rig.client(hello());
    rig.server(settings());
    rig.down.out.clear();
    (rig, counter)
}
