//! Both expositions are read back by a strict little checker.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Samples by series, after checking what the formats demand.
fn check(format: Format, text: &str) -> BTreeMap<String, f64> {
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut helps = BTreeSet::new();
    let mut samples = BTreeMap::new();
    let mut closed = BTreeSet::new();
    let mut current = String::new();
    let mut eof = false;
    assert!(text.ends_with('\n'), "the last line is not ended");
    for line in text.lines() {
        assert!(!eof, "after the end: {line}");
        if line == "# EOF" {
            eof = true;
        } else if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, _) = help.split_once(' ').expect("help text");
            assert!(helps.insert(name.to_owned()), "two HELP lines for {name}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert!(helps.contains(name), "HELP goes before TYPE: {line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none());
            assert!(closed.insert(current), "families must not be mixed");
            current = name.to_owned();
        } else {
            assert!(!line.starts_with('#'), "an unknown comment: {line}");
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().unwrap_or_default();
            assert!(
                name.starts_with("tidegate_")
                    && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "illegal name: {line}"
            );
            let counter = types[&current] == "counter";
            let expected = match format {
                Format::OpenMetrics if counter => format!("{current}_total"),
                _ => current.clone(),
            };
            assert_eq!(name, expected, "a sample outside its family");
            assert_eq!(counter, name.ends_with("_total"), "{line}");
            let labels = series[name.len()..].trim_start_matches('{');
            for label in labels.trim_end_matches('}').split_terminator(',') {
                let (key, value) = label.split_once('=').expect("a label");
                assert!(key.bytes().all(|b| b.is_ascii_lowercase()), "{line}");
                assert!(value.starts_with('"') && value.ends_with('"'), "{line}");
            }
            let value = value.parse().expect("a number");
            assert!(
                samples.insert(series.to_owned(), value).is_none(),
                "twice: {line}"
            );
        }
    }
    assert_eq!(eof, format == Format::OpenMetrics);
    samples
}

fn both(metrics: &Metrics) -> BTreeMap<String, f64> {
    let open = check(Format::OpenMetrics, &metrics.encode(Format::OpenMetrics));
    let plain = check(Format::Prometheus, &metrics.encode(Format::Prometheus));
    assert_eq!(open, plain, "the two forms say the same");
    open
}

#[test]
fn fresh_metrics_claim_nothing_unknown() {
    let samples = both(&Metrics::new());
    let version = concat!(
        "tidegate_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"}"
    );
    assert_eq!(samples[version], 1.0);
    assert_eq!(samples["tidegate_phase{phase=\"serving\"}"], 1.0);
    assert_eq!(samples["tidegate_hooks_answered_total"], 0.0);
    for absent in ["in_flight", "source_up", "drain_deadline"] {
        let name = format!("tidegate_{absent}");
        assert!(samples.keys().all(|s| !s.starts_with(&name)), "{name}");
    }
}

#[test]
fn exactly_one_phase_is_current() {
    let metrics = Metrics::new();
    for phase in Phase::ALL {
        metrics.set_phase(phase);
        let samples = both(&metrics);
        let current: Vec<_> = samples
            .iter()
            .filter(|(s, v)| s.starts_with("tidegate_phase{") && **v == 1.0)
            .map(|(s, _)| s.clone())
            .collect();
        assert_eq!(
            current,
            [format!("tidegate_phase{{phase=\"{}\"}}", phase.name())]
        );
    }
}

#[test]
fn an_unknown_source_is_absent_not_zero() {
    let metrics = Metrics::new();
    let series = "tidegate_in_flight{source=\"queue-proxy\"}";
    let up = "tidegate_source_up{source=\"queue-proxy\"}";

    metrics.set_in_flight(Source::QueueProxy, Some(7));
    let samples = both(&metrics);
    assert_eq!((samples[series], samples[up]), (7.0, 1.0));

    metrics.set_in_flight(Source::QueueProxy, None);
    let samples = both(&metrics);
    assert_eq!((samples.get(series), samples[up]), (None, 0.0));

    metrics.set_in_flight(Source::QueueProxy, Some(0));
    assert_eq!(both(&metrics)[series], 0.0);
}

#[test]
fn every_call_and_result_has_its_own_counter() {
    let metrics = Metrics::new();
    for (c, call) in Call::ALL.into_iter().enumerate() {
        for (r, result) in CallResult::ALL.into_iter().enumerate() {
            assert_eq!(
                (call as usize, result as usize),
                (c, r),
                "the arrays' order"
            );
            metrics.admin_call(call, result);
            let series = format!(
                "tidegate_admin_calls_total{{call=\"{}\",result=\"{}\"}}",
                call.name(),
                result.name()
            );
            assert_eq!(both(&metrics)[&series], 1.0, "{series}");
        }
    }
}

#[test]
fn counters_gauges_and_guards_move() {
    let metrics = Metrics::new();
    metrics.hooks_answered.inc();
    metrics.requests_cut.inc_by(3);
    metrics.set_drain_clock(1.5, 25.25);
    let guards = [metrics.hook_opened(), metrics.hook_opened()];
    let samples = both(&metrics);
    assert_eq!(samples["tidegate_hooks_open"], 2.0);
    assert_eq!(samples["tidegate_hooks_answered_total"], 1.0);
    assert_eq!(samples["tidegate_requests_cut_total"], 3.0);
    assert_eq!(samples["tidegate_drain_seconds"], 1.5);
    assert_eq!(samples["tidegate_drain_deadline_seconds"], 25.25);
    drop(guards);
    assert_eq!(both(&metrics)["tidegate_hooks_open"], 0.0);
}

#[test]
fn the_accept_header_chooses() {
    let open = Format::OpenMetrics;
    let plain = Format::Prometheus;
    // Prometheus 3's own header, and what people and older scrapers send.
    let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                      text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
    for (accept, expected) in [
        (None, plain),
        (Some("*/*"), plain),
        (Some(""), plain),
        (Some(prometheus), open),
        (Some("application/openmetrics-text"), open),
        (Some("application/openmetrics-text;q=0"), plain),
        (
            Some("application/openmetrics-text;q=0.3, text/plain"),
            plain,
        ),
        (Some("application/openmetrics-text;q=zero"), plain),
        (Some(";;,,q=,"), plain),
    ] {
        assert_eq!(Format::from_accept(accept), expected, "{accept:?}");
    }
}
