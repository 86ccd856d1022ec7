//! Bodies longer than any buffer.

use super::{GET, HEAD_END, LAST_CHUNK, OK, case};
use crate::http1::Case;
use crate::script::Step::{Read, Send, Until};
use crate::script::send;

/// Long enough to be spliced.
const LONG_BODY: usize = 8 * 1024 * 1024;

pub(super) fn long() -> Vec<Case> {
    let body = pattern(LONG_BODY);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LONG_BODY}\r\n\r\n");
    let upload = format!("POST /a HTTP/1.1\r\nhost: app\r\ncontent-length: {LONG_BODY}\r\n\r\n");
    let mut chunks = Vec::new();
    let mut rest = body.as_slice();
    let mut size = 1;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.len().min(size));
        chunks.extend(format!("{:X}\r\n", chunk.len()).bytes());
        chunks.extend(chunk);
        chunks.extend(b"\r\n");
        rest = after;
        // From one byte to more than any buffer.
        size = size % 1_000_003 * 3 + 1;
    }
    chunks.extend(LAST_CHUNK.bytes());
    let in_chunks = "POST /a HTTP/1.1\r\nhost: app\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![
        case(
            "a long body, down",
            vec![
                send(GET),
                Until(HEAD_END),
                Read(LONG_BODY),
                send(GET),
                Until("hello"),
            ],
            vec![
                Until(HEAD_END),
                send(head),
                Send(body.clone()),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        case(
            "a long body, up",
            vec![
                send(upload),
                Send(body.clone()),
                Until("hello"),
                send(GET),
                Until("hello"),
            ],
            vec![
                Until(HEAD_END),
                Read(LONG_BODY),
                send(OK),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        case(
            "many chunks, up",
            vec![
                send(in_chunks),
                Send(chunks.clone()),
                Until("hello"),
                send(GET),
                Until("hello"),
            ],
            vec![
                Until(HEAD_END),
                Read(chunks.len()),
                send(OK),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        case(
            "many chunks, down",
            vec![
                send(GET),
                Until(HEAD_END),
                Read(chunks.len()),
                send(GET),
                Until("hello"),
            ],
            vec![
                Until(HEAD_END),
                send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
                Send(chunks),
                Until(HEAD_END),
                send(OK),
            ],
        ),
    ]
}

/// Bytes that neither a shift nor a repetition leaves the same.
fn pattern(length: usize) -> Vec<u8> {
    let mut state: u32 = 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}
