//! The four ways in which MAAS writes a time (docs/maas.md#times).

use chrono::{DateTime, Utc};

fn utc(us: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(us).unwrap_or_default()
}

/// `2026-11-20T13:26:33.268Z`: hardware sync, installation results.
pub(crate) fn iso_utc(us: i64) -> String {
    utc(us).format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// `2026-11-20T13:38:38.817`: boot resources.
pub(crate) fn iso_no_zone(us: i64) -> String {
    utc(us).format("%Y-%m-%dT%H:%M:%S%.3f").to_string()
}

/// `Fri, 20 Nov 2026 13:35:42 +0000`: script results.
pub(crate) fn rfc2822(us: i64) -> String {
    utc(us).format("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

/// `Fri, 20 Nov. 2026 13:41:39`: events.
pub(crate) fn event_time(us: i64) -> String {
    let at = utc(us);
    // Django abbreviates months as the Associated Press does: these have no stop.
    let month = match at.format("%b").to_string().as_str() {
        "Mar" => "March".to_owned(),
        "Apr" => "April".to_owned(),
        "May" => "May".to_owned(),
        "Jun" => "June".to_owned(),
        "Jul" => "July".to_owned(),
        "Sep" => "Sept.".to_owned(),
        other => format!("{other}."),
    };
    format!("{} {month} {}", at.format("%a, %d"), at.format("%Y %H:%M:%S"))
}

/// `20261120`: version of an uploaded image.
pub(crate) fn compact_date(us: i64) -> String {
    utc(us).format("%Y%m%d").to_string()
}

/// `0:05:00`: durations.
pub(crate) fn duration(seconds: i64) -> String {
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Seconds of a systemd-like interval such as `15m` or `1h 30m`.
pub(crate) fn interval_seconds(text: &str) -> Option<i64> {
    let mut total = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        total += number
            * match &rest[..end] {
                "h" | "hr" | "hour" | "hours" => 3600,
                "m" | "min" | "minute" | "minutes" => 60,
                "s" | "sec" | "second" | "seconds" => 1,
                _ => return None,
            };
        rest = rest[end..].trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_the_region() {
        let us = 1_795_181_742_268_000;
        assert_eq!(iso_utc(us), "2026-11-20T13:35:42.268Z");
        assert_eq!(rfc2822(us), "Fri, 20 Nov 2026 13:35:42 +0000");
        assert_eq!(event_time(us), "Fri, 20 Nov. 2026 13:35:42");
        assert_eq!(interval_seconds("15m"), Some(900));
        assert_eq!(interval_seconds("fast"), None);
    }
}
