//! How connections end: half-closed, cut, or without a workload.

use super::Line::{Down, Ends, Up};
use super::State::{Busy, Finished, Head, Idle};
use super::*;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

#[test]
fn a_client_that_has_sent_all_still_gets_its_replies() {
    converse(&[
        Up(
            "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            requests(2),
            Busy,
        ),
        Ends(Direction::Up, requests(2), Busy),
        Down(OK, requests(1), Busy),
        Down(OK, requests(0), Idle),
        Ends(Direction::Down, requests(0), Finished),
    ]);
}

#[test]
fn a_head_that_ends_short_is_no_request() {
    converse(&[
        Up("GET / HT", requests(1), Head),
        // Not idle: it may be answered.
        Ends(Direction::Up, requests(0), Head),
        Down(
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n",
            requests(0),
            Busy,
        ),
        Ends(Direction::Down, requests(0), Finished),
    ]);
}

/// It would be awaited for ever if it counted as an answer.
#[test]
fn a_head_that_nobody_asked_for_is_to_be_whole_soon() {
    converse(&[
        Down("HTTP/1.1 40", requests(0), Head),
        Down(
            "8 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            requests(0),
            Finished,
        ),
    ]);
}

#[test]
fn a_body_that_ends_short_may_still_be_answered() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab",
            requests(1),
            Busy,
        ),
        Ends(Direction::Up, requests(1), Busy),
        Down(OK, requests(0), Idle),
    ]);
    converse(&[
        Up(
            "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab",
            requests(1),
            Busy,
        ),
        Down(OK, requests(1), Busy),
        Ends(Direction::Up, requests(0), Idle),
    ]);
}

/// The client has its reply; the workload may read the rest of the body all the same.
#[test]
fn a_workload_that_has_answered_early_and_ended_gets_the_rest_of_the_body() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab",
            requests(1),
            Busy,
        ),
        Down(OK, requests(1), Busy),
        Ends(Direction::Down, requests(0), Head),
        Up("cd", requests(0), Head),
        Up("e", requests(0), Finished),
    ]);
    let mut talk = Talk::new();
    talk.up("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab");
    talk.down(OK);
    talk.end(Direction::Down);
    talk.end(Direction::Up);
    assert_eq!((talk.counts(), talk.counter.cut()), (requests(0), 0));
}

#[test]
fn a_workload_that_ends_leaves_nothing_in_flight() {
    for (before, reply, cut) in [
        ("", "", 0),
        ("G", "", 1),
        (GET, "", 1),
        (GET, "HTTP/1.1 200 OK\r\n", 1),
        (GET, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", 1),
        (
            GET,
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r",
            1,
        ),
        (GET, "HTTP/1.1 200 OK\r\n\r\nhello", 0),
        (GET, OK, 0),
    ] {
        let mut talk = Talk::new();
        talk.up(before);
        talk.down(reply);
        talk.end(Direction::Down);
        assert_eq!(talk.state(), Finished);
        assert_eq!(talk.counts(), requests(0));
        assert_eq!(talk.counter.cut(), cut, "{reply:?}");
        assert_eq!(talk.down.passed, reply.as_bytes());
    }
}

#[test]
fn a_connection_that_breaks_is_cut() {
    for direction in [Direction::Up, Direction::Down] {
        for (up, down, cut) in [
            ("", "", 0),
            ("G", "", 1),
            ("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\nG", "", 3),
            (GET, OK, 0),
            (GET, "HTTP/1.1 200 OK\r\n\r\nhello", 1),
            ("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab", OK, 1),
            ("bad\n", "", 1),
        ] {
            let mut talk = Talk::new();
            talk.up(up);
            talk.down(down);
            talk.engine().end(direction, true);
            assert_eq!(talk.state(), Finished);
            assert_eq!(talk.counts(), requests(0));
            assert_eq!(talk.counter.cut(), cut, "{up:?} {down:?}");
        }
    }
}

#[test]
fn what_is_dropped_is_cut() {
    let mut talk = Talk::new();
    talk.up(GET.repeat(2));
    let counter = talk.counter.clone();
    drop(talk);
    assert_eq!((counter.cut(), counter.in_flight()), (2, 0));
}

#[test]
fn pipelined_requests_that_a_close_leaves_behind_are_cut() {
    let mut talk = Talk::new();
    talk.up(GET.repeat(3));
    talk.down("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(talk.state(), Finished);
    assert_eq!((talk.counter.cut(), talk.counter.in_flight()), (2, 0));
}

#[test]
fn a_lost_workload_is_told_once_if_no_reply_has_begun() {
    for (up, down, told) in [
        ("", "", false),
        ("G", "", true),
        (GET, "", true),
        (GET, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200", true),
        ("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", OK, true),
        (GET, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", false),
        (GET, "HTTP/1.1 200 OK\r\n\r\n", false),
        (GET, OK, false),
        ("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\na", OK, false),
        ("bad\n", "", false),
    ] {
        let mut talk = Talk::new();
        talk.up(up);
        talk.down(down);
        let in_flight = talk.counter.in_flight();
        assert_eq!(talk.engine.owes(), told, "{up:?} {down:?}");
        let answer = talk.engine.upstream_lost();
        assert_eq!(answer.is_some(), told, "{up:?} {down:?}");
        if let Some(answer) = answer {
            let text = String::from_utf8_lossy(&answer);
            assert!(text.starts_with("HTTP/1.1 503 "));
            assert!(text.contains("\r\nconnection: close\r\n"));
            assert!(text.contains("\r\n\r\ntidegate: the workload"));
        }
        assert_eq!(talk.state(), Finished);
        assert_eq!(
            (talk.counter.cut(), talk.counter.in_flight()),
            (in_flight, 0)
        );
        assert_eq!(talk.engine.upstream_lost(), None);
        talk.up(GET);
        assert!(talk.up.swallowed.ends_with(GET.as_bytes()));
    }
}

#[test]
fn a_lost_workload_is_told_to_head_without_a_body() {
    let mut talk = Talk::new();
    talk.up("HEAD / HTTP/1.1\r\n\r\n");
    assert!(talk.engine.upstream_lost().unwrap().ends_with(b"\r\n\r\n"));
}

#[test]
fn a_successor_that_nobody_takes_is_cut() {
    let counter = Counter::default();
    let mut engine = Engine::new(counter.clone(), Arc::new(Record::default()));
    let request = b"CONNECT a:1 HTTP/1.1\r\n\r\n";
    let reply = b"HTTP/1.1 200 OK\r\n\r\nabc";
    assert_eq!(
        engine.step(Direction::Up, request),
        Step::Pass(request.len())
    );
    assert_eq!(
        engine.step(Direction::Down, reply),
        Step::Pass(reply.len() - 3)
    );
    assert_eq!(engine.state(), State::Replaced);
    assert_eq!(engine.step(Direction::Down, b"abc"), Step::Wait);
    assert_eq!(counter.active(Kind::Tunnel), 1);
    engine.end(Direction::Up, true);
    assert_eq!(counter.in_flight(), 0);
}
