//! HTTP/1 replies, against hyper's client.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate::gate::engine::Direction::{Down, Up};
use tidegate::gate::h1::scan::{Body, Framing, HeadEnd, Method, Reply, may_be_reply, reply_head};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::wire::{Wire, both_ways};
use super::{LIMIT, block_on, cuts};

/// Requests that are answered.
const REQUESTS: [(&str, &str); 4] = [
    ("GET", "GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("HEAD", "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n"),
    (
        "POST",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx",
    ),
    ("DELETE", "DELETE / HTTP/1.1\r\nhost: a\r\n\r\n"),
];

/// A reply as the scanner sees it.
#[derive(Debug)]
struct Scanned {
    /// Its first byte, interim replies before it included, and the one after its last.
    from: usize,
    to: usize,
    /// The length of its body.
    length: u64,
    framing: Framing,
    closes: bool,
}

/// What the scanner makes of a workload's bytes.
#[derive(Debug)]
struct All {
    replies: Vec<Scanned>,
    doubt: bool,
    /// Where the last reply begins that is not whole.
    short: Option<usize>,
}

/// The first two bytes cut the rest, the third says what was asked, and the rest is a workload's.
pub fn check(input: &[u8]) {
    let (dice, input) = cuts(input);
    let Some((&asked, input)) = input.split_first() else {
        return;
    };
    let count = 1 + usize::from(asked & 3);
    let requests: Vec<_> = (0..count)
        .map(|at| REQUESTS[usize::from(asked >> (2 * at) & 3)])
        .collect();
    let all = scan(input, &requests);
    for (scanned, (method, _)) in all.replies.iter().zip(&requests) {
        let reply = &input[scanned.from..scanned.to];
        let Some(length) = block_on(hyper(method, reply)) else {
            continue;
        };
        assert_eq!(length, scanned.length, "{all:?}");
        if matches!(scanned.framing, Framing::Length(_) | Framing::Chunked) {
            let shorter = &reply[..reply.len() - 1];
            assert_eq!(block_on(hyper(method, shorter)), None, "{all:?}");
        }
    }
    if let (Some(from), Some((method, _))) = (all.short, requests.get(all.replies.len())) {
        assert_eq!(block_on(hyper(method, &input[from..])), None, "{all:?}");
    }

    let sent: String = requests.iter().map(|(_, text)| *text).collect();
    let mut wire = both_ways(dice, |reads| {
        let mut wire = Wire::h1();
        wire.feed(Up, sent.as_bytes(), reads);
        wire.feed(Down, input, reads);
        wire
    });
    let outcome = wire.outcome();
    assert!(wire.up.is_verbatim(sent.as_bytes()) && wire.down.is_verbatim(input));
    let count = requests.len() as u64;
    // Where it is in doubt and owes nothing, the rest is one more.
    let rest = u64::from(!outcome.doubts.is_empty());
    assert!(
        (count..=count + rest).contains(&outcome.total),
        "{outcome:?}"
    );
    let answered = all.replies.len() as u64;
    let closed = all
        .replies
        .iter()
        .any(|reply| reply.closes && reply.framing != Framing::UntilClose);
    let until_close = all
        .replies
        .iter()
        .any(|reply| reply.framing == Framing::UntilClose);
    match (outcome.doubts.is_empty(), closed) {
        (false, _) => {
            assert!(all.doubt || answered == count, "{all:?}");
            assert_eq!(outcome.active, [0, 0, 1]);
            assert_eq!(wire.left(Down), 0);
        }
        (true, true) => {
            assert_eq!(outcome.active, [0; 3], "{all:?}");
            assert_eq!(outcome.cut, count - answered, "{all:?}");
        }
        (true, false) => {
            assert!(!all.doubt, "{all:?}");
            let open = count - answered + u64::from(until_close);
            assert_eq!(outcome.active, [open, 0, 0], "{all:?}");
        }
    }
    wire.drop();
}

fn scan(input: &[u8], requests: &[(&str, &str)]) -> All {
    let mut all = All {
        replies: Vec::new(),
        doubt: false,
        short: None,
    };
    let mut at = 0;
    for (method, _) in requests {
        let method = if *method == "HEAD" {
            Method::Head
        } else {
            Method::Other
        };
        let from = at;
        let (framing, closes) = loop {
            if !may_be_reply(&input[at..]) {
                all.doubt = true;
                return all;
            }
            let end = match HeadEnd::default().find(&input[at..]) {
                Ok(Some(end)) => at + end,
                Ok(None) => {
                    all.short = Some(from);
                    return all;
                }
                Err(_) => {
                    all.doubt = true;
                    return all;
                }
            };
            match reply_head(&input[at..end], method) {
                Ok(Reply::Interim { .. }) => at = end,
                Ok(Reply::Final { framing, closes }) => {
                    at = end;
                    break (framing, closes);
                }
                // Nobody asked for another protocol.
                Ok(Reply::Switching(_) | Reply::Tunnel) | Err(_) => {
                    all.doubt = true;
                    return all;
                }
            }
        };
        let mut length = 0;
        if let Some(mut body) = Body::new(framing) {
            let mut whole = false;
            while !whole {
                if at == input.len() {
                    if framing == Framing::UntilClose {
                        break;
                    }
                    all.short = Some(from);
                    return all;
                }
                length += u64::from(body.opaque() > 0);
                match body.scan(&input[at..at + 1]) {
                    Ok(scanned) => whole = scanned.whole,
                    Err(_) => {
                        all.doubt = true;
                        return all;
                    }
                }
                at += 1;
            }
        }
        all.replies.push(Scanned {
            from,
            to: at,
            length,
            framing,
            closes,
        });
        if closes {
            break;
        }
    }
    all
}

/// The length of the body that hyper sees in a reply behind which the connection ends; `None` if it
/// is not whole, or not accepted.
async fn hyper(method: &str, reply: &[u8]) -> Option<u64> {
    let (client, mut server) = tokio::io::duplex(256 * 1024);
    let exchange = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await.ok()?;
        let asked = async {
            let request = Request::builder()
                .method(method)
                .uri("/")
                .header("host", "a")
                .body(Full::<Bytes>::default())
                .ok()?;
            let reply = sender.send_request(request).await.ok()?;
            let body = reply.into_body().collect().await.ok()?;
            Some(body.to_bytes().len() as u64)
        };
        let answered = async {
            server.write_all(reply).await.ok()?;
            server.shutdown().await.ok()
        };
        // It may not speak before it is asked.
        let answered = async {
            tokio::task::yield_now().await;
            answered.await
        };
        let (seen, _, _) = tokio::join!(asked, connection, answered);
        seen
    };
    timeout(LIMIT, exchange).await.ok().flatten()
}
