//! How many instructions the gate's pure parts take: the same on a busy machine as on an idle one.
//! `./test instructions` compares them with `benches/instructions.txt`.

// What the macros make is public, and is not ours to document.
#![allow(missing_docs)]

#[path = "gate/cases.rs"]
mod cases;

use cases::Talk;
use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate::gate::counter::{Counter, Kind};
use tidegate::gate::detect::detect;
use tidegate::gate::engine::Direction;

type Setup = (Talk, Vec<u8>, Vec<u8>);

fn h1() -> Setup {
    (Talk::h1(), cases::request(), cases::reply())
}

fn h1_pipelined() -> Setup {
    let (requests, replies) = (cases::request().repeat(16), cases::reply().repeat(16));
    (Talk::h1(), requests, replies)
}

fn h1_chunked() -> Setup {
    (Talk::h1(), cases::upload(), cases::reply())
}

fn h2() -> Setup {
    (Talk::h2(), cases::call(3), cases::result(3))
}

#[library_benchmark]
#[bench::h1_small(h1())]
#[bench::h1_pipelined_16(h1_pipelined())]
#[bench::h1_chunked_64(h1_chunked())]
#[bench::h2_unary(h2())]
fn exchange((mut talk, up, down): Setup) -> Setup {
    talk.exchange(&up, &down);
    (talk, up, down)
}

#[library_benchmark]
#[bench::messages_64(Talk::websocket(), cases::messages())]
fn websocket(mut talk: Talk, down: Vec<u8>) -> (Talk, Vec<u8>) {
    talk.pass(Direction::Down, &down);
    (talk, down)
}

#[library_benchmark]
#[bench::admit_and_drop(Counter::default())]
fn counter(counter: Counter) -> Counter {
    drop(counter.admit(Kind::Request));
    counter
}

#[library_benchmark]
#[bench::http1(cases::request())]
#[bench::http2(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec())]
fn detection(bytes: Vec<u8>) -> Vec<u8> {
    std::hint::black_box(detect(&bytes));
    bytes
}

library_benchmark_group!(
    name = gate,
    benchmarks = [exchange, websocket, counter, detection]
);
main!(library_benchmark_groups = gate);
