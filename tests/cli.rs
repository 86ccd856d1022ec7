//! The real binary where it cannot run: its exit codes, and texts that say what to do.

use std::net::TcpListener;
use std::process::{Command, Output};

/// `tidegate` with these arguments and variables, to its end: it must not need a signal for that.
fn tidegate(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .envs(env.iter().copied())
        .output()
        .expect("tidegate starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_taken_hook_port_is_named_with_its_cure() {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let output = tidegate(&["run", "--hook-port", &port.to_string()], &[]);
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    let log = text(&output.stdout);
    let lines = log.lines().map(serde_json::from_str::<serde_json::Value>);
    let lines: Vec<_> = lines.map(|line| line.expect("a line of JSON")).collect();
    let error = lines.iter().find(|line| line["level"] == "ERROR");
    let message = error.expect("an error is logged")["message"].to_string();
    assert!(message.contains(&format!("port {port} is taken")), "{log}");
    assert!(message.contains("tidegate.dev/hook-port"), "{log}");
}

#[test]
fn every_bad_variable_is_named_and_nothing_is_bound() {
    let env = [
        ("TIDEGATE_MIN_DRAIN", "10"),
        ("TIDEGATE_MODE", "polite"),
        ("TIDEGATE_QUIET", "5s"),
    ];
    let output = tidegate(&["run"], &env);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 2, "{said}");
    for (variable, value) in &env[..2] {
        let named = |line: &&str| line.contains(variable) && line.contains(value);
        assert!(said.lines().any(|line| named(&line)), "{said}");
    }
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_drain_that_reaches_nobody_says_where_it_tried() {
    // It was free a moment ago, and nobody else is given it so soon.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener
        .local_addr()
        .expect("an address")
        .port()
        .to_string();
    drop(listener);
    let output = tidegate(&["drain"], &[("TIDEGATE_HOOK_PORT", &port)]);
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(text(&output.stderr).contains(&port), "{output:?}");
    for what in ["ready", "live"] {
        let output = tidegate(&["probe", what], &[("TIDEGATE_HOOK_PORT", &port)]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}
