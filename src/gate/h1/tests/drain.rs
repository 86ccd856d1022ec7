//! What the drain changes: `connection: close` in replies, nothing forwarded after it, and 503.

use super::State::{Busy, Finished, Head, Idle};
use super::*;
use crate::gate::h1::answer;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CLOSED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nconnection: close\r\n\r\nhello";

#[track_caller]
fn assert_text(bytes: &[u8], text: &str) {
    assert_eq!(String::from_utf8_lossy(bytes), text);
}

#[test]
fn heads_say_close_and_nothing_else_changes() {
    for (head, closed) in [
        ("X: Y\r\n", Some("X: Y\r\nconnection: close\r\n")),
        ("", Some("connection: close\r\n")),
        (
            "Connection: Keep-Alive\r\nX: Y\r\n",
            Some("Connection: close\r\nX: Y\r\n"),
        ),
        (
            "CONNECTION:keep-alive ,\tFoo\r\nKeep-Alive: timeout=5\r\nx:  y \r\n",
            Some("CONNECTION:close ,\tFoo\r\nx:  y \r\n"),
        ),
        (
            "connection: Foo\r\n",
            Some("connection: Foo\r\nconnection: close\r\n"),
        ),
        (
            "connection: foo\r\nconnection: keep-alive\r\n",
            Some("connection: foo\r\nconnection: close\r\n"),
        ),
        (
            "connection: keep-alive, keep-alive\r\n",
            Some("connection: close, close\r\n"),
        ),
        (
            "connection:\r\n",
            Some("connection:\r\nconnection: close\r\n"),
        ),
        ("Connection: Close\r\n", None),
        (
            "connection: keep-alive\r\nconnection: foo, close\r\nkeep-alive: 1\r\n",
            None,
        ),
        (
            "x-connection: close\r\n",
            Some("x-connection: close\r\nconnection: close\r\n"),
        ),
    ] {
        let line = "HTTP/1.1 200 connection: close\r\n";
        let got = answer::close(format!("{line}{head}\r\n").as_bytes());
        let expected = closed.map(|closed| Bytes::from(format!("{line}{closed}\r\n")));
        assert_eq!(got, expected, "{head:?}");
    }
}

#[test]
fn every_stage_marks_from_announcing_on() {
    for stage in [
        Stage::Announcing,
        Stage::Draining,
        Stage::EndingUpgrades,
        Stage::Closed,
    ] {
        for reads in READS {
            let mut talk = Talk::at(stage);
            talk.send(Direction::Up, GET, reads);
            talk.send(Direction::Down, &OK[..OK.len() - 1], reads);
            assert_eq!(talk.state(), Busy);
            assert_eq!(talk.counts(), requests(1));
            talk.send(Direction::Down, "o", reads);
            assert_text(&talk.down.passed, CLOSED);
            assert_eq!(talk.down.swallowed.len(), OK.len() - 5);
            assert_eq!(talk.state(), Finished);
            assert_eq!(talk.counts(), requests(0));
            talk.send(Direction::Up, GET, reads);
            assert_text(&talk.up.passed, GET);
            assert_text(&talk.up.swallowed, GET);
            assert_eq!(talk.counter.cut(), 0);
        }
    }
}

#[test]
fn a_reply_that_has_begun_stays_as_it_is() {
    let mut talk = Talk::new();
    talk.up(GET);
    talk.down(&OK[..OK.len() - 1]);
    talk.stage(Stage::Announcing);
    talk.down("o");
    assert_text(&talk.down.passed, OK);
    assert_eq!(talk.state(), Idle);
    talk.up(GET);
    talk.down(OK);
    assert_text(&talk.down.passed, &format!("{OK}{CLOSED}"));
    assert_eq!(talk.state(), Finished);
}

#[test]
fn a_head_that_is_held_is_marked() {
    let mut talk = Talk::new();
    talk.up(GET);
    talk.down("HTTP/1.1 204 No Content\r\n");
    talk.stage(Stage::Announcing);
    talk.down("\r\n");
    assert_text(
        &talk.down.passed,
        "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(talk.state(), Finished);
}

#[test]
fn only_the_reply_to_the_last_request_is_marked() {
    for reads in READS {
        let mut talk = Talk::at(Stage::Draining);
        talk.send(Direction::Up, GET.repeat(3), reads);
        talk.send(Direction::Down, OK.repeat(3), reads);
        assert_text(&talk.down.passed, &format!("{OK}{OK}{CLOSED}"));
        assert_eq!(talk.state(), Finished);
    }
}

#[test]
fn a_request_that_has_begun_is_not_lost() {
    let mut talk = Talk::at(Stage::Draining);
    talk.up(format!("{GET}G"));
    talk.down(OK);
    assert_text(&talk.down.passed, OK);
    assert_eq!(talk.state(), Head);
    talk.up(&GET[1..]);
    talk.down(OK);
    assert_text(&talk.down.passed, &format!("{OK}{CLOSED}"));
    assert_eq!(talk.state(), Finished);
}

#[test]
fn a_request_that_waits_for_a_reply_is_not_lost() {
    let upgrade = "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    let mut talk = Talk::at(Stage::Draining);
    talk.up(format!("{upgrade}{GET}"));
    talk.down(OK);
    assert_text(&talk.up.passed, &format!("{upgrade}{GET}"));
    talk.down(OK);
    assert_text(&talk.down.passed, &format!("{OK}{CLOSED}"));
}

#[test]
fn close_of_the_workload_stays_as_it_is() {
    let mut talk = Talk::at(Stage::Draining);
    talk.up(GET);
    let reply = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na";
    talk.down(reply);
    assert_text(&talk.down.passed, reply);
    assert_eq!(talk.state(), Finished);
}

#[test]
fn what_is_no_final_reply_is_not_marked() {
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n";
    let mut talk = Talk::at(Stage::Draining);
    talk.up(GET);
    talk.down(format!("{early}{OK}"));
    assert_text(&talk.down.passed, &format!("{early}{CLOSED}"));

    for (request, reply) in [
        ("CONNECT a:1 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"),
        (
            "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        ),
    ] {
        let mut talk = Talk::at(Stage::Draining);
        talk.up(request);
        talk.down(reply);
        assert_text(&talk.down.passed, reply);
        assert_eq!(talk.counts(), TUNNEL);
        talk.stage(Stage::EndingUpgrades);
        assert_eq!(talk.state(), Finished);
    }
}

#[test]
fn an_upgrade_after_their_end_learns_of_it() {
    let mut talk = Talk::at(Stage::EndingUpgrades);
    talk.up("CONNECT a:1 HTTP/1.1\r\n\r\n");
    talk.down("HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(talk.state(), Finished);
}

#[test]
fn a_reply_to_nothing_is_not_marked() {
    let mut talk = Talk::at(Stage::Draining);
    talk.down(OK);
    assert_text(&talk.down.passed, OK);
    assert_eq!(talk.state(), Idle);
}

#[test]
fn a_marked_early_reply_waits_for_the_body() {
    let mut talk = Talk::at(Stage::Draining);
    talk.up("POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab");
    talk.down(OK);
    assert_text(&talk.down.passed, CLOSED);
    assert_eq!(talk.state(), Busy);
    talk.up(format!("cd{GET}"));
    assert!(talk.up.passed.ends_with(b"abcd"));
    assert_text(&talk.up.swallowed, GET);
    assert_eq!(talk.state(), Finished);
    assert_eq!(talk.counter.cut(), 0);

    let mut talk = Talk::at(Stage::Draining);
    talk.up("POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab");
    talk.down(OK);
    talk.end(Direction::Up);
    assert_eq!(talk.state(), Finished);
    assert_eq!(talk.counts(), requests(0));
}

#[test]
fn a_body_that_was_not_asked_for_is_not_waited_for() {
    let expect = "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    let mut talk = Talk::at(Stage::Draining);
    talk.up(expect);
    talk.down(OK);
    assert_text(&talk.down.passed, CLOSED);
    assert_eq!(talk.state(), Finished);

    for (before, after) in [("HTTP/1.1 100 Continue\r\n\r\n", ""), ("", "a")] {
        let mut talk = Talk::at(Stage::Draining);
        talk.up(format!("{expect}{after}"));
        talk.down(format!("{before}{OK}"));
        assert_eq!(talk.state(), Busy);
    }
}

// ===== closed =====

fn refusal() -> String {
    String::from_utf8(answer::refusal(answer::GOING_AWAY, false).to_vec()).unwrap()
}

#[test]
fn a_refusal_is_a_whole_reply() {
    let text = refusal();
    assert!(text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\nconnection: close"));
    assert!(head.contains("\r\ncontent-type: text/plain"));
    assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())));
    assert!(body.starts_with("tidegate: ") && body.contains("going away"));
}

#[test]
fn nothing_is_admitted_once_closed() {
    for reads in READS {
        let mut talk = Talk::at(Stage::Closed);
        talk.counter.close();
        talk.send(
            Direction::Up,
            "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab",
            reads,
        );
        assert_text(&talk.up.passed, "");
        assert_text(&talk.down.passed, &refusal());
        assert_eq!(talk.state(), Finished);
        assert_eq!(talk.counts(), requests(0));
    }
}

#[test]
fn what_was_admitted_is_served_before_the_refusal() {
    let mut talk = Talk::at(Stage::Draining);
    talk.up(GET);
    talk.stage(Stage::Closed);
    talk.counter.close();
    talk.up(GET);
    assert_text(&talk.up.passed, GET);
    assert_eq!(talk.state(), Busy);
    talk.down(&OK[..OK.len() - 1]);
    assert_eq!(talk.state(), Busy);
    talk.down("o");
    assert_text(&talk.down.passed, &format!("{OK}{}", refusal()));
    assert_eq!(talk.state(), Finished);
}

#[test]
fn a_request_that_had_begun_is_served_once_closed() {
    let mut talk = Talk::at(Stage::Draining);
    talk.up("G");
    talk.stage(Stage::Closed);
    talk.counter.close();
    talk.up(&GET[1..]);
    talk.down(OK);
    assert_text(&talk.down.passed, CLOSED);
}

#[test]
fn no_refusal_follows_a_close_of_the_workload() {
    let mut talk = Talk::at(Stage::Closed);
    talk.up(GET);
    talk.counter.close();
    talk.up(GET);
    let reply = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    talk.down(reply);
    assert_text(&talk.down.passed, reply);
    assert_eq!(talk.state(), Finished);
}

#[test]
fn a_refusal_of_head_has_no_body() {
    let mut talk = Talk::at(Stage::Closed);
    talk.counter.close();
    talk.up("HEAD / HTTP/1.1\r\n\r\n");
    assert!(talk.down.passed.ends_with(b"\r\n\r\n"));
    assert!(refusal().starts_with(&*String::from_utf8_lossy(&talk.down.passed)));
}

#[test]
fn a_connection_that_is_upgraded_once_closed_still_counts() {
    let mut talk = Talk::new();
    talk.up("CONNECT a:1 HTTP/1.1\r\n\r\n");
    talk.counter.close();
    talk.down("HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(talk.counts(), TUNNEL);

    let mut talk = Talk::new();
    talk.up("GET / HTTP/1.1\r\n");
    talk.counter.close();
    talk.up("bad\r\n\r\n");
    assert_eq!(talk.counts(), TUNNEL);
}
