//! HTTP/1 requests, against hyper's server.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tidegate::gate::engine::Direction::{Down, Up};
use tidegate::gate::h1::scan::{Body, HeadEnd, request_head};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::wire::{Reads, Wire, both_ways};
use super::{LIMIT, block_on, cuts};

/// What hyper makes of a client's bytes.
#[derive(Debug)]
struct Seen {
    /// The lengths of the bodies of whole requests.
    requests: Vec<u64>,
    /// It had nothing to complain of.
    accepted: bool,
    /// Its replies, interim ones among them; each is a head.
    replies: Vec<Vec<u8>>,
}

/// What the scanner makes of them.
#[derive(Debug)]
struct Scanned {
    requests: Vec<u64>,
    /// How many of them are probes, which count as in flight and not as arrivals.
    probes: u64,
    end: End,
}

/// How far it came.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// To the end.
    Whole,
    /// To a request after which the connection ends, whatever follows.
    Last,
    /// Into a request that is not whole.
    Short,
    Doubt,
}

/// The first two bytes cut the rest, which is a client's.
pub fn check(input: &[u8]) {
    let (dice, input) = cuts(input);
    let seen = block_on(hyper(input));
    let scanned = scan(input);
    for (index, length) in seen.requests.iter().enumerate() {
        match scanned.requests.get(index) {
            Some(same) => assert_eq!(same, length, "request {index}: {seen:?}, {scanned:?}"),
            None => assert_eq!(scanned.end, End::Doubt, "{seen:?}, {scanned:?}"),
        }
    }
    if seen.accepted && scanned.end != End::Doubt {
        assert_eq!(
            scanned.requests.len(),
            seen.requests.len(),
            "{seen:?}, {scanned:?}"
        );
        assert_ne!(scanned.end, End::Short, "{seen:?}, {scanned:?}");
    }
    let mut wire = both_ways(dice, |reads| play(input, &seen.replies, reads));
    let outcome = wire.outcome();
    assert!(wire.up.is_verbatim(input));
    assert!(wire.down.is_verbatim(&seen.replies.concat()));
    if outcome.doubts.is_empty() {
        let answered = seen.requests.len() as u64;
        let arrived = outcome.total + scanned.probes;
        assert!(arrived >= answered, "{outcome:?}, {seen:?}");
        if seen.accepted {
            assert_eq!(outcome.active, [0; 3], "{seen:?}");
            // What comes behind a request that ends the connection is never answered.
            if scanned.end != End::Last {
                assert_eq!(
                    (arrived, outcome.cut),
                    (answered, 0),
                    "{outcome:?}, {seen:?}"
                );
            }
        }
    } else {
        assert_eq!(outcome.active, [0, 0, 1]);
        assert_eq!((wire.left(Up), wire.left(Down)), (0, 0));
        assert!(matches!(scanned.end, End::Doubt | End::Last), "{outcome:?}");
    }
    wire.drop();
}

fn play(input: &[u8], replies: &[Vec<u8>], reads: &mut Reads) -> Wire {
    let mut wire = Wire::h1();
    wire.feed(Up, input, reads);
    for reply in replies {
        wire.feed(Down, reply, reads);
        // What waited for that reply.
        wire.feed(Up, b"", reads);
    }
    wire
}

fn scan(mut input: &[u8]) -> Scanned {
    let mut requests = Vec::new();
    let mut probes = 0;
    loop {
        while let Some(rest) = input.strip_prefix(b"\r\n") {
            input = rest;
        }
        let done = move |requests, end| Scanned {
            requests,
            probes,
            end,
        };
        // A carriage return may be half of a blank line.
        if matches!(input, b"" | b"\r") {
            return done(requests, End::Whole);
        }
        let head = match HeadEnd::default().find(input) {
            Ok(Some(end)) => {
                let head = request_head(&input[..end]);
                input = &input[end..];
                head
            }
            Ok(None) => return done(requests, End::Short),
            Err(_) => return done(requests, End::Doubt),
        };
        let Ok(head) = head else {
            return done(requests, End::Doubt);
        };
        let mut length = 0;
        if let Some(mut body) = Body::new(head.framing) {
            loop {
                let opaque = usize::try_from(body.opaque()).unwrap_or(usize::MAX);
                let bytes = opaque.min(input.len());
                if bytes > 0 {
                    length += bytes as u64;
                    input = &input[bytes..];
                    if body.moved(bytes as u64) {
                        break;
                    }
                    continue;
                }
                if input.is_empty() {
                    return done(requests, End::Short);
                }
                match body.scan(&input[..1]) {
                    Ok(scanned) => {
                        input = &input[1..];
                        if scanned.whole {
                            break;
                        }
                    }
                    Err(_) => return done(requests, End::Doubt),
                }
            }
        }
        requests.push(length);
        probes += u64::from(head.probe);
        if !head.persistent {
            return done(requests, End::Last);
        }
    }
}

async fn hyper(input: &[u8]) -> Seen {
    // The lengths of whole bodies, and how many others there were.
    let bodies = Arc::new(Mutex::new((Vec::new(), 0)));
    let (mut client, server) = tokio::io::duplex(256 * 1024);
    let service = {
        let bodies = bodies.clone();
        service_fn(move |request: Request<Incoming>| {
            let bodies = bodies.clone();
            async move {
                let mut reply = Response::new(Empty::<Bytes>::new());
                if request.method() == Method::CONNECT {
                    *reply.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
                }
                let body = request.into_body().collect().await;
                let mut bodies = bodies.lock().expect("nobody panicked");
                match body {
                    Ok(body) => bodies.0.push(body.to_bytes().len() as u64),
                    Err(_) => bodies.1 += 1,
                }
                Ok::<_, Infallible>(reply)
            }
        })
    };
    client.write_all(input).await.expect("there is room");
    client.shutdown().await.expect("it is open");
    let server = http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(server), service);
    let mut replies = Vec::new();
    let (served, _) = tokio::join!(
        timeout(LIMIT, server),
        timeout(LIMIT, client.read_to_end(&mut replies)),
    );
    let mut rest = replies.as_slice();
    let mut replies = Vec::new();
    while let Ok(Some(end)) = HeadEnd::default().find(rest) {
        replies.push(rest[..end].to_vec());
        rest = &rest[end..];
    }
    assert!(rest.is_empty(), "its replies have no body");
    let (requests, short) = bodies.lock().expect("nobody panicked").clone();
    Seen {
        requests,
        accepted: matches!(served, Ok(Ok(()))) && short == 0,
        replies,
    }
}
