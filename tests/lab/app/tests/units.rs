//! The parts that need no network.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::commands::{self, Command};
use crate::grpc::{self, Ask, Messages, Tick};
use crate::plan::{Http, Plan};
use crate::record::{Failure, Outcome, Seen, Totals};
use crate::serve::OnSigterm;
use crate::wire::{Checksum, pattern, pieces};

#[test]
fn the_checksum_is_fnv_1a() {
    let of = |text: &str| {
        let mut checksum = Checksum::new();
        checksum.feed(text.as_bytes());
        checksum.hex()
    };
    // From the algorithm's own test vectors.
    assert_eq!(of(""), "cbf29ce484222325");
    assert_eq!(of("a"), "af63dc4c8601ec8c");
    assert_eq!(of("foobar"), "85944171f73967e8");
}

#[test]
fn pieces_are_the_pattern() {
    for (bytes, size) in [
        (0, 16),
        (1, 16),
        (16, 16),
        (70_001, u64::MAX),
        (5_000, 1_000),
    ] {
        let joined: Vec<u8> = pieces(bytes, size)
            .flat_map(|piece: Bytes| piece.to_vec())
            .collect();
        assert_eq!(joined, pattern(0, bytes as usize));
        let mut checksum = Checksum::new();
        checksum.feed(&joined);
        assert_eq!(checksum, Checksum::of_pattern(bytes));
    }
}

#[test]
fn grpc_messages_come_in_any_pieces() {
    let ticks = [1, 2, 300].map(|number| Tick {
        number,
        at: 1_760_000_000_000,
    });
    let bytes: Vec<u8> = ticks
        .iter()
        .flat_map(|tick| grpc::framed(tick).to_vec())
        .collect();
    for size in [1, 2, 5, 7, bytes.len()] {
        let mut messages = Messages::default();
        let mut read = Vec::new();
        for piece in bytes.chunks(size) {
            messages.feed(piece);
            while let Some(tick) = messages.next::<Tick>().unwrap() {
                read.push(tick);
            }
        }
        assert_eq!(read, ticks);
        assert!(!messages.in_the_middle());
    }
}

#[test]
fn grpc_messages_that_are_none_are_refused() {
    for bytes in [
        &[1, 0, 0, 0, 0][..],
        &[0, 0xff, 0, 0, 0],
        &[0, 0, 0, 0, 1, 0xff],
    ] {
        let mut messages = Messages::default();
        messages.feed(bytes);
        assert!(messages.next::<Ask>().is_err(), "{bytes:?}");
    }
}

#[test]
fn outcomes() {
    let broken = || Err(Failure::Broken("reset".to_owned()));
    let status = |status| Seen {
        status,
        ..Seen::default()
    };
    for (seen, result, outcome) in [
        (status(Some(200)), Ok(()), Outcome::Ok),
        (status(Some(200)), broken(), Outcome::Cut),
        (status(Some(503)), Ok(()), Outcome::Lost),
        (status(Some(503)), broken(), Outcome::Lost),
        (status(None), broken(), Outcome::Lost),
        (
            status(None),
            Err(Failure::Deadline(Duration::ZERO)),
            Outcome::Lost,
        ),
        (
            status(None),
            Err(Failure::Connect("refused".to_owned())),
            Outcome::Refused,
        ),
    ] {
        assert_eq!(seen.outcome(200, &result), outcome, "{seen:?}, {result:?}");
    }
}

#[test]
fn latencies_are_the_nearest_rank() {
    let mut totals = Totals::default();
    totals.latencies(Vec::new());
    assert_eq!((totals.p50_ms, totals.p99_ms, totals.max_ms), (0, 0, 0));
    totals.latencies((1..=200).rev().collect());
    assert_eq!(
        (totals.p50_ms, totals.p99_ms, totals.max_ms),
        (100, 198, 200)
    );
}

#[test]
fn a_plan_is_read_whole() {
    let plan = json!({
        "target": "http://echo.lab", "host": "echo.example",
        "requests": [
            {"name": "a", "after": 1.5, "ask": {"kind": "stream", "seconds": 45}},
            {"name": "b", "target": "http://10.0.0.1:8080/", "http": "2", "deadline": 9, "ask": {"kind": "big"}},
        ],
    });
    let plan = Plan::parse(plan.to_string().as_bytes(), Some("http://unused")).unwrap();
    let [a, b] = &plan.requests[..] else {
        panic!("two requests")
    };
    assert_eq!((a.after, a.http), (Duration::from_millis(1500), Http::Two));
    assert_eq!(a.target.connect, "echo.lab:80");
    assert_eq!(a.target.authority, "echo.example");
    assert_eq!(a.deadline, Duration::from_secs(105));
    assert_eq!((b.http, b.deadline), (Http::Two, Duration::from_secs(9)));
    assert_eq!(b.target.connect, "10.0.0.1:8080");
}

#[test]
fn a_plan_that_makes_no_sense_says_why() {
    let refused = |request| {
        let plan = json!({"target": "http://a", "requests": [request]});
        Plan::parse(plan.to_string().as_bytes(), None)
            .unwrap_err()
            .to_string()
    };
    for (request, why) in [
        (
            json!({"name": "r", "ask": {"kind": "slow"}}),
            "missing field",
        ),
        (
            json!({"name": "r", "ask": {"kind": "slow", "secs": 1}}),
            "unknown field",
        ),
        (
            json!({"name": "r", "later": 1, "ask": {"kind": "big"}}),
            "unknown field",
        ),
        (
            json!({"name": "r", "ask": {"kind": "slow", "seconds": -1}}),
            "between 0 and a day",
        ),
        (
            json!({"name": "r", "ask": {"kind": "big", "rate": 0}}),
            "never ends",
        ),
        (
            json!({"name": "r", "ask": {"kind": "upload", "bytes": 1u64 << 40}}),
            "too many",
        ),
        (
            json!({"name": "r", "ask": {"kind": "grpc", "seconds": 1, "every": 0}}),
            "more than 0",
        ),
        (
            json!({"name": "r", "http": "1.1", "ask": {"kind": "grpc", "seconds": 1}}),
            "gRPC needs",
        ),
        (
            json!({"name": "r", "http": "2", "ask": {"kind": "websocket", "seconds": 1}}),
            "only",
        ),
        (
            json!({"name": "r", "ask": {"kind": "load", "rps": 0, "seconds": 1}}),
            "no load",
        ),
        (
            json!({"name": "r", "target": "https://a", "ask": {"kind": "big"}}),
            "not http://",
        ),
        (
            json!({"name": "r", "ask": {"kind": "get", "path": "x"}}),
            "begin with /",
        ),
    ] {
        let text = refused(request);
        assert!(text.contains(why), "{text:?} does not say {why:?}");
    }
}

#[test]
fn the_command_line() {
    let parse = |line: &str| commands::parse(line.split(' ').map(Into::into));
    let Ok(Command::Serve(config)) = parse("lab-app serve --port 81 --on-sigterm exit") else {
        panic!("serve");
    };
    assert_eq!(
        (config.listen.port(), config.on_sigterm),
        (81, OnSigterm::Exit)
    );
    let Ok(Command::Serve(config)) = parse("lab-app serve") else {
        panic!("serve")
    };
    assert_eq!(
        (config.listen.port(), config.on_sigterm),
        (8080, OnSigterm::Finish)
    );
    let Ok(Command::Client { target, plan }) = parse("lab-app client --plan @f") else {
        panic!("client");
    };
    assert_eq!((target, plan.as_str()), (None, "@f"));
    let Ok(Command::Control { listen }) = parse("lab-app control") else {
        panic!("control")
    };
    assert_eq!(listen.port(), 9999);
    assert!(matches!(parse("lab-app pause"), Ok(Command::Pause)));
    assert!(parse("lab-app serve --on-sigterm maybe").is_err());
    assert!(parse("lab-app").is_err());
}
