//! Protocols told apart by their first bytes, however they come.

use tokio::io::AsyncWriteExt;

use super::*;
use crate::gate::detect::{Protocol, detect};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[test]
fn a_first_byte_or_a_few_say_it() {
    for (bytes, protocol) in [
        (&b"GET / HTTP/1.1\r\n"[..], Some(Protocol::Http1)),
        (b"M-SEARCH * HTTP/1.1\r\n", Some(Protocol::Http1)),
        (b"PRI * HTTP/1.1\r\n", Some(Protocol::Http1)),
        (b"PRIX / HTTP/1.1\r\n", Some(Protocol::Http1)),
        (b"PATCH", None),
        (b"P", None),
        (b"", None),
        (b"\x16\x03\x01\x02\x00", Some(Protocol::Other)),
        (b"\r\nGET / HTTP/1.1\r\n", Some(Protocol::Other)),
        (b" GET", Some(Protocol::Other)),
        (b"EHLO\r\n", Some(Protocol::Other)),
        (&[b'A'; 31], None),
        (&[b'A'; 32], Some(Protocol::Other)),
    ] {
        assert_eq!(detect(bytes), protocol, "{}", bytes.escape_ascii());
    }
    for length in 0..PREFACE.len() {
        assert_eq!(detect(&PREFACE[..length]), None, "{length}");
    }
    assert_eq!(detect(PREFACE), Some(Protocol::Http2));
    assert_eq!(
        detect(&[PREFACE, b"\0\0\0\x04"].concat()),
        Some(Protocol::Http2)
    );
}

#[tokio::test]
async fn a_silent_client_is_idle_and_the_workload_not_troubled() {
    let (listener, upstream) = workload().await;
    let shared = quiet();
    let (pump, client) = connection(&shared, upstream, Mode::Http).await;
    let task = tokio::spawn(pump);
    let accepted = timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "nobody has said anything");
    assert_eq!(shared.counter.in_flight(), 0);
    drop(client);
    within(task).await.expect("no panic");
    assert_eq!(shared.counter.total(), 0);
}

#[tokio::test]
async fn bytes_that_do_not_say_yet_are_in_flight_and_none_is_lost() {
    let shared = quiet();
    let (pump, mut client) = connection(&shared, echo().await, Mode::Http).await;
    tokio::spawn(pump);
    // Not HTTP in the end.
    for byte in b"PRI" {
        client.write_all(&[*byte]).await.expect("sent");
        until(|| shared.counter.in_flight() == 1).await;
        assert!(!shared.counter.close_if_idle(), "a request may have begun");
    }
    assert_eq!(shared.counter.total(), 0);
    client.write_all(b"\nrest").await.expect("sent");
    let mut back = [0; 8];
    within(client.read_exact(&mut back)).await.expect("echoed");
    assert_eq!(&back, b"PRI\nrest");
    assert_eq!((tunnels(&shared.counter), shared.counter.total()), (1, 1));
}

#[tokio::test]
async fn a_client_that_stops_before_it_has_said_what_it_speaks_is_passed_on() {
    let shared = quiet();
    let (pump, mut client) = connection(&shared, echo().await, Mode::Http).await;
    let task = tokio::spawn(pump);
    client.write_all(b"PO").await.expect("sent");
    client.shutdown().await.expect("closed");
    assert_eq!(rest(&mut client).await, b"PO");
    within(task).await.expect("no panic");
    assert_eq!((shared.counter.in_flight(), shared.counter.cut()), (0, 0));
}

#[tokio::test]
async fn a_client_that_never_says_what_it_speaks_is_closed() {
    let limits = Limits {
        head: Duration::from_millis(50),
        ..Limits::default()
    };
    let shared = shared(limits, Duration::ZERO);
    let (pump, mut client) = connection(&shared, echo().await, Mode::Http).await;
    let task = tokio::spawn(pump);
    client.write_all(b"PO").await.expect("sent");
    assert_eq!(rest(&mut client).await, b"");
    drop(client);
    within(task).await.expect("no panic");
    assert_eq!(shared.counter.in_flight(), 0);
}
