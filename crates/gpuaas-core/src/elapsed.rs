//! Spans of time as texts show them.

use gpuaas_types::Timestamp;

/// A number of seconds as a person reads it: `42 s`, `5 min 10 s`, `3 h 5 min`.
///
/// ```
/// use gpuaas_core::elapsed::elapsed_as_text;
///
/// assert_eq!(elapsed_as_text(42.4), "42 s");
/// assert_eq!(elapsed_as_text(310.0), "5 min 10 s");
/// assert_eq!(elapsed_as_text(11_100.0), "3 h 5 min");
/// ```
#[must_use]
pub fn elapsed_as_text(seconds: f64) -> String {
    let whole = seconds.max(0.0).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    let whole = whole as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// A point in time as a person reads it beside others: `3 min ago`, `in 2 h`, `now`. One unit, the
/// largest of which there are two, or one of seconds and minutes; who needs more reads the moment
/// itself.
///
/// ```
/// use gpuaas_core::elapsed::relative_as_text;
/// use gpuaas_types::Timestamp;
///
/// let at = Timestamp::from_micros(1_795_190_400_000_000);
/// assert_eq!(relative_as_text(at, at.plus_seconds(0.4)), "now");
/// assert_eq!(relative_as_text(at, at.plus_seconds(59.0)), "59 s ago");
/// assert_eq!(relative_as_text(at, at.plus_seconds(200.0)), "3 min ago");
/// assert_eq!(relative_as_text(at, at.plus_seconds(7_199.0)), "119 min ago");
/// assert_eq!(relative_as_text(at, at.plus_seconds(7_200.0)), "2 h ago");
/// assert_eq!(relative_as_text(at, at.plus_seconds(172_800.0)), "2 days ago");
/// assert_eq!(relative_as_text(at.plus_seconds(90.0), at), "in 1 min");
/// ```
#[must_use]
pub fn relative_as_text(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.seconds_since(at);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    let whole = seconds.abs() as u64;
    let span = match whole {
        0 => return "now".to_owned(),
        1..60 => format!("{whole} s"),
        60..7_200 => format!("{} min", whole / 60),
        7_200..172_800 => format!("{} h", whole / 3_600),
        _ => format!("{} days", whole / 86_400),
    };
    if seconds < 0.0 { format!("in {span}") } else { format!("{span} ago") }
}
