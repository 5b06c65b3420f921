//! What every check answers, and how counts and names are compared.

/// Whether a check passed, and what was observed.
pub(super) type Verdict = (bool, String);

/// Whether `name` is `pattern`, in which a trailing `*` stands for any ending.
pub(super) fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == pattern,
    }
}

/// Passes where `found` is at least `required`.
pub(super) fn at_least(found: usize, required: u32) -> Verdict {
    let passed = u32::try_from(found).unwrap_or(u32::MAX) >= required;
    (passed, format!("found {found}, expected at least {required}"))
}
