//! The one clock of the lab: the machine's own, as every log and event of the node has it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// Reads `2026-11-30T18:49:07.042Z`, and what containerd writes, `2026-11-30 18:49:07.042 +0000 UTC`,
/// to the nanosecond. The node's time zone is UTC.
pub(crate) fn parse(text: &str) -> Result<SystemTime> {
    read(text).with_context(|| format!("not a time in UTC: {text:?}"))
}

fn read(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_once(['T', ' '])?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.')?;
    let (time, zone) = rest.split_at(end);
    if !matches!(zone.trim(), "Z" | "+00:00" | "+0000 UTC") {
        return None;
    }
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let hours: u64 = time.next()?.parse().ok()?;
    let minutes: u64 = time.next()?.parse().ok()?;
    let (seconds, fraction) = match time.next()?.split_once('.') {
        Some((seconds, fraction)) => (seconds.parse::<u64>().ok()?, fraction),
        None => return None,
    };
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let seconds = day_number(year, month, day)? * 86_400 + hours * 3_600 + minutes * 60 + seconds;
    Some(UNIX_EPOCH + Duration::new(seconds, nanos))
}

/// Days from 1970-01-01 to a Gregorian date. A year is taken to begin on 1 March, so that the leap day
/// is its last.
fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    /// From 0000-03-01 to 1970-01-01.
    const TO_1970: u64 = 719_468;
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    (year * 365 + leap_days + (153 * month + 2) / 5 + day - 1).checked_sub(TO_1970)
}

/// Milliseconds since 1970 with a fraction, as the kubelet logs them.
pub(crate) fn from_millis(millis: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(millis.max(0.0) / 1_000.0)
}

/// Seconds from one moment to another, negative where that was before.
pub(crate) fn seconds(from: SystemTime, to: SystemTime) -> f64 {
    match to.duration_since(from) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

/// The reverse.
pub(crate) fn to_millis(moment: SystemTime) -> f64 {
    1_000.0 * seconds(UNIX_EPOCH, moment)
}
