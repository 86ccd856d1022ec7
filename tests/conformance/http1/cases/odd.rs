//! What is wrong or doubtful in HTTP.

use super::{GET, HEAD_END, LAST_CHUNK, OK, case, exchange};
use crate::http1::Case;
use crate::script::Step::{Await, Finish, Read, Tell, ToEnd, Until};
use crate::script::send;

/// More than any gate keeps of a head.
const LONG_HEAD: usize = 80 * 1024;

/// What is wrong or doubtful in HTTP, and passes untouched all the same.
pub(super) fn odd() -> Vec<Case> {
    let with = |header: &str| {
        format!("POST /a HTTP/1.1\r\nhost: app\r\n{header}\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    };
    let both = with("content-length: 3\r\ntransfer-encoding: chunked");
    let lengths = with("content-length: 3\r\ncontent-length: 13");
    let list = with("content-length: 13, 13");
    let signed = with("content-length: +13");
    let coding = with("transfer-encoding: gzip, rot13");
    let not_last = with("transfer-encoding: chunked, identity");
    let space = with("transfer-encoding : chunked");
    let folded = with("x-long: a\r\n b\r\ntransfer-encoding: chunked");
    let bare = "GET /a HTTP/1.1\nhost: app\n\n";
    let chunk_size =
        "POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc";
    let padding = "a".repeat(LONG_HEAD);
    let long_head = format!("GET /a HTTP/1.1\r\nhost: app\r\nx-long: {padding}\r\n\r\n");
    let long_reply =
        format!("HTTP/1.1 200 OK\r\nx-long: {padding}\r\ncontent-length: 5\r\n\r\nhello");
    let odd_reply = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
                     5\r\nhello\r\n0\r\n\r\n";
    let timed_out =
        "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let passes = |name, request: &str| {
        let client = vec![send(request), Read(OK.len())];
        case(name, client, vec![Read(request.len()), send(OK)])
    };
    vec![
        passes("a length and chunks", &both),
        passes("two lengths", &lengths),
        passes("a list of lengths", &list),
        passes("a length with a sign", &signed),
        passes("an unknown coding", &coding),
        passes("chunked is not the last coding", &not_last),
        passes("a space before the colon", &space),
        passes("a folded line", &folded),
        passes("bare line feeds", bare),
        passes("a chunk size that overflows", chunk_size),
        passes(
            "a bare carriage return",
            "GET /a HTTP/1.1\r\nhost: app\r\nx: a\rb\r\n\r\n",
        ),
        passes("an unknown version", "GET /a HTTP/3.7\r\nhost: app\r\n\r\n"),
        passes("no version", "GET /a\r\n\r\n"),
        passes("a NUL", "GET /a HTTP/1.1\r\nhost: a\0b\r\n\r\n"),
        passes("another protocol", "\x16\x03\x01\x00\x05hello"),
        passes(
            "an opening of h2 that goes wrong",
            "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        ),
        passes("a long head", &long_head),
        exchange("a long head of a reply", GET, &long_reply, "hello"),
        exchange(
            "a reply with a length and chunks",
            GET,
            odd_reply,
            LAST_CHUNK,
        ),
        case(
            "a reply that is none",
            vec![send(GET), Until("what?")],
            vec![Until(HEAD_END), send("what?")],
        ),
        case(
            "a reply nobody asked for",
            vec![send(GET), Until("hello"), Tell, ToEnd],
            vec![Until(HEAD_END), send(OK), Await, send(timed_out), Finish],
        ),
    ]
}
