//! Telemetry: what lines look like, and that a writer which fails or hangs costs only lines.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use serde_json::Value;

use super::clock::civil_date;
use super::*;

// ---- Times ----

#[test]
fn times_read_as_rfc_3339() {
    for (millis, expected) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (951_868_800_000, "2000-03-01T00:00:00.000Z"),
        (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
        (1_735_689_599_001, "2024-12-31T23:59:59.001Z"),
        (2_147_483_648_000, "2038-01-19T03:14:08.000Z"),
        (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
    ] {
        let at = UNIX_EPOCH + Duration::from_millis(millis);
        assert_eq!(Rfc3339(at).to_string(), expected);
    }
    let before = UNIX_EPOCH - Duration::from_secs(1);
    assert_eq!(Rfc3339(before).to_string(), "1970-01-01T00:00:00.000Z");
}

/// Counts day by day as a calendar on the wall does.
#[test]
fn every_day_until_2401_follows_the_one_before() {
    let (mut year, mut month, mut day) = (1970, 1, 1);
    for number in 0..157_420 {
        assert_eq!(civil_date(number), (year, month, day), "day {number}");
        let leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
        let length = match month {
            2 => 28 + u64::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        day += 1;
        if day > length {
            (month, day) = (month + 1, 1);
        }
        if month > 12 {
            (year, month) = (year + 1, 1);
        }
    }
    assert_eq!(year, 2401);
}

proptest! {
    #[test]
    fn later_days_have_later_dates(day in 0_u64..4_000_000_000) {
        prop_assert!(civil_date(day) < civil_date(day + 1));
    }
}

// ---- Filters ----

#[test]
fn a_filter_is_a_level_or_targets() {
    for good in ["info", "WARN", "off", "info,tidegate=debug"] {
        assert!(filter(good).is_ok(), "{good}");
    }
    let mixed = filter("warn,tidegate=debug").unwrap();
    assert!(mixed.would_enable("tidegate::run", &tracing::Level::DEBUG));
    assert!(!mixed.would_enable("hyper", &tracing::Level::INFO));
    let spaced = filter("tidegate=trace, warn").unwrap();
    assert!(spaced.would_enable("hyper", &tracing::Level::WARN));
    assert!(!spaced.would_enable("hyper", &tracing::Level::INFO));
    for (bad, directive) in [
        ("loud", "loud"),
        ("", ""),
        ("info,", ""),
        ("info,tidegate", "tidegate"),
        ("tidegate=", "tidegate="),
        ("=debug", "=debug"),
        ("info,tidegate=loud", "tidegate=loud"),
    ] {
        let error = filter(bad).unwrap_err();
        assert_eq!(error.directive, directive, "{bad}");
        assert!(error.to_string().contains("tidegate=debug"));
    }
}

// ---- Lines ----

/// A writer whose lines a test can read, one message a write.
#[derive(Clone)]
struct Tap(mpsc::Sender<Vec<u8>>);

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The test may have seen enough.
        let _ = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `log` writes through queue and thread, until the guard is dropped.
fn written(format: LogFormat, level: &str, log: impl FnOnce()) -> String {
    let (tap, lines) = mpsc::channel();
    let (sender, guard) = start(format, Tap(tap)).unwrap();
    let dispatch = dispatch(format, filter(level).unwrap(), move || sender.clone());
    tracing::dispatcher::with_default(&dispatch, log);
    drop(guard);
    let bytes: Vec<u8> = lines.try_iter().flatten().collect();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn json_lines_are_objects_with_flat_fields() {
    let text = written(LogFormat::Json, "info,tidegate=debug", || {
        tracing::info!(phase = "draining", at = 3.25, "phase");
        tracing::debug!(report = %"{\"tidegate\":\"1\"}", "drain\nreport");
        tracing::trace!("not this one");
        tracing::debug!(target: "hyper", "nor this");
    });
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{text}");
    let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["timestamp", "level", "message", "phase", "at"]);
    assert_eq!(lines[0]["level"], "INFO");
    assert_eq!(lines[0]["message"], "phase");
    assert_eq!(lines[0]["at"], 3.25);
    let timestamp = lines[0]["timestamp"].as_str().unwrap();
    assert_eq!(timestamp.len(), "2026-11-30T18:49:07.042Z".len());
    assert!(
        timestamp.starts_with("20") && timestamp.ends_with('Z'),
        "{timestamp}"
    );
    assert_eq!(lines[1]["report"], "{\"tidegate\":\"1\"}");
}

#[test]
fn text_lines_are_for_people() {
    let text = written(LogFormat::Text, "info", || {
        tracing::info!(phase = "draining", "phase")
    });
    let (time, rest) = text.split_once(' ').unwrap();
    assert!(time.ends_with('Z'), "{text}");
    assert_eq!(rest, " INFO phase phase=\"draining\"\n");
}

// ---- Writers that do not write ----

struct Closed(mpsc::Sender<()>);

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(());
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn a_closed_output_is_tried_and_stops_nothing() {
    let (tried, tries) = mpsc::channel();
    let (sender, guard) = start(LogFormat::Json, Closed(tried)).unwrap();
    let dispatch = dispatch(LogFormat::Json, filter("info").unwrap(), move || {
        sender.clone()
    });
    tracing::dispatcher::with_default(&dispatch, || {
        tracing::info!("one");
        tracing::info!("two");
    });
    drop(guard);
    assert_eq!(tries.try_iter().count(), 2);
}

/// Says when it has begun to write, and goes on only when it is let.
struct Stuck {
    begun: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
    then: Tap,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.begun.send(());
        // An error: the test lets all go on.
        let _ = self.go_on.recv();
        self.then.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_output_drops_lines_counts_them_and_holds_nobody() {
    let (begun, has_begun) = mpsc::channel();
    let (let_go, go_on) = mpsc::channel();
    let (tap, lines) = mpsc::channel();
    let stuck = Stuck {
        begun,
        go_on,
        then: Tap(tap),
    };
    let (sender, guard) = start(LogFormat::Json, stuck).unwrap();
    sender.0.put(b"first\n");
    has_begun.recv().unwrap();
    for _ in 0..300 {
        sender.0.put(b"more\n");
    }
    sender.0.put(&vec![b'x'; 600 << 10]);
    // One is being written, 256 wait, 44 and the huge one are lost. The guard gives up in time.
    drop(guard);
    assert_eq!(lines.try_iter().count(), 0);
    drop(let_go);
    let text: Vec<String> = lines
        .iter()
        .map(|line| String::from_utf8(line).unwrap())
        .collect();
    assert_eq!(text.len(), 1 + 1 + 256);
    assert_eq!(text[0], "first\n");
    let lost: Value = serde_json::from_str(&text[1]).unwrap();
    assert_eq!(
        (&lost["level"], &lost["lost"]),
        (&Value::from("WARN"), &Value::from(45))
    );
}

#[test]
fn lines_after_the_guard_are_dropped() {
    let (tap, lines) = mpsc::channel();
    let (sender, guard) = start(LogFormat::Text, Tap(tap)).unwrap();
    drop(guard);
    sender.0.put(b"late\n");
    assert_eq!(lines.iter().count(), 0);
}
