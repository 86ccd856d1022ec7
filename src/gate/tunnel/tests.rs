//! A tunnel counts until it has ended, however it does.

use super::*;
use crate::gate::counter::{Counter, Kind};
use crate::gate::engine::Engine as _;
use crate::gate::rig::Rig;

fn tunnel() -> (Rig<Engine>, Counter) {
    let counter = Counter::default();
    let guard = counter.admit(Kind::Tunnel).unwrap();
    (Rig::new(Engine::new(guard)), counter)
}

#[test]
fn everything_passes_seen_or_unseen() {
    let (mut rig, counter) = tunnel();
    rig.client(b"any");
    rig.unseen = 1;
    rig.client(b"thing");
    rig.server(b"at all");
    assert_eq!(
        (&rig.up.out[..], &rig.down.out[..]),
        (&b"anything"[..], &b"at all"[..])
    );
    assert_eq!(rig.engine.state(), State::Busy);
    assert_eq!(counter.active(Kind::Tunnel), 1);
}

#[test]
fn it_is_in_flight_until_both_sides_have_closed() {
    let (mut rig, counter) = tunnel();
    rig.end(Direction::Up, false);
    assert_eq!(rig.engine.state(), State::Busy);
    assert_eq!(counter.active(Kind::Tunnel), 1);
    rig.end(Direction::Down, false);
    assert_eq!(rig.engine.state(), State::Finished);
    assert_eq!(counter.active(Kind::Tunnel), 0);
}

#[test]
fn one_side_that_breaks_ends_it() {
    for direction in [Direction::Up, Direction::Down] {
        let (mut rig, counter) = tunnel();
        rig.end(direction, true);
        assert_eq!(rig.engine.state(), State::Finished);
        assert_eq!(counter.active(Kind::Tunnel), 0);
    }
}

#[test]
fn the_drain_ends_it_with_the_upgrades() {
    let (mut rig, counter) = tunnel();
    for stage in [Stage::Announcing, Stage::Draining] {
        rig.engine.stage(stage);
        assert_eq!(rig.engine.state(), State::Busy);
    }
    rig.engine.stage(Stage::EndingUpgrades);
    assert_eq!(rig.engine.state(), State::Finished);
    assert_eq!(counter.active(Kind::Tunnel), 1, "until it is closed");
    drop(rig);
    assert_eq!(counter.active(Kind::Tunnel), 0);
}

#[test]
fn a_client_is_told_nothing() {
    let (mut rig, _) = tunnel();
    assert_eq!(rig.engine.upstream_lost(), None);
}
