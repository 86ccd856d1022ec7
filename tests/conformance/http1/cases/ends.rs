//! How connections end, and become something else.

use super::{GET, HEAD_END, OK, case, exchange};
use crate::http1::Case;
use crate::script::Step::{Await, Finish, Read, Reset, Send, Tell, ToEnd, Until};
use crate::script::send;

/// How connections end.
pub(super) fn ends() -> Vec<Case> {
    let open_ended = "HTTP/1.1 200 OK\r\nx: y\r\n\r\n";
    let upload = "POST /a HTTP/1.1\r\nhost: app\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let whole = |name, client, server| Case {
        name,
        client,
        server,
    };
    vec![
        whole(
            "a body until the end",
            vec![send(GET), ToEnd, Finish],
            vec![
                Until(HEAD_END),
                send(open_ended),
                send("hello"),
                Finish,
                ToEnd,
            ],
        ),
        whole(
            "HTTP/1.0",
            vec![send("GET /a HTTP/1.0\r\n\r\n"), ToEnd, Finish],
            vec![
                Until(HEAD_END),
                send("HTTP/1.0 200 OK\r\n\r\n"),
                send("hello"),
                Finish,
                ToEnd,
            ],
        ),
        whole(
            "connection: close",
            vec![send(GET), ToEnd, Finish],
            vec![
                Until(HEAD_END),
                send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"),
                Finish,
                ToEnd,
            ],
        ),
        whole(
            "bytes after the last reply",
            vec![send(GET), ToEnd, Finish],
            vec![
                Until(HEAD_END),
                send(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello, and more",
                ),
                Finish,
                ToEnd,
            ],
        ),
        whole(
            "the client closes its half, then gets its reply",
            vec![send(GET), Finish, ToEnd],
            vec![ToEnd, send(OK), Finish],
        ),
        whole(
            "the client closes its half inside its body",
            vec![send(upload), Finish, ToEnd],
            vec![
                ToEnd,
                send("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"),
                Finish,
            ],
        ),
        whole(
            "the client closes its half inside its head",
            vec![send("GET /a HT"), Finish, ToEnd],
            vec![
                ToEnd,
                send("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"),
                Finish,
            ],
        ),
        whole(
            "the server closes its half, then takes the rest",
            vec![send(upload), ToEnd, send("4\r\nrest\r\n0\r\n\r\n"), Finish],
            vec![Until("abc"), send(OK), Finish, ToEnd],
        ),
        whole(
            "the server breaks off inside a body",
            vec![send(GET), Until("hel"), Tell, ToEnd],
            vec![Until(HEAD_END), send(&OK[..OK.len() - 2]), Await, Reset],
        ),
        whole(
            "the server breaks off a body until the end",
            vec![send(GET), Until("hello"), Tell, ToEnd],
            vec![
                Until(HEAD_END),
                send(open_ended),
                send("hello"),
                Await,
                Reset,
            ],
        ),
        whole(
            "the server closes inside a body",
            vec![send(GET), ToEnd, Finish],
            vec![Until(HEAD_END), send(&OK[..OK.len() - 2]), Finish, ToEnd],
        ),
        whole(
            "the client breaks off inside its body",
            vec![send(upload), Await, Reset],
            vec![Until("abc"), Tell, ToEnd],
        ),
        whole(
            "the client breaks off before the reply",
            vec![send(GET), Await, Reset],
            vec![Until(HEAD_END), Tell, ToEnd],
        ),
    ]
}

pub(super) fn upgrades() -> Vec<Case> {
    let upgrade = "GET /a HTTP/1.1\r\nhost: app\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n";
    let switching =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n";
    let connect = "CONNECT app:443 HTTP/1.1\r\nhost: app:443\r\n\r\n";
    let h2c = "GET /a HTTP/1.1\r\nhost: app\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n\
               http2-settings: AAMAAABkAAQAAP__\r\n\r\n";
    let to_h2c = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    let settings = "\0\0\0\x04\0\0\0\0\0";
    let acknowledged = "\0\0\0\x04\x01\0\0\0\0";
    let reply = b"\0\0\x01\x01\x05\0\0\0\x01\x88";
    let opening = format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{settings}");
    vec![
        case(
            "101, then both ways",
            vec![
                send(upgrade),
                Until(HEAD_END),
                send(GET),
                Until("banner"),
                Read(OK.len()),
            ],
            vec![
                Until(HEAD_END),
                send(format!("{switching}banner")),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        case(
            // A proxy that counts cannot pass them earlier: they may be a next request.
            "bytes of the new protocol before 101",
            vec![
                send(format!("{upgrade}early")),
                Until(HEAD_END),
                Until("late"),
            ],
            vec![Until(HEAD_END), send(switching), Read(5), send("late")],
        ),
        case(
            "101, the server ends first",
            vec![send(upgrade), Until(HEAD_END), ToEnd, send("still here")],
            vec![Until(HEAD_END), send(switching), send("bye"), Finish],
        ),
        exchange("an upgrade that is not taken", upgrade, OK, "hello"),
        case(
            "CONNECT",
            vec![send(connect), Until(HEAD_END), send(GET), Until("hello")],
            vec![
                Until(HEAD_END),
                send("HTTP/1.1 200 Connected\r\n\r\n"),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        exchange(
            "CONNECT refused",
            connect,
            "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 5\r\n\r\nhello",
            "hello",
        ),
        case(
            "h2c by upgrade",
            vec![
                send(h2c),
                Until(HEAD_END),
                send(opening.clone()),
                Read(settings.len()),
                send(acknowledged),
                Read(acknowledged.len() + reply.len()),
            ],
            vec![
                Until(HEAD_END),
                send(format!("{to_h2c}{settings}")),
                Read(opening.len() + acknowledged.len()),
                send(acknowledged),
                Send(reply.to_vec()),
            ],
        ),
    ]
}
