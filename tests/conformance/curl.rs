//! curl against a scripted server: what curl prints and what the server receives are the same direct
//! and through the gate.

use std::time::Duration;

use crate::netns;
use crate::process::{self, Ended};
use crate::proxy::{BACKEND, LISTEN, Mode, Proxy};
use crate::script::Step::{self, Read, ToEnd, Until};
use crate::script::{self, Signals, send};
use crate::verdicts::{Verdicts, judge};

const LIMIT: Duration = Duration::from_secs(30);
const HEAD_END: &str = "\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const A: &str = "http://app.test/a";
const B: &str = "http://app.test/b";

struct Case {
    name: &'static str,
    args: &'static [&'static str],
    server: Vec<Step>,
}

#[test]
fn sees_no_difference() {
    netns::test("curl::sees_no_difference", || async {
        let mut proxy = Proxy::start(Mode::Http).await;
        let cases = cases();
        let direct = run(&cases, BACKEND).await;
        let through = run(&cases, LISTEN).await;
        proxy.must_run();
        let passed = |verdict: &str| verdict.contains("exit status: 0");
        for (name, verdict) in &direct {
            assert!(passed(verdict), "{name}, direct: {verdict}");
        }
        judge("curl", &direct, &through, passed);
    });
}

async fn run(cases: &[Case], port: u16) -> Verdicts {
    let listener = script::listen(BACKEND).await;
    let mut verdicts = Verdicts::new();
    for case in cases {
        let signals = Signals::new();
        let mut command = process::command("curl");
        command
            .args([
                "--silent",
                "--show-error",
                "--include",
                "--raw",
                "--http1.1",
            ])
            .args(["--max-time", "10", "--expect100-timeout", "10"])
            // The host is the same on both sides, whatever the port.
            .args(["--connect-to", &format!("::127.0.0.1:{port}")])
            .args(case.args);
        let client = process::run("curl", command, LIMIT);
        let server = script::server(&listener, &case.server, &signals);
        let (Ended { status, output }, server) = tokio::join!(client, server);
        let verdict = script::verdict(&format!("{status} {output}"), &server);
        verdicts.insert(case.name.to_owned(), verdict);
    }
    verdicts
}

fn cases() -> Vec<Case> {
    let trailers = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                    5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n";
    let one = |name, args, server: Vec<Step>| Case {
        name,
        args,
        server: [server, vec![ToEnd]].concat(),
    };
    vec![
        one(
            "keep-alive",
            &[A, B],
            vec![Until(HEAD_END), send(OK), Until(HEAD_END), send(OK)],
        ),
        one(
            "HEAD, twice",
            &["--head", A, B],
            vec![
                Until(HEAD_END),
                send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
                Until(HEAD_END),
                send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
            ],
        ),
        one(
            "204, 304, then 200",
            &[A, A, B],
            vec![
                Until(HEAD_END),
                send("HTTP/1.1 204 No Content\r\n\r\n"),
                Until(HEAD_END),
                send("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
                Until(HEAD_END),
                send(OK),
            ],
        ),
        one(
            "a chunked upload",
            &[
                "--header",
                "transfer-encoding: chunked",
                "--header",
                "expect:",
                "--data",
                "hello",
                A,
            ],
            vec![Until("0\r\n\r\n"), send(OK)],
        ),
        one(
            "100-continue",
            &["--header", "expect: 100-continue", "--data", "hello", A],
            vec![
                Until(HEAD_END),
                send("HTTP/1.1 100 Continue\r\n\r\n"),
                Read(5),
                send(OK),
            ],
        ),
        one(
            "103",
            &[A],
            vec![
                Until(HEAD_END),
                send("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n"),
                send(OK),
            ],
        ),
        one(
            "trailers, then the next",
            &[A, B],
            vec![Until(HEAD_END), send(trailers), Until(HEAD_END), send(OK)],
        ),
    ]
}
