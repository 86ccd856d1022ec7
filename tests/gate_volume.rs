//! Much through every engine, both ways at once, copied and spliced, with a drain in the middle: what
//! arrives is what was sent, by its SHA-256, and nothing was cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{Context, Digest, SHA256};
use tidegate::gate::engine::Stage;
use tidegate::gate::{Bound, GateConfig, Limits, Mode, Route};
use tidegate::metrics::Metrics;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(600);

/// What one block carries: on both sides of what is spliced.
const SIZES: [usize; 5] = [700_000, 1, 16_384, 100_003, 2_000_003];

/// How one direction is framed.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// Not at all.
    Bare,
    Chunks,
    /// HTTP/2's DATA, all of stream 1.
    Frames,
    /// A WebSocket's server.
    Messages,
}

impl Framing {
    fn before(self, bytes: usize) -> Vec<u8> {
        match self {
            Framing::Bare => Vec::new(),
            Framing::Chunks => format!("{bytes:x}\r\n").into_bytes(),
            Framing::Frames => frame(0x0, 0, 1, bytes),
            Framing::Messages => [&[0x82, 127][..], &(bytes as u64).to_be_bytes()].concat(),
        }
    }

    fn after(self) -> &'static [u8] {
        match self {
            Framing::Chunks => b"\r\n",
            _ => b"",
        }
    }

    fn last(self) -> Vec<u8> {
        match self {
            Framing::Bare => Vec::new(),
            Framing::Chunks => b"0\r\n\r\n".to_vec(),
            Framing::Frames => frame(0x0, 1, 1, 0),
            Framing::Messages => vec![0x89, 0],
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, bytes: usize) -> Vec<u8> {
    let mut frame = (bytes as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame
}

/// One protocol: what each side says first, and how it frames the rest.
#[derive(Clone, Debug)]
struct Plan {
    mode: Mode,
    up: (Vec<u8>, Framing),
    down: (Vec<u8>, Framing),
}

fn plans(much: usize) -> Vec<(&'static str, Plan)> {
    let plan = |mode, up: (&[u8], Framing), down: (&[u8], Framing)| Plan {
        mode,
        up: (up.0.to_vec(), up.1),
        down: (down.0.to_vec(), down.1),
    };
    let post = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {much}\r\n\r\n");
    let ok = format!("HTTP/1.1 200 OK\r\ncontent-length: {much}\r\n\r\n");
    let coded = "transfer-encoding: chunked\r\n\r\n";
    let put = format!("PUT / HTTP/1.1\r\nhost: a\r\n{coded}");
    let chunked = format!("HTTP/1.1 200 OK\r\n{coded}");
    let settings = frame(0x4, 0, 0, 0);
    // What is in a header block is nobody's business here.
    let head = [settings.clone(), frame(0x1, 0x4, 1, 1), vec![0x80]].concat();
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &head].concat();
    let upgrade = "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let switching =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let (bare, http) = (Framing::Bare, Mode::Http);
    vec![
        (
            "h1 content-length",
            plan(http, (post.as_bytes(), bare), (ok.as_bytes(), bare)),
        ),
        (
            "h1 chunked",
            plan(
                http,
                (put.as_bytes(), Framing::Chunks),
                (chunked.as_bytes(), Framing::Chunks),
            ),
        ),
        (
            "h2",
            plan(http, (&preface, Framing::Frames), (&head, Framing::Frames)),
        ),
        (
            "websocket",
            plan(
                http,
                (upgrade.as_bytes(), bare),
                (switching.as_bytes(), Framing::Messages),
            ),
        ),
        ("tunnel", plan(Mode::Tcp, (b"hello", bare), (b"hi", bare))),
    ]
}

/// The sizes of the blocks that carry so much.
fn blocks(much: usize) -> impl Iterator<Item = usize> {
    let mut left = much;
    SIZES.iter().cycle().map_while(move |size| {
        let bytes = left.min(*size);
        left -= bytes;
        (bytes > 0).then_some(bytes)
    })
}

/// How many bytes that is with its framing.
fn length(framing: Framing, much: usize) -> usize {
    let blocks = blocks(much);
    let framed = blocks.map(|bytes| framing.before(bytes).len() + bytes + framing.after().len());
    framed.sum::<usize>() + framing.last().len()
}

/// Sends bytes that do not repeat where blocks do.
async fn pour(mut to: impl AsyncWrite + Unpin, framing: Framing, much: usize) -> Digest {
    let pattern: Vec<u8> = (0..4_000_037_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut hash = Context::new(&SHA256);
    let mut from = 0;
    for bytes in blocks(much) {
        let block = &pattern[from..from + bytes];
        from = (from + bytes) % 1_999_993;
        for piece in [&framing.before(bytes)[..], block, framing.after()] {
            hash.update(piece);
            to.write_all(piece).await.expect("sent");
        }
    }
    let last = framing.last();
    hash.update(&last);
    to.write_all(&last).await.expect("sent");
    hash.finish()
}

/// Reads so many bytes; says how far it is. `frames`: what the gate puts in between is left out.
async fn take(
    mut from: impl AsyncRead + Unpin,
    bytes: usize,
    frames: bool,
    at: watch::Sender<usize>,
) -> Digest {
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; 256 * 1024];
    let mut left = bytes;
    while left > 0 {
        let mut most = left.min(buffer.len());
        let mut head = [0; 9];
        if frames {
            from.read_exact(&mut head).await.expect("a frame");
            most = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        }
        // The gate's GOAWAY and PING.
        let own = frames && matches!(head[3], 0x6 | 0x7);
        if frames && !own {
            hash.update(&head);
            left -= head.len();
        }
        while most > 0 {
            let room = most.min(buffer.len());
            let read = from.read(&mut buffer[..room]).await.expect("received");
            assert_ne!(read, 0, "{left} of {bytes} are missing");
            most -= read;
            if !own {
                hash.update(&buffer[..read]);
                left -= read;
            }
            if !frames {
                break;
            }
        }
        at.send_replace(bytes - left);
    }
    hash.finish()
}

/// Which directions carry much; the other one carries little.
const WAYS: [(&str, bool, bool); 3] = [
    ("up", true, false),
    ("down", false, true),
    ("both", true, true),
];

async fn passes(name: &str, plan: Plan, pipes: usize, up: usize, down: usize) {
    let workload = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let config = GateConfig {
        mode: plan.mode,
        routes: vec![Route {
            listen: 0,
            upstream: workload.local_addr().expect("an address"),
        }],
        tls: None,
        limits: Limits {
            pipes,
            ..Limits::default()
        },
        announce: Duration::ZERO,
    };
    let bound = Bound::bind(&config).expect("bound");
    let addr = SocketAddr::from(([127, 0, 0, 1], bound.addrs()[0].port()));
    let gate = bound.serve(&Arc::new(Metrics::new())).expect("serves");
    let mut client = TcpStream::connect(addr).await.expect("connected");
    client.write_all(&plan.up.0).await.expect("sent");
    let (mut server, _) = workload.accept().await.expect("connected");
    let mut head = vec![0; plan.up.0.len()];
    server.read_exact(&mut head).await.expect("came");
    assert_eq!(head, plan.up.0);
    server.write_all(&plan.down.0).await.expect("sent");
    let mut head = vec![0; plan.down.0.len()];
    client.read_exact(&mut head).await.expect("came");
    assert_eq!(head, plan.down.0);

    let (at_up, seen_up) = watch::channel(0);
    let (at_down, seen_down) = watch::channel(0);
    let (mut seen, larger) = if up > down {
        (seen_up, up)
    } else {
        (seen_down, down)
    };
    let (from_gate, to_gate) = client.split();
    let (from_client, to_client) = server.split();
    let drain = async {
        for (part, stage) in [(2, Stage::Announcing), (4, Stage::Draining)] {
            let mark = larger / 4 * part.min(3);
            seen.wait_for(|at| *at >= mark).await.expect("it goes on");
            gate.stage(stage);
        }
    };
    let frames = matches!(plan.down.1, Framing::Frames);
    let (sent_up, sent_down, got_up, got_down, ()) = tokio::join!(
        pour(to_gate, plan.up.1, up),
        pour(to_client, plan.down.1, down),
        take(from_client, length(plan.up.1, up), false, at_up),
        take(from_gate, length(plan.down.1, down), frames, at_down),
        drain,
    );
    assert_eq!(
        got_up.as_ref(),
        sent_up.as_ref(),
        "{name}, {pipes} pipes, up"
    );
    assert_eq!(
        got_down.as_ref(),
        sent_down.as_ref(),
        "{name}, {pipes} pipes, down"
    );
    drop((client, server));
    gate.counter().idle().await;
    assert_eq!(
        (gate.counter().total(), gate.counter().cut()),
        (1, 0),
        "{name}"
    );
    assert_eq!(gate.shutdown(Duration::from_secs(5)).await, 0);
}

/// So many bytes through each engine.
async fn volume(much: usize, ways: &[(&str, bool, bool)]) {
    for (way, up, down) in ways {
        let amount = |carries: bool| if carries { much } else { 0 };
        for pipes in [0, 8] {
            for (name, plan) in plans_of(amount(*up), amount(*down)) {
                let started = tokio::time::Instant::now();
                let passed = passes(name, plan, pipes, amount(*up), amount(*down));
                timeout(LIMIT, passed).await.expect("it ends in time");
                let how = if pipes == 0 { "copied" } else { "spliced" };
                println!("{name}, {way}, {how}: {:?}", started.elapsed());
            }
        }
    }
}

/// With lengths that say how much is to come in either direction.
fn plans_of(up: usize, down: usize) -> Vec<(&'static str, Plan)> {
    let with_down = plans(down).into_iter().map(|(_, plan)| plan.down);
    let with_up = plans(up).into_iter();
    with_up
        .zip(with_down)
        .map(|((name, plan), down)| (name, Plan { down, ..plan }))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_is_what_was_sent() {
    volume(64 << 20, &WAYS[2..]).await;
}

/// `cargo test --profile load --test gate_volume -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn a_gibibyte_arrives_as_it_was_sent() {
    volume(1 << 30, &WAYS).await;
}
