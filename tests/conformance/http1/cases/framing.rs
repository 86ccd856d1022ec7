//! Where requests and replies end.

use super::{GET, HEAD_END, LAST_CHUNK, OK, case, exchange};
use crate::http1::Case;
use crate::script::Step::{self, Await, Read, Send, Tell, Until};
use crate::script::send;

pub(super) fn framing() -> Vec<Case> {
    let post = "POST /a HTTP/1.1\r\nhost: app\r\ncontent-length: 3\r\n\r\nabc";
    let chunked = "POST /a HTTP/1.1\r\nhost: app\r\ntransfer-encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n00a;name=\"va;lue\"\r\n0123456789\r\n0\r\n\r\n";
    let chunked_trailers = "POST /a HTTP/1.1\r\nhost: app\r\ntrailer: x-sum\r\n\
                            transfer-encoding: chunked\r\n\r\n\
                            3\r\n0\r\n\r\n0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n";
    let reply_trailers = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\ntrailer: x-sum\r\n\r\n\
                          5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n";
    let all = format!("{post}{chunked}{chunked_trailers}{GET}");
    let replies = format!("{OK}{reply_trailers}{OK}{OK}");
    // A proxy may keep a head until it is whole, and only that: what follows is awaited byte by byte.
    let byte_by_byte = |text: &str| -> Vec<Step> {
        let head = head_of(text);
        let bytes = text.bytes().enumerate();
        bytes
            .flat_map(|(at, byte)| {
                let awaits = (at + 1 >= head).then_some(Await);
                [Some(Send(vec![byte])), awaits]
            })
            .flatten()
            .collect()
    };
    let one_at_a_time = |text: &str| -> Vec<Step> {
        let head = head_of(text);
        let body = std::iter::repeat_n(1, text.len() - head);
        std::iter::once(head)
            .chain(body)
            .flat_map(|length| [Read(length), Tell])
            .collect()
    };
    vec![
        exchange("keep-alive", GET, OK, "hello"),
        exchange("content-length", post, OK, "hello"),
        exchange("chunks with extensions", chunked, OK, "hello"),
        exchange("chunks with trailers, up", chunked_trailers, OK, "hello"),
        exchange(
            "chunks with trailers, down",
            GET,
            reply_trailers,
            "x-sum: 1\r\n\r\n",
        ),
        exchange(
            "no body and no length",
            "POST /a HTTP/1.1\r\nhost: app\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            HEAD_END,
        ),
        exchange(
            "HEAD",
            "HEAD /a HTTP/1.1\r\nhost: app\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n",
            HEAD_END,
        ),
        exchange(
            "HEAD of chunks",
            "HEAD /a HTTP/1.1\r\nhost: app\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            HEAD_END,
        ),
        exchange(
            "204",
            GET,
            "HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
            HEAD_END,
        ),
        exchange(
            "304 with a length",
            GET,
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 5000\r\netag: \"a\"\r\n\r\n",
            HEAD_END,
        ),
        exchange(
            "a blank line before the request",
            &format!("\r\n{GET}"),
            OK,
            "hello",
        ),
        case(
            "pipelined",
            vec![send(all.clone()), Read(replies.len())],
            vec![Read(all.len()), send(replies.clone())],
        ),
        case(
            "pipelined, answered one by one",
            vec![send(all.clone()), Read(replies.len())],
            vec![
                Until("abc"),
                send(OK),
                Until(LAST_CHUNK),
                send(reply_trailers),
                Until("x-more: 2\r\n\r\n"),
                send(OK),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        case(
            "request byte by byte",
            [
                byte_by_byte(chunked),
                vec![Until("hello"), send(GET), Until("hello")],
            ]
            .concat(),
            [
                one_at_a_time(chunked),
                vec![send(OK), Until(HEAD_END), send(OK)],
            ]
            .concat(),
        ),
        case(
            "reply byte by byte",
            [
                vec![send(GET)],
                one_at_a_time(reply_trailers),
                vec![send(GET), Until("hello")],
            ]
            .concat(),
            [
                vec![Until(HEAD_END)],
                byte_by_byte(reply_trailers),
                vec![Until(HEAD_END), send(OK)],
            ]
            .concat(),
        ),
    ]
}

/// How long a message's head is, its blank line included.
fn head_of(text: &str) -> usize {
    let end = text.find(HEAD_END).expect("a head");
    end + HEAD_END.len()
}

pub(super) fn interim() -> Vec<Case> {
    let expecting =
        "PUT /a HTTP/1.1\r\nhost: app\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    let go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
    let refusal = "HTTP/1.1 417 Expectation Failed\r\ncontent-length: 2\r\n\r\nno";
    let upload = "POST /a HTTP/1.1\r\nhost: app\r\ncontent-length: 8\r\n\r\n";
    vec![
        case(
            "100-continue",
            vec![
                send(expecting),
                Until(HEAD_END),
                send("body"),
                Until("hello"),
                send(GET),
                Until("hello"),
            ],
            vec![
                Until(HEAD_END),
                send(go_on),
                Read(4),
                send(OK),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        case(
            "100-continue refused, the body comes all the same",
            vec![
                send(expecting),
                Until("no"),
                send("body"),
                send(GET),
                Until("hello"),
            ],
            vec![
                Until(HEAD_END),
                send(refusal),
                Read(4),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        case(
            "100-continue not waited for",
            vec![
                send(expecting),
                send("body"),
                Until(HEAD_END),
                Until("hello"),
            ],
            vec![Until(HEAD_END), Read(4), send(go_on), send(OK)],
        ),
        exchange("103, then 200", GET, &format!("{hints}{OK}"), "hello"),
        exchange(
            "102, 103, 103, then 200",
            GET,
            &format!("HTTP/1.1 102 Processing\r\n\r\n{hints}{hints}{OK}"),
            "hello",
        ),
        case(
            "103 long before 200",
            vec![send(GET), Until(HEAD_END), Tell, Until("hello")],
            vec![Until(HEAD_END), send(hints), Await, send(OK)],
        ),
        case(
            "early reply, the body goes on",
            vec![
                send(upload),
                send("half"),
                Until("hello"),
                send("rest"),
                send(GET),
                Until("hello"),
            ],
            vec![Until("half"), send(OK), Read(4), Until(HEAD_END), send(OK)],
        ),
        case(
            "reply in parts around the body",
            vec![
                send(upload),
                send("half"),
                Until(HEAD_END),
                send("rest"),
                Until("hello"),
            ],
            vec![
                Until("half"),
                send("HTTP/1.1 200 OK\r\n"),
                send(&OK[17..head_of(OK)]),
                Read(4),
                send(&OK[head_of(OK)..]),
            ],
        ),
    ]
}
