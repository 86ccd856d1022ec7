//! Whole conversations while the pod serves: what passes, and what is in flight after each line.

use super::Line::{Down, Ends, Up};
use super::State::{Busy, Finished, Head, Idle};
use super::*;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

#[test]
fn a_request_counts_from_its_first_byte_until_its_reply_is_whole() {
    converse(&[
        Up("G", requests(1), Head),
        Up("ET / HTTP/1.1\r\nhost: a\r\n\r", requests(1), Head),
        Up("\n", requests(1), Busy),
        Down(
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r",
            requests(1),
            Busy,
        ),
        Down("\nhell", requests(1), Busy),
        Down("o", requests(0), Idle),
        Up(GET, requests(1), Busy),
        Down(OK, requests(0), Idle),
    ]);
}

#[test]
fn a_body_with_a_length() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nab",
            requests(1),
            Busy,
        ),
        Up("cd", requests(1), Busy),
        Up("GET", requests(2), Busy),
        Up(" / HTTP/1.1\r\n\r\n", requests(2), Busy),
        Down(OK, requests(1), Busy),
        Down(OK, requests(0), Idle),
    ]);
}

#[test]
fn a_length_of_zero_is_no_body() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\ncontent-length: 0, 0\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            requests(0),
            Idle,
        ),
    ]);
}

#[test]
fn chunks_with_extensions_and_trailers() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n",
            requests(1),
            Busy,
        ),
        Up(
            "5;name=\"a\"\r\nhello\r\n0A \t;x\r\n0123\r\n",
            requests(1),
            Busy,
        ),
        Up("6789\r\n", requests(1), Busy),
        Up("00\r\n", requests(1), Busy),
        Down(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n",
            requests(1),
            Busy,
        ),
        Up("sum: 0\r\n: odd\r\n\r\n", requests(1), Busy),
        Up("G", requests(2), Busy),
        Down("\r\r\n0\r\ntrailer: 1\r\n", requests(2), Busy),
        Down("\r\n", requests(1), Head),
        Up("ET / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(
            "HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            requests(0),
            Idle,
        ),
    ]);
}

#[test]
fn replies_that_have_no_body() {
    converse(&[
        Up("HEAD / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
            requests(0),
            Idle,
        ),
        Up("HEAD / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            requests(0),
            Idle,
        ),
        Up("HEAD / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down("HTTP/1.1 200 OK\r\n\r\n", requests(0), Idle),
        Up(GET, requests(1), Busy),
        Down(
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
            requests(0),
            Idle,
        ),
        Up(GET, requests(1), Busy),
        Down("HTTP/1.1 204 No Content\r\n\r\n", requests(0), Idle),
    ]);
}

#[test]
fn a_reply_that_ends_with_its_connection() {
    converse(&[
        Up(GET, requests(1), Busy),
        Down("HTTP/1.1 200 OK\r\n\r\nhello", requests(1), Busy),
        Down(" and more", requests(1), Busy),
        Ends(Direction::Down, requests(0), Finished),
    ]);
}

#[test]
fn interim_replies_end_nothing() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down("HTTP/1.1 100 Continue\r\n\r\n", requests(1), Busy),
        Up("ab", requests(1), Busy),
        Down(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down(
            "HTTP/1.1 102 Processing\r\ncontent-length: 5\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down(OK, requests(0), Idle),
    ]);
}

#[test]
fn an_early_reply_leaves_the_rest_of_the_body_in_flight() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\ncontent-length: 6\r\n\r\nab",
            requests(1),
            Busy,
        ),
        Down(OK, requests(1), Busy),
        Up("cd", requests(1), Busy),
        Up("ef", requests(0), Idle),
        Up(
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down(OK, requests(1), Busy),
        Up("1\r\na\r\n0\r\n\r", requests(1), Busy),
        Up("\nG", requests(1), Head),
        Up("ET / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(OK, requests(0), Idle),
    ]);
}

#[test]
fn an_early_reply_that_closes_waits_for_no_body() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\ncontent-length: 6\r\n\r\nab",
            requests(1),
            Busy,
        ),
        Down(
            "HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down("no", requests(0), Finished),
    ]);
}

#[test]
fn both_at_once() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab",
            requests(1),
            Busy,
        ),
        Down(
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nAB",
            requests(1),
            Busy,
        ),
        Up("cd", requests(1), Busy),
        Down("CD", requests(0), Idle),
    ]);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    converse(&[
        Up(
            "GET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\ncontent-length: 1\r\n\r\naGET",
            requests(4),
            Busy,
        ),
        Down(OK, requests(3), Busy),
        Down(
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",
            requests(1),
            Head,
        ),
        Up(" / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(OK, requests(0), Idle),
    ]);
}

#[test]
fn one_step_covers_all_the_messages_of_a_read() {
    let mut talk = Talk::new();
    talk.up(format!(
        "POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\na{GET}{GET}"
    ));
    assert_eq!(talk.steps, 1);
    talk.down(format!("{OK}{OK}{OK}"));
    assert_eq!(talk.steps, 2);
    assert_eq!(talk.state(), Idle);
}

#[test]
fn a_client_waits_once_too_many_of_its_requests_are_outstanding() {
    let mut talk = Talk::new();
    let many = crate::gate::h1::OUTSTANDING_MAX;
    talk.up(GET.repeat(many + 2));
    assert_eq!(talk.counts(), requests(many as u64));
    assert_eq!(talk.up.passed.len(), GET.len() * many);
    talk.down(OK);
    assert_eq!(talk.up.passed.len(), GET.len() * (many + 1));
    assert_eq!(talk.counts(), requests(many as u64));
    talk.down(OK.repeat(many));
    assert_eq!(talk.up.passed.len(), GET.len() * (many + 2));
    assert_eq!(talk.counts(), requests(1));
    talk.down(OK);
    assert_eq!(talk.state(), Idle);
}

#[test]
fn lines_too_many_before_a_request_are_no_request() {
    converse(&[
        Up("\r\n", requests(0), Idle),
        Up("\r", requests(0), Idle),
        Up("\n\r\nG", requests(1), Head),
        Up("ET / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(OK, requests(0), Idle),
    ]);
}

#[test]
fn connect_makes_a_tunnel_if_the_reply_is_good() {
    converse(&[
        Up(
            "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down(
            "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno",
            requests(0),
            Idle,
        ),
        Up(
            "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n\x16\x03",
            requests(1),
            Busy,
        ),
        Down(
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nanything",
            TUNNEL,
            Busy,
        ),
        Up("GET / HTTP/1.1\r\n\r\n", TUNNEL, Busy),
        Ends(Direction::Up, TUNNEL, Busy),
        Down("more", TUNNEL, Busy),
        Ends(Direction::Down, requests(0), Finished),
    ]);
}

#[test]
fn an_upgrade_to_what_is_not_known_is_a_tunnel() {
    converse(&[
        Up(
            "GET / HTTP/1.1\r\nconnection: keep-alive, Upgrade\r\nupgrade: spdy\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: spdy\r\n\r\nabc",
            TUNNEL,
            Busy,
        ),
        Up("GET / HTTP/1.1\r\n\r\n", TUNNEL, Busy),
    ]);
}

#[test]
fn an_upgrade_to_what_is_known_is_handed_on() {
    for (protocol, upgrade, counts) in [("websocket", "WebSocket", TUNNEL), ("h2c", "h2c", STREAM)]
    {
        for reads in READS {
            let mut talk = Talk::new();
            let request =
                format!("GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: {upgrade}\r\n\r\n");
            talk.send(Direction::Up, format!("{request}early"), reads);
            assert_eq!(talk.up.passed, request.as_bytes());
            let reply =
                format!("HTTP/1.1 101 Switching Protocols\r\nupgrade: {upgrade}\r\n\r\nlate");
            talk.send(Direction::Down, &reply, reads);
            assert_eq!(*talk.links.next.lock().unwrap(), [protocol]);
            assert_eq!(talk.counts(), counts);
            assert_eq!(talk.down.passed, reply.as_bytes());
            assert_eq!(talk.up.passed, format!("{request}early").as_bytes());
        }
    }
}

#[test]
fn an_upgrade_that_is_refused_changes_nothing() {
    converse(&[
        Up(
            "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nGET",
            requests(1),
            Busy,
        ),
        Down(
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no",
            requests(2),
            Busy,
        ),
        Down("k", requests(1), Head),
        Up(" / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(OK, requests(0), Idle),
    ]);
}

#[test]
fn an_upgrade_with_a_body() {
    converse(&[
        Up(
            "POST / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\ncontent-length: 2\r\n\r\na",
            requests(1),
            Busy,
        ),
        Up("bcd", requests(1), Busy),
        Down(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            TUNNEL,
            Busy,
        ),
    ]);
}

#[test]
fn a_reply_to_nothing_passes() {
    converse(&[
        Up("GET / HT", requests(1), Head),
        Down(
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no",
            requests(1),
            Busy,
        ),
        Down("k", requests(1), Head),
        Down(
            "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno",
            requests(0),
            Finished,
        ),
    ]);
}

#[test]
fn persistence_of_http_1_0() {
    let keep = "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 2\r\n\r\nok";
    converse(&[
        Up(
            "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
            requests(1),
            Busy,
        ),
        Down(keep, requests(0), Idle),
        Up("GET / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(keep, requests(0), Idle),
        Up("GET / HTTP/1.1\r\n\r\n", requests(1), Busy),
        Down(
            "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
            requests(0),
            Finished,
        ),
    ]);
    converse(&[
        Up("GET / HTTP/1.0\r\n\r\n", requests(1), Busy),
        Down(OK, requests(0), Finished),
    ]);
}

#[test]
fn a_client_that_closes_is_done_with_its_reply() {
    converse(&[
        Up(
            "GET / HTTP/1.1\r\nconnection: x, Close\r\n\r\nGET",
            requests(2),
            Busy,
        ),
        Down(OK, requests(0), Finished),
    ]);
}

/// Whatever it is, it is in flight from its first byte; probes are no arrivals, and what nobody can
/// read is one.
#[test]
fn probes_are_in_flight_and_no_arrivals() {
    for (head, arrives) in [
        (GET, 1),
        (
            "GET / HTTP/1.1\r\nhost: a\r\nuser-agent: kube-probe/1.36\r\n\r\n",
            0,
        ),
        (
            "GET / HTTP/1.1\r\nhost: a\r\nK-NETWORK-PROBE: queue\r\n\r\n",
            0,
        ),
        ("GET / HTTP/1.1\r\nuser-agent: kube-probe/1.36\n", 1),
    ] {
        let mut talk = Talk::new();
        talk.up(&head[..1]);
        assert_eq!((talk.counter.in_flight(), talk.counter.total()), (1, 0));
        talk.up(&head[1..]);
        assert_eq!(talk.counter.in_flight(), 1, "{head}");
        assert_eq!(talk.counter.total(), arrives, "{head}");
        if talk.doubt().is_none() {
            talk.down(OK);
            talk.up(GET);
            assert_eq!(talk.counter.total(), arrives + 1, "{head}");
        }
    }
}
