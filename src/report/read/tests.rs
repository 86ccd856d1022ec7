//! Where reports are found, what is skipped, and what is told of it.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::report::tests::{line, list, pod, report, scan_all};

fn scan_with(limits: Limits, input: &[u8], chunk: usize) -> Result<Scan, TooLarge> {
    let mut scanner = Scanner::new(limits);
    for chunk in input.chunks(chunk) {
        scanner.push(chunk)?;
    }
    Ok(scanner.finish())
}

/// Whose reports were found: `namespace/pod` as the surroundings say, and the report's own pod.
fn found(input: &str) -> Vec<String> {
    let show = |found: Found| {
        let Origin { namespace, pod } = found.origin;
        format!("{namespace}/{pod} {}", found.report.pod)
    };
    scan_all(input).found.into_iter().map(show).collect()
}

// ---- Where reports are found ----

#[test]
fn in_pods_as_kubectl_prints_them() {
    let a = pod("a-long", &line(&report("a", "drained", 12.0)));
    let b = pod(
        "b-long",
        &format!("{}\n", line(&report("b", "drained", 12.0))),
    );
    let both = ["shop/a-long a", "shop/b-long b"];
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let all = list(vec![a.clone(), b.clone()]);
    assert_eq!(found(&pretty(&all)), both, "a list");
    assert_eq!(found(&all.to_string()), both, "a list on one line");
    assert_eq!(
        found(&format!("{}\n{}\n", pretty(&a), pretty(&b))),
        both,
        "-w"
    );
    assert_eq!(found(&format!("{a}\r\n{b}\r\n")), both, "jq -c .items[]");
    assert_eq!(found(&pretty(&json!([a, b]))), both, "jq .items");
    assert_eq!(
        found(&format!("\u{feff}{}", pretty(&all).replace('\n', "\r\n"))),
        both,
        "Windows"
    );
    let event = json!({"type": "DELETED", "object": a});
    assert_eq!(
        found(&pretty(&event)),
        ["shop/a-long a"],
        "--output-watch-events"
    );
}

#[test]
fn in_a_raw_pod_list_whose_items_have_no_kind_and_among_other_objects() {
    let mut a = pod("a-long", &line(&report("a", "drained", 12.0)));
    let service = json!({"kind": "Service", "metadata": {"name": "s"}, "status": "odd"});
    assert_eq!(
        found(&list(vec![service, a.clone()]).to_string()),
        ["shop/a-long a"]
    );
    a.as_object_mut().unwrap().remove("kind");
    a.as_object_mut().unwrap().remove("apiVersion");
    let raw = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [a]});
    assert_eq!(found(&raw.to_string()), ["shop/a-long a"]);
}

#[test]
fn in_every_container_and_in_the_last_state_too() {
    let message =
        |seconds| json!({"terminated": {"message": line(&report("a", "drained", seconds))}});
    let odd = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "status": {
        "initContainerStatuses": [7, null, {"name": "x", "state": null},
            {"name": "tidegate", "lastState": message(1.0), "state": message(2.0)}],
        "containerStatuses": [{"name": "y", "lastState": message(3.0)}, {"state": {"running": {}}}]}});
    let scan = scan_all(&odd.to_string());
    let seconds: Vec<f64> = scan
        .found
        .iter()
        .map(|found| found.report.seconds)
        .collect();
    assert_eq!(seconds, [1.0, 2.0, 3.0]);
    assert_eq!((scan.pods, scan.warnings.len()), (1, 0));
}

#[test]
fn in_log_lines_of_every_kind() {
    let bare = line(&report("a", "drained", 12.0));
    let object = json!({"level": "INFO", "report": report("a", "drained", 12.0)}).to_string();
    let text = json!({"level": "INFO", "report": bare}).to_string();
    let fields = json!({"fields": {"message": "m", "report": bare}}).to_string();
    for log in [&bare, &object, &text, &fields] {
        assert_eq!(found(log), ["/ a"], "{log}");
        assert_eq!(
            found(&format!("[pod/a-long/tidegate] {log}\n")),
            ["/a-long a"]
        );
        assert_eq!(
            found(&format!("2026-11-30T18:49:07.042Z stdout F {log}")),
            ["/ a"]
        );
        assert_eq!(
            found(&format!("{{app=\"x\"}} {{}} {log} trailing")),
            ["/ a"]
        );
    }
    assert_eq!(
        found(&format!("12:00 INFO over report={bare} x=1")),
        ["/ a"],
        "text format"
    );
    assert_eq!(
        found(&format!("noise\n{{\"a\":\n\n{object}\n\"{{")),
        ["/ a"],
        "among noise"
    );
    assert_eq!(
        found(&format!("{{\n  half a document\n{object}\n")),
        ["/ a"],
        "a brace of a log"
    );
}

#[test]
fn in_a_bare_report_however_it_is_indented() {
    let report = report("a", "drained", 12.0);
    assert_eq!(found(&line(&report)), ["/ a"]);
    assert_eq!(
        found(&serde_json::to_string_pretty(&report).unwrap()),
        ["/ a"]
    );
}

#[test]
fn not_in_what_only_looks_like_one() {
    for other in [
        "",
        "\n\n",
        "tidegate outcome",
        r#"{"tidegate": 1, "outcome": "drained"}"#,
        r#"{"tidegate": "1"}"#,
        r#"{"report": {"outcome": "drained"}, "x": "tidegate"}"#,
        r#"{"metadata": {"annotations": {"tidegate": "outcome"}}, "kind": "Service"}"#,
    ] {
        let scan = scan_all(other);
        assert_eq!((scan.found.len(), scan.warnings.len()), (0, 0), "{other}");
    }
}

// ---- What cannot be used ----

#[test]
fn reports_that_the_kubelet_cut_at_either_end_are_named() {
    let whole = line(&report("a", "drained", 12.0));
    for cut in [&whole[..whole.len() - 9], &whole[30..]] {
        let scan = scan_all(&list(vec![pod("a-long", cut)]).to_string());
        let origin = Origin {
            namespace: "shop".to_owned(),
            pod: "a-long".to_owned(),
        };
        let container = "tidegate".to_owned();
        assert_eq!(
            scan.warnings,
            BTreeSet::from([Warning::Cut { origin, container }]),
            "{cut}"
        );
        assert!(scan.found.is_empty());
    }
}

#[test]
fn a_report_of_another_version_is_named() {
    let scan = scan_all(r#"[pod/a/t] {"tidegate": "9.0", "outcome": "drained"}"#);
    let reason = "missing field `pod` at line 1 column 41".to_owned();
    let origin = Origin {
        pod: "a".to_owned(),
        ..Origin::default()
    };
    let version = "9.0".to_owned();
    assert_eq!(
        scan.warnings,
        BTreeSet::from([Warning::Unreadable {
            origin,
            version,
            reason
        }])
    );
}

#[test]
fn long_log_lines_are_skipped_and_long_documents_are_errors() {
    let limits = Limits {
        line: 2000,
        document: 6000,
    };
    let a = line(&report("a", "drained", 12.0));
    let long = "x".repeat(2001);
    for chunk in [1, 7, 1999, 100_000] {
        let log = format!("{long}tidegate {a}\n{a}\n{long}");
        let scan = scan_with(limits, log.as_bytes(), chunk).unwrap();
        assert_eq!(
            (scan.found.len(), scan.lines, scan.long_lines),
            (1, 3, 2),
            "{chunk}"
        );

        // A log in which a lone brace looked like the beginning of a document.
        let log = format!("{{\n{}\n  {a}\n{a}", "x".repeat(7000));
        let scan = scan_with(limits, log.as_bytes(), chunk).unwrap();
        assert_eq!((scan.found.len(), scan.long_lines), (2, 1), "{chunk}");

        let three = list(vec![pod("a", &a), pod("b", "b"), pod("c", &long)]).to_string();
        let scan = scan_with(limits, three.as_bytes(), chunk).unwrap();
        assert_eq!(
            (scan.found.len(), scan.pods, scan.long_lines),
            (1, 3, 0),
            "{chunk}"
        );

        let many = list(vec![pod("c", &long), pod("d", &long), pod("e", &long)]);
        for text in [
            many.to_string(),
            serde_json::to_string_pretty(&many).unwrap(),
        ] {
            let error = scan_with(limits, text.as_bytes(), chunk).unwrap_err();
            assert_eq!(error.limit, 6000);
        }
    }
}

#[test]
fn a_document_that_ends_too_early_is_told() {
    let text = serde_json::to_string_pretty(&list(vec![pod("a", "x")])).unwrap();
    assert!(scan_all(&text[..text.len() - 1]).unfinished);
    assert!(!scan_all(&text).unfinished);
}

proptest! {
    #[test]
    fn any_bytes_in_any_chunks_are_read_alike(
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "[\\[\\]{}\",: \t\n\ra-c]{0,20}".prop_map(String::into_bytes),
            Just(line(&report("a", "drained", 1.0)).into_bytes()),
            Just(serde_json::to_vec_pretty(&list(vec![pod("a", "\"tidegate\":")])).unwrap()),
            Just(list(vec![pod("b", &line(&report("b", "x", 2.0)))]).to_string().into_bytes()),
            Just(b"\n".to_vec()),
            Just(b"{\n".to_vec()),
        ], 0..12),
        chunk in 1_usize..300,
    ) {
        let bytes = pieces.concat();
        let limits = Limits { line: 600, document: 2500 };
        let whole = scan_with(limits, &bytes, bytes.len().max(1));
        let chunked = scan_with(limits, &bytes, chunk);
        prop_assert_eq!(whole, chunked);
    }
}
