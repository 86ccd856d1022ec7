//! HTTP/2 streams, against the h2 crate on either side.

use h2::{RecvStream, client, server};
use http::{Request, Response};
use tidegate::gate::engine::Direction::{Down, Up};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::wire::{Reads, Wire, both_ways};
use super::{LIMIT, block_on, cuts};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const GOAWAY: u8 = 0x7;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;

/// More than either side sends.
const ROOM: usize = 1 << 20;

/// The first two bytes cut the rest. The third says whose the rest is and what stands before it: the
/// client's, or the workload's in answer to up to four requests.
pub fn check(input: &[u8]) {
    let (dice, input) = cuts(input);
    let Some((&mode, input)) = input.split_first() else {
        return;
    };
    let mut sent = Vec::new();
    if mode & 2 == 0 {
        if mode & 1 == 0 {
            sent.extend_from_slice(PREFACE);
        }
        sent.extend_from_slice(SETTINGS);
    }
    sent.extend_from_slice(input);
    let wire = if mode & 1 == 0 {
        from_client(&sent, |play| both_ways(dice.clone(), play))
    } else {
        let requests = 1 + usize::from(mode >> 2 & 3);
        from_workload(&sent, requests, |play| both_ways(dice.clone(), play))
    };
    wire.drop();
}

/// How a side saw its streams.
#[derive(Debug, Default)]
struct Seen {
    /// Those that it knows of.
    streams: u64,
    /// Those of them of which the other side sent its half whole.
    whole: u64,
    /// Those that the other side has reset.
    reset: u64,
    /// It had nothing to complain of, neither of the connection nor of a stream.
    accepted: bool,
    /// What it sent itself.
    sent: Vec<u8>,
}

type Play<'a> = &'a dyn Fn(&mut Reads) -> Wire;

fn from_client(sent: &[u8], both_ways: impl Fn(Play<'_>) -> Wire) -> Wire {
    let seen = block_on(serve(sent));
    let wire = both_ways(&|reads| {
        let mut wire = Wire::h2();
        wire.feed(Up, sent, reads);
        wire.feed(Down, &seen.sent, reads);
        wire
    });
    let outcome = wire.outcome();
    assert!(wire.up.is_verbatim(sent) && wire.down.is_verbatim(&seen.sent));
    // Neither side need tell of a stream that the other has given up, or will not serve.
    let both = kinds(&seen.sent).chain(kinds(&sent[PREFACE.len().min(sent.len())..]));
    let gives_up = both
        .into_iter()
        .any(|kind| matches!(kind, RST_STREAM | GOAWAY));
    if outcome.doubts.is_empty() {
        assert!(outcome.total >= seen.streams, "{outcome:?}, {seen:?}");
        if seen.accepted && !gives_up {
            // A stream begins with its first frame, before its header block is whole.
            let begun = outcome.total - seen.streams;
            assert!(begun <= u64::from(is_torn(sent)), "{outcome:?}, {seen:?}");
            let open = seen.streams + begun - seen.whole - seen.reset;
            assert_eq!(outcome.active, [0, open, 0], "{outcome:?}, {seen:?}");
        }
    }
    wire
}

fn from_workload(sent: &[u8], requests: usize, both_ways: impl Fn(Play<'_>) -> Wire) -> Wire {
    let (seen, before) = block_on(ask(sent, requests));
    let wire = both_ways(&|reads| {
        let mut wire = Wire::h2();
        wire.feed(Up, &seen.sent[..before], reads);
        wire.feed(Down, sent, reads);
        wire.feed(Up, &seen.sent[before..], reads);
        wire
    });
    let outcome = wire.outcome();
    assert!(wire.up.is_verbatim(&seen.sent) && wire.down.is_verbatim(sent));
    let own = kinds(&seen.sent[PREFACE.len().min(seen.sent.len())..]);
    let gives_up = own
        .into_iter()
        .any(|kind| matches!(kind, RST_STREAM | GOAWAY));
    let goes_away = kinds(sent).any(|kind| kind == GOAWAY);
    if outcome.doubts.is_empty() {
        assert_eq!(outcome.total, seen.streams, "{outcome:?}, {seen:?}");
        if seen.accepted && !gives_up && !goes_away {
            let open = seen.streams - seen.whole - seen.reset;
            assert_eq!(outcome.active, [0, open, 0], "{outcome:?}, {seen:?}");
        }
    }
    wire
}

/// The kinds of the frames in `bytes`.
fn kinds(mut bytes: &[u8]) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let &[l0, l1, l2, kind, ..] = bytes.first_chunk::<9>()?;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        bytes = bytes.get(9 + length..).unwrap_or_default();
        Some(kind)
    })
}

/// Whether what a client sent ends inside a frame or a header block.
fn is_torn(sent: &[u8]) -> bool {
    let mut rest = sent.strip_prefix(PREFACE).unwrap_or(sent);
    let mut open = false;
    while let Some(&[l0, l1, l2, kind, flags, ..]) = rest.first_chunk::<9>() {
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let Some(behind) = rest.get(9 + length..) else {
            return true;
        };
        open = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS == 0;
        rest = behind;
    }
    open || !rest.is_empty()
}

/// How a body ended.
enum Half {
    Whole,
    Reset,
    /// It broke a rule.
    Bad,
}

async fn receive(mut body: RecvStream) -> Half {
    loop {
        match body.data().await {
            Some(Ok(bytes)) => {
                let _ = body.flow_control().release_capacity(bytes.len());
            }
            Some(Err(error)) => return half(&error),
            None => break,
        }
    }
    match body.trailers().await {
        Ok(_) => Half::Whole,
        Err(error) => half(&error),
    }
}

fn half(error: &h2::Error) -> Half {
    if error.is_reset() && error.is_remote() {
        Half::Reset
    } else {
        Half::Bad
    }
}

/// What an h2 server makes of a client's bytes.
async fn serve(sent: &[u8]) -> Seen {
    let (mut client, server) = duplex(ROOM);
    client.write_all(sent).await.expect("there is room");
    let mut seen = Seen::default();
    let mut bad = false;
    let serving = async {
        let mut connection = server::handshake(server).await?;
        let mut bodies = JoinSet::new();
        while let Some(accepted) = connection.accept().await {
            let (request, mut respond) = accepted?;
            seen.streams += 1;
            bodies.spawn(async move {
                let half = receive(request.into_body()).await;
                if let Half::Whole = half {
                    let _ = respond.send_response(Response::new(()), true);
                }
                // Once it is dropped, the stream is reset.
                (half, respond)
            });
        }
        while let Some(half) = bodies.try_join_next() {
            match half.expect("no panic").0 {
                Half::Whole => seen.whole += 1,
                Half::Reset => seen.reset += 1,
                Half::Bad => bad = true,
            }
        }
        Ok::<_, h2::Error>(())
    };
    let (mut read, mut write) = split(client);
    let reading = async {
        let mut all = Vec::new();
        let _ = read.read_to_end(&mut all).await;
        all
    };
    let closing = async {
        // Once all is said.
        tokio::time::sleep(LIMIT / 4).await;
        let _ = write.shutdown().await;
    };
    let (served, all, ()) = tokio::join!(timeout(LIMIT, serving), reading, closing);
    seen.accepted = matches!(served, Ok(Ok(()))) && !bad;
    seen.sent = all;
    seen
}

/// What an h2 client makes of a workload's answers to so many requests; how much it had sent before.
async fn ask(answers: &[u8], requests: usize) -> (Seen, usize) {
    let (client, server) = duplex(ROOM);
    let mut seen = Seen::default();
    let mut bad = false;
    let (mut read, mut write) = split(server);
    let exchange = async {
        let (mut sender, connection) = client::handshake(client).await?;
        let connection = tokio::spawn(connection);
        let mut replies = JoinSet::new();
        for _ in 0..requests {
            let request = Request::builder().uri("http://a/").body(());
            let request = request.expect("a good one");
            let (reply, _) = sender.send_request(request, true)?;
            replies.spawn(async move {
                match reply.await {
                    Ok(reply) => receive(reply.into_body()).await,
                    Err(error) => half(&error),
                }
            });
        }
        tokio::time::sleep(LIMIT / 8).await;
        let mut sent = vec![0; ROOM];
        let before = read.read(&mut sent).await.unwrap_or(0);
        sent.truncate(before);
        let _ = write.write_all(answers).await;
        tokio::time::sleep(LIMIT / 8).await;
        while let Some(half) = replies.try_join_next() {
            match half.expect("no panic") {
                Half::Whole => seen.whole += 1,
                Half::Reset => seen.reset += 1,
                Half::Bad => bad = true,
            }
        }
        let failed = connection.is_finished();
        let _ = write.shutdown().await;
        drop((sender, replies));
        let _ = timeout(LIMIT, read.read_to_end(&mut sent)).await;
        Ok::<_, h2::Error>((sent, before, failed))
    };
    let (sent, before, failed) = exchange.await.expect("it may ask");
    seen.streams = requests as u64;
    seen.accepted = !failed && !bad;
    seen.sent = sent;
    (seen, before)
}
