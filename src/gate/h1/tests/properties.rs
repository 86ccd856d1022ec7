//! Whatever comes, in whatever pieces: it passes as it is, and the counts are the same.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::gate::h1::scan::*;

/// Pieces of conversations, good and bad.
fn piece() -> impl Strategy<Value = String> {
    let good = select(vec![
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "HEAD / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2;a\r\nab\r\n0\r\nc: d\r\n\r\n",
        "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nconnection: keep-alive\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        "hello",
    ]);
    let parts = select(vec![
        "GET /",
        " HTTP/1.1",
        "HTTP/1.1 200",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        ": ",
        "a",
        " ",
        "0",
        "5",
        ";",
        ",",
        "\0",
        "content-length: ",
        "transfer-encoding: ",
        "chunked",
        "connection: ",
        "upgrade",
    ]);
    prop_oneof![
        6 => good.prop_map(str::to_owned),
        1 => (good_and_cut(), any::<Index>()).prop_map(|(piece, at)| piece[..at.index(piece.len())].to_owned()),
        1 => vec(parts, 1..8).prop_map(|parts| parts.concat()),
    ]
}

fn good_and_cut() -> impl Strategy<Value = String> {
    select(vec![
        "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello".to_owned(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"
            .to_owned(),
    ])
}

fn direction() -> impl Strategy<Value = Direction> {
    select(vec![Direction::Up, Direction::Down])
}

/// Where to cut, and whether the first part is read unseen.
type Cuts = Vec<(Index, bool)>;

fn cuts() -> impl Strategy<Value = Cuts> {
    vec((any::<Index>(), any::<bool>()), 0..4)
}

fn play(lines: &[(Direction, String)], cuts: &[Cuts]) -> Talk {
    let mut talk = Talk::new();
    for (index, (direction, line)) in lines.iter().enumerate() {
        let mut rest = line.as_bytes();
        for (at, unseen) in cuts.get(index).into_iter().flatten() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(at.index(rest.len()));
            let reads = if *unseen { Reads::Unseen } else { Reads::Whole };
            talk.send(*direction, piece, reads);
            rest = after;
        }
        talk.send(*direction, rest, Reads::Whole);
    }
    talk
}

fn sent(lines: &[(Direction, String)], direction: Direction) -> Vec<u8> {
    let of = lines.iter().filter(|line| line.0 == direction);
    of.flat_map(|line| line.1.bytes()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_bytes_pass_as_they_are(
        lines in vec((direction(), piece()), 1..16),
        splits in vec(cuts(), 16),
    ) {
        let mut talk = play(&lines, &splits);
        for direction in [Direction::Up, Direction::Down] {
            let all = sent(&lines, direction);
            let side = talk.side(direction);
            prop_assert!(side.swallowed.is_empty());
            let mut out = side.passed.clone();
            out.extend_from_slice(&side.held);
            prop_assert_eq!(out, all);
        }
        let in_flight = talk.counter.in_flight();
        prop_assert_eq!(talk.counts().iter().sum::<u64>(), in_flight);
        prop_assert!(in_flight == 0 || matches!(talk.state(), State::Busy | State::Head));
        talk.engine().end(Direction::Up, true);
        prop_assert_eq!(talk.counter.in_flight(), 0);
    }

    #[test]
    fn any_split_counts_the_same(
        lines in vec((direction(), piece()), 1..16),
        splits in vec(cuts(), 16),
    ) {
        let whole = play(&lines, &[]);
        let split = play(&lines, &splits);
        prop_assert_eq!(&whole.up.passed, &split.up.passed);
        prop_assert_eq!(&whole.down.passed, &split.down.passed);
        prop_assert_eq!(whole.counts(), split.counts());
        prop_assert_eq!(whole.counter.total(), split.counter.total());
        prop_assert_eq!(whole.counter.cut(), split.counter.cut());
        prop_assert_eq!(whole.doubt(), split.doubt());
        prop_assert_eq!(whole.state(), split.state());
    }

    #[test]
    fn any_bytes_are_scanned_without_a_panic(bytes in vec(any::<u8>(), 0..200), cut in any::<Index>()) {
        let _ = request_head(&bytes);
        let _ = reply_head(&bytes, Method::Other);
        let mut whole = Chunked::default();
        let mut split = Chunked::default();
        let at = cut.index(bytes.len() + 1);
        let expected = whole.scan(&bytes);
        let got = split.scan(&bytes[..at]).and_then(|first| match first.whole {
            true => Ok(first),
            false => split.scan(&bytes[at..]).map(|second| Scanned {
                bytes: at + second.bytes,
                whole: second.whole,
            }),
        });
        prop_assert_eq!(got, expected);
    }
}

// ===== drain =====

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// The client sends so many more of its bytes.
    Client(usize),
    /// The workload sends so many bytes of the replies that it owes.
    Workload(usize),
    Stage(Stage),
    Close,
}

fn event() -> impl Strategy<Value = Event> {
    let stages = [
        Stage::Announcing,
        Stage::Draining,
        Stage::EndingUpgrades,
        Stage::Closed,
    ];
    prop_oneof![
        8 => (1_usize..80).prop_map(Event::Client),
        8 => (1_usize..80).prop_map(Event::Workload),
        1 => select(stages.to_vec()).prop_map(Event::Stage),
        1 => Just(Event::Close),
    ]
}

const REPLY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// The workload: it answers what is whole.
#[derive(Default)]
struct Workload {
    /// Bytes of the client that were looked at.
    seen: usize,
    heads: HeadEnd,
    body: Option<Body>,
    answered: usize,
    owed: Vec<u8>,
}

impl Workload {
    fn look(&mut self, passed: &[u8]) {
        while self.seen < passed.len() {
            let rest = &passed[self.seen..];
            let whole = if let Some(body) = &mut self.body {
                let scanned = body.scan(rest).unwrap();
                self.seen += scanned.bytes;
                scanned.whole
            } else if let Some(end) = self.heads.find(rest).unwrap() {
                self.body = Body::new(request_head(&rest[..end]).unwrap().framing);
                self.seen += end;
                self.body.is_none()
            } else {
                return;
            };
            if whole {
                self.body = None;
                self.answered += 1;
                self.owed.extend_from_slice(REPLY.as_bytes());
            }
        }
    }
}

/// Statuses of whole replies, and whether the last one closes.
fn replies(mut bytes: &[u8]) -> (Vec<bool>, Vec<u8>) {
    let mut closing = Vec::new();
    while let Ok(Some(end)) = HeadEnd::default().find(bytes) {
        let Ok(Reply::Final {
            framing: Framing::Length(length),
            closes,
        }) = reply_head(&bytes[..end], Method::Other)
        else {
            break;
        };
        let Some(rest) = bytes.get(end + length as usize..) else {
            break;
        };
        closing.push(closes);
        bytes = rest;
    }
    (closing, bytes.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// What reached the workload is answered, and the last answer says `close`.
    #[test]
    fn a_drain_loses_no_request(bodies in vec(any::<bool>(), 1..6), events in vec(event(), 1..60)) {
        let requests: String = bodies
            .iter()
            .map(|body| match body {
                true => "POST / HTTP/1.1\r\ncontent-length: 30\r\n\r\n012345678901234567890123456789",
                false => "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            })
            .collect();
        let mut client = requests.as_bytes();
        let mut workload = Workload::default();
        let mut talk = Talk::new();
        let last = [
            Event::Stage(Stage::Announcing),
            Event::Client(usize::MAX),
            Event::Workload(usize::MAX),
            Event::Workload(usize::MAX),
        ];
        for event in events.into_iter().chain(last) {
            match event {
                Event::Client(bytes) => {
                    let (now, later) = client.split_at(bytes.min(client.len()));
                    client = later;
                    talk.up(now);
                }
                Event::Workload(bytes) => {
                    let now: Vec<u8> = workload.owed.drain(..bytes.min(workload.owed.len())).collect();
                    talk.down(now);
                }
                Event::Stage(stage) => talk.stage(stage),
                Event::Close => talk.counter.close(),
            }
            workload.look(&talk.up.passed);
        }
        let (closing, rest) = replies(&talk.down.passed);
        prop_assert!(rest.is_empty());
        let refused = usize::from(talk.down.passed.ends_with(b"another pod will answer\n"));
        prop_assert_eq!(closing.len(), workload.answered + refused);
        prop_assert_eq!(talk.counter.in_flight(), 0);
        prop_assert_eq!(talk.counter.cut(), 0);
        // One reply may have begun before the drain, and been the last.
        let ended = closing.last() == Some(&true);
        prop_assert_eq!(ended, talk.state() == State::Finished);
        prop_assert!(closing.iter().rev().skip(1).all(|closes| !closes));
        prop_assert_eq!(talk.up.passed.len() + talk.up.swallowed.len(), requests.len());
        prop_assert!(ended || talk.up.swallowed.is_empty());
    }
}
