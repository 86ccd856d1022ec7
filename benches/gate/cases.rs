//! What passes the gate all day, and an engine that it passes: as the pump does it, without sockets.

use std::sync::Arc;

use tidegate::gate::counter::{Counter, Kind};
use tidegate::gate::engine::{Direction, Engine, Step};
use tidegate::gate::{Links, h1, h2, websocket};

/// A connection without sockets.
pub(crate) struct Talk {
    engine: Box<dyn Engine>,
}

impl Talk {
    /// HTTP/1, once it has been used.
    pub(crate) fn h1() -> Talk {
        let counter = Counter::default();
        let links = Arc::new(Links(counter.clone()));
        let engine = Box::new(h1::Engine::new(counter, links));
        let mut talk = Talk { engine };
        talk.exchange(&request(), &reply());
        talk
    }

    /// HTTP/2, once it has been used.
    pub(crate) fn h2() -> Talk {
        let counter = Counter::default();
        let engine = Box::new(h2::Engine::new(counter));
        let mut talk = Talk { engine };
        let settings = frame(0x4, 0, 0, b"");
        let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat();
        talk.exchange(&preface, &settings);
        talk.exchange(&call(1), &result(1));
        talk
    }

    /// A WebSocket that is open.
    pub(crate) fn websocket() -> Talk {
        let counter = Counter::default();
        let guard = counter.admit(Kind::Tunnel).expect("it is open");
        let engine = Box::new(websocket::Engine::new(guard));
        Talk { engine }
    }

    /// What a client sends, and what it is answered; each is read at once.
    pub(crate) fn exchange(&mut self, up: &[u8], down: &[u8]) {
        self.pass(Direction::Up, up);
        self.pass(Direction::Down, down);
    }

    /// Judges bytes until all have passed.
    pub(crate) fn pass(&mut self, direction: Direction, bytes: &[u8]) {
        assert!(self.engine.opaque(direction) < 1 << 19);
        let mut at = 0;
        while at < bytes.len() {
            match self.engine.step(direction, &bytes[at..]) {
                Step::Pass(passed) => at += passed,
                step => panic!("{step:?}"),
            }
            assert!(self.engine.inject(direction).is_none());
            assert!(self.engine.inject(direction.other()).is_none());
            std::hint::black_box(self.engine.state());
        }
    }
}

/// A request as Envoy sends it to queue-proxy: fifteen fields.
pub(crate) fn request() -> Vec<u8> {
    b"GET /v1/models/recommender:predict?user=4711 HTTP/1.1\r\n\
      host: recommender.shop.svc.cluster.local\r\n\
      user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\n\
      accept: application/json, text/plain, */*\r\n\
      accept-encoding: gzip, deflate, br\r\n\
      accept-language: en-GB,en;q=0.9\r\n\
      x-forwarded-for: 10.42.1.17\r\n\
      x-forwarded-proto: http\r\n\
      x-request-id: 2f4c8b1e-7f1d-4b59-9a86-0d3f5be0c1aa\r\n\
      x-envoy-attempt-count: 1\r\n\
      x-forwarded-client-cert: By=spiffe://cluster.local/ns/shop/sa/default;Hash=8f434346648f6b96df89dda901c5176b\r\n\
      k-proxy-request: activator\r\n\
      traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
      x-b3-traceid: 4bf92f3577b34da6a3ce929d0e0e4736\r\n\
      x-b3-spanid: 00f067aa0ba902b7\r\n\
      x-b3-sampled: 1\r\n\
      \r\n"
        .to_vec()
}

/// Its reply of 100 bytes.
pub(crate) fn reply() -> Vec<u8> {
    let mut reply = b"HTTP/1.1 200 OK\r\n\
      content-type: application/json\r\n\
      content-length: 100\r\n\
      date: Mon, 30 Nov 2026 23:07:00 GMT\r\n\
      server: uvicorn\r\n\
      x-model-version: 17\r\n\
      \r\n"
        .to_vec();
    reply.extend([b'r'; 100]);
    reply
}

/// An upload of 64 chunks of 1 KiB.
pub(crate) fn upload() -> Vec<u8> {
    let mut upload =
        b"PUT /blob HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..64 {
        upload.extend(b"400\r\n");
        upload.extend([b'c'; 1024]);
        upload.extend(b"\r\n");
    }
    upload.extend(b"0\r\n\r\n");
    upload
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A unary call of gRPC; what is in a header block is nobody's business.
pub(crate) fn call(stream: u32) -> Vec<u8> {
    let head = frame(0x1, 0x4, stream, &[0x80; 60]);
    let message = frame(0x0, 0x1, stream, &[0; 105]);
    [head, message].concat()
}

/// Its result, with trailers, and the window that the server gives back.
pub(crate) fn result(stream: u32) -> Vec<u8> {
    let window = frame(0x8, 0, 0, &[0, 0, 0, 105]);
    let head = frame(0x1, 0x4, stream, &[0x80; 30]);
    let message = frame(0x0, 0, stream, &[0; 105]);
    let trailers = frame(0x1, 0x5, stream, &[0x80; 12]);
    [window, head, message, trailers].concat()
}

/// Messages of a WebSocket's server, 100 bytes each.
pub(crate) fn messages() -> Vec<u8> {
    let message = [&[0x82, 100][..], &[b'w'; 100]].concat();
    message.repeat(64)
}
