//! Points in time as whole microseconds, the precision that both databases keep.

use chrono::{DateTime, SecondsFormat, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;

/// Microseconds since the Unix epoch. JSON form: RFC 3339 in UTC with six fraction digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// Microseconds of the years 0 to 9999 in UTC.
const WRITABLE_MICROS: std::ops::Range<i64> = -62_167_219_200_000_000..253_402_300_800_000_000;

impl Timestamp {
    /// The Unix epoch; also "long ago" for due times and leases.
    pub const EPOCH: Self = Self(0);
    /// Later than any real moment; "never" for due times.
    pub const NEVER: Self = Self(253_402_300_799_000_000);

    /// From microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn as_seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This moment plus `seconds` (may be negative); saturates.
    #[must_use]
    pub fn plus_seconds(self, seconds: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "float to int casts saturate")]
        let micros = (seconds * 1e6) as i64;
        Self(self.0.saturating_add(micros).min(Self::NEVER.0))
    }

    /// Seconds from `earlier` to this moment; negative when `earlier` is later.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a difference below 285 years is exact")]
        let micros = (self.0 - earlier.0) as f64;
        micros / 1e6
    }

    /// Reads RFC 3339 text; none where it is not, or where its year in UTC is none of 0 to 9999, which
    /// RFC 3339 could not write (`9999-12-31T23:00:00-02:00`).
    #[must_use]
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let micros = DateTime::parse_from_rfc3339(text).ok()?.timestamp_micros();
        WRITABLE_MICROS.contains(&micros).then_some(Self(micros))
    }

    /// Reads a date of HTTP, such as `Mon, 23 Nov 2026 14:05:00 GMT` (RFC 9110, section 5.6.7); none
    /// where it is not.
    #[must_use]
    pub fn from_http_date(text: &str) -> Option<Self> {
        let micros = DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros();
        WRITABLE_MICROS.contains(&micros).then_some(Self(micros))
    }

    /// As a chrono date; out-of-range values clamp to the epoch.
    #[must_use]
    pub fn to_chrono(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_chrono().to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339 in UTC, with microsecond precision",
        })
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        DateTime::parse_from_rfc3339(&text).map_err(de::Error::custom)?;
        Self::from_rfc3339(&text)
            .ok_or_else(|| de::Error::custom("year out of range: expected 0 to 9999 in UTC"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_can_be_written() {
        for text in ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-12-31T23:59:60Z"]
        {
            let at = Timestamp::from_rfc3339(text).unwrap();
            assert_eq!(Timestamp::from_rfc3339(&at.to_string()), Some(at), "{text}");
        }
        for text in ["9999-12-31T23:59:59-00:01", "0000-01-01T00:00:00+00:01"] {
            assert_eq!(Timestamp::from_rfc3339(text), None, "{text}");
            let error = serde_json::from_str::<Timestamp>(&format!("{text:?}")).unwrap_err();
            assert!(error.to_string().contains("expected 0 to 9999"), "{error}");
        }
    }

    #[test]
    fn json_round_trip_keeps_microseconds() {
        let at = Timestamp::from_micros(1_795_190_400_123_456);
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(text, "\"2026-11-20T16:00:00.123456Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), at);
    }

    #[test]
    fn a_date_of_http_is_read() {
        let read = Timestamp::from_http_date("Fri, 20 Nov 2026 16:00:00 GMT").unwrap();
        assert_eq!(read.to_string(), "2026-11-20T16:00:00.000000Z");
        assert_eq!(Timestamp::from_http_date("yesterday"), None);
    }

    #[test]
    fn never_is_a_date_and_addition_saturates() {
        assert_eq!(Timestamp::NEVER.to_string(), "9999-12-31T23:59:59.000000Z");
        assert_eq!(Timestamp::NEVER.plus_seconds(1e12), Timestamp::NEVER);
    }
}
