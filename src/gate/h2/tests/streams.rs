//! What begins and ends a stream, and what makes a connection a tunnel.

use super::*;

use Direction::{Down, Up};

/// Who sends what, and how many streams are in flight then.
type Line = (Direction, Vec<u8>, u64);

/// Plays the lines, whole, byte by byte and with payloads moved unseen; all must pass as they are.
fn play(name: &str, lines: &[Line]) {
    for (size, unseen) in [
        (usize::MAX, u64::MAX),
        (1, u64::MAX),
        (3, 1),
        (usize::MAX, 1),
    ] {
        let (mut rig, counter) = connected();
        rig.unseen = unseen;
        let before = rig.up.passed.len();
        for (at, (direction, bytes, expected)) in lines.iter().enumerate() {
            for piece in bytes.chunks(size.min(bytes.len())) {
                rig.feed(*direction, piece);
            }
            let active = counter.active(Counted::Stream);
            assert_eq!(active, *expected, "{name}, line {at}, pieces of {size}");
            let state = if active > 0 { State::Busy } else { State::Idle };
            assert_eq!(rig.engine.state(), state, "{name}, line {at}");
        }
        let sent = |direction| {
            let lines = lines.iter().filter(move |line| line.0 == direction);
            lines.flat_map(|line| line.1.clone()).collect::<Vec<_>>()
        };
        assert_eq!(rig.up.passed[before..], sent(Up), "{name}");
        assert_eq!(rig.down.out, sent(Down), "{name}");
        assert_eq!(rig.engine.doubt, None, "{name}");
        assert_eq!(counter.active(Counted::Tunnel), 0, "{name}");
    }
}

#[test]
fn a_stream_is_in_flight_until_both_sides_have_ended_it() {
    play(
        "a request without a body",
        &[
            (Up, last_head(1), 1),
            (Down, head(1), 1),
            (Down, data(1), 1),
            (Down, last_data(1), 0),
        ],
    );
    play(
        "a body up, an interim reply, trailers both ways",
        &[
            (Up, head(1), 1),
            (Down, head(1), 1),
            (Up, data(1), 1),
            (Up, last_head(1), 1),
            (Down, head(1), 1),
            (Down, last_head(1), 0),
        ],
    );
    play(
        "an early reply",
        &[
            (Up, head(1), 1),
            (Down, last_head(1), 1),
            (Up, data(1), 1),
            (Up, last_data(1), 0),
        ],
    );
    play(
        "an early reply that asks the client to stop",
        &[
            (Up, head(1), 1),
            (Down, last_head(1), 1),
            (Down, reset(1), 0),
        ],
    );
    play(
        "ends said twice, and on streams that are closed",
        &[
            (Up, last_head(1), 1),
            (Up, last_data(1), 1),
            (Down, last_head(1), 0),
            (Up, last_data(1), 0),
            (Up, last_head(1), 0),
            (Down, reset(1), 0),
        ],
    );
}

#[test]
fn streams_are_told_apart() {
    play(
        "three, the middle one reset by the client",
        &[
            (Up, [last_head(1), head(3), last_head(5)].concat(), 3),
            (Up, reset(3), 2),
            (Down, [head(5), last_data(5)].concat(), 1),
            (Up, frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 9]), 1),
            (Up, frame(PRIORITY, 0, 7, &[0; 5]), 1),
            (Down, last_head(1), 0),
            (Up, last_head(9), 1),
            (Down, last_head(9), 0),
        ],
    );
}

#[test]
fn a_header_block_is_whole_with_its_last_part() {
    play(
        "CONTINUATION",
        &[
            (Up, frame(HEADERS, END_STREAM, 1, b"blo"), 1),
            (Up, frame(CONTINUATION, 0, 1, b""), 1),
            (Up, frame(CONTINUATION, END_HEADERS, 1, b"ck"), 1),
            (Down, frame(HEADERS, END_STREAM, 1, b""), 1),
            (Down, frame(CONTINUATION, END_HEADERS, 1, b""), 0),
        ],
    );
}

#[test]
fn padding_counts_as_payload() {
    let mut padded = vec![200];
    padded.extend([0; 200]);
    play(
        "padding",
        &[
            (Up, frame(HEADERS, END_HEADERS | PADDED, 1, &padded), 1),
            (Up, frame(DATA, PADDED, 1, &padded), 1),
            (Up, frame(DATA, PADDED | END_STREAM, 1, &padded), 1),
            (Down, last_head(1), 0),
        ],
    );
}

#[test]
fn empty_frames_end_where_they_begin() {
    play(
        "empty",
        &[
            (Up, frame(HEADERS, END_HEADERS, 1, b""), 1),
            (Up, frame(DATA, 0, 1, b""), 1),
            (Up, frame(DATA, END_STREAM, 1, b""), 1),
            (Down, frame(HEADERS, END_HEADERS, 1, b""), 1),
            (Down, frame(DATA, END_STREAM, 1, b""), 0),
        ],
    );
}

#[test]
fn pushed_streams_are_not_counted() {
    play(
        "a push",
        &[
            (Up, last_head(1), 1),
            (Down, frame(PUSH_PROMISE, 0, 1, &[0, 0, 0, 2]), 1),
            (Down, frame(CONTINUATION, END_HEADERS, 1, b"block"), 1),
            (Down, last_head(1), 0),
            (Down, [head(2), last_data(2)].concat(), 0),
            (Up, reset(2), 0),
        ],
    );
}

#[test]
fn what_the_workload_will_not_serve_is_not_in_flight() {
    play(
        "a GOAWAY with a lower last id",
        &[
            (Up, [last_head(1), last_head(3), last_head(5)].concat(), 3),
            (Down, go_away(MAX_ID), 3),
            (Down, go_away(3), 2),
            (Up, last_head(7), 2),
            (Down, last_head(3), 1),
            (Down, last_head(1), 0),
        ],
    );
    play(
        "a client that leaves",
        &[
            (Up, last_head(1), 1),
            (Up, go_away(0), 1),
            (Down, last_head(1), 0),
        ],
    );
}

#[test]
fn extensions_pass() {
    play(
        "an unknown frame on any stream",
        &[
            (Up, frame(0x77, 0xff, 0, b"a frame"), 0),
            (Down, frame(0x77, 0xff, 9, b"a frame"), 0),
            (Up, frame(PRIORITY, 0, 1, b"a wrong length is forgiven"), 0),
        ],
    );
}

#[test]
fn the_reserved_bit_is_no_part_of_an_id() {
    play(
        "the bit",
        &[(Up, last_head(1 | 1 << 31), 1), (Down, last_head(1), 0)],
    );
}

#[test]
fn a_connection_has_begun_once_the_client_has_said_hello() {
    let mut rig = Rig::new(Engine::new(Counter::default()));
    for byte in &hello()[..32] {
        assert_eq!(rig.engine.state(), State::Head);
        rig.client([*byte]);
    }
    rig.client(&hello()[32..33]);
    assert_eq!(rig.engine.state(), State::Idle);
    rig.client(&hello()[33..]);
    assert_eq!(rig.up.out, hello());
    rig.client(&last_head(1)[..5]);
    assert_eq!(rig.engine.state(), State::Head, "a request may have begun");
    assert_eq!(rig.up.out, hello());
    rig.client(&last_head(1)[5..]);
    assert_eq!(rig.engine.state(), State::Busy);
}

#[test]
fn an_upgraded_connection_begins_with_its_request() {
    let counter = Counter::default();
    let guard = counter.admit(Counted::Request).unwrap();
    let mut rig = Rig::new(Engine::upgraded(counter.clone(), guard));
    rig.server(settings());
    rig.server(head(1));
    assert_eq!(rig.engine.state(), State::Busy);
    rig.client(hello());
    rig.client(last_head(3));
    assert_eq!(
        (
            counter.active(Counted::Request),
            counter.active(Counted::Stream)
        ),
        (1, 1)
    );
    rig.server(last_data(1));
    assert_eq!(
        (
            counter.active(Counted::Request),
            counter.active(Counted::Stream)
        ),
        (0, 1)
    );
    rig.server(last_head(3));
    assert_eq!(counter.active(Counted::Stream), 0);
    assert_eq!(rig.engine.state(), State::Idle);
}

#[test]
fn what_cannot_be_http2_becomes_a_tunnel() {
    let big = frame(GO_AWAY, 0, 0, b"short");
    let block = frame(HEADERS, 0, 1, b"blo");
    let cases: [(&str, Direction, Vec<u8>, Doubt); 13] = [
        (
            "SETTINGS on a stream",
            Up,
            frame(SETTINGS, 0, 1, b""),
            Doubt::Stream,
        ),
        (
            "DATA on none",
            Up,
            frame(DATA, 0, 0, b"data"),
            Doubt::Stream,
        ),
        (
            "HEADERS on none",
            Down,
            frame(HEADERS, 4, 0, b""),
            Doubt::Stream,
        ),
        ("RST_STREAM on none", Up, reset(0), Doubt::Stream),
        (
            "PING on a stream",
            Down,
            frame(PING_FRAME, 0, 1, &[0; 8]),
            Doubt::Stream,
        ),
        (
            "CONTINUATION alone",
            Up,
            frame(CONTINUATION, 4, 1, b""),
            Doubt::Block,
        ),
        (
            "a block broken into",
            Up,
            [block.clone(), data(1)].concat(),
            Doubt::Block,
        ),
        (
            "a block of two streams",
            Down,
            [block, frame(CONTINUATION, 4, 3, b"")].concat(),
            Doubt::Block,
        ),
        (
            "a long PING",
            Up,
            frame(PING_FRAME, 0, 0, &[0; 9]),
            Doubt::Length,
        ),
        (
            "a long RST_STREAM",
            Down,
            frame(RESET, 0, 1, &[0; 5]),
            Doubt::Length,
        ),
        (
            "odd SETTINGS",
            Up,
            frame(SETTINGS, 0, 0, &[0; 7]),
            Doubt::Length,
        ),
        ("a short GOAWAY", Down, big, Doubt::Length),
        (
            "a long WINDOW_UPDATE",
            Up,
            frame(WINDOW_UPDATE, 0, 0, &[0; 5]),
            Doubt::Length,
        ),
    ];
    for (name, direction, bytes, doubt) in cases {
        let (mut rig, counter) = connected();
        rig.client(last_head(1));
        assert_eq!(counter.active(Counted::Stream), 1);
        rig.feed(direction, &bytes);
        assert_eq!(rig.engine.doubt, Some(doubt), "{name}");
        assert_eq!(counter.active(Counted::Stream), 0, "{name}");
        assert_eq!(counter.active(Counted::Tunnel), 1, "{name}");
        rig.engine.stage(Stage::Draining);
        rig.client(b"PING me");
        rig.server(b"no frame at all, and not looked at");
        assert_eq!(rig.up.out, rig.up.passed, "{name}");
        assert!(rig.up.out.ends_with(b"PING me"), "{name}");
        assert!(rig.down.out.ends_with(b"looked at"), "{name}");
        assert!(rig.down.own.is_empty(), "{name}");
        assert_eq!(rig.engine.opaque(Up), u64::MAX);
        assert_eq!(rig.engine.state(), State::Busy);
        rig.engine.stage(Stage::EndingUpgrades);
        assert_eq!(rig.engine.state(), State::Busy, "it was not upgraded");
        assert!(!rig.engine.owes());
        rig.end(Up, false);
        assert_eq!(counter.active(Counted::Tunnel), 1, "{name}");
        rig.end(Down, false);
        assert_eq!(counter.active(Counted::Tunnel), 0, "{name}");
    }
}

#[test]
fn a_side_that_begins_otherwise_is_not_believed() {
    for (client, server, doubt) in [
        (b"PRI * HTTP/2.0\r\n\r\nXX".to_vec(), vec![], Doubt::Preface),
        ([&PREFACE[..], &head(1)].concat(), vec![], Doubt::Start),
        (
            hello(),
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            Doubt::Start,
        ),
        (hello(), frame(SETTINGS, ACK, 0, b""), Doubt::Start),
    ] {
        let counter = Counter::default();
        let mut rig = Rig::new(Engine::new(counter.clone()));
        rig.client(&client);
        rig.server(&server);
        assert_eq!(rig.engine.doubt(), Some(doubt.name()));
        assert_eq!((rig.up.out, rig.down.out), (client, server));
        assert_eq!(counter.active(Counted::Tunnel), 1);
    }
}

#[test]
fn more_streams_than_are_told_apart_count_as_a_tunnel() {
    let (mut rig, counter) = connected();
    let ids = (0..STREAMS_MAX as u32).map(|at| 2 * at + 1);
    rig.client(ids.clone().flat_map(last_head).collect::<Vec<_>>());
    assert_eq!(counter.active(Counted::Stream), STREAMS_MAX as u64);
    assert_eq!(rig.engine.doubt, None);
    rig.server(last_head(1));
    rig.client(last_head(9001));
    assert_eq!(rig.engine.doubt, None, "one has ended");

    rig.client(last_head(9003));
    assert_eq!(rig.engine.doubt, Some(Doubt::Streams));
    assert_eq!(counter.active(Counted::Stream), 0);
    assert_eq!(counter.active(Counted::Tunnel), 1);
    rig.server(ids.flat_map(last_head).collect::<Vec<_>>());
    assert_eq!(rig.engine.state(), State::Busy);

    heard(&mut rig);
    rig.engine.stage(Stage::Announcing);
    rig.inject();
    rig.client(last_head(9005));
    rig.client(pong(&rig));
    let told = [(GO_AWAY, MAX_ID), (PING_FRAME, 0), (GO_AWAY, 9005)];
    assert_eq!(heard(&mut rig), told, "its frames are still made out");
    assert_eq!(rig.engine.state(), State::Busy);
    rig.end(Up, false);
    rig.end(Down, false);
    assert_eq!(counter.active(Counted::Tunnel), 0);
}

#[test]
fn every_doubt_has_its_own_name() {
    let names: std::collections::BTreeSet<_> = Doubt::ALL.map(Doubt::name).into();
    assert_eq!(names.len(), Doubt::ALL.len());
}

#[test]
fn many_streams_leave_little_behind() {
    let counter = Counter::default();
    let mut streams = Streams::default();
    for id in 0..STREAMS_MAX as u32 {
        streams.begin(id, counter.admit(Counted::Stream).unwrap());
    }
    for id in 0..STREAMS_MAX as u32 {
        streams.end(id);
    }
    assert!(streams.is_empty());
    assert_eq!(counter.active(Counted::Stream), 0);
    assert!(streams.capacity() < STREAMS_MAX / 4);
}
