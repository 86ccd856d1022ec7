//! Against hyper's server: it must see as many requests as are counted here, and bodies as long.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::gate::h1::scan::*;

/// A request, and the length of its body.
fn request() -> impl Strategy<Value = (String, u64)> {
    let plain = select(vec!["GET", "HEAD", "DELETE"])
        .prop_map(|method| (format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n"), 0));
    let length = (0_usize..300).prop_map(|length| {
        let body = "b".repeat(length);
        let head = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        (head + &body, length as u64)
    });
    let chunk = (1_usize..40, select(vec!["", ";a", " ; a=\"b\"", ";a;b=c"]));
    let trailers = select(vec!["", "a: b\r\n", "a: b\r\nc: d\r\n"]);
    let chunked = (vec(chunk, 0..5), trailers).prop_map(|(chunks, trailers)| {
        let mut text = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        let mut length = 0;
        for (size, extension) in chunks {
            length += size as u64;
            text += &format!("{size:X}{extension}\r\n{}\r\n", "c".repeat(size));
        }
        text += &format!("0\r\n{trailers}\r\n");
        (text, length)
    });
    prop_oneof![plain, length, chunked]
}

/// What the scanner makes of it: the lengths of the bodies.
fn scanned(mut input: &[u8]) -> Vec<u64> {
    let mut lengths = Vec::new();
    while !input.is_empty() {
        let end = HeadEnd::default().find(input).unwrap().unwrap();
        let head = request_head(&input[..end]).unwrap();
        input = &input[end..];
        let mut length = 0;
        if let Some(mut body) = Body::new(head.framing) {
            let mut whole = false;
            while !whole {
                length += u64::from(body.opaque() > 0);
                whole = body.scan(&input[..1]).unwrap().whole;
                input = &input[1..];
            }
        }
        lengths.push(length);
    }
    lengths
}

/// Plays the requests through an engine to hyper and back; gives the bodies' lengths that hyper saw.
async fn serve(input: &str, cut: usize) -> (Vec<u64>, Talk) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut client, server) = tokio::io::duplex(256 * 1024);
    let service = {
        let seen = seen.clone();
        service_fn(move |request: Request<Incoming>| {
            let seen = seen.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let reply = Response::new(Full::new(Bytes::from(vec![b'r'; body.len()])));
                seen.lock().unwrap().push(body.len() as u64);
                Ok::<_, Infallible>(reply)
            }
        })
    };
    let server = http1::Builder::new().serve_connection(TokioIo::new(server), service);
    let server = tokio::spawn(server);
    let mut talk = Talk::new();
    let mut written = 0;
    for piece in [&input[..cut], &input[cut..]] {
        talk.up(piece);
        client.write_all(&talk.up.passed[written..]).await.unwrap();
        written = talk.up.passed.len();
    }
    let mut buffer = vec![0; 777];
    while talk.state() != State::Idle {
        let read = tokio::time::timeout(Duration::from_secs(1), client.read(&mut buffer));
        let count = read.await.expect("hyper owes no more").unwrap();
        assert_ne!(count, 0, "hyper closed");
        talk.down(&buffer[..count]);
    }
    server.abort();
    let seen = seen.lock().unwrap().clone();
    (seen, talk)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn hyper_counts_the_same(requests in vec(request(), 1..12), cut in any::<prop::sample::Index>()) {
        let (texts, lengths): (Vec<String>, Vec<u64>) = requests.into_iter().unzip();
        let input = texts.concat();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (seen, talk) = runtime.block_on(serve(&input, cut.index(input.len())));
        prop_assert_eq!(&seen, &lengths);
        prop_assert_eq!(scanned(input.as_bytes()), seen);
        prop_assert_eq!(talk.counter.total(), lengths.len() as u64);
        prop_assert_eq!(talk.counter.in_flight(), 0);
        prop_assert_eq!(talk.up.passed, input.as_bytes());
    }
}
