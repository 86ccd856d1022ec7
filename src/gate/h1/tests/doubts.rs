//! What is not believed: a tunnel from there on, untouched, one thing in flight until it closes.

use super::*;

/// Plays requests and replies in both orders of reading; the connection must be a tunnel because of
/// `doubt`, and all must pass.
#[track_caller]
fn doubted(doubt: Doubt, up: &str, down: &str) {
    for reads in READS {
        let mut talk = Talk::new();
        talk.send(Direction::Up, up, reads);
        talk.send(Direction::Down, down, reads);
        assert_eq!(talk.doubt(), Some(doubt), "{up:?} {down:?} {reads:?}");
        assert_eq!(talk.counts(), TUNNEL, "{up:?} {down:?} {reads:?}");
        assert_eq!(talk.state(), State::Busy);
        assert_eq!(talk.engine().opaque(Direction::Up), u64::MAX);
        assert_eq!(talk.up.passed, up.as_bytes());
        assert_eq!(talk.down.passed, down.as_bytes());
        talk.stage(Stage::Closed);
        talk.down("HTTP/1.1 200 OK\r\n\r\n");
        assert!(talk.down.passed.ends_with(b"200 OK\r\n\r\n"));
        talk.end(Direction::Down);
        assert_eq!(talk.counts(), TUNNEL);
        talk.end(Direction::Up);
        assert_eq!(talk.counts(), requests(0));
        assert_eq!(talk.state(), State::Finished);
    }
}

#[test]
fn doubtful_requests() {
    for (doubt, fields) in [
        (
            Doubt::LengthAndEncoding,
            "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        ),
        (
            Doubt::LengthAndEncoding,
            "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        ),
        (Doubt::Length, "content-length: 5\r\ncontent-length: 6\r\n"),
        (Doubt::Length, "content-length: 5, 6\r\n"),
        (Doubt::Length, "content-length: 5,\r\n"),
        (Doubt::Length, "content-length: \r\n"),
        (Doubt::Length, "content-length: +5\r\n"),
        (Doubt::Length, "content-length: -5\r\n"),
        (Doubt::Length, "content-length: 0x5\r\n"),
        (Doubt::Length, "content-length: 5 5\r\n"),
        (Doubt::Length, "content-length: 9223372036854775808\r\n"),
        (Doubt::Length, "content-length: 18446744073709551621\r\n"),
        (Doubt::Encoding, "transfer-encoding: gzip\r\n"),
        (Doubt::Encoding, "transfer-encoding: identity\r\n"),
        (Doubt::Encoding, "transfer-encoding: gzip, chunked\r\n"),
        (
            Doubt::Encoding,
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        ),
        (Doubt::Syntax, "transfer-encoding: \x0bchunked\r\n"),
        (Doubt::Syntax, "a: b\r\n c: d\r\n"),
        (Doubt::Syntax, "a: b\r\n\tc: d\r\n"),
        (Doubt::Syntax, "content-length : 5\r\n"),
        (Doubt::Syntax, "content length: 5\r\n"),
        (Doubt::Syntax, ": 5\r\n"),
        (Doubt::Syntax, "none\r\n"),
        (Doubt::Syntax, "a: b\0c\r\n"),
        (Doubt::Syntax, "a\0: b\r\n"),
        (Doubt::Syntax, "a: b\rc: d\r\n"),
        (Doubt::BareLf, "a: b\nc: d\r\n"),
        (Doubt::BareLf, "a: b\r\n\n"),
    ] {
        doubted(
            doubt,
            &format!("POST / HTTP/1.1\r\n{fields}\r\nhello"),
            "HTTP/1.1 400 Bad Request\r\n\r\n",
        );
    }
    for (doubt, head) in [
        (
            Doubt::OldEncoding,
            "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (
            Doubt::ConnectBody,
            "CONNECT a:1 HTTP/1.1\r\ncontent-length: 5\r\n\r\n",
        ),
        (
            Doubt::ConnectBody,
            "CONNECT a:1 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (Doubt::BareLf, "GET / HTTP/1.1\n\n"),
        (Doubt::BareLf, "\nGET / HTTP/1.1\r\n\r\n"),
        (Doubt::Syntax, "GET  / HTTP/1.1\r\n\r\n"),
        (Doubt::Syntax, "GET / HTTP/1.2\r\n\r\n"),
        (Doubt::Syntax, "GET / HTTP/2.0\r\n\r\n"),
        (Doubt::Syntax, "GET / http/1.1\r\n\r\n"),
        (Doubt::Syntax, "GET /\r\n\r\n"),
        (Doubt::Syntax, " GET / HTTP/1.1\r\n\r\n"),
        (Doubt::Syntax, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (Doubt::Syntax, "\rGET / HTTP/1.1\r\n\r\n"),
    ] {
        doubted(doubt, head, "");
    }
}

#[test]
fn requests_after_good_ones() {
    doubted(
        Doubt::Length,
        "GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\ncontent-length: a\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",
    );
}

#[test]
fn doubtful_replies() {
    for (doubt, reply) in [
        (
            Doubt::LengthAndEncoding,
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (
            Doubt::Length,
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\n",
        ),
        (
            Doubt::Encoding,
            "HTTP/1.1 200 OK\r\ntransfer-encoding: br\r\n\r\n",
        ),
        (
            Doubt::OldEncoding,
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (Doubt::Syntax, "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n"),
        (Doubt::Syntax, "HTTP/1.1 200 OK\r\na : b\r\n\r\n"),
        (Doubt::Syntax, "HTTP/1.1 099 No\r\n\r\n"),
        (Doubt::Syntax, "HTTP/1.1 2x0 OK\r\n\r\n"),
        (Doubt::Syntax, "\r\nHTTP/1.1 200 OK\r\n\r\n"),
        (Doubt::BareLf, "HTTP/1.1 200 OK\n\n"),
        (Doubt::Syntax, "hello\n"),
        // None of these needs to be whole.
        (Doubt::Syntax, "what?"),
        (Doubt::Syntax, "HTTP/2"),
        (
            Doubt::Switch,
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n",
        ),
        (
            Doubt::Chunk,
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx",
        ),
    ] {
        doubted(doubt, "GET / HTTP/1.1\r\n\r\n", reply);
        doubted(
            doubt,
            "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\na",
            reply,
        );
        doubted(doubt, "", reply);
    }
}

#[test]
fn a_switch_before_the_request_is_whole() {
    doubted(
        Doubt::Switch,
        "POST / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\na",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
    );
}

#[test]
fn replies_without_a_body_are_not_asked_for_its_length() {
    let mut talk = Talk::new();
    talk.up("HEAD / HTTP/1.1\r\n\r\n");
    talk.down("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(talk.doubt(), None);
    assert_eq!(talk.state(), State::Idle);
}

#[test]
fn chunks() {
    for body in [
        "\r\n",
        ";a\r\n",
        " 5\r\n",
        "g\r\n",
        "-5\r\n",
        "0x5\r\n",
        "5 5\r\n",
        "5\n",
        "5\rh",
        "5;a\n",
        "5;a\rh",
        "8000000000000000\r\n",
        "10000000000000000\r\n",
        "00000000000000005\r\n",
        "1\r\na\n",
        "1\r\nab",
        "1\r\na\r\r",
        "0\r\n\n",
        "0\r\n\ra",
        "0\r\na: b\n",
        "0\r\na: b\rc",
        "0\r\na: b\r\n\n",
    ] {
        doubted(
            Doubt::Chunk,
            &format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{body}"),
            "",
        );
    }
}

#[test]
fn heads_of_64_kb_and_one_byte_more() {
    for (length, believed) in [(HOLD_MAX, true), (HOLD_MAX + 1, false)] {
        let start = "GET / HTTP/1.1\r\na: ";
        let head = format!("{start}{}\r\n\r\n", "a".repeat(length - start.len() - 4));
        for reads in READS {
            let mut talk = Talk::new();
            talk.send(Direction::Up, &head, reads);
            assert_eq!(talk.up.passed.len(), length);
            let (doubt, counts) = if believed {
                (None, requests(1))
            } else {
                (Some(Doubt::HeadSize), TUNNEL)
            };
            assert_eq!(talk.doubt(), doubt);
            assert_eq!(talk.counts(), counts);
        }
    }
    let endless = format!("GET /{}", "a".repeat(HOLD_MAX));
    doubted(Doubt::HeadSize, &endless, "");
}

#[test]
fn heads_of_many_fields() {
    for (count, doubt) in [(128, None), (129, Some(Doubt::FieldCount))] {
        let mut talk = Talk::new();
        talk.up(format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(count)
        ));
        assert_eq!(talk.doubt(), doubt);
    }
}

#[test]
fn names_differ() {
    let names: std::collections::HashSet<_> = Doubt::ALL.map(Doubt::name).into();
    assert_eq!(names.len(), Doubt::ALL.len());
}
