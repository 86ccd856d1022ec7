//! A drain that begins anywhere: what goes out is what came in and whole insertions, none of which
//! stands inside a head, a body, a frame or a header block.

use std::collections::BTreeSet;
use std::ops::Range;

use tidegate::gate::engine::Direction::{self, Down, Up};
use tidegate::gate::engine::{Stage, State};

use super::MOST;
use super::wire::Wire;

/// The length of a GOAWAY's header and last stream, which may go out in other words.
const GO_AWAY_HEAD: usize = 13;

/// The first byte says which protocol; then two bytes say what happens next, each time.
pub fn check(input: &[u8]) {
    let Some((&protocol, events)) = input.split_first() else {
        return;
    };
    let mut talk = Talk::new(match protocol % 4 {
        0 => Protocol::Http1,
        1 => Protocol::Http2,
        2 => Protocol::WebSocket,
        _ => Protocol::Tunnel,
    });
    let (events, _) = events.as_chunks::<2>();
    for &[event, value] in &events[..events.len().min(MOST / 64)] {
        talk.happens(event, value);
        talk.holds();
    }
    // All that was sent is read in the end.
    for _ in 0..64 {
        talk.read(Up, usize::MAX, false);
        talk.read(Down, usize::MAX, false);
    }
    talk.holds();
    talk.ends();
    talk.wire.drop();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    WebSocket,
    Tunnel,
}

/// What one side has sent, and where something may be put into it.
#[derive(Default)]
struct Sent {
    bytes: Vec<u8>,
    /// Between messages.
    gaps: BTreeSet<usize>,
    /// What may go out in other words: a reply's head, the start of a GOAWAY.
    replaceable: Vec<Range<usize>>,
    /// What is opaque.
    opaque: Vec<Range<usize>>,
}

impl Sent {
    /// What may be replaced of a message, whether it begins something that no message may break into.
    fn message(&mut self, head: &[u8], body: &[u8], breaks: bool) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(head);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(body);
        if at < self.bytes.len() {
            self.opaque.push(at..self.bytes.len());
        }
        if breaks {
            self.gaps.insert(from);
        }
    }

    /// What is opaque from here.
    fn opaque_from(&self, at: usize) -> usize {
        let body = self.opaque.iter().find(|body| body.contains(&at));
        body.map_or(0, |body| body.end - at)
    }
}

/// A request of HTTP/1, or a stream of HTTP/2.
struct Exchange {
    id: u32,
    /// Where its head begins and ends in what the client sent.
    head: Range<usize>,
    /// Where it ends; `None`: it has not.
    whole: Option<usize>,
    answered: bool,
}

struct Talk {
    protocol: Protocol,
    wire: Wire,
    up: Sent,
    down: Sent,
    exchanges: Vec<Exchange>,
    /// Replies of HTTP/1 that were sent.
    replies: usize,
    /// The workload's HTTP/2 settings are sent.
    greeted: bool,
    pings_answered: usize,
    closed_by_workload: bool,
    unseen: bool,
}

impl Talk {
    fn new(protocol: Protocol) -> Talk {
        let wire = match protocol {
            Protocol::Http1 => Wire::h1(),
            Protocol::Http2 => Wire::h2(),
            Protocol::WebSocket => Wire::websocket(),
            Protocol::Tunnel => Wire::tunnel(),
        };
        let mut talk = Talk {
            protocol,
            wire,
            up: Sent::default(),
            down: Sent::default(),
            exchanges: Vec::new(),
            replies: 0,
            greeted: false,
            pings_answered: 0,
            closed_by_workload: false,
            unseen: false,
        };
        if protocol == Protocol::Http2 {
            talk.up
                .message(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"", false);
            talk.client_frame(0x4, 0, 0, b"");
        }
        talk
    }

    fn happens(&mut self, event: u8, value: u8) {
        match event % 16 {
            0..4 => self.client(value),
            4..8 => self.workload(value),
            8 => self.read(Up, usize::from(value) + 1, self.unseen),
            9 => self.read(Up, usize::MAX, self.unseen),
            10 => self.read(Down, usize::from(value) + 1, self.unseen),
            11 => self.read(Down, usize::MAX, self.unseen),
            12 => self
                .wire
                .stage(Stage::ALL[usize::from(value) % Stage::ALL.len()]),
            13 if value.is_multiple_of(4) => self.wire.counter.close(),
            14 => self.unseen ^= true,
            _ => self.answer_ping(),
        }
    }

    fn read(&mut self, direction: Direction, most: usize, unseen: bool) {
        let sent = match direction {
            Up => &self.up,
            Down => &self.down,
        };
        let lane = self.wire.lane(direction);
        let new = &sent.bytes[lane.sent..];
        self.wire.send(direction, new);
        let at = self.wire.lane(direction).judged;
        let opaque = self.wire.opaque(direction);
        if opaque > 0 && self.protocol != Protocol::Tunnel {
            let body = sent.opaque_from(at) as u64;
            let free = direction == Up && self.protocol == Protocol::WebSocket;
            let closed = direction == Down && self.closed_by_workload;
            assert!(
                opaque <= body || free || closed,
                "{opaque} of {body} opaque"
            );
        }
        self.wire.read(direction, most, unseen);
    }

    // ===== what is sent =====

    fn client(&mut self, value: u8) {
        match self.protocol {
            Protocol::Http1 => {
                let body = vec![b'b'; usize::from(value >> 2)];
                let from = self.up.bytes.len();
                let (head, chunked) = match value % 4 {
                    0 => ("GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), false),
                    1 => ("HEAD / HTTP/1.1\r\n\r\n".to_owned(), false),
                    2 => (
                        format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len()),
                        false,
                    ),
                    _ => (
                        "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
                        true,
                    ),
                };
                self.up.message(head.as_bytes(), b"", true);
                let to = self.up.bytes.len();
                match (value % 4, chunked) {
                    (2, _) => self.up.message(b"", &body, false),
                    (_, true) => chunks(&mut self.up, &body),
                    _ => {}
                }
                self.exchanges.push(Exchange {
                    id: u32::from(value % 4 == 1),
                    head: from..to,
                    whole: Some(self.up.bytes.len()),
                    answered: false,
                });
            }
            Protocol::Http2 => self.client_h2(value),
            Protocol::WebSocket | Protocol::Tunnel => {
                self.up.message(b"", &[value; 7], true);
            }
        }
    }

    fn client_h2(&mut self, value: u8) {
        let size = usize::from(value >> 4);
        let open = self.exchanges.iter().rposition(|it| it.whole.is_none());
        match (value % 8, open) {
            (0..3, _) | (_, None) => {
                let id = 2 * self.exchanges.len() as u32 + 1;
                let ends = value & 1;
                let from = self.up.bytes.len();
                self.block(Up, id, ends, size);
                let to = self.up.bytes.len();
                self.exchanges.push(Exchange {
                    id,
                    head: from..to,
                    whole: (ends == 1).then_some(to),
                    answered: false,
                });
            }
            (3, Some(at)) => {
                self.client_frame(0x0, 1, self.exchanges[at].id, &vec![b'd'; size * 9]);
                self.exchanges[at].whole = Some(self.up.bytes.len());
            }
            (4, Some(at)) => {
                // Trailers.
                self.block(Up, self.exchanges[at].id, 1, size);
                self.exchanges[at].whole = Some(self.up.bytes.len());
            }
            (5, Some(at)) => self.client_frame(0x0, 0, self.exchanges[at].id, &vec![b'd'; size]),
            (6, Some(at)) => {
                self.client_frame(0x3, 0, self.exchanges[at].id, &[0, 0, 0, 8]);
                self.exchanges[at].whole = Some(self.up.bytes.len());
                self.exchanges[at].answered = true;
            }
            (_, Some(_)) => self.client_frame(0x6, value & 1, 0, &[value; 8]),
        }
    }

    fn workload(&mut self, value: u8) {
        match self.protocol {
            Protocol::Http1 => self.reply(value),
            Protocol::Http2 => self.workload_h2(value),
            Protocol::WebSocket => {
                let payload = vec![b'w'; usize::from(value >> 2) * 3];
                let opcode = if value == 255 {
                    0x88
                } else {
                    0x02 | value << 7
                };
                let mut head = vec![opcode];
                match payload.len() {
                    short @ 0..126 => head.push(short as u8),
                    long => {
                        head.push(126);
                        head.extend((long as u16).to_be_bytes());
                    }
                }
                let payload = if value == 255 {
                    head[1] = 2;
                    vec![3, 232]
                } else {
                    payload
                };
                self.down.message(&head, &payload, true);
                self.closed_by_workload |= value == 255;
            }
            Protocol::Tunnel => self.down.message(b"", &[value; 5], true),
        }
    }

    /// A reply to the oldest request that has come through whole.
    fn reply(&mut self, value: u8) {
        let Some(exchange) = self.exchanges.get(self.replies) else {
            return;
        };
        if self.closed_by_workload || !self.arrived(exchange.whole) {
            return;
        }
        if value % 16 == 15 {
            return self
                .down
                .message(b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n", b"", true);
        }
        let to_head = exchange.id == 1;
        let body = vec![b'r'; usize::from(value >> 3)];
        let keep = [
            "",
            "connection: keep-alive\r\n",
            "connection: close\r\n",
            "Keep-Alive: a\r\n",
        ];
        let keep = keep[usize::from(value >> 1) % 4];
        self.closed_by_workload |= keep.contains("close");
        let framing = if value & 1 == 0 {
            format!("content-length: {}\r\n", body.len())
        } else {
            "transfer-encoding: chunked\r\n".to_owned()
        };
        let head = format!("HTTP/1.1 200 OK\r\n{keep}{framing}\r\n");
        let from = self.down.bytes.len();
        self.down.message(head.as_bytes(), b"", true);
        self.down.replaceable.push(from..self.down.bytes.len());
        match (to_head, value & 1) {
            (true, _) => {}
            (false, 0) => self.down.message(b"", &body, false),
            (false, _) => chunks(&mut self.down, &body),
        }
        self.replies += 1;
    }

    fn workload_h2(&mut self, value: u8) {
        if !self.greeted {
            self.greeted = true;
            // Nothing may stand before it.
            let from = self.down.bytes.len();
            self.frame(Down, 0x4, 0, 0, b"", true);
            self.down.gaps.remove(&from);
            return;
        }
        let size = usize::from(value >> 4);
        let known = |it: &&mut Exchange| !it.answered;
        let up = &self.wire.up;
        let arrived = |range: &Range<usize>| {
            up.judged >= range.end && !up.swallowed.iter().any(|gone| gone.contains(&range.start))
        };
        let open = self
            .exchanges
            .iter_mut()
            .filter(|it| arrived(&it.head))
            .find(known);
        match (value % 8, open) {
            (0..3, Some(exchange)) => {
                exchange.answered = value & 1 == 1;
                let id = exchange.id;
                self.block(Down, id, value & 1, size);
            }
            (3, Some(exchange)) => {
                exchange.answered = true;
                let id = exchange.id;
                self.frame(Down, 0x0, 1, id, &vec![b'D'; size * 9], true);
            }
            (4, Some(exchange)) => {
                exchange.answered = true;
                let id = exchange.id;
                self.frame(Down, 0x3, 0, id, &[0, 0, 0, 2], true);
            }
            (5, _) => {
                let last = self.exchanges.len() as u32 * 2;
                let from = self.down.bytes.len();
                let mut payload = last.saturating_sub(size as u32).to_be_bytes().to_vec();
                payload.extend([0, 0, 0, 0, b'x']);
                self.frame(Down, 0x7, 0, 0, &payload, true);
                self.down.replaceable.push(from..from + GO_AWAY_HEAD);
            }
            _ => self.frame(Down, 0x8, 0, 0, &[0, 0, 1, 0], true),
        }
    }

    /// What came through whole.
    fn arrived(&self, end: Option<usize>) -> bool {
        let up = &self.wire.up;
        end.is_some_and(|end| up.judged >= end && up.swallowed.iter().all(|gone| gone.start >= end))
    }

    fn client_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.frame(Up, kind, flags, stream, payload, true);
    }

    /// A header block, in `value % 3` parts more than one.
    fn block(&mut self, direction: Direction, stream: u32, ends: u8, value: usize) {
        match value % 3 {
            0 => self.frame(direction, 0x1, ends | 0x4, stream, b"block", true),
            parts => {
                self.frame(direction, 0x1, ends, stream, b"be", true);
                for _ in 1..parts {
                    self.frame(direction, 0x9, 0, stream, b"", false);
                }
                self.frame(direction, 0x9, 0x4, stream, b"gin", false);
            }
        }
    }

    fn frame(
        &mut self,
        direction: Direction,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        breaks: bool,
    ) {
        let mut head = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        head.extend([kind, flags]);
        head.extend(stream.to_be_bytes());
        let sent = match direction {
            Up => &mut self.up,
            Down => &mut self.down,
        };
        sent.message(&head, payload, breaks);
    }

    /// The client answers the gate's next PING.
    fn answer_ping(&mut self) {
        let own = self.wire.down.own.iter().map(|(_, bytes)| bytes);
        let mut pings = own.flat_map(|bytes| {
            bytes
                .windows(17)
                .filter(|frame| frame[..9] == [0, 0, 8, 6, 0, 0, 0, 0, 0])
        });
        if self.protocol == Protocol::Http2
            && let Some(ping) = pings.nth(self.pings_answered)
        {
            self.pings_answered += 1;
            let payload: [u8; 8] = std::array::from_fn(|at| ping[9 + at]);
            self.client_frame(0x6, 1, 0, &payload);
        }
    }

    // ===== what holds =====

    fn holds(&self) {
        let outcome = self.wire.outcome();
        assert_eq!(outcome.doubts, [""; 0], "all of it is good");
        for (direction, sent) in [(Up, &self.up), (Down, &self.down)] {
            let lane = match direction {
                Up => &self.wire.up,
                Down => &self.wire.down,
            };
            for (at, bytes) in &lane.own {
                let between = sent.gaps.contains(at) || *at == sent.bytes.len();
                assert!(between, "{bytes:?} at {at}, {direction:?}");
            }
            let own = self.protocol != Protocol::Tunnel
                && (direction == Down || self.protocol == Protocol::Http2);
            assert!(own || lane.own.is_empty(), "{:?}, {direction:?}", lane.own);
            for gone in &lane.swallowed {
                assert!(sent.gaps.contains(&gone.start), "{gone:?}, {direction:?}");
            }
            if direction == Down && matches!(self.protocol, Protocol::Http1 | Protocol::Http2) {
                for gone in &lane.swallowed {
                    assert!(sent.replaceable.contains(gone), "{gone:?} in other words");
                    assert!(lane.own.iter().any(|(at, _)| *at == gone.start));
                }
            }
        }
        if self.protocol == Protocol::Http2 {
            self.frames_hold(&self.wire.down.out, true);
            self.frames_hold(self.wire.up.out.get(24..).unwrap_or_default(), false);
        }
    }

    /// What went out is frames, no header block is broken into, and no GOAWAY raises what the gate has
    /// said, nor does the gate raise what the workload has.
    fn frames_hold(&self, mut out: &[u8], down: bool) {
        let mut block = None;
        // The last streams of the latest GOAWAY, and of the latest of the gate's own.
        let (mut told, mut said) = (u32::MAX, u32::MAX);
        while let Some(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]) = out.first_chunk::<9>() {
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            let stream = u32::from_be_bytes([s0, s1, s2, s3]);
            if let Some(open) = block {
                assert_eq!((kind, stream), (0x9, open), "inside a header block");
            } else {
                assert!(kind <= 0x8, "kind {kind}");
            }
            if matches!(kind, 0x1 | 0x9) {
                block = (flags & 0x4 == 0).then_some(stream);
            }
            let Some(payload) = out.get(9..9 + length) else {
                return;
            };
            if kind == 0x7 && down {
                let last = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]);
                if payload.ends_with(b"tidegate: draining") {
                    assert!(
                        last <= told,
                        "the gate's GOAWAY rises from {told} to {last}"
                    );
                    said = last;
                }
                assert!(last <= said, "a GOAWAY rises from {said} to {last}");
                told = last;
            }
            out = &out[9 + length..];
        }
    }

    /// What holds once all that was sent was read.
    fn ends(&mut self) {
        let finished = self.wire.state() == State::Finished;
        if !finished && self.wire.left(Up) == 0 {
            for gone in &self.wire.up.swallowed {
                let whole = self.up.gaps.contains(&gone.end) || gone.end == self.up.bytes.len();
                let block = self.protocol == Protocol::Http2;
                assert!(whole || block, "{gone:?} of the client's");
            }
        }
        if self.protocol == Protocol::Http1 && !finished {
            let whole = self.exchanges.iter().filter(|it| self.arrived(it.whole));
            let open = whole.count() - self.replies.min(self.exchanges.len());
            let active = self.wire.outcome().active;
            assert!(active[0] >= open as u64, "{active:?}, {open} open");
        }
    }
}

/// A chunked body with one trailer.
fn chunks(sent: &mut Sent, body: &[u8]) {
    for chunk in body.chunks(11) {
        sent.message(format!("{:x};a\r\n", chunk.len()).as_bytes(), chunk, false);
        sent.message(b"\r\n", b"", false);
    }
    sent.message(b"0\r\na: b\r\n\r\n", b"", false);
}
