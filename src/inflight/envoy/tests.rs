use proptest::prelude::*;

use super::*;

const TEXT: &str = include_str!("fixtures/clusters-1.40.txt");
const JSON: &str = include_str!("fixtures/clusters-1.40.json");

const MALFORMED: Reading<EnvoyRequests> = Reading::Unknown(Cause::Malformed);

fn known(active: u64, total: u64) -> Reading<EnvoyRequests> {
    Reading::Known(EnvoyRequests { active, total })
}

fn parse_text(reply: &[u8], piece: usize) -> Reading<EnvoyRequests> {
    let mut text = ClustersText::default();
    reply.chunks(piece).for_each(|piece| text.feed(piece));
    text.finish()
}

fn parse_any(reply: &[u8], piece: usize) -> Reading<EnvoyRequests> {
    let mut clusters = Clusters::default();
    reply.chunks(piece).for_each(|piece| clusters.feed(piece));
    clusters.finish()
}

#[test]
fn what_envoy_1_40_says_with_one_request_in_flight() {
    for piece in [1, 2, 7, 64, 4096, usize::MAX] {
        assert_eq!(parse_text(TEXT.as_bytes(), piece), known(1, 1), "{piece}");
        assert_eq!(parse_any(TEXT.as_bytes(), piece), known(1, 1), "{piece}");
        assert_eq!(parse_any(JSON.as_bytes(), piece), known(1, 1), "{piece}");
    }
    assert_eq!(parse_json(JSON.as_bytes()), known(1, 1));
}

#[test]
fn lines() {
    let cases = [
        // Hosts of every kind, and names of every kind of inbound cluster.
        ("inbound|8012||::127.0.0.1:8012::rq_active::3", known(3, 0)),
        ("inbound|8012||::[::1]:8012::rq_active::3", known(3, 0)),
        ("inbound|8012||::[::]:8012::rq_total::9", known(0, 9)),
        (
            "inbound|8012||::envoy://main_internal/1.2.3.4:80::rq_active::2",
            known(2, 0),
        ),
        (
            "inbound|8012|http|x.y.svc.cluster.local::10.0.0.1:8012::rq_active::4",
            known(4, 0),
        ),
        (
            "InboundPassthroughCluster::10.0.0.1:9000::rq_active::1",
            known(1, 0),
        ),
        (
            "InboundPassthroughClusterIpv4::10.0.0.1:9000::rq_active::1",
            known(1, 0),
        ),
        (
            "InboundPassthroughClusterIpv6::[fd00::1]:9000::rq_active::1",
            known(1, 0),
        ),
        // A host that has not been used, or a line that is missing, is zero.
        (
            "inbound|8012||::default_priority::max_connections::1024",
            known(0, 0),
        ),
        (
            "inbound|8012||::high_priority::max_requests::1024",
            known(0, 0),
        ),
        (
            "inbound|8012||::observability_name::inbound|8012||",
            known(0, 0),
        ),
        ("inbound|8012||::added_via_api::true", known(0, 0)),
        ("inbound|8012||::127.0.0.1:8012::cx_active::7", known(0, 0)),
        (
            "inbound|8012||::127.0.0.1:8012::rq_pending_active::7",
            known(0, 0),
        ),
        (
            "inbound|8012||::127.0.0.1:8012::success_rate::-1",
            known(0, 0),
        ),
        ("inbound|8012||::127.0.0.1:8012::hostname::", known(0, 0)),
        // Free text that looks like a count.
        (
            "inbound|8012||::[::1]:8012::hostname::rq_active::5",
            known(0, 0),
        ),
        (
            "inbound|8012||::[::1]:8012::hostname::a::rq_active::5",
            known(0, 0),
        ),
        (
            "inbound|8012||::[::1]:8012::zone::rq_total::five",
            known(0, 0),
        ),
        // Clusters that are not inbound.
        (
            "outbound|80||x.y.svc.cluster.local::10.0.0.1:80::rq_active::5",
            known(0, 0),
        ),
        (
            "outbound|80||x.y::10.0.0.1:80::rq_active::many",
            known(0, 0),
        ),
        ("inbound||::10.0.0.1:80::rq_active::5", known(0, 0)),
        ("inbound|80::10.0.0.1:80::rq_active::5", known(0, 0)),
        ("inbound|http||::10.0.0.1:80::rq_active::5", known(0, 0)),
        ("my-inbound|80||::10.0.0.1:80::rq_active::5", known(0, 0)),
        (
            "InboundPassthroughClusterToo::10.0.0.1:80::rq_active::5",
            known(0, 0),
        ),
        ("xds-grpc::127.0.0.1:15012::rq_active::1", known(0, 0)),
        // What cannot be believed.
        ("inbound|8012||::127.0.0.1:8012::rq_active::", MALFORMED),
        ("inbound|8012||::127.0.0.1:8012::rq_active::x", MALFORMED),
        ("inbound|8012||::127.0.0.1:8012::rq_active::-1", MALFORMED),
        ("inbound|8012||::127.0.0.1:8012::rq_active::+1", MALFORMED),
        ("inbound|8012||::127.0.0.1:8012::rq_active::1 ", MALFORMED),
        ("inbound|8012||::127.0.0.1:8012::rq_active::1.5", MALFORMED),
        (
            "inbound|8012||::127.0.0.1:8012::rq_active::18446744073709551616",
            MALFORMED,
        ),
        ("inbound|8012||::rq_active::1", MALFORMED),
        ("inbound|8012||", MALFORMED),
        ("inbound|8012||::127.0.0.1:8012", MALFORMED),
        // What is not Envoy's at all.
        ("", MALFORMED),
        ("OK", MALFORMED),
        ("no healthy upstream", MALFORMED),
        ("std::vector", MALFORMED),
        ("<html><body>404</body></html>", MALFORMED),
        ("::::", MALFORMED),
        ("[]", MALFORMED),
        ("{}", MALFORMED),
    ];
    for (line, expected) in cases {
        assert_eq!(
            parse_any(format!("{line}\n").as_bytes(), usize::MAX),
            expected,
            "{line}"
        );
    }
}

#[test]
fn sums_over_hosts_and_clusters() {
    let reply = "inbound|8012||::127.0.0.1:8012::rq_active::1\n\
                 inbound|8012||::127.0.0.1:8012::rq_total::10\n\
                 inbound|8012||::[::1]:8012::rq_active::2\n\
                 outbound|8012||x::[::1]:8012::rq_active::100\n\
                 inbound|8013||::[::1]:8013::rq_active::4\n\
                 inbound|8013||::[::1]:8013::rq_total::20\n\
                 InboundPassthroughCluster::1.1.1.1:1::rq_active::8\n";
    assert_eq!(parse_text(reply.as_bytes(), 5), known(15, 30));
    let huge = "inbound|1||::h::rq_active::18446744073709551615\n";
    assert_eq!(parse_text(huge.as_bytes(), 5), known(u64::MAX, 0));
    assert_eq!(parse_text(huge.repeat(2).as_bytes(), 5), MALFORMED);
}

#[test]
fn one_bad_inbound_line_spoils_the_reply_and_one_foreign_line_does_not() {
    let good = "inbound|8012||::127.0.0.1:8012::rq_active::1\n";
    assert_eq!(
        parse_text(format!("{good}a word\n\n").as_bytes(), 9),
        known(1, 0)
    );
    let bad = "inbound|8012||::127.0.0.1:8012::rq_active::?\n";
    assert_eq!(parse_text(format!("{bad}{good}").as_bytes(), 9), MALFORMED);
    assert_eq!(parse_text(format!("{good}{bad}").as_bytes(), 9), MALFORMED);
}

#[test]
fn a_reply_without_its_last_newline_was_cut() {
    for end in 0..TEXT.len() {
        if end == 0 || TEXT.as_bytes()[end - 1] != b'\n' {
            assert_eq!(
                parse_any(&TEXT.as_bytes()[..end], usize::MAX),
                MALFORMED,
                "{end}"
            );
        }
    }
}

#[test]
fn json_that_was_cut() {
    let whole = JSON.trim_end();
    for end in 0..whole.len() {
        assert_eq!(
            parse_any(&whole.as_bytes()[..end], usize::MAX),
            MALFORMED,
            "{end}"
        );
    }
}

#[test]
fn memory_is_bounded() {
    let ordinary = "inbound|8012||::127.0.0.1:8012::rq_active::1\n";
    for piece in [1, 1000, usize::MAX] {
        let at_limit = format!("{ordinary}{}\n", "x".repeat(LINE_MAX));
        assert_eq!(
            parse_text(at_limit.as_bytes(), piece),
            known(1, 0),
            "{piece}"
        );
        let over = format!("{ordinary}{}\n", "x".repeat(LINE_MAX + 1));
        assert_eq!(parse_text(over.as_bytes(), piece), MALFORMED, "{piece}");
    }
    let mut text = ClustersText::default();
    for _ in 0..1000 {
        text.feed(&[b'x'; 1000]);
        assert!(text.partial.len() <= LINE_MAX && text.partial.capacity() <= 2 * LINE_MAX);
    }
    let mut json = Clusters::default();
    json.feed(b"{");
    for _ in 0..=JSON_MAX / 100_000 {
        json.feed(&[b' '; 100_000]);
    }
    assert!(matches!(json, Clusters::TooLong));
    assert_eq!(json.finish(), MALFORMED);
}

#[test]
fn json_values() {
    let stat = |stat: &str| {
        format!(
            r#"{{"cluster_statuses":[{{"name":"inbound|8012||","host_statuses":[{{"stats":[{stat}]}}]}}]}}"#
        )
    };
    for (text, expected) in [
        (
            r#"{"name":"rq_active","type":"GAUGE","value":"7"}"#,
            known(7, 0),
        ),
        (
            r#"{"name":"rq_active","value":7},{"name":"rq_total","value":"9"}"#,
            known(7, 9),
        ),
        (r#"{"name":"rq_active","type":"GAUGE"}"#, known(0, 0)),
        (r#"{"name":"rq_active","value":null}"#, known(0, 0)),
        (r#"{"name":"cx_active","value":"many"},{}"#, known(0, 0)),
        ("", known(0, 0)),
        (r#"{"name":"rq_active","value":"-7"}"#, MALFORMED),
        (r#"{"name":"rq_active","value":-7}"#, MALFORMED),
        (r#"{"name":"rq_active","value":7.5}"#, MALFORMED),
        (r#"{"name":"rq_active","value":true}"#, MALFORMED),
        (r#"{"name":"rq_active","value":""}"#, MALFORMED),
        (r#"{"name":"rq_active","value":[7]}"#, MALFORMED),
    ] {
        assert_eq!(parse_json(stat(text).as_bytes()), expected, "{text}");
    }
    for (document, expected) in [
        (
            r#"{"cluster_statuses":[{"name":"inbound|8012||"}]}"#,
            known(0, 0),
        ),
        (
            r#"{"cluster_statuses":[{"name":"outbound|80||x","host_statuses":[{"stats":[{"name":"rq_active","value":"x"}]}]}]}"#,
            known(0, 0),
        ),
        (r#"{"cluster_statuses":[]}"#, MALFORMED),
        (r#"{"cluster_statuses":[{}]}"#, MALFORMED),
        (r#"{"cluster_statuses":null}"#, MALFORMED),
        ("{}", MALFORMED),
        ("", MALFORMED),
    ] {
        assert_eq!(parse_json(document.as_bytes()), expected, "{document}");
    }
}

/// A host line or another, and what it adds.
fn any_line() -> impl Strategy<Value = (String, u64, u64)> {
    let cluster = prop_oneof![
        Just(("inbound|8012||".to_owned(), true)),
        Just(("inbound|1|http|a.b.svc".to_owned(), true)),
        Just(("InboundPassthroughCluster".to_owned(), true)),
        "[a-z|]{1,20}".prop_map(|name| (format!("outbound|80||{name}"), false)),
    ];
    let host = prop_oneof![
        Just("127.0.0.1:8012".to_owned()),
        Just("[fd00::7:1]:8012".to_owned()),
        Just("default_priority".to_owned()),
    ];
    (cluster, host, 0..5_u8, 0..1_000_000_u64).prop_map(
        |((cluster, inbound), host, stat, value)| {
            let counts = inbound && host != "default_priority";
            let (stat, active, total) = match stat {
                0 if counts => ("rq_active", value, 0),
                1 if counts => ("rq_total", 0, value),
                2 => ("cx_active", 0, 0),
                _ => ("max_connections", 0, 0),
            };
            (
                format!("{cluster}::{host}::{stat}::{value}\n"),
                active,
                total,
            )
        },
    )
}

proptest! {
    #[test]
    fn any_reply_cut_anywhere(
        lines in prop::collection::vec(any_line(), 1..40),
        piece in 1..100_usize,
        cut: prop::sample::Index,
    ) {
        let reply: String = lines.iter().map(|line| line.0.as_str()).collect();
        let active = lines.iter().map(|line| line.1).sum();
        let total = lines.iter().map(|line| line.2).sum();
        prop_assert_eq!(parse_any(reply.as_bytes(), piece), known(active, total));
        let cut = &reply.as_bytes()[..cut.index(reply.len())];
        if cut.last() != Some(&b'\n') {
            prop_assert_eq!(parse_any(cut, piece), MALFORMED);
        }
    }

    #[test]
    fn garbage_never_panics_and_pieces_never_matter(
        reply: Vec<u8>,
        text in "(inbound\\|1\\|\\||[:a-z0-9\\[\\]|\n])*",
        piece in 1..20_usize,
    ) {
        for reply in [&reply[..], text.as_bytes()] {
            prop_assert_eq!(parse_text(reply, piece), parse_text(reply, usize::MAX));
            let _ = parse_json(reply);
        }
    }
}
