//! Random conversations, cut anywhere: nothing is lost or added while the pod serves, counts do not
//! depend on the cuts, and what a drain adds is well placed.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

use Direction::{Down, Up};

/// Something that one side sends.
#[derive(Clone, Debug)]
enum Message {
    /// A frame that may be anything.
    Odd {
        kind: u8,
        flags: u8,
        stream: u32,
        payload: Vec<u8>,
    },
    Garbage(Vec<u8>),
    /// What keeps to the framing.
    Fair(Fair),
}

#[derive(Clone, Debug)]
enum Fair {
    Head {
        stream: u32,
        ends: bool,
        parts: usize,
    },
    Data {
        stream: u32,
        ends: bool,
        length: usize,
    },
    Reset(u32),
    Window(u32),
    Ping,
    GoAway(u32),
    Extension,
}

impl Fair {
    fn bytes(&self) -> Vec<u8> {
        let end = |ends| if ends { END_STREAM } else { 0 };
        match *self {
            Fair::Head {
                stream,
                ends,
                parts: 0,
            } => frame(HEADERS, END_HEADERS | end(ends), stream, b"block"),
            Fair::Head {
                stream,
                ends,
                parts,
            } => {
                let mut block = frame(HEADERS, end(ends), stream, b"begin");
                for _ in 1..parts {
                    block.extend(frame(CONTINUATION, 0, stream, b""));
                }
                block.extend(frame(CONTINUATION, END_HEADERS, stream, b"end"));
                block
            }
            Fair::Data {
                stream,
                ends,
                length,
            } => frame(DATA, end(ends), stream, &vec![b'd'; length]),
            Fair::Reset(stream) => reset(stream),
            Fair::Window(stream) => frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]),
            Fair::Ping => frame(PING_FRAME, 0, 0, &[1; 8]),
            Fair::GoAway(last) => go_away(last),
            Fair::Extension => frame(0x42, 0xff, 3, b"an extension"),
        }
    }
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Message::Odd {
                kind,
                flags,
                stream,
                payload,
            } => frame(*kind, *flags, *stream, payload),
            Message::Garbage(bytes) => bytes.clone(),
            Message::Fair(fair) => fair.bytes(),
        }
    }
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Up), Just(Down)]
}

fn fair() -> impl Strategy<Value = Fair> {
    let stream = || (0..8_u32).prop_map(|at| 2 * at + 1);
    prop_oneof![
        6 => (stream(), any::<bool>(), 0..3_usize)
            .prop_map(|(stream, ends, parts)| Fair::Head { stream, ends, parts }),
        4 => (stream(), any::<bool>(), 0..60_usize)
            .prop_map(|(stream, ends, length)| Fair::Data { stream, ends, length }),
        1 => stream().prop_map(Fair::Reset),
        1 => stream().prop_map(Fair::Window),
        1 => Just(Fair::Ping),
        1 => prop_oneof![Just(MAX_ID), 0..20_u32].prop_map(Fair::GoAway),
        1 => Just(Fair::Extension),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        20 => fair().prop_map(Message::Fair),
        2 => (0..12_u8, any::<u8>(), 0..6_u32, vec(any::<u8>(), 0..12))
            .prop_map(|(kind, flags, stream, payload)| Message::Odd { kind, flags, stream, payload }),
        1 => vec(any::<u8>(), 1..30).prop_map(Message::Garbage),
    ]
}

/// Feeds bytes in pieces of these sizes, over and over.
fn feed(
    rig: &mut Rig<Engine>,
    direction: Direction,
    mut bytes: &[u8],
    sizes: &mut impl Iterator<Item = usize>,
) {
    while !bytes.is_empty() {
        let size = sizes.next().unwrap().min(bytes.len());
        rig.feed(direction, &bytes[..size]);
        bytes = &bytes[size..];
    }
}

fn counts(counter: &Counter) -> (u64, u64) {
    (
        counter.active(Counted::Stream),
        counter.active(Counted::Tunnel),
    )
}

/// Streams in flight, told from whole messages.
#[derive(Default)]
struct Model {
    highest: u32,
    served: Option<u32>,
    open: BTreeMap<u32, [bool; 2]>,
}

impl Model {
    fn hear(&mut self, direction: Direction, fair: &Fair) {
        let mut end = |stream| {
            if let Some(ended) = self.open.get_mut(&stream) {
                ended[direction as usize] = true;
                if *ended == [true; 2] {
                    self.open.remove(&stream);
                }
            }
        };
        match *fair {
            Fair::Head { stream, ends, .. } => {
                if direction == Up && stream > self.highest {
                    self.highest = stream;
                    if self.served.is_none_or(|served| stream <= served) {
                        self.open.insert(stream, [false; 2]);
                    }
                }
                if ends && let Some(ended) = self.open.get_mut(&stream) {
                    ended[direction as usize] = true;
                    if *ended == [true; 2] {
                        self.open.remove(&stream);
                    }
                }
            }
            Fair::Data {
                stream, ends: true, ..
            } => end(stream),
            Fair::Reset(stream) => {
                self.open.remove(&stream);
            }
            Fair::GoAway(last) if direction == Down => {
                self.served = Some(self.served.unwrap_or(last).min(last));
                self.open.retain(|stream, _| *stream <= last);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn while_serving_all_passes_and_cuts_change_nothing(
        starts in prop::bool::weighted(0.95),
        messages in vec((direction(), message()), 0..40),
        sizes in vec(1..40_usize, 1..20),
        unseen in prop_oneof![Just(1), Just(20), Just(u64::MAX)],
    ) {
        let whole_counter = Counter::default();
        let mut whole = Rig::new(Engine::new(whole_counter.clone()));
        let cut_counter = Counter::default();
        let mut cut = Rig::new(Engine::new(cut_counter.clone()));
        cut.unseen = unseen;
        let mut sizes = sizes.into_iter().cycle();
        let mut sent = [Vec::new(), Vec::new()];
        let starts = starts.then(|| [(Up, hello()), (Down, settings())]).into_iter().flatten();
        let messages = messages.into_iter().map(|(direction, message)| (direction, message.bytes()));
        for (direction, bytes) in starts.chain(messages) {
            sent[direction as usize].extend_from_slice(&bytes);
            whole.feed(direction, &bytes);
            feed(&mut cut, direction, &bytes, &mut sizes);
            prop_assert_eq!(counts(&whole_counter), counts(&cut_counter));
            prop_assert_eq!(whole.engine.doubt, cut.engine.doubt);
            prop_assert_eq!(whole.engine.state(), cut.engine.state());
        }
        for mut rig in [whole, cut] {
            rig.end(Up, false);
            rig.end(Down, false);
            prop_assert_eq!(&rig.up.out, &sent[0]);
            prop_assert_eq!(&rig.down.out, &sent[1]);
        }
        prop_assert_eq!(counts(&whole_counter), (0, 0));
        prop_assert_eq!(counts(&cut_counter), (0, 0));
    }

    #[test]
    fn streams_are_counted_as_they_begin_and_end(
        messages in vec((direction(), fair()), 0..60),
        sizes in vec(1..40_usize, 1..20),
        unseen in prop_oneof![Just(1), Just(u64::MAX)],
    ) {
        let (mut rig, counter) = connected();
        rig.unseen = unseen;
        let mut sizes = sizes.into_iter().cycle();
        let mut model = Model::default();
        for (direction, fair) in messages {
            feed(&mut rig, direction, &fair.bytes(), &mut sizes);
            model.hear(direction, &fair);
            prop_assert_eq!(counter.active(Counted::Stream), model.open.len() as u64);
        }
    }

    #[test]
    fn a_drain_adds_whole_frames_in_their_place(
        messages in vec((direction(), fair(), prop::bool::weighted(0.15)), 0..60),
        stages in vec(prop_oneof![
            Just(Stage::Announcing), Just(Stage::Draining), Just(Stage::EndingUpgrades),
        ], 1..4),
        sizes in vec(1..40_usize, 1..20),
        told in any::<prop::sample::Index>(),
    ) {
        let (mut rig, _) = connected();
        rig.up.out.clear();
        let mut sizes = sizes.into_iter().cycle();
        let mut stages = { let mut stages = stages; stages.sort(); stages.into_iter() };
        let told = told.index(messages.len().max(1));
        let mut sent = [Vec::new(), Vec::new()];
        for (at, (direction, fair, turn)) in messages.into_iter().enumerate() {
            let bytes = fair.bytes();
            let half = bytes.len() / 2;
            sent[direction as usize].extend_from_slice(&bytes);
            feed(&mut rig, direction, &bytes[..half], &mut sizes);
            if (turn || at == told) && let Some(stage) = stages.next() {
                rig.engine.stage(stage);
                rig.inject();
            }
            feed(&mut rig, direction, &bytes[half..], &mut sizes);
            let asked = rig.down.own.iter().any(|bytes| bytes.len() > 40);
            if turn && asked {
                let pong = pong(&rig);
                feed(&mut rig, Up, &pong, &mut sizes);
            }
        }
        // The workload sees nothing of it, but answers that come twice.
        let ours = |frame: &Sent| {
            frame.kind == PING_FRAME && frame.flags & ACK != 0
        };
        let up = read(&rig.up.out).into_iter().filter(|frame| !ours(frame)).collect::<Vec<_>>();
        prop_assert_eq!(up, read(&sent[0]));
        prop_assert!(rig.up.swallowed.len() <= PING);

        let mut lowest = u32::MAX;
        let mut block = None;
        for frame in read(&rig.down.out) {
            match block {
                Some(stream) => prop_assert_eq!((frame.kind, frame.stream), (CONTINUATION, stream)),
                None => prop_assert_ne!(frame.kind, CONTINUATION),
            }
            if matches!(frame.kind, HEADERS | CONTINUATION) {
                block = (frame.flags & END_HEADERS == 0).then_some(frame.stream);
            }
            if frame.kind == GO_AWAY && frame.payload.len() > 11 {
                prop_assert!(frame.number() <= lowest, "the gate raised a last id");
            }
            if frame.kind == GO_AWAY {
                lowest = lowest.min(frame.number());
            }
        }
        // What the workload sent is all there, but for last ids that were lowered.
        let own = rig.down.own.iter().flat_map(|bytes| bytes.to_vec()).collect::<Vec<_>>();
        let added = read_all_but_heads(&own);
        prop_assert_eq!(rig.down.out.len(), sent[1].len() + added);
    }
}

/// How many bytes the gate added, less the heads of GOAWAYs that it put in place of the workload's.
fn read_all_but_heads(mut own: &[u8]) -> usize {
    let lowered = frame(GO_AWAY, 0, 0, b"01234567bye")[..9].to_vec();
    let mut added = 0;
    while !own.is_empty() {
        if own.starts_with(&lowered) {
            own = &own[GO_AWAY_HEAD..];
        } else {
            let length = HEADER + u32::from_be_bytes([0, own[0], own[1], own[2]]) as usize;
            added += length;
            own = &own[length..];
        }
    }
    added
}
