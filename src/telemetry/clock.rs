//! Times as RFC 3339 writes them: UTC, milliseconds.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Displays a time as `2026-11-30T18:49:07.042Z`. Milliseconds are cut, not rounded, so that a line is
/// never ahead of its time. Before 1970 it is 1970: only a clock that was never set says so.
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339(pub SystemTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (year, month, day) = civil_date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let millis = since.subsec_millis();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

/// The Gregorian year, month (1-12) and day (1-31) of a day, counted from 1970-01-01.
///
/// Years are taken to begin on 1 March, so that the leap day is the last of its year and every month's
/// beginning is a linear function of its number.
pub(super) fn civil_date(day: u64) -> (u64, u64, u64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const TO_1970: u64 = 719_468;
    /// Days in 400 years, after which the calendar repeats.
    const ERA: u64 = 146_097;
    let day = day + TO_1970;
    let (era, day) = (day / ERA, day % ERA);
    // Without the leap days so far, every year has 365 days. The last day of each cycle is itself one.
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // March to January alternate 31, 30, 31, 30, 31 twice: five months are 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = 400 * era + year;
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}
