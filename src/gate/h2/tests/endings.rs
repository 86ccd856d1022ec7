//! Connections that end before their streams, and workloads that are gone.

use super::*;

use Direction::{Down, Up};

fn told(rig: &mut Rig<Engine>) -> Vec<Sent> {
    read(&rig.engine.upstream_lost().unwrap())
}

#[test]
fn what_a_workload_leaves_is_reset() {
    let (mut rig, counter) = connected();
    rig.client([last_head(1), head(3), last_head(5)].concat());
    rig.server([head(3), last_head(1)].concat());
    let told = told(&mut rig);
    let kinds: Vec<_> = told
        .iter()
        .map(|frame| (frame.kind, frame.stream))
        .collect();
    assert_eq!(kinds, [(RESET, 3), (RESET, 5), (GO_AWAY, 0)]);
    assert!(
        told.iter()
            .all(|frame| frame.code() == Code::InternalError as u32)
    );
    assert_eq!(told[2].number(), 5);
    assert_eq!(rig.engine.state(), State::Finished);
    assert_eq!(counter.active(Counted::Stream), 0);
}

#[test]
fn a_workload_that_was_never_reached_has_served_nothing() {
    let mut rig = Rig::new(Engine::new(Counter::default()));
    let told = told(&mut rig);
    assert_eq!(told.len(), 2);
    assert_eq!((told[0].kind, told[0].flags), (SETTINGS, 0));
    assert!(told[0].payload.is_empty());
    assert_eq!(
        (told[1].kind, told[1].number(), told[1].code()),
        (GO_AWAY, 0, 0)
    );
}

#[test]
fn an_idle_connection_has_lost_nothing() {
    let (mut rig, _) = connected();
    rig.client(last_head(1));
    rig.server(last_head(1));
    rig.end(Down, false);
    let told = told(&mut rig);
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].kind, told[0].number(), told[0].code()),
        (GO_AWAY, 1, 0)
    );
}

#[test]
fn a_workload_that_has_said_goodbye_owes_nothing() {
    let (mut rig, _) = connected();
    assert!(!rig.engine.owes());
    rig.client([last_head(1), last_head(3), last_head(5)].concat());
    assert!(rig.engine.owes());
    rig.server(go_away(3));
    assert!(!rig.engine.owes(), "its closing says the rest");

    // Where it breaks off nevertheless, the client need not guess which streams it lost.
    let told = told(&mut rig);
    let numbers: Vec<_> = told
        .iter()
        .map(|frame| (frame.kind, frame.stream))
        .collect();
    assert_eq!(numbers, [(RESET, 1), (RESET, 3)]);

    let (mut rig, _) = connected();
    rig.server(go_away(0));
    assert_eq!(rig.engine.upstream_lost(), None);
    assert_eq!(rig.engine.state(), State::Finished);
}

#[test]
fn the_gates_own_goodbye_ends_no_stream() {
    let (mut rig, _) = connected();
    rig.client(last_head(1));
    rig.engine.stage(Stage::Closed);
    rig.inject();
    assert!(rig.engine.owes());
    let told = told(&mut rig);
    let numbers: Vec<_> = told
        .iter()
        .map(|frame| (frame.kind, frame.stream))
        .collect();
    assert_eq!(numbers, [(RESET, 1)]);
}

#[test]
fn a_reply_that_broke_off_is_not_added_to() {
    for text in [data(1), [frame(HEADERS, 0, 1, b"blo"), vec![]].concat()] {
        let whole = text[3] == DATA;
        for at in HEADER..text.len() {
            let (mut rig, counter) = connected();
            rig.client(last_head(1));
            rig.server(&text[..at]);
            assert_eq!(rig.engine.upstream_lost(), None);
            assert_eq!(rig.engine.state(), State::Finished);
            assert_eq!(counter.active(Counted::Stream), 0);
        }
        let (mut rig, _) = connected();
        rig.client(last_head(1));
        rig.server(&text);
        assert_eq!(rig.engine.upstream_lost().is_some(), whole);
    }
}

#[test]
fn half_a_frame_header_is_dropped_unless_it_has_passed() {
    let (mut rig, _) = connected();
    rig.client(last_head(1));
    rig.server(&head(1)[..5]);
    assert!(rig.engine.upstream_lost().is_some(), "it was kept");

    let (mut rig, _) = connected();
    rig.client(last_head(1));
    rig.server(&head(1)[..5]);
    rig.end(Down, true);
    assert!(rig.down.out.ends_with(&head(1)[..5]));
    assert_eq!(rig.engine.upstream_lost(), None, "it was passed");
}

#[test]
fn streams_end_with_a_client_that_broke_off() {
    let (mut rig, counter) = connected();
    rig.client([last_head(1), head(3)].concat());
    rig.end(Up, false);
    assert_eq!(
        counter.active(Counted::Stream),
        2,
        "half a connection can be answered"
    );
    rig.end(Up, true);
    assert_eq!(counter.active(Counted::Stream), 0);
}

#[test]
fn streams_end_with_their_engine() {
    let (mut rig, counter) = connected();
    rig.client(last_head(1));
    drop(rig);
    assert_eq!(counter.active(Counted::Stream), 0);

    let (mut rig, counter) = connected();
    rig.client(frame(DATA, 0, 0, b"what is this"));
    assert_eq!(counter.active(Counted::Tunnel), 1);
    drop(rig);
    assert_eq!(counter.active(Counted::Tunnel), 0);
}
