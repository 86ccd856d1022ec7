//! What a client is told of a drain, and where.

use super::*;

use Direction::{Down, Up};

const ANNOUNCED: [(u8, u32); 2] = [(GO_AWAY, MAX_ID), (PING_FRAME, 0)];

fn stage(rig: &mut Rig<Engine>, stage: Stage) {
    rig.engine.stage(stage);
    rig.inject();
}

#[test]
fn a_drain_is_said_in_two_steps() {
    let (mut rig, counter) = connected();
    rig.client(last_head(1));
    stage(&mut rig, Stage::Announcing);
    assert_eq!(heard(&mut rig), ANNOUNCED);

    // It began this one before it knew.
    rig.client(last_head(3));
    let before = rig.up.out.len();
    rig.client([pong(&rig), data(3)].concat());
    assert_eq!(
        rig.up.out[before..],
        data(3),
        "the workload has sent no PING"
    );
    assert_eq!(heard(&mut rig), [(GO_AWAY, 3)]);

    rig.server([last_head(1), head(3)].concat());
    assert_eq!(rig.engine.state(), State::Busy);
    rig.server(last_data(3));
    assert_eq!(rig.engine.state(), State::Finished);
    assert_eq!(counter.active(Counted::Stream), 0);
    assert_eq!(heard(&mut rig), [(HEADERS, 1), (HEADERS, 3), (DATA, 3)]);
}

#[test]
fn an_idle_connection_is_finished_after_a_round_trip() {
    let (mut rig, _) = connected();
    stage(&mut rig, Stage::Announcing);
    assert_eq!(heard(&mut rig), ANNOUNCED);
    assert_eq!(rig.engine.state(), State::Idle);
    let pong = pong(&rig);
    rig.client(&pong[..10]);
    rig.client(&pong[10..]);
    assert_eq!(heard(&mut rig), [(GO_AWAY, 0)]);
    assert_eq!(rig.engine.state(), State::Finished);
    assert_eq!(rig.up.swallowed, pong);
}

#[test]
fn pings_of_others_pass() {
    let (mut rig, _) = connected();
    let other = frame(PING_FRAME, ACK, 0, b"not ours");
    let asked = frame(PING_FRAME, 0, 0, b"the same");
    stage(&mut rig, Stage::Announcing);
    rig.client([&other[..], &asked, &pong(&rig), &pong(&rig)].concat());
    let expected = [hello(), other, asked, pong(&rig)].concat();
    assert_eq!(rig.up.out, expected, "it is swallowed once");
}

#[test]
fn nothing_is_put_inside_a_frame_or_a_header_block() {
    let block = [
        frame(HEADERS, 0, 1, b"a long block"),
        frame(CONTINUATION, 0, 1, b""),
        frame(CONTINUATION, END_HEADERS, 1, b"its end"),
    ]
    .concat();
    for text in [block, frame(DATA, 0, 1, b"a long payload")] {
        for at in 0..=text.len() {
            for follow in [1, 5, usize::MAX] {
                let (mut rig, _) = connected();
                rig.client(last_head(1));
                rig.server(&text[..at]);
                stage(&mut rig, Stage::Announcing);
                rig.server(&text[at..]);
                // The next frame must not be passed along with the one at hand either.
                for piece in data(1).chunks(follow.min(data(1).len())) {
                    rig.server(piece);
                }
                let out = std::mem::take(&mut rig.down.out);
                let place = if at < HEADER { 0 } else { text.len() };
                let gate = &rig.down.own.concat()[..];
                let expected = [&text[..place], gate, &text[place..], &data(1)].concat();
                assert_eq!(out, expected, "told after {at} bytes");
                assert_eq!(read(gate).len(), 2);
            }
        }
    }
}

#[test]
fn frames_that_come_together_are_parted() {
    let (mut rig, _) = connected();
    rig.client(last_head(1));
    rig.server(&data(1)[..12]);
    stage(&mut rig, Stage::Announcing);
    rig.server([&data(1)[12..], &last_head(1)].concat());
    let expected = [(DATA, 1), (GO_AWAY, MAX_ID), (PING_FRAME, 0), (HEADERS, 1)];
    assert_eq!(heard(&mut rig), expected);
}

#[test]
fn the_workloads_settings_come_first() {
    let mut rig = Rig::new(Engine::new(Counter::default()));
    rig.client(hello());
    stage(&mut rig, Stage::Announcing);
    assert!(rig.down.out.is_empty());
    rig.server([settings(), frame(SETTINGS, ACK, 0, b"")].concat());
    let expected = [
        (SETTINGS, 0),
        (GO_AWAY, MAX_ID),
        (PING_FRAME, 0),
        (SETTINGS, 0),
    ];
    assert_eq!(heard(&mut rig), expected);
}

#[test]
fn a_client_that_does_not_answer_is_told_at_the_next_stage() {
    let (mut rig, _) = connected();
    rig.client(last_head(5));
    stage(&mut rig, Stage::Announcing);
    stage(&mut rig, Stage::Announcing);
    assert_eq!(heard(&mut rig), ANNOUNCED);
    stage(&mut rig, Stage::Draining);
    assert_eq!(heard(&mut rig), [(GO_AWAY, 5)]);
    rig.client(pong(&rig));
    assert!(heard(&mut rig).is_empty());
    assert_eq!(
        rig.up.swallowed,
        pong(&rig),
        "a late answer is the gate's too"
    );

    // Streams that come nevertheless are served.
    rig.client(last_head(7));
    rig.server(last_head(5));
    assert_eq!(rig.engine.state(), State::Busy);
    rig.server(last_head(7));
    assert_eq!(rig.engine.state(), State::Finished);
}

#[test]
fn a_client_that_has_closed_its_half_is_not_waited_for() {
    let (mut rig, _) = connected();
    rig.client(last_head(1));
    stage(&mut rig, Stage::Announcing);
    rig.end(Up, false);
    let told = heard(&mut rig);
    assert_eq!(told[2..], [(GO_AWAY, 1)]);
    rig.server(last_head(1));
    assert_eq!(rig.engine.state(), State::Finished);
}

#[test]
fn a_connection_that_begins_late_is_told_in_two_steps_too() {
    let mut rig = Rig::new(Engine::new(Counter::default()));
    stage(&mut rig, Stage::Draining);
    rig.client([hello(), last_head(1)].concat());
    rig.server(settings());
    assert_eq!(heard(&mut rig), [(SETTINGS, 0), ANNOUNCED[0], ANNOUNCED[1]]);
    rig.client(pong(&rig));
    assert_eq!(heard(&mut rig), [(GO_AWAY, 1)]);
}

#[test]
fn a_workload_that_has_said_goodbye_is_not_repeated() {
    let (mut rig, _) = connected();
    rig.client([last_head(1), last_head(3)].concat());
    rig.server(go_away(1));
    heard(&mut rig);
    stage(&mut rig, Stage::Announcing);
    stage(&mut rig, Stage::Closed);
    assert!(heard(&mut rig).is_empty());
    rig.server(last_head(1));
    assert_eq!(rig.engine.state(), State::Finished);

    // Between the gate's two.
    let (mut rig, _) = connected();
    rig.client([last_head(1), last_head(3)].concat());
    stage(&mut rig, Stage::Announcing);
    rig.server(go_away(3));
    rig.client(pong(&rig));
    assert_eq!(heard(&mut rig), [ANNOUNCED[0], ANNOUNCED[1], (GO_AWAY, 3)]);
}

#[test]
fn a_last_id_is_never_raised() {
    let (mut rig, counter) = connected();
    rig.client([last_head(1), last_head(3)].concat());
    rig.server(go_away(2001));
    stage(&mut rig, Stage::Announcing);
    rig.client(pong(&rig));
    let told = [
        (GO_AWAY, 2001),
        (GO_AWAY, 2001),
        (PING_FRAME, 0),
        (GO_AWAY, 3),
    ];
    assert_eq!(heard(&mut rig), told);

    // The workload begins its own farewell when the gate's is over.
    for size in [1, 13, 100] {
        for piece in [go_away(MAX_ID), data(1)].concat().chunks(size) {
            rig.server(piece);
        }
        let out = std::mem::take(&mut rig.down.out);
        assert_eq!(out, [go_away(3), data(1)].concat());
    }
    rig.server(go_away(1));
    assert_eq!(heard(&mut rig), [(GO_AWAY, 1)]);
    assert_eq!(counter.active(Counted::Stream), 1);
}

#[test]
fn once_closed_no_stream_begins() {
    let (mut rig, counter) = connected();
    rig.client([head(1), head(3)].concat());
    stage(&mut rig, Stage::Closed);
    assert_eq!(heard(&mut rig), [(GO_AWAY, 3)]);
    assert_eq!(rig.engine.state(), State::Busy);
    rig.up.out.clear();

    let ping = frame(PING_FRAME, 0, 0, &[7; 8]);
    let refused = [
        frame(HEADERS, 0, 5, b"a new request"),
        frame(CONTINUATION, END_HEADERS, 5, b"in two parts"),
        data(5),
        frame(WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]),
        reset(5),
    ];
    for size in [1, 7, 1000] {
        let frames = [refused.concat(), data(1), ping.clone(), last_head(7)].concat();
        for piece in frames.chunks(size) {
            rig.client(piece);
        }
        let out = std::mem::take(&mut rig.up.out);
        assert_eq!(out, [data(1), ping.clone()].concat(), "older streams go on");
        let window = data(5).len() - HEADER;
        let given: u32 = read(&std::mem::take(&mut rig.down.out))
            .iter()
            .map(|frame| {
                assert_eq!((frame.kind, frame.stream), (WINDOW_UPDATE, 0));
                frame.number()
            })
            .sum();
        assert_eq!(given as usize, window);
    }
    assert_eq!(counter.active(Counted::Stream), 2);

    // Trailers cannot go up without the header blocks before them.
    rig.client(frame(HEADERS, END_STREAM, 3, b"trailers"));
    rig.client(frame(CONTINUATION, END_HEADERS, 3, b"in two parts"));
    assert_eq!(rig.up.out, frame(RESET, 0, 3, &8_u32.to_be_bytes()));
    assert_eq!(heard(&mut rig), [(RESET, 3)]);
    assert_eq!(counter.active(Counted::Stream), 1);

    rig.client(last_data(1));
    rig.server(last_head(1));
    assert_eq!(rig.engine.state(), State::Finished);
}

#[test]
fn nothing_is_put_inside_a_goaway_that_is_lowered() {
    let (mut rig, _) = connected();
    rig.client(head(1));
    stage(&mut rig, Stage::Closed);
    let engine = &mut rig.engine;
    let head = go_away(1)[..GO_AWAY_HEAD].to_vec();
    assert_eq!(engine.step(Down, &go_away(9)), Step::Insert(head.into()));
    let refused = last_head(3);
    assert_eq!(engine.step(Up, &refused), Step::Swallow(HEADER));
    assert_eq!(
        engine.step(Up, &refused[HEADER..]),
        Step::Swallow(refused.len() - HEADER)
    );
    assert_eq!(engine.step(Up, &data(3)), Step::Swallow(HEADER));
    assert_eq!(engine.inject(Down), None, "the client is owed its window");
    assert_eq!(engine.step(Down, &go_away(9)), Step::Swallow(GO_AWAY_HEAD));
    let rest = &go_away(9)[GO_AWAY_HEAD..];
    assert_eq!(engine.step(Down, rest), Step::Pass(rest.len()));
    assert!(engine.inject(Down).is_some());
}

#[test]
fn trailers_pass_while_no_block_was_left_out() {
    let (mut rig, _) = connected();
    rig.client(head(1));
    stage(&mut rig, Stage::Closed);
    rig.client(last_head(1));
    assert!(rig.up.out.ends_with(&last_head(1)));
    rig.server(last_head(1));
    assert_eq!(rig.engine.state(), State::Finished);
}

#[test]
fn closing_waits_for_the_end_of_a_frame() {
    let (mut rig, _) = connected();
    stage(&mut rig, Stage::Announcing);
    rig.server(&frame(0x77, 0, 0, b"extension")[..12]);
    rig.client(pong(&rig));
    assert_eq!(rig.engine.state(), State::Idle);
    rig.server(&frame(0x77, 0, 0, b"extension")[12..]);
    assert_eq!(rig.engine.state(), State::Finished);
}

#[test]
fn nothing_is_said_behind_the_workloads_end() {
    let (mut rig, _) = connected();
    rig.end(Down, false);
    stage(&mut rig, Stage::Announcing);
    assert!(rig.down.out.is_empty());
    assert_eq!(rig.engine.state(), State::Finished);
}

/// Told before it could send anything, a client would do no more than connect again.
#[test]
fn a_client_that_comes_during_the_drain_is_told_with_its_first_stream() {
    for begun in [Stage::Announcing, Stage::Draining, Stage::EndingUpgrades] {
        let counter = Counter::default();
        let mut rig = Rig::new(Engine::new(counter.clone()));
        stage(&mut rig, begun);
        rig.client(hello());
        rig.server(settings());
        assert_eq!(rig.engine.state(), State::Head, "it is not idle");
        assert_eq!(heard(&mut rig), [(SETTINGS, 0)]);
        rig.client(last_head(1));
        assert_eq!(heard(&mut rig), ANNOUNCED);
        rig.client(pong(&rig));
        rig.server(last_head(1));
        assert_eq!(heard(&mut rig), [(GO_AWAY, 1), (HEADERS, 1)]);
        assert_eq!(rig.engine.state(), State::Finished);
        assert_eq!(counter.cut(), 0);
    }
}

#[test]
fn a_client_that_came_during_the_drain_and_asks_nothing_is_told_at_the_next_stage() {
    for (next, told) in [
        (Stage::Draining, &ANNOUNCED[..]),
        (Stage::Closed, &[(GO_AWAY, 0)]),
    ] {
        let mut rig = Rig::new(Engine::new(Counter::default()));
        stage(&mut rig, Stage::Announcing);
        rig.client(hello());
        rig.server(settings());
        heard(&mut rig);
        stage(&mut rig, next);
        assert_eq!(heard(&mut rig), told, "{next:?}");
    }
}
