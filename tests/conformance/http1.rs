//! HTTP/1 between two scripted ends: both receive the same bytes and the same end direct and through
//! the gate.

use crate::netns;
use crate::proxy::{BACKEND, LISTEN, Mode, Proxy};
use crate::script::Step;
use crate::script::{self, Signals};
use crate::verdicts::{Verdicts, judge};

mod cases;

/// One case: what client and server do.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) client: Vec<Step>,
    pub(crate) server: Vec<Step>,
}

#[test]
fn through_the_http_gate() {
    netns::test("http1::through_the_http_gate", || async {
        compare("HTTP/1", Proxy::start(Mode::Http).await, cases::http()).await;
    });
}

#[test]
fn through_the_tcp_gate() {
    netns::test("http1::through_the_tcp_gate", || async {
        let mut all = cases::http();
        all.extend(cases::raw());
        compare("TCP", Proxy::start(Mode::Tcp).await, all).await;
    });
}

async fn compare(suite: &str, mut proxy: Proxy, cases: Vec<Case>) {
    let direct = play(&cases, BACKEND).await;
    let through = play(&cases, LISTEN).await;
    proxy.must_run();
    for (name, verdict) in &direct {
        assert!(!is_stuck(verdict), "{name}, direct: {verdict}");
    }
    judge(suite, &direct, &through, |verdict| !is_stuck(verdict));
}

fn is_stuck(verdict: &str) -> bool {
    verdict.contains(", stuck at step")
}

/// Plays all cases, one after the other.
pub(crate) async fn play(cases: &[Case], port: u16) -> Verdicts {
    let listener = script::listen(BACKEND).await;
    let mut verdicts = Verdicts::new();
    for case in cases {
        let signals = Signals::new();
        let client = script::client(port, &case.client, &signals);
        let server = script::server(&listener, &case.server, &signals);
        let (client, server) = tokio::join!(client, server);
        let before = verdicts.insert(case.name.to_owned(), script::verdict(&client, &server));
        assert_eq!(before, None, "two cases are called {}", case.name);
    }
    verdicts
}
