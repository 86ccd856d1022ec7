//! How long the gate's parts take on this machine: scanners, counter, and whole connections over
//! loopback. Prints, never judges: `cargo bench --bench gate`.

#[path = "gate/cases.rs"]
mod cases;

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cases::Talk;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate::gate::counter::{Counter, Kind};
use tidegate::gate::engine::Direction;
use tidegate::gate::h1::scan::{HeadEnd, request_head};
use tidegate::gate::{Bound, Gate, GateConfig, Limits, Mode, Route};
use tidegate::metrics::Metrics;

const BODY: usize = 1 << 20;

fn scanners(c: &mut Criterion) {
    let mut group = c.benchmark_group("scanners");
    let request = cases::request();
    group.bench_function("h1 head, 15 fields", |b| {
        b.iter(|| {
            let end = HeadEnd::default().find(black_box(&request));
            assert_eq!(end, Ok(Some(request.len())));
            request_head(&request)
        })
    });
    let reply = cases::reply();
    group.bench_function("h1 exchange", |b| {
        let mut talk = Talk::h1();
        b.iter(|| talk.exchange(black_box(&request), black_box(&reply)))
    });
    let (requests, replies) = (request.repeat(16), reply.repeat(16));
    group.bench_function("h1 exchange, 16 pipelined", |b| {
        let mut talk = Talk::h1();
        b.iter(|| talk.exchange(black_box(&requests), black_box(&replies)))
    });
    let upload = cases::upload();
    group.bench_function("h1 upload, 64 chunks", |b| {
        let mut talk = Talk::h1();
        b.iter(|| talk.exchange(black_box(&upload), black_box(&reply)))
    });
    group.bench_function("h2 unary call", |b| {
        let mut talk = Talk::h2();
        // Each stream once.
        let mut stream = 1;
        b.iter_batched(
            || {
                stream += 2;
                (cases::call(stream), cases::result(stream))
            },
            |(call, result)| talk.exchange(&call, &result),
            criterion::BatchSize::SmallInput,
        )
    });
    let messages = cases::messages();
    group.bench_function("websocket, 64 messages", |b| {
        let mut talk = Talk::websocket();
        b.iter(|| talk.pass(Direction::Down, black_box(&messages)))
    });
    group.finish();
}

fn counter(c: &mut Criterion) {
    let mut group = c.benchmark_group("counter");
    let counter = Counter::default();
    group.bench_function("admit and drop", |b| {
        b.iter(|| counter.admit(Kind::Request))
    });
    let over = Arc::new(AtomicBool::new(false));
    let other = thread::spawn({
        let (counter, over) = (counter.clone(), over.clone());
        move || {
            while !over.load(Ordering::Relaxed) {
                black_box(counter.admit(Kind::Stream));
            }
        }
    });
    group.bench_function("admit and drop, contended", |b| {
        b.iter(|| counter.admit(Kind::Request))
    });
    over.store(true, Ordering::Relaxed);
    other.join().expect("no panic");
    group.finish();
}

// ===== whole connections =====

fn gate(mode: Mode, upstream: SocketAddr, pipes: usize) -> (Gate, TcpStream) {
    let config = GateConfig {
        mode,
        routes: vec![Route {
            listen: 0,
            upstream,
        }],
        tls: None,
        limits: Limits {
            pipes,
            ..Limits::default()
        },
        announce: Duration::ZERO,
    };
    let bound = Bound::bind(&config).expect("a port");
    let port = bound.addrs()[0].port();
    let gate = bound.serve(&Arc::new(Metrics::new())).expect("a thread");
    (gate, connect(([127, 0, 0, 1], port).into()))
}

fn connect(to: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(to).expect("it listens");
    client.set_nodelay(true).expect("a socket");
    client
}

/// A workload that lets `serve` have each connection.
fn workload(serve: fn(TcpStream) -> std::io::Result<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        while let Ok((tcp, _)) = listener.accept() {
            thread::spawn(move || tcp.set_nodelay(true).and_then(|()| serve(tcp)));
        }
    });
    addr
}

fn echo(mut tcp: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tcp.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        tcp.write_all(&buffer[..read])?;
    }
}

fn answer(mut tcp: TcpStream, reply: &[u8]) -> std::io::Result<()> {
    let request = cases::request().len();
    let mut buffer = vec![0; request];
    loop {
        tcp.read_exact(&mut buffer)?;
        tcp.write_all(reply)?;
    }
}

fn small(tcp: TcpStream) -> std::io::Result<()> {
    answer(tcp, &cases::reply())
}

fn large(tcp: TcpStream) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n");
    answer(tcp, &[head.as_bytes(), &vec![b'r'; BODY]].concat())
}

/// Sends `request` and reads `bytes` back.
fn ask(client: &mut TcpStream, request: &[u8], bytes: usize, buffer: &mut [u8]) {
    client.write_all(request).expect("sent");
    let mut left = bytes;
    while left > 0 {
        let read = client.read(buffer).expect("answered");
        assert_ne!(read, 0);
        left -= read;
    }
}

fn relay(c: &mut Criterion) {
    let mut group = c.benchmark_group("relay");
    let mut buffer = vec![0; 256 * 1024];
    let hundred = [b'e'; 100];
    let request = cases::request();
    let reply = cases::reply().len();
    let echo = workload(echo);
    let mut direct = connect(echo);
    group.bench_function("100 B echo, direct", |b| {
        b.iter(|| ask(&mut direct, &hundred, 100, &mut buffer))
    });
    let (_gate, mut client) = gate(Mode::Tcp, echo, 8);
    group.bench_function("100 B echo, tunnel", |b| {
        b.iter(|| ask(&mut client, &hundred, 100, &mut buffer))
    });
    let (_gate, mut client) = gate(Mode::Http, workload(small), 8);
    group.bench_function("100 B reply, http", |b| {
        b.iter(|| ask(&mut client, &request, reply, &mut buffer))
    });
    let large = workload(large);
    let whole = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n").len() + BODY;
    group.throughput(Throughput::Bytes(BODY as u64));
    let mut direct = connect(large);
    group.bench_function("1 MiB body, direct", |b| {
        b.iter(|| ask(&mut direct, &request, whole, &mut buffer))
    });
    for (name, pipes) in [("1 MiB body, copied", 0), ("1 MiB body, spliced", 8)] {
        let (_gate, mut client) = gate(Mode::Http, large, pipes);
        group.bench_function(name, |b| {
            b.iter(|| ask(&mut client, &request, whole, &mut buffer))
        });
    }
    group.finish();
}

criterion_group!(benches, scanners, counter, relay);
criterion_main!(benches);
