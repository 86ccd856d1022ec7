//! gRPC's interoperability cases, Go's client to Go's server.

use std::time::Duration;

use crate::netns;
use crate::process::{self, Ended, Process};
use crate::proxy::{BACKEND, LISTEN, Mode, Proxy};
use crate::tools::tool;
use crate::verdicts::{Verdicts, judge};

/// How long one case may take: the slowest waits for reports that come every second.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// All that need no credentials and no second server: the list of gRPC's own `interop_test.sh`.
pub(crate) const CASES: [&str; 18] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "orca_per_rpc",
    "orca_oob",
    "rpc_soak",
    "channel_soak",
];

/// What the orca cases read their metrics by; the others do not mind.
const SERVICE_CONFIG: &str =
    r#"{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}"#;

#[test]
fn every_case_passes() {
    netns::test("grpc::every_case_passes", || async {
        let mut server = server(BACKEND).await;
        let mut proxy = Proxy::start(Mode::Http).await;
        let (mut direct, mut through) = (Verdicts::new(), Verdicts::new());
        for case in CASES {
            direct.insert(case.to_owned(), verdict(&client(case, BACKEND).await));
            through.insert(case.to_owned(), verdict(&client(case, LISTEN).await));
        }
        proxy.must_run();
        server.must_run();
        assert_eq!(failed(&direct), Vec::<&String>::new(), "direct");
        judge("gRPC interop", &direct, &through, |verdict| verdict == OK);
    });
}

const OK: &str = "OK";

/// `OK`, else what the client wrote.
pub(crate) fn verdict(ended: &Ended) -> String {
    if ended.status.success() {
        OK.to_owned()
    } else {
        format!("{}: {}", ended.status, ended.output)
    }
}

/// What did not end well.
pub(crate) fn failed(verdicts: &Verdicts) -> Vec<&String> {
    verdicts.values().filter(|verdict| *verdict != OK).collect()
}

/// The server, on a port of this namespace.
pub(crate) async fn server(port: u16) -> Process {
    let mut command = process::command(tool("server"));
    command.arg(format!("-port={port}"));
    Process::serve("grpc server", command, port).await
}

/// Runs the client of one case to its end.
pub(crate) async fn client(case: &str, port: u16) -> Ended {
    let mut command = process::command(tool("client"));
    command
        .arg(format!("-test_case={case}"))
        .arg(format!("-server_port={port}"))
        .arg(format!("-service_config_json={SERVICE_CONFIG}"))
        .args(["-server_host=127.0.0.1", "-soak_overall_timeout_seconds=30"])
        // Held or slow is not wrong.
        .arg("-soak_per_iteration_max_acceptable_latency_ms=30000");
    process::run(case, command, LIMIT).await
}
