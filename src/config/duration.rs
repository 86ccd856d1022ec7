//! Durations as Go's `time.ParseDuration` reads them (`1m30s`, `500ms`, `1.5h`, `0`).

use std::time::Duration;

/// The longest duration a setting may have. A pod that takes longer to go is a mistake.
pub const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The units, longest name first where one begins another, with their nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, the micro sign
    ("μs", 1_000), // U+03BC, the Greek letter; Go knows both
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

/// Why a text is not a duration that a setting may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// `10`: nothing says whether seconds or minutes are meant.
    #[error("a bare number has no unit; write {0}s or {0}m")]
    Bare(String),
    /// `1m30`: the last number has no unit.
    #[error("{0} has no unit; write {0}s, or another of ns us ms s m h")]
    MissingUnit(String),
    /// `5d`, `5 s`.
    #[error("unit {0:?} is unknown; use ns, us, ms, s, m or h")]
    UnknownUnit(String),
    /// `-5s`.
    #[error("a duration here cannot be negative; write 0 or more")]
    Negative,
    /// `25h`, and all that overflows.
    #[error("longer than 24h, the most a setting may be")]
    TooLong,
    /// `soon`.
    #[error("not a duration; write it like 10s, 1m30s or 500ms")]
    Malformed,
}

/// Reads a duration: one or more decimal numbers, each with a unit (ns, us, µs, ms, s, m, h), or `0`.
///
/// # Errors
///
/// On anything else, on negative durations and on those beyond [`LIMIT`].
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(DurationError::Malformed);
    }
    let mut nanos: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split_at_first(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_at_first(after, |c| c.is_ascii_digit() || c == '.');
        let (whole, fraction) = split_number(number).ok_or(DurationError::Malformed)?;
        if unit.is_empty() {
            let number = number.to_owned();
            return Err(if number == text {
                DurationError::Bare(number)
            } else {
                DurationError::MissingUnit(number)
            });
        }
        let (_, scale) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| DurationError::UnknownUnit(unit.to_owned()))?;
        nanos = whole
            .checked_mul(u128::from(*scale))
            .and_then(|part| part.checked_add(nanos))
            .and_then(|sum| sum.checked_add(fraction_of(fraction, *scale)))
            .filter(|sum| *sum <= LIMIT.as_nanos())
            .ok_or(DurationError::TooLong)?;
        rest = after;
    }
    // The limit is far below what 64 bits of nanoseconds hold.
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| DurationError::TooLong)
}

/// Writes a duration so that [`parse`] reads the same: `1h30m`, `1.5s`, `500ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let nanos = duration.subsec_nanos();
    if duration.is_zero() {
        return "0s".to_owned();
    }
    if duration.as_secs() == 0 {
        return match nanos {
            1_000_000.. => decimal(0, nanos, 1_000_000, "ms"),
            1_000.. => decimal(0, nanos, 1_000, "us"),
            _ => format!("{nanos}ns"),
        };
    }
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let mut text = String::new();
    if hours > 0 {
        text += &format!("{hours}h");
    }
    if minutes > 0 {
        text += &format!("{minutes}m");
    }
    if seconds > 0 || nanos > 0 {
        text += &decimal(seconds, nanos, 1_000_000_000, "s");
    }
    text
}

/// `whole` plus `nanos / scale`, without trailing zeros; `scale` is a power of ten.
fn decimal(whole: u64, nanos: u32, scale: u32, unit: &str) -> String {
    let whole = whole + u64::from(nanos / scale);
    let width = scale.ilog10() as usize;
    let fraction = format!("{:0width$}", nanos % scale);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        format!("{whole}{unit}")
    } else {
        format!("{whole}.{fraction}{unit}")
    }
}

/// Splits where `stop` first holds.
fn split_at_first(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

/// The whole part and the fraction's digits of `1.5`, `1.`, `.5` or `1`; `None` where there is no
/// digit or more than one point. A whole part too long for its type is the greatest there is.
fn split_number(number: &str) -> Option<(u128, &str)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse().unwrap_or(u128::MAX)
    };
    Some((whole, fraction))
}

/// `0.digits * scale`, rounded down to whole nanoseconds.
fn fraction_of(digits: &str, scale: u64) -> u128 {
    // Hours have 3.6e12 ns: digits beyond the eighteenth never decide a nanosecond.
    let digits = &digits[..digits.len().min(18)];
    let value: u128 = digits.parse().unwrap_or(0);
    value * u128::from(scale) / 10u128.pow(digits.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn accepted(text: &str) -> Duration {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn reads_what_go_reads() {
        const MS: u64 = 1_000_000;
        const S: u64 = 1_000 * MS;
        // After parseDurationTests in Go's time_test.go, as far as it lies within the limit.
        let table: &[(&str, u64)] = &[
            ("0", 0),
            ("0s", 0),
            ("+0", 0),
            ("5s", 5 * S),
            ("30s", 30 * S),
            ("300s", 300 * S),
            ("1478s", 1478 * S),
            ("+5s", 5 * S),
            ("5.0s", 5 * S),
            ("5.6s", 5600 * MS),
            ("5.s", 5 * S),
            (".5s", 500 * MS),
            ("1.004s", 1004 * MS),
            ("1.0040s", 1004 * MS),
            ("100.00100s", 100_001 * MS),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("13ms", 13 * MS),
            ("14s", 14 * S),
            ("15m", 15 * 60 * S),
            ("16h", 16 * 3600 * S),
            ("3h30m", 12_600 * S),
            ("10.5s4m", 250_500 * MS),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("1m30s", 90 * S),
            ("1.5h", 5400 * S),
            ("0.100000000000000000000h", 360 * S),
            ("0.830103483285477580700h", 2_988_372_539_827),
            ("24h", 24 * 3600 * S),
            ("86400s", 24 * 3600 * S),
        ];
        for (text, nanos) in table {
            assert_eq!(accepted(text), Duration::from_nanos(*nanos), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_says_why() {
        use DurationError::*;
        let unit = |unit: &str| UnknownUnit(unit.to_owned());
        let table = [
            ("", Malformed),
            ("+", Malformed),
            (".", Malformed),
            (".s", Malformed),
            ("+.s", Malformed),
            ("s", Malformed),
            ("soon", Malformed),
            ("1.2.3s", Malformed),
            ("10", Bare("10".to_owned())),
            ("1.5", Bare("1.5".to_owned())),
            ("00", Bare("00".to_owned())),
            ("1m30", MissingUnit("30".to_owned())),
            ("5d", unit("d")),
            ("5S", unit("S")),
            ("5 s", unit(" s")),
            ("5s ", unit("s ")),
            ("5s,", unit("s,")),
            ("10秒", unit("秒")),
            ("-5s", Negative),
            ("-0", Negative),
            ("1s-5s", unit("s-")),
            ("24h1ns", TooLong),
            ("25h", TooLong),
            ("9223372036854775808ns", TooLong),
            ("340282366920938463463374607431768211456s", TooLong),
            ("340282366920938463463374607431768211455ns1h", TooLong),
        ];
        for (text, error) in table {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_told_how_to_be_written() {
        let error = parse("10").map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("a bare number has no unit; write 10s or 10m".to_owned())
        );
    }

    #[test]
    fn writes_what_people_write() {
        for text in [
            "0s", "7ns", "1.5us", "500ms", "1.5s", "30s", "1m", "1m30s", "1h", "1h5s", "24h",
        ] {
            assert_eq!(format(accepted(text)), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(nanos in 0..=86_400_000_000_000_u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn milliseconds_too(millis in 0..=86_400_000_u64) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+.0-9a-zµ ]{0,40}|\\PC{0,12}") {
            if let Ok(duration) = parse(&text) {
                prop_assert!(duration <= LIMIT);
            }
        }
    }
}
