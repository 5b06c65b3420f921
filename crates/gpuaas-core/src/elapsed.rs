//! Spans of time as texts show them.

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
