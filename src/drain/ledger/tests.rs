use super::*;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn envoy(active: u64, total: u64) -> Reading<EnvoyRequests> {
    Reading::Known(EnvoyRequests { active, total })
}

fn queue(active: u64, arrived: u64, report: u64) -> Reading<QueueRequests> {
    Reading::Known(QueueRequests {
        active,
        arrived,
        report,
    })
}

fn sockets(listening: u32, established: u32) -> Reading<Sockets> {
    Reading::Known(Sockets {
        listening,
        established,
        unsent: 0,
    })
}

#[test]
fn nothing_is_known_at_first() {
    assert_eq!(Ledger::default().load(true), Load::Unknown);
}

#[test]
fn arrivals_are_differences_of_the_total() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.envoy(at(0), envoy(1, 100)), 0);
    assert_eq!(ledger.envoy(at(50), envoy(3, 104)), 4);
    ledger.envoy(at(100), Reading::Unknown(Cause::Timeout));
    assert_eq!(ledger.envoy(at(150), envoy(0, 105)), 1);
    assert_eq!(ledger.late(), 5);
}

#[test]
fn a_report_of_queue_proxy_is_counted_once() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.queue(at(0), queue(1, 3, 1_000), false), 3);
    assert_eq!(ledger.queue(at(500), queue(1, 3, 1_000), false), 0);
    assert_eq!(ledger.queue(at(1_000), queue(1, 2, 2_000), false), 2);
    assert_eq!(ledger.late(), 5);
}

#[test]
fn queue_proxy_does_not_count_again_what_envoy_counts() {
    let mut ledger = Ledger::default();
    ledger.envoy(at(0), envoy(1, 1));
    assert_eq!(ledger.queue(at(10), queue(1, 3, 1_000), true), 0);
}

#[test]
fn refused_is_gone_and_any_other_error_is_not() {
    for cause in [
        Cause::Timeout,
        Cause::Broken,
        Cause::Status,
        Cause::Malformed,
    ] {
        let mut ledger = Ledger::default();
        ledger.envoy(at(0), envoy(2, 2));
        ledger.queue(at(0), queue(0, 0, 1), true);
        ledger.envoy(at(50), Reading::Unknown(cause));
        assert_eq!(ledger.load(true), Load::Busy(2), "{cause:?}");
        ledger.envoy(at(100), Reading::Unknown(Cause::Refused));
        assert_eq!(
            ledger.load(true),
            Load::Idle(Source::QueueProxy),
            "{cause:?}"
        );
    }
}

#[test]
fn what_queue_proxy_holds_beyond_envoy_is_not_lag() {
    let mut ledger = Ledger::default();
    ledger.envoy(at(0), envoy(1, 1));
    ledger.envoy(at(100), envoy(0, 1));
    ledger.queue(at(200), queue(1, 0, 1), true);
    assert_eq!(ledger.load(true), Load::Idle(Source::Envoy));
    ledger.queue(at(700), queue(2, 0, 2), true);
    assert_eq!(ledger.load(true), Load::Busy(1));
    // Two seconds later no lag explains it any more.
    ledger.envoy(at(4_200), envoy(0, 1));
    ledger.queue(at(4_300), queue(1, 0, 3), true);
    assert_eq!(ledger.load(true), Load::Busy(1));
}

#[test]
fn an_envoy_that_tells_nothing_explains_nothing_away() {
    for cause in [Cause::Refused, Cause::Timeout, Cause::Malformed] {
        let mut ledger = Ledger::default();
        ledger.envoy(at(0), envoy(1, 1));
        ledger.envoy(at(50), envoy(0, 1));
        ledger.envoy(at(100), Reading::Unknown(cause));
        ledger.queue(at(200), queue(1, 0, 1), true);
        assert_eq!(ledger.load(true), Load::Busy(1), "{cause:?}");
    }
}

#[test]
fn without_a_mesh_envoy_is_not_asked() {
    let mut ledger = Ledger::default();
    ledger.envoy(at(0), envoy(5, 5));
    assert_eq!(ledger.load(false), Load::Unknown);
    ledger.queue(at(0), queue(0, 0, 1), false);
    assert_eq!(ledger.load(false), Load::Idle(Source::QueueProxy));
}

#[test]
fn the_workload_left_when_two_looks_miss_what_was_there() {
    let mut ledger = Ledger::default();
    ledger.sockets(sockets(0, 0));
    ledger.sockets(sockets(0, 0));
    assert!(!ledger.workload_left(), "it was never there");
    ledger.sockets(sockets(2, 1));
    ledger.sockets(sockets(0, 1));
    ledger.sockets(sockets(0, 0));
    assert!(!ledger.workload_left());
    ledger.sockets(sockets(0, 0));
    assert!(ledger.workload_left());
}

#[test]
fn recent_max_covers_the_lag() {
    let mut recent = RecentMax::default();
    recent.push(at(10_000), 7);
    for ms in [10_000, 11_000, 12_000, 13_900] {
        assert_eq!(recent.get(at(ms)), 7, "{ms}");
    }
    assert_eq!(recent.get(at(16_000)), 0);
}

#[test]
fn short_requests_between_two_looks_at_envoy_are_not_hidden_traffic() {
    let mut ledger = Ledger::default();
    ledger.envoy(at(0), envoy(0, 10));
    ledger.envoy(at(250), envoy(0, 12));
    ledger.queue(at(300), queue(2, 2, 1), true);
    assert_eq!(ledger.load(true), Load::Idle(Source::Envoy));
}

#[test]
fn traffic_past_envoy_counts_until_it_ends() {
    let mut ledger = Ledger::default();
    ledger.envoy(at(0), envoy(1, 1));
    ledger.queue(at(100), queue(2, 0, 1), true);
    assert_eq!(ledger.load(true), Load::Busy(1));
    // Envoy's own ends; what is left is the other, and not lag.
    ledger.envoy(at(1_000), envoy(0, 1));
    ledger.queue(at(1_100), queue(1, 0, 2), true);
    assert_eq!(ledger.load(true), Load::Busy(1));
    ledger.queue(at(2_100), queue(0, 0, 3), true);
    assert_eq!(ledger.load(true), Load::Idle(Source::Envoy));
    // From here on a report that exceeds nothing is lag again.
    ledger.envoy(at(2_200), envoy(1, 2));
    ledger.envoy(at(2_300), envoy(0, 2));
    ledger.queue(at(3_100), queue(1, 0, 4), true);
    assert_eq!(ledger.load(true), Load::Idle(Source::Envoy));
}

#[test]
fn requests_that_never_stop_coming_are_not_traffic_past_envoy() {
    let mut ledger = Ledger::default();
    // The first report covers what came before the first look at Envoy.
    ledger.envoy(at(0), envoy(0, 10));
    ledger.queue(at(10), queue(1, 3, 1), true);
    for second in 1..10_u64 {
        ledger.envoy(at(second * 1_000), envoy(0, 10 + second));
        ledger.queue(at(second * 1_000 + 500), queue(1, 1, 1 + second), true);
    }
    assert_eq!(ledger.load(true), Load::Idle(Source::Envoy));
}
