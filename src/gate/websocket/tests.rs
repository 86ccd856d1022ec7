//! Where a WebSocket's close frame goes, and what passes before and after it.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::gate::counter::{Counter, Kind};
use crate::gate::engine::Engine as _;
use crate::gate::rig::Rig;

use Direction::{Down, Up};

const TEXT: u8 = 0x81;
const FRAGMENT: u8 = 0x01;
const LAST_FRAGMENT: u8 = 0x80;
const PONG: u8 = 0x8a;
const CLOSE: u8 = 0x88;

/// The gate's close frame.
const OURS: &[u8] = b"\x88\x14\x03\xe9tidegate: draining";

fn websocket() -> (Rig<Engine>, Counter) {
    let counter = Counter::default();
    let guard = counter.admit(Kind::Tunnel).unwrap();
    (Rig::new(Engine::new(guard)), counter)
}

/// A frame as a server sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ ..126 => frame.push(short as u8),
        medium @ ..0x1_0000 => {
            frame.push(126);
            frame.extend((medium as u16).to_be_bytes());
        }
        long => {
            frame.push(127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}

/// One frame of each length's form.
fn frames() -> [Vec<u8>; 5] {
    [
        frame(TEXT, b"short"),
        frame(PONG, b""),
        frame(FRAGMENT, &[b'm'; 300]),
        frame(LAST_FRAGMENT, b""),
        frame(0xc2, &vec![b'l'; 70_000]),
    ]
}

fn stage(rig: &mut Rig<Engine>, stage: Stage) {
    rig.engine.stage(stage);
    rig.inject();
}

#[test]
fn frames_pass_as_they_are() {
    let whole = frames().concat();
    for (size, unseen) in [(whole.len(), u64::MAX), (1, u64::MAX), (1, 1), (1000, 100)] {
        let (mut rig, counter) = websocket();
        rig.unseen = unseen;
        for piece in whole.chunks(size) {
            rig.server(piece);
            rig.client(piece);
        }
        assert_eq!(rig.down.out, whole);
        assert_eq!(rig.up.out, whole);
        assert_eq!(rig.engine.doubt(), None);
        assert_eq!(rig.engine.opaque(Down), 0, "it knows the boundary");
        assert_eq!(rig.engine.state(), State::Busy);
        assert_eq!(counter.active(Kind::Tunnel), 1);
    }
}

#[test]
fn the_close_frame_goes_between_frames() {
    for frame in frames() {
        let cuts = (0..=frame.len().min(20)).chain([frame.len() / 2, frame.len()]);
        for at in cuts {
            let (mut rig, _) = websocket();
            rig.server(&frame[..at]);
            stage(&mut rig, Stage::Draining);
            assert!(rig.down.own.is_empty());
            stage(&mut rig, Stage::EndingUpgrades);
            rig.server([&frame[at..], &frame].concat());
            let payload = frame.len()
                - match frame[1] {
                    126 => 4,
                    127 => 10,
                    _ => 2,
                };
            let head = frame.len() - payload;
            let passed = if at < head { 0 } else { frame.len() };
            assert_eq!(
                rig.down.out,
                [&frame[..passed], OURS].concat(),
                "after {at}"
            );
        }
    }
}

#[test]
fn after_the_close_frame_only_the_client_is_heard() {
    let (mut rig, counter) = websocket();
    stage(&mut rig, Stage::EndingUpgrades);
    assert_eq!(rig.down.out, OURS);
    rig.server(frames().concat());
    rig.client(b"its close frame");
    assert_eq!(rig.down.out, OURS);
    assert_eq!(rig.down.swallowed, frames().concat());
    assert_eq!(rig.up.out, b"its close frame");
    assert_eq!(rig.engine.opaque(Down), 0);
    assert_eq!(rig.engine.state(), State::Busy);
    assert_eq!(counter.active(Kind::Tunnel), 1);
    stage(&mut rig, Stage::Closed);
    assert_eq!(rig.down.out, OURS, "it is said once");
    rig.end(Up, false);
    assert_eq!(rig.engine.state(), State::Finished);
    assert_eq!(counter.active(Kind::Tunnel), 0);
}

#[test]
fn a_workload_that_closes_itself_is_not_interrupted() {
    let (mut rig, counter) = websocket();
    let close = frame(CLOSE, &1000_u16.to_be_bytes());
    rig.server(&close[..3]);
    stage(&mut rig, Stage::EndingUpgrades);
    rig.server(&close[3..]);
    assert_eq!(rig.down.out, close);
    assert_eq!(rig.engine.state(), State::Busy, "the client is to answer");
    assert_eq!(rig.engine.upstream_lost(), None);
    assert_eq!(counter.active(Kind::Tunnel), 0);
}

#[test]
fn it_is_in_flight_until_both_sides_have_closed() {
    let (mut rig, counter) = websocket();
    rig.end(Down, false);
    stage(&mut rig, Stage::EndingUpgrades);
    assert!(
        rig.down.out.is_empty(),
        "nothing goes behind the workload's end"
    );
    assert_eq!(counter.active(Kind::Tunnel), 1);
    rig.end(Up, false);
    assert_eq!(rig.engine.state(), State::Finished);
    assert_eq!(counter.active(Kind::Tunnel), 0);

    let (mut rig, counter) = websocket();
    rig.end(Up, true);
    assert_eq!(rig.engine.state(), State::Finished);
    assert_eq!(counter.active(Kind::Tunnel), 0);
}

#[test]
fn what_cannot_be_a_servers_frame_is_passed_and_ends_without_a_word() {
    for bytes in [
        &b"\x81\x85maskhello"[..],
        b"\x88\x7e\x00\x80",
        b"\x08\x02\x03\xe8",
        b"\x82\x7f\x80\0\0\0\0\0\0\x01!",
    ] {
        let (mut rig, counter) = websocket();
        rig.server(frame(TEXT, b"fine"));
        for byte in bytes {
            rig.server([*byte]);
        }
        rig.server(b"and more");
        assert_eq!(rig.engine.doubt(), Some("websocket-frame"));
        assert!(rig.down.out.ends_with(&[bytes, b"and more"].concat()));
        assert_eq!(rig.engine.opaque(Down), u64::MAX);
        assert_eq!(rig.engine.state(), State::Busy);
        stage(&mut rig, Stage::EndingUpgrades);
        assert!(rig.down.own.is_empty());
        assert_eq!(rig.engine.state(), State::Finished);
        assert_eq!(rig.engine.upstream_lost(), None);
        assert_eq!(counter.active(Kind::Tunnel), 0);
    }
}

#[test]
fn a_client_hears_of_a_workload_that_is_gone() {
    let (mut rig, counter) = websocket();
    rig.server(frame(TEXT, b"hello"));
    let told = rig.engine.upstream_lost().unwrap();
    assert_eq!(
        told,
        frame(CLOSE, b"\x03\xf3tidegate: the workload is gone")
    );
    assert_eq!(counter.active(Kind::Tunnel), 0);
    assert_eq!(rig.engine.state(), State::Finished);

    let (mut rig, _) = websocket();
    rig.server(&frame(TEXT, b"hello")[..4]);
    assert_eq!(
        rig.engine.upstream_lost(),
        None,
        "it is in the middle of a frame"
    );

    let (mut rig, _) = websocket();
    rig.server(&frame(TEXT, b"hello")[..1]);
    rig.end(Down, false);
    assert_eq!(rig.engine.upstream_lost(), None, "half a header has passed");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn while_serving_all_passes(
        pieces in vec((any::<bool>(), vec(any::<u8>(), 0..40)), 0..20),
        unseen in prop_oneof![Just(1), Just(u64::MAX)],
    ) {
        let (mut rig, _) = websocket();
        rig.unseen = unseen;
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for (is_up, piece) in pieces {
            let (direction, sent) = if is_up { (Up, &mut up) } else { (Down, &mut down) };
            sent.extend_from_slice(&piece);
            rig.feed(direction, &piece);
        }
        rig.end(Up, false);
        rig.end(Down, false);
        prop_assert_eq!(rig.up.out, up);
        prop_assert_eq!(rig.down.out, down);
    }

    #[test]
    fn the_close_frame_ends_whole_frames(
        sent in vec((0..5_usize, any::<bool>()), 1..8),
        sizes in vec(1..200_usize, 1..8),
        told in any::<prop::sample::Index>(),
        unseen in prop_oneof![Just(1), Just(u64::MAX)],
    ) {
        let frames = frames();
        let ends: Vec<usize> = sent.iter().scan(0, |end, (at, _)| {
            *end += frames[*at].len();
            Some(*end)
        }).collect();
        let whole: Vec<u8> = sent.iter().flat_map(|(at, _)| frames[*at].clone()).collect();
        let told = told.index(whole.len());
        let (mut rig, _) = websocket();
        rig.unseen = unseen;
        rig.server(&whole[..told]);
        stage(&mut rig, Stage::EndingUpgrades);
        let mut rest = &whole[told..];
        for size in sizes.iter().cycle() {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            rig.server(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let passed = rig.down.passed.len();
        prop_assert!(passed == 0 || ends.contains(&passed));
        prop_assert_eq!(&rig.down.passed[..], &whole[..passed]);
        prop_assert_eq!(rig.down.out, [&whole[..passed], OURS].concat());
    }
}
