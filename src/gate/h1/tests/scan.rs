//! The scanner alone.

use super::Doubt;
use crate::gate::h1::scan::*;

#[test]
fn a_head_ends_at_its_blank_line() {
    let input = b"GET / HTTP/1.1\r\na: b\r\n\r\nGET";
    let mut end = HeadEnd::default();
    assert_eq!(end.find(input), Ok(Some(24)));
    assert!(!end.begun());
    for length in 1..24 {
        assert_eq!(end.find(&input[..length]), Ok(None), "{length}");
        assert!(end.begun());
    }
    assert_eq!(end.find(input), Ok(Some(24)));
}

#[test]
fn what_requests_say() {
    let plain = RequestHead {
        method: Method::Other,
        framing: Framing::None,
        persistent: true,
        upgrade: false,
        expects: false,
        probe: false,
    };
    for (head, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", plain),
        ("get / HTTP/1.1\r\nhost: ä\r\n\r\n", plain),
        (
            "HEAD / HTTP/1.1\r\n\r\n",
            RequestHead {
                method: Method::Head,
                ..plain
            },
        ),
        ("head / HTTP/1.1\r\n\r\n", plain),
        (
            "GET / HTTP/1.0\r\n\r\n",
            RequestHead {
                persistent: false,
                ..plain
            },
        ),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", plain),
        (
            "GET / HTTP/1.1\r\nUser-Agent: kube-probe/1.36\r\n\r\n",
            RequestHead {
                probe: true,
                ..plain
            },
        ),
        (
            "GET / HTTP/1.1\r\nK-Network-Probe: queue\r\n\r\n",
            RequestHead {
                probe: true,
                ..plain
            },
        ),
        (
            "GET / HTTP/1.1\r\nuser-agent: kube-lifecycle/1.36\r\nx: kube-probe/1\r\n\r\n",
            plain,
        ),
        (
            "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
            RequestHead {
                persistent: false,
                ..plain
            },
        ),
        (
            "PUT / HTTP/1.1\r\ncontent-length: 007\r\nexpect: 100-Continue\r\n\r\n",
            RequestHead {
                framing: Framing::Length(7),
                expects: true,
                ..plain
            },
        ),
        (
            "PUT / HTTP/1.1\r\ncontent-length: 9223372036854775807\r\n\r\n",
            RequestHead {
                framing: Framing::Length(i64::MAX as u64),
                ..plain
            },
        ),
        (
            "PUT / HTTP/1.1\r\nTRANSFER-ENCODING: chunked \r\n\r\n",
            RequestHead {
                framing: Framing::Chunked,
                ..plain
            },
        ),
        (
            "GET / HTTP/1.1\r\nupgrade: h2c\r\nconnection: a,upgrade\r\n\r\n",
            RequestHead {
                upgrade: true,
                ..plain
            },
        ),
        ("GET / HTTP/1.1\r\nupgrade: h2c\r\n\r\n", plain),
        ("GET / HTTP/1.1\r\nconnection: upgrade\r\n\r\n", plain),
    ] {
        assert_eq!(request_head(head.as_bytes()), Ok(expected), "{head:?}");
    }
}

#[test]
fn what_is_no_whole_head_is_refused() {
    for head in ["", "\r\n", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n\r\nG"] {
        assert_eq!(
            request_head(head.as_bytes()),
            Err(Doubt::Syntax),
            "{head:?}"
        );
    }
    for head in ["", "\r\n", "HTTP/1.1 200\r\n", "HTTP/1.1 200 OK\r\n\r\nH"] {
        assert_eq!(
            reply_head(head.as_bytes(), Method::Other),
            Err(Doubt::Syntax),
            "{head:?}"
        );
    }
}

#[test]
fn what_replies_say() {
    let whole = |framing| Reply::Final {
        framing,
        closes: false,
    };
    let last = |framing| Reply::Final {
        framing,
        closes: true,
    };
    for (method, head, expected) in [
        (Method::Other, "200 OK\r\n\r\n", last(Framing::UntilClose)),
        (
            Method::Other,
            "200\r\ncontent-length: 3\r\n\r\n",
            whole(Framing::Length(3)),
        ),
        (
            Method::Other,
            "200 OK\r\ncontent-length: 0\r\n\r\n",
            whole(Framing::None),
        ),
        (
            Method::Other,
            "205 OK\r\ncontent-length: 1\r\n\r\n",
            whole(Framing::Length(1)),
        ),
        (
            Method::Other,
            "500 No\r\nconnection: close\r\ncontent-length: 3\r\n\r\n",
            last(Framing::Length(3)),
        ),
        (
            Method::Other,
            "204 OK\r\ncontent-length: 3\r\n\r\n",
            whole(Framing::None),
        ),
        (
            Method::Other,
            "304 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            whole(Framing::None),
        ),
        (
            Method::Other,
            "599 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            whole(Framing::Chunked),
        ),
        (Method::Head, "200 OK\r\n\r\n", whole(Framing::None)),
        (
            Method::Head,
            "404 OK\r\nconnection: close\r\n\r\n",
            last(Framing::None),
        ),
        (
            Method::Other,
            "100 Continue\r\n\r\n",
            Reply::Interim { proceed: true },
        ),
        (
            Method::Connect,
            "103 Early Hints\r\n\r\n",
            Reply::Interim { proceed: false },
        ),
        (
            Method::Head,
            "199 x\r\n\r\n",
            Reply::Interim { proceed: false },
        ),
        (
            Method::Connect,
            "200 OK\r\ncontent-length: 3\r\n\r\n",
            Reply::Tunnel,
        ),
        (Method::Connect, "299 OK\r\n\r\n", Reply::Tunnel),
        (
            Method::Connect,
            "302 OK\r\ncontent-length: 3\r\n\r\n",
            whole(Framing::Length(3)),
        ),
        (
            Method::Other,
            "101 x\r\nupgrade: WebSocket\r\n\r\n",
            Reply::Switching(Protocol::WebSocket),
        ),
        (
            Method::Other,
            "101 x\r\nupgrade: h2c\r\n\r\n",
            Reply::Switching(Protocol::H2c),
        ),
        (
            Method::Other,
            "101 x\r\nupgrade: h2c, websocket\r\n\r\n",
            Reply::Switching(Protocol::Other),
        ),
        (
            Method::Other,
            "101 x\r\n\r\n",
            Reply::Switching(Protocol::Other),
        ),
    ] {
        let got = reply_head(format!("HTTP/1.1 {head}").as_bytes(), method);
        assert_eq!(got, Ok(expected), "{head:?}");
    }
}

#[test]
fn only_the_data_of_a_chunk_is_opaque() {
    let mut body = Body::new(Framing::Chunked).unwrap();
    assert_eq!(body.opaque(), 0);
    assert_eq!(
        body.scan(b"7fffffffffffffff;a\r\nab"),
        Ok(Scanned {
            bytes: 22,
            whole: false
        })
    );
    assert_eq!(body.opaque(), i64::MAX as u64 - 2);
    assert!(!body.moved(i64::MAX as u64 - 3));
    assert_eq!(body.opaque(), 1);
    assert!(!body.moved(1));
    assert_eq!(body.opaque(), 0);
    assert_eq!(
        body.scan(b"\r\n0\r\n\r\nGET"),
        Ok(Scanned {
            bytes: 7,
            whole: true
        })
    );
}

#[test]
fn a_length_is_opaque_to_its_end() {
    let mut body = Body::new(Framing::Length(5)).unwrap();
    assert_eq!(
        body.scan(b"a"),
        Ok(Scanned {
            bytes: 1,
            whole: false
        })
    );
    assert_eq!(body.opaque(), 4);
    assert!(!body.moved(2));
    assert_eq!(
        body.scan(b"abc"),
        Ok(Scanned {
            bytes: 2,
            whole: true
        })
    );
    assert!(Body::new(Framing::None).is_none());
    assert_eq!(Body::new(Framing::UntilClose).unwrap().opaque(), u64::MAX);
}
