use proptest::prelude::*;
use prost::Message;

use super::*;

const MALFORMED: Reading<QueueRequests> = Reading::Unknown(Cause::Malformed);

fn known(active: u64, arrived: u64, report: u64) -> Reading<QueueRequests> {
    Reading::Known(QueueRequests {
        active,
        arrived,
        report,
    })
}

/// As in Knative's pkg/autoscaler/metrics/stat.proto.
#[derive(Clone, PartialEq, Message)]
struct KnativeStat {
    #[prost(string, tag = "1")]
    pod_name: String,
    #[prost(double, tag = "2")]
    average_concurrent_requests: f64,
    #[prost(double, tag = "3")]
    average_proxied_concurrent_requests: f64,
    #[prost(double, tag = "4")]
    request_count: f64,
    #[prost(double, tag = "5")]
    proxied_request_count: f64,
    #[prost(double, tag = "6")]
    process_uptime: f64,
    #[prost(int64, tag = "7")]
    timestamp: i64,
}

/// Fields that a later version might add, before and after those of today.
#[derive(Clone, PartialEq, Message)]
struct LaterStat {
    #[prost(double, tag = "2")]
    average_concurrent_requests: f64,
    #[prost(double, tag = "4")]
    request_count: f64,
    #[prost(double, tag = "6")]
    process_uptime: f64,
    #[prost(uint64, tag = "8")]
    varint: u64,
    #[prost(fixed32, tag = "9")]
    fixed32: u32,
    #[prost(fixed64, tag = "10")]
    fixed64: u64,
    #[prost(bytes = "vec", tag = "11")]
    bytes: Vec<u8>,
    #[prost(message, optional, tag = "12")]
    nested: Option<KnativeStat>,
    #[prost(group, optional, tag = "13")]
    group: Option<Group>,
    #[prost(sint64, repeated, tag = "14")]
    packed: Vec<i64>,
    #[prost(float, tag = "536870911")]
    last: f32,
}

#[derive(Clone, PartialEq, Message)]
struct Group {
    #[prost(double, tag = "2")]
    looks_like_the_average: f64,
    #[prost(group, optional, tag = "3")]
    inner: Option<Box<Group>>,
}

fn stat(average: f64, count: f64) -> KnativeStat {
    KnativeStat {
        pod_name: "hello-00001-deployment-5d9c8f7b6-x2x4z".to_owned(),
        average_concurrent_requests: average,
        request_count: count,
        process_uptime: 12.5,
        ..KnativeStat::default()
    }
}

#[test]
fn what_is_in_flight_at_the_end_of_a_window() {
    for (average, count, active, arrived) in [
        // Nothing arrived: at most the average is left.
        (0.0, 0.0, 0, 0),
        (0.3, 0.0, 0, 0),
        (0.94, 0.0, 0, 0),
        (0.96, 0.0, 1, 0),
        (0.9999, 0.0, 1, 0),
        (1.0, 0.0, 1, 0),
        (1.000_000_1, 0.0, 1, 0),
        (1.5, 0.0, 1, 0),
        (2.0, 0.0, 2, 0),
        // Something arrived, perhaps at the window's very end.
        (0.0, 1.0, 1, 1),
        (0.000_000_1, 1.0, 1, 1),
        (0.3, 1.0, 1, 1),
        (0.9999, 1.0, 1, 1),
        (1.000_000_1, 1.0, 1, 1),
        (1.2, 1.0, 2, 1),
        (37.01, 250.0, 38, 250),
        (1.0, 0.5, 1, 1),
        (1.0, 1.5, 1, 2),
    ] {
        let report = stat(average, count).encode_to_vec();
        assert_eq!(
            parse(&report),
            known(active, arrived, 12_500),
            "{average} {count}"
        );
    }
}

#[test]
fn fields_of_a_later_version_are_skipped() {
    let group = Group {
        looks_like_the_average: 9.0,
        inner: Some(Box::default()),
    };
    let report = LaterStat {
        average_concurrent_requests: 3.0,
        request_count: 2.0,
        process_uptime: 1.0,
        varint: u64::MAX,
        fixed32: 1,
        fixed64: 1,
        bytes: vec![0xff; 300],
        nested: Some(stat(9.0, 9.0)),
        group: Some(group),
        packed: vec![i64::MIN, 0, i64::MAX],
        last: 1.0,
    }
    .encode_to_vec();
    assert_eq!(parse(&report), known(3, 2, 1_000));
    // Known fields after unknown ones, and the last value of a field that comes twice.
    let twice = [report.clone(), stat(5.0, 4.0).encode_to_vec()].concat();
    assert_eq!(parse(&twice), known(5, 4, 12_500));
}

#[test]
fn no_window_yet_is_not_an_idle_pod() {
    assert_eq!(parse(b""), MALFORMED);
    let fresh = KnativeStat {
        pod_name: "hello".to_owned(),
        ..KnativeStat::default()
    };
    assert_eq!(parse(&fresh.encode_to_vec()), MALFORMED);
}

#[test]
fn values_that_cannot_be_believed() {
    for bad in [
        f64::NAN,
        -0.001,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e300,
    ] {
        assert_eq!(parse(&stat(bad, 0.0).encode_to_vec()), MALFORMED, "{bad}");
        assert_eq!(parse(&stat(0.0, bad).encode_to_vec()), MALFORMED, "{bad}");
    }
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        let report = KnativeStat {
            process_uptime: bad,
            ..stat(1.0, 0.0)
        };
        assert_eq!(parse(&report.encode_to_vec()), MALFORMED, "{bad}");
    }
}

#[test]
fn bytes_that_are_no_message() {
    let report = stat(1.0, 1.0).encode_to_vec();
    let after = |tail: &[u8]| parse(&[&report, tail].concat());
    let deep = [vec![0x43; 40], vec![0x44; 40]].concat();
    for (name, tail) in [
        ("field zero", &[0x00, 0x00][..]),
        ("wire type 6", &[0x46]),
        ("wire type 7", &[0x47]),
        ("a key over 32 bits", &[0xf8, 0xff, 0xff, 0xff, 0x7f, 0x00]),
        (
            "a varint of eleven bytes",
            &[0x40, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
        ),
        (
            "a varint over 64 bits",
            &[0x40, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        ),
        ("a length past the end", &[0x42, 0x05, 1, 2, 3, 4]),
        (
            "a length of 2^64 - 1",
            &[0x42, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
        ),
        ("a group without an end", &[0x43, 0x40, 0x01]),
        ("a group's end without a start", &[0x44]),
        ("another group's end", &[0x43, 0x4c]),
        ("a group of forty levels", &deep),
    ] {
        assert_eq!(after(tail), MALFORMED, "{name}");
    }
    assert_eq!(after(&[0x43, 0x40, 0x01, 0x44]), known(1, 1, 12_500));
    for text in [
        "OK\n",
        "404 page not found\n",
        "# HELP queue_average_concurrent_requests x\n",
        "{}",
    ] {
        assert_eq!(parse(text.as_bytes()), MALFORMED, "{text}");
    }
}

#[test]
fn a_report_that_was_cut() {
    let report = stat(0.5, 1.0).encode_to_vec();
    for end in 0..report.len() {
        assert_eq!(parse(&report[..end]), MALFORMED, "{end}");
    }
}

proptest! {
    #[test]
    fn prost_and_this_agree(
        pod_name in ".{0,40}",
        average in 0.0..1e6_f64,
        proxied in 0.0..1e6_f64,
        count in 0..100_000_u32,
        uptime in 0.001..1e9_f64,
        timestamp: i64,
        cut: prop::sample::Index,
    ) {
        let stat = KnativeStat {
            pod_name,
            average_concurrent_requests: average,
            average_proxied_concurrent_requests: proxied,
            request_count: f64::from(count),
            proxied_request_count: 0.0,
            process_uptime: uptime,
            timestamp,
        };
        let report = stat.encode_to_vec();
        let Reading::Known(requests) = parse(&report) else {
            return Err(TestCaseError::fail("unknown"));
        };
        prop_assert_eq!(requests.arrived, u64::from(count));
        prop_assert!((requests.active as f64 - average).abs() <= 1.0);
        // Never idle where something arrived, or where something was in flight throughout.
        prop_assert!(requests.active > 0 || (count == 0 && average < 1.0));
        let before_uptime = KnativeStat { process_uptime: 0.0, timestamp: 0, ..stat }.encoded_len() + 9;
        prop_assert_eq!(parse(&report[..cut.index(before_uptime)]), MALFORMED);
    }

    #[test]
    fn garbage_never_panics(report: Vec<u8>, tail: Vec<u8>) {
        let _ = parse(&report);
        let _ = parse(&[stat(1.0, 0.0).encode_to_vec(), tail].concat());
    }
}
