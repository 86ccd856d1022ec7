//! h2spec, all of its strict cases, against two servers: hyper's and Go's.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate::standin::app;

use crate::process::{self, Process};
use crate::proxy::{BACKEND, LISTEN, Mode, Proxy};
use crate::tools::tool;
use crate::verdicts::{Verdicts, judge};
use crate::{netns, wait};

/// A case that waits for what does not come takes two seconds.
const LIMIT: Duration = Duration::from_secs(80);
/// One run has so many.
const CASES: usize = 146;
const PASSED: &str = "passed";

#[test]
fn with_hypers_server_behind() {
    netns::test("h2spec::with_hypers_server_behind", || async {
        let config = app::Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, BACKEND)),
            ..app::Config::default()
        };
        let _backend = app::start(config).await.expect("a port of the namespace");
        compare("h2spec, hyper").await;
    });
}

#[test]
fn with_gos_server_behind() {
    netns::test("h2spec::with_gos_server_behind", || async {
        let mut command = process::command(tool("backend"));
        command.arg(format!("-listen=127.0.0.1:{BACKEND}"));
        let mut backend = Process::serve("backend", command, BACKEND).await;
        compare("h2spec, Go").await;
        backend.must_run();
    });
}

async fn compare(suite: &str) {
    let mut proxy = Proxy::start(Mode::Http).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let direct = run(BACKEND, folder.path().join("direct.xml"));
    let through = run(LISTEN, folder.path().join("through.xml"));
    let (direct, through) =
        wait::within(LIMIT, suite, async { tokio::join!(direct, through) }).await;
    proxy.must_run();
    assert_eq!(direct.len(), CASES, "{suite}: {direct:?}");
    judge(suite, &direct, &through, |verdict| verdict == PASSED);
}

async fn run(port: u16, report: PathBuf) -> Verdicts {
    let mut command = process::command(tool("h2spec"));
    command
        .args(["--strict", "--port", &port.to_string(), "--junit-report"])
        .arg(&report);
    let ended = process::run("h2spec", command, LIMIT).await;
    let text = std::fs::read_to_string(&report);
    let text = text.unwrap_or_else(|error| panic!("h2spec: {error}: {}", ended.output));
    read(&text)
}

/// Reads h2spec's report, which is XML of few forms: one element for each case, whose own element, if
/// any, says what was skipped or found instead.
fn read(report: &str) -> Verdicts {
    let cases = report.split("<testcase ").skip(1);
    cases
        .map(|case| {
            let (head, rest) = case.split_once('>').expect("an element ends");
            let name = format!(
                "{} {}",
                attribute(head, "package"),
                attribute(head, "classname")
            );
            let (body, _) = rest
                .split_once("</testcase>")
                .expect("an element is closed");
            let found = body.trim();
            let verdict = if found.is_empty() { PASSED } else { found };
            (name, verdict.to_owned())
        })
        .collect()
}

fn attribute<'a>(head: &'a str, name: &str) -> &'a str {
    let value = head
        .split_once(&format!("{name}=\""))
        .and_then(|(_, rest)| rest.split_once('"'));
    value.unwrap_or_else(|| panic!("no {name}: {head}")).0
}

#[test]
fn a_report_is_read() {
    let report = "<testsuite>\n\
        <testcase package=\"http2/5.1\" classname=\"idle: Sends a DATA frame\" time=\"0.1\"></testcase>\n\
        <testcase package=\"http2/6.1\" classname=\"Sends it\" time=\"2.0\">\n\
        <error>GOAWAY Frame\nTimeout</error>\n</testcase>\n</testsuite>";
    let expected = [
        ("http2/5.1 idle: Sends a DATA frame", "passed"),
        ("http2/6.1 Sends it", "<error>GOAWAY Frame\nTimeout</error>"),
    ];
    let expected = expected.map(|(name, verdict)| (name.to_owned(), verdict.to_owned()));
    assert_eq!(read(report), Verdicts::from(expected));
}
