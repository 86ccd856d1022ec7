//! `tidegate report`: what counts once, in what order, and what is printed.

use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::table::{nearest_rank, summarize};
use super::*;
use crate::drain::record::{PhaseAt, SourcePeak};

pub(super) fn report(pod: &str, outcome: &str, seconds: f64) -> Report {
    let phase = |phase: &str, at| PhaseAt {
        phase: phase.to_owned(),
        at,
    };
    let source = |source: &str, peak, last| SourcePeak {
        source: source.to_owned(),
        peak,
        last,
    };
    Report {
        tidegate: "0.1.0".to_owned(),
        pod: pod.to_owned(),
        outcome: outcome.to_owned(),
        trigger: "pre-stop".to_owned(),
        mode: "hold".to_owned(),
        seconds,
        phases: vec![
            phase("announcing", 0.0),
            phase("draining", 3.0),
            phase("done", seconds),
        ],
        in_flight: vec![
            source("envoy", Some(12), Some(0)),
            source("sockets", Some(90), Some(40)),
        ],
        late: 4,
        cut: 0,
        hooks: 2,
        envoy: "1.40.0".to_owned(),
        agent: "drain".to_owned(),
        errors: Vec::new(),
    }
}

pub(super) fn line(report: &Report) -> String {
    serde_json::to_string(report).unwrap()
}

pub(super) fn pod(name: &str, message: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
        "status": {"containerStatuses": [
            {"name": "app", "state": {"terminated": {"message": "bye {"}}, "lastState": {}},
            {"name": "tidegate", "state": {"terminated": {"message": message}}, "lastState": {}}]}})
}

pub(super) fn list(pods: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "items": pods, "kind": "List", "metadata": {"resourceVersion": ""}})
}

pub(super) fn scan_all(input: &str) -> Scan {
    scan(input.as_bytes()).unwrap()
}

// ---- Percentiles ----

proptest! {
    #[test]
    fn percentiles_are_the_smallest_value_that_enough_do_not_exceed(
        mut values in prop::collection::vec(0.0..100.0_f64, 1..250),
        percent in 1_usize..=100,
    ) {
        let enough = |limit: f64| {
            let within = values.iter().filter(|value| **value <= limit).count();
            within * 100 >= percent * values.len()
        };
        let naive = values.iter().copied().filter(|value| enough(*value)).reduce(f64::min);
        values.sort_by(f64::total_cmp);
        prop_assert_eq!(nearest_rank(&values, percent), naive);
    }
}

// ---- Collecting ----

fn rows(input: &str) -> Vec<Row> {
    let mut reports = Reports::default();
    scan_all(input)
        .found
        .into_iter()
        .for_each(|found| reports.add(found));
    reports.into_rows()
}

#[test]
fn the_same_report_counts_once_and_takes_the_fullest_name() {
    let a = line(&report("a", "drained", 12.0));
    let status = pod("a-long", &a).to_string();
    for input in [
        format!("{a}\n{status}\n{a}"),
        format!("{status}\n[pod/a-long/t] {a}\n{status}"),
    ] {
        let rows = rows(&input);
        assert_eq!(rows.len(), 1, "{input}");
        assert_eq!(
            (rows[0].namespace.as_str(), rows[0].report.pod.as_str()),
            ("shop", "a-long")
        );
    }
}

#[test]
fn equal_reports_of_two_pods_are_two() {
    let nameless = line(&report("", "drained", 12.0));
    assert_eq!(
        rows(&format!("{}\n{}", pod("a", &nameless), pod("b", &nameless))).len(),
        2
    );
}

#[test]
fn the_worst_come_first() {
    let input: Vec<String> = [
        ("e", "drained", 9.0),
        ("d", "drained", 10.0),
        ("g", "drained", 9.0),
        ("c", "deadline", 27.0),
        ("b", "grace-over", 30.0),
        ("a", "draining", 1.0),
        ("z", "new-word", 2.0),
    ]
    .iter()
    .map(|(pod, outcome, seconds)| line(&report(pod, outcome, *seconds)))
    .collect();
    let names = |input: String| -> String {
        rows(&input)
            .iter()
            .map(|row| row.report.pod.as_str())
            .collect()
    };
    assert_eq!(names(input.join("\n")), "zabcdeg");
    let backwards: Vec<String> = input.into_iter().rev().collect();
    assert_eq!(names(backwards.join("\n")), "zabcdeg");
}

#[test]
fn percentiles_of_few() {
    assert_eq!(nearest_rank(&[], 50), None);
    assert_eq!(nearest_rank(&[7.0], 99), Some(7.0));
    assert_eq!(nearest_rank(&[1.0, 2.0], 50), Some(1.0));
    assert_eq!(nearest_rank(&[1.0, 2.0], 51), Some(2.0));
    assert_eq!(nearest_rank(&[1.0, 2.0, 3.0], 0), Some(1.0));
    let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
    assert_eq!(nearest_rank(&hundred, 99), Some(99.0));
    assert_eq!(nearest_rank(&hundred, 200), Some(100.0));
    assert_eq!(summarize(&[]).seconds, None);
}

// ---- The command ----

/// Runs the command on files of these contents: code, standard output, standard error.
fn command(files: &[&str], json: bool) -> (u8, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (i, content) in files.iter().enumerate() {
        paths.push(dir.path().join(i.to_string()));
        fs::write(&paths[i], content).unwrap();
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&paths, json, &mut out, &mut err);
    let err = String::from_utf8(err).unwrap();
    let err = err.replace(&format!("{}/", dir.path().display()), "DIR/");
    (code, String::from_utf8(out).unwrap(), err)
}

fn fleet() -> [String; 2] {
    let mut late = report("hello-00001-deployment-7c9f-x2x", "deadline", 27.04);
    (late.cut, late.in_flight) = (1, vec![late.in_flight[1].clone()]);
    let mut odd = report("", "draining\u{1b}[2J", 2.0);
    (odd.phases, odd.in_flight, odd.late) = (vec![], vec![], u64::MAX);
    let ok = line(&report("hello-b", "drained", 13.25));
    let log = format!("{}\n{}\n", line(&late), line(&odd));
    [
        serde_json::to_string_pretty(&list(vec![pod("hello-b", &ok)])).unwrap(),
        log,
    ]
}

#[test]
fn a_fleet_as_a_table() {
    let [pods, log] = fleet();
    let (code, out, err) = command(&[&pods, &log], false);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(out, @r"
    POD                              OUTCOME       MODE  SECONDS  PEAK  LAST                  LATE  CUT  LONGEST PHASE
    -                                draining?[2J  hold      2.0     -     -  18446744073709551615    0  -
    hello-00001-deployment-7c9f-x2x  deadline      hold     27.0    90    40                     4    1  draining 24.0s
    shop/hello-b                     drained       hold     13.2    12     0                     4    0  draining 10.2s

    3 pods: 1 drained, 1 deadline, 0 grace-over, 1 other; requests cut 1, late 18446744073709551615
    seconds: p50 13.2, p99 27.0, max 27.0
    ");
}

#[test]
fn a_fleet_as_json() {
    let [pods, log] = fleet();
    let (code, out, err) = command(&[&log, &pods], true);
    assert_eq!((code, err.as_str()), (0, ""));
    let value: Value = serde_json::from_str(&out).unwrap();
    let mut expected = serde_json::to_value(report("hello-b", "drained", 13.25)).unwrap();
    expected["namespace"] = json!("shop");
    assert_eq!(value["pods"][2], expected);
    assert_eq!(value["pods"][1]["outcome"], "deadline");
    assert_eq!(
        value["summary"],
        json!({"pods": 3, "drained": 1, "deadline": 1, "grace_over": 0, "other": 1, "cut": 1,
            "late": u64::MAX, "seconds": {"p50": 13.25, "p99": 27.04, "max": 27.04}})
    );
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_printed() {
    let [pods, _] = fleet();
    let (code, out, err) = command(&[&pods, "nothing here\n"], false);
    assert_eq!((code, out.lines().count()), (0, 5));
    assert!(
        err.starts_with("tidegate report: DIR/1: no drain reports found in 1 lines;"),
        "{err}"
    );

    let (code, out, err) = command(&[&list(vec![pod("a", "x")]).to_string()], false);
    assert_eq!((code, out.as_str()), (exit::DATA, ""));
    assert!(
        err.contains("DIR/0: no drain reports found in 1 pods;"),
        "{err}"
    );

    let (code, out, err) = command(&[&pods, &pods[..pods.len() / 2]], false);
    assert_eq!((code, out.lines().count()), (exit::DATA, 5));
    assert!(
        err.contains("DIR/1: ends in the middle of a JSON document"),
        "{err}"
    );

    let cut = pod("a", &line(&report("a", "drained", 1.0))[..99]).to_string();
    let (_, _, err) = command(&[&cut], false);
    assert!(
        err.contains("container \"tidegate\" of pod \"shop/a\" was cut by the kubelet"),
        "{err}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    fs::write(&good, line(&report("a", "drained", 1.0))).unwrap();
    for bad in [dir.path().join("absent"), dir.path().to_owned()] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(&[bad.clone(), good.clone()], false, &mut out, &mut err);
        assert_eq!(code, exit::NO_INPUT);
        assert!(
            String::from_utf8(err)
                .unwrap()
                .contains(&format!("{}: ", bad.display()))
        );
        assert!(!out.is_empty());
    }
}

struct Failing(ErrorKind);

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(self.0.into())
    }
}

#[test]
fn a_reader_that_hangs_up_is_no_error_and_a_full_disk_is() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    fs::write(&good, line(&report("a", "drained", 1.0))).unwrap();
    for (kind, code) in [
        (ErrorKind::BrokenPipe, 0),
        (ErrorKind::StorageFull, exit::IO),
    ] {
        let files = [good.clone()];
        assert_eq!(
            run(&files, false, &mut Failing(kind), &mut Failing(kind)),
            code
        );
    }
}
