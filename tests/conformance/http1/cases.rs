//! The cases: what may pass between a client and a server that speak HTTP/1, or something else.

use super::Case;
use crate::script::Step::{self, Finish, Read, ToEnd, Until};
use crate::script::send;

mod ends;
mod framing;
mod long;
mod odd;

const HEAD_END: &str = "\r\n\r\n";
const LAST_CHUNK: &str = "0\r\n\r\n";
const GET: &str = "GET /a HTTP/1.1\r\nhost: app\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// A connection that the client closes first, after which the server closes.
fn case(name: &'static str, client: Vec<Step>, server: Vec<Step>) -> Case {
    let client = [client, vec![Finish, ToEnd]].concat();
    let server = [server, vec![ToEnd, Finish]].concat();
    Case {
        name,
        client,
        server,
    }
}

/// One request with its reply, whose end `last` tells, and one more exchange after it: a proxy that
/// misjudges where the first one ends does not get through the second.
fn exchange(name: &'static str, request: &str, reply: &str, last: &'static str) -> Case {
    let client = vec![send(request), Until(last), send(GET), Read(OK.len())];
    let server = vec![Read(request.len()), send(reply), Until(HEAD_END), send(OK)];
    case(name, client, server)
}

/// Cases that an HTTP proxy may meet.
pub(super) fn http() -> Vec<Case> {
    [
        framing::framing(),
        framing::interim(),
        odd::odd(),
        ends::ends(),
        ends::upgrades(),
        long::long(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Cases that only a proxy for anything is asked to pass.
pub(super) fn raw() -> Vec<Case> {
    vec![
        case(
            "the server speaks first",
            vec![Until("ready\r\n"), send("go\r\n"), Until("done")],
            vec![send("220 ready\r\n"), Until("go\r\n"), send("done")],
        ),
        case("nothing is said", vec![], vec![]),
    ]
}
