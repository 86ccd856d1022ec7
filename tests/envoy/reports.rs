//! The report of a real drain, read by the command that people read it with.

use std::time::Duration;

use serde_json::Value;
use tidegate::config::Mode;

use crate::client::{ended, slow};
use crate::netns;
use crate::pod::{Pod, Spec};
use crate::sidecar::command;

#[test]
fn the_report_command_reads_the_log() {
    netns::test("reports::the_report_command_reads_the_log", || async {
        let mut pod = Pod::start(Spec::new(Mode::Hold)).await;
        let request = slow(Duration::from_secs(2));
        pod.busy(1).await;
        pod.delete();
        ended(request).await;
        let end = pod.gone().await;
        let phases: Vec<_> = end
            .report
            .phases
            .iter()
            .map(|it| it.phase.as_str())
            .collect();
        let all =
            "announcing draining closing-door flushing releasing-workload releasing-proxy done";
        assert_eq!(phases.join(" "), all);

        let dir = tempfile::TempDir::new().expect("a temporary directory");
        let file = dir.path().join("log");
        let log: String = end.log.iter().map(|it| format!("{}\n", it.json)).collect();
        std::fs::write(&file, log).expect("the log is written");
        let file = file.to_str().expect("a plain path");

        let table = command(&["report", file]).await;
        let (out, err) = (text(&table.stdout), text(&table.stderr));
        assert!(table.status.success(), "{out}{err}");
        assert!(out.contains(&end.report.pod), "{out}");
        assert!(out.contains("drained"), "{out}");

        let json = command(&["report", "--json", file]).await;
        let out = text(&json.stdout);
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert!(out.contains("\"outcome\""), "{json}");
    });
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
