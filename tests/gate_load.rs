//! The pure parts of `benches/load`: what it reads, and what it makes of it.

#[path = "../benches/load/measure.rs"]
mod measure;
#[path = "../benches/load/report.rs"]
mod report;

use measure::{Load, Sample, Seen, Usage, h2load, loads, wrk};
use report::{Setting, Table, aims, json, page};

const WRK: &str = "\
Running 1s test @ http://127.0.0.1:19080/
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   683.72us    1.59ms  14.96ms   89.26%
    Req/Sec    86.79k    47.29k  147.25k    50.00%
  Latency Distribution
     50%   44.00us
     75%  197.00us
     90%    2.40ms
     99%    7.99ms
  86889 requests in 1.01s, 13.67MB read
Requests/sec:  86374.47
Transfer/sec:     13.59MB
";

const H2LOAD: &str = "\
starting benchmark...
Main benchmark duration is over for thread #0. Stopping all clients.

finished in 1.00s, 4000.00 req/s, 328.38KB/s
requests: 4005 total, 4012 started, 4005 done, 4000 succeeded, 5 failed, 5 errored, 0 timeout
status codes: 4000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 328.38KB (336264) total, 191.41KB (196000) headers (space savings 50.51%), 66.41KB (68000) data
                     min         max         mean         sd        +/- sd
time for request:       15us     27.49ms      1.26ms      2.87ms    92.40%
";

#[test]
fn wrk_is_read() {
    let seen = wrk(WRK).unwrap();
    assert_eq!(seen.requests, 86_889);
    assert_eq!(seen.errors, 0);
    assert!((seen.seconds - 1.01).abs() < 1e-9);
    assert!((seen.bytes - 13.67 * 1_048_576.0).abs() < 1.0);
    assert_eq!((seen.p50_micros, seen.p99_micros), (44.0, 7_990.0));
}

#[test]
fn what_wrk_says_of_errors_is_not_counted_as_answered() {
    let output = WRK.replace(
        "Requests/sec",
        "  Socket errors: connect 1, read 2, write 0, timeout 3\n  Non-2xx or 3xx responses: 89\nRequests/sec",
    );
    let seen = wrk(&output).unwrap();
    assert_eq!((seen.requests, seen.errors), (86_800, 95));
}

#[test]
fn what_wrk_did_not_print_is_an_error_that_shows_what_it_did() {
    let error = wrk("unable to connect").unwrap_err();
    assert!(error.contains("unable to connect"), "{error}");
    let error = wrk(&WRK.replace("99%", "98%")).unwrap_err();
    assert!(error.contains("no 99%"), "{error}");
}

#[test]
fn h2load_is_read_with_its_log() {
    let log = "1\t200\t180\n2\t200\t100\n3\t503\t9000\n4\t200\t300\n";
    let seen = h2load(H2LOAD, log, 4).unwrap();
    assert_eq!(seen.requests, 4_000);
    assert_eq!(seen.errors, 5);
    assert!((seen.bytes - 68_000.0).abs() < 1e-9);
    assert!((seen.seconds - 1.0).abs() < 1e-9);
    assert_eq!((seen.p50_micros, seen.p99_micros), (180.0, 300.0));
}

#[test]
fn what_h2load_cuts_at_its_end_is_no_error() {
    assert_eq!(h2load(H2LOAD, "", 5).unwrap().errors, 0);
    assert!(h2load("could not connect", "", 5).is_err());
}

#[test]
fn proc_is_read() {
    let nanos = ["271289342 165125910 169\n", "500000000 0 1\n"];
    assert!((measure::cpu_seconds(nanos) - 0.771289342).abs() < 1e-12);
    let status = "Name:\tenvoy\nVmHWM:\t   67584 kB\nVmRSS:\t   66000 kB\n";
    assert_eq!(measure::status_kib(status, "VmRSS"), Some(66_000));
    assert_eq!(measure::status_kib(status, "VmHWM"), Some(67_584));
    assert_eq!(measure::status_kib(status, "Vm"), None);
    assert_eq!(measure::cpu_list("\t0-2,8\n"), [0, 1, 2, 8]);
    assert_eq!(measure::cpu_list("3"), [3]);
}

#[test]
fn medians_do_not_follow_one_bad_round() {
    assert_eq!(measure::median([5.0, 1.0, 1_000.0]), Some(5.0));
    assert_eq!(measure::median([1.0, 2.0, 4.0, 100.0]), Some(3.0));
    assert_eq!(measure::median([]), None);
    assert_eq!(measure::spread(&[9.0, 10.0, 13.0]), Some(0.2));
    assert_eq!(measure::spread(&[9.0]), None);
    let mut times: Vec<u64> = (1..=100).rev().collect();
    assert_eq!(measure::percentile(&mut times, 50), 51.0);
    assert_eq!(measure::percentile(&mut times, 99), 100.0);
    assert_eq!(measure::percentile(&mut [], 99), 0.0);
}

#[test]
fn loads_have_names_of_their_own() {
    let names: Vec<String> = loads().iter().map(Load::to_string).collect();
    assert_eq!(
        names,
        [
            "h1/100",
            "h1/16k",
            "h1/64k",
            "h1/1m",
            "h1-close/100",
            "h1-close/16k",
            "h1-close/64k",
            "h1-close/1m",
            "h2c/100",
            "h2c/16k",
            "h2c/64k",
            "h2c/1m",
            "ws/100",
            "ws/64k",
        ]
    );
}

/// `requests` in a second at `micros` of CPU each.
fn sample(requests: u64, micros: f64) -> Sample {
    Sample {
        seen: Seen {
            requests,
            errors: 0,
            bytes: 0.0,
            seconds: 1.0,
            p50_micros: 200.0,
            p99_micros: 1_500.0,
        },
        usage: (micros > 0.0).then_some(Usage {
            cpu_seconds: requests as f64 * micros / 1e6,
            rss_kib: 4_096,
            peak_kib: 5_120,
        }),
    }
}

fn find(name: &str) -> Load {
    let load = loads().into_iter().find(|load| load.to_string() == name);
    load.expect("a load of this name")
}

/// The machine is half as fast in the second round, and a little slower in the third.
fn small() -> Table {
    Table {
        load: find("h1/100"),
        rows: vec![
            (
                "direct",
                vec![sample(1_000, 0.0), sample(500, 0.0), sample(900, 0.0)],
            ),
            (
                "tidegate-http",
                vec![sample(800, 10.0), sample(400, 20.0), sample(720, 11.0)],
            ),
            (
                "haproxy",
                vec![sample(500, 20.0), sample(250, 40.0), sample(450, 22.0)],
            ),
            (
                "envoy",
                vec![sample(250, 15.0), sample(125, 30.0), sample(225, 16.5)],
            ),
        ],
    }
}

#[test]
fn ratios_are_taken_within_a_round() {
    let text = small().markdown();
    let row = |name: &str| {
        let start = format!("| {name} |");
        let row = text.lines().find(|line| line.starts_with(&start));
        row.unwrap_or_else(|| panic!("no row of {name} in {text}"))
    };
    assert_eq!(
        row("direct"),
        "| direct | 900 | 1.00 | 200 µs | 1.5 ms |  |  |  |  |"
    );
    assert_eq!(
        row("tidegate-http"),
        "| tidegate-http | 720 | 0.80 | 200 µs | 1.5 ms | 11.0 µs | 45 % | 4.0, 5.0 MiB | × 1.00 |"
    );
    assert_eq!(
        row("haproxy"),
        "| haproxy | 450 | 0.50 | 200 µs | 1.5 ms | 22.0 µs | 45 % | 4.0, 5.0 MiB | × 0.50 |"
    );
    let columns = text.lines().filter(|line| line.starts_with('|'));
    let counts: Vec<usize> = columns.map(|line| line.matches('|').count()).collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{text}");
}

#[test]
fn large_bodies_are_shown_per_gb() {
    // A GB is 953.67 times 1 MiB.
    let table = Table {
        load: find("h1/1m"),
        rows: vec![("haproxy", vec![sample(1_000, 1_048.576)])],
    };
    let text = table.markdown();
    assert!(text.contains("| CPU/GB |"), "{text}");
    assert!(text.contains("| 1048.6 µs |  | 1000 ms |"), "{text}");
    assert!(!small().markdown().contains("CPU/GB"));
}

#[test]
fn failures_are_named() {
    let mut table = small();
    assert!(!table.markdown().contains("Failed"));
    table.rows[2].1[1].seen.errors = 3;
    assert!(table.markdown().ends_with("\nFailed: haproxy 3.\n"));
}

#[test]
fn aims_are_judged_by_whoever_took_part() {
    let text = aims(&[small()]);
    assert!(
        text.contains("at most × 1 of haproxy | × 0.50 | met |"),
        "{text}"
    );
    assert!(
        text.contains("at most × 0.5 of envoy | × 0.67 | **missed** |"),
        "{text}"
    );
    assert!(text.contains("under 6 MiB | 5.0 MiB | met |"), "{text}");
    assert!(!text.contains("nginx"), "{text}");
    let mut alone = small();
    alone.rows.remove(1);
    assert_eq!(aims(&[alone]), "");
}

#[test]
fn the_page_says_where_and_how() {
    let setting = Setting {
        date: "2026-11-30".into(),
        machine: "2 CPUs, Linux 6.18".into(),
        versions: vec!["HAProxy version 2.6".into(), "wrk 4.1".into()],
        rounds: 3,
        seconds: 1,
    };
    let text = page(&[small()], &setting);
    for part in [
        "2026-11-30, 2 CPUs, Linux 6.18",
        "HAProxy version 2.6, wrk 4.1",
        "3 rounds of 1 s",
        "## Aims\n\n| |",
        "### HTTP/1.1, keep-alive, 100 B, 32 connections\n\n|",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let all = json(&[small()]);
    assert_eq!(all[0]["load"], "h1/100");
    assert_eq!(all[0]["peers"]["envoy"][1]["requests"], 125);
    assert!(all[0]["peers"]["direct"][0]["cpu_seconds"].is_null());
}
