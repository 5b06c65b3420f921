//! Names, identifiers, and what people write.

use std::net::IpAddr;

use gpuaas_types::Problem;

use super::address::is_label;
use crate::http::problem::invalid;

/// The name of a site or profile.
pub(crate) fn name(field: &str, text: &str) -> Result<(), Problem> {
    if is_label(text) && !text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(invalid(
        field,
        "expected 1 to 63 characters of a-z, 0-9 and -, with no - at the start or end",
    ))
}

/// A short hostname, lower case.
pub(crate) fn hostname(field: &str, text: &str) -> Result<String, Problem> {
    if is_label(text) {
        return Ok(text.to_ascii_lowercase());
    }
    if text.trim().parse::<IpAddr>().is_ok() {
        let message = format!("invalid hostname {text:?}: this is an IP address");
        return Err(invalid(field, message).with_hint("use the machine's name as MAAS shows it"));
    }
    if text.split('.').count() > 1 && text.split('.').all(is_label) {
        return Err(invalid(field, "expected a short hostname")
            .with_hint("use the short hostname, without the domain"));
    }
    Err(invalid(field, "expected 1 to 63 letters, digits and -, with no - at the start or end"))
}

pub(super) fn identifier(field: &str, text: &str, extra: &str) -> Result<(), Problem> {
    let fits = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
    if (1..=128).contains(&text.len()) && text.chars().all(fits) {
        return Ok(());
    }
    Err(invalid(field, format!("expected 1 to 128 characters: letters, digits and {extra}")))
}

/// At most `limit` characters of `text`, without control characters; line breaks become spaces.
pub(crate) fn plain_text(text: &str, limit: usize) -> String {
    text.chars()
        .map(|c| if matches!(c, '\n' | '\t' | '\r') { ' ' } else { c })
        .filter(|c| !gpuaas_types::text::is_invisible(*c))
        .take(limit)
        .collect()
}

/// Longest reason that is kept, in characters.
pub(crate) const REASON_CHARS: usize = 500;

/// Why something is asked for, in the form that the audit keeps.
///
/// # Errors
/// `invalid_field` where it is empty.
pub(crate) fn reason(text: &str) -> Result<String, Problem> {
    words("reason", text, REASON_CHARS, "must not be empty")
}

/// What a person writes, without control characters and without white space at its ends: at most
/// `limit` characters. `wanted` says what to write where nothing is left of it.
///
/// # Errors
/// `invalid_field`.
pub(crate) fn words(
    field: &str,
    text: &str,
    limit: usize,
    wanted: &str,
) -> Result<String, Problem> {
    let plain = plain_text(text, usize::MAX);
    let words: String = plain.trim().chars().take(limit).collect();
    if words.is_empty() { Err(invalid(field, wanted)) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::spec::OnboardRequest;
    use gpuaas_types::text;
    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::check::onboard;
    use crate::event;

    /// Texts that a pattern allows, the same ones each time.
    fn drawn(pattern: &str) -> Vec<String> {
        // Of the whole text; the generator knows no anchors.
        let whole = pattern.trim_start_matches('^').trim_end_matches('$');
        let strategy = proptest::string::string_regex(whole).unwrap();
        let mut runner = TestRunner::deterministic();
        (0..100).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
    }

    /// What a schema says that a text may be, the check of its field takes.
    #[test]
    fn a_text_of_its_kind_is_taken() {
        type Check = fn(&str) -> Result<(), Problem>;
        let checks: [(&str, Check); 9] = [
            (text::WebhookUrlText::PATTERN, event::sinks::check_url),
            (text::NameText::PATTERN, |text| name("x", text)),
            (text::HostnameText::PATTERN, |text| hostname("x", text).map(drop)),
            (text::WordsText::PATTERN, |text| reason(text).map(drop)),
            (text::PowerTypeText::PATTERN, |text| identifier("x", text, "_-")),
            (text::SystemIdText::PATTERN, |text| identifier("x", text, "_-")),
            (text::InterfaceText::PATTERN, |text| identifier("x", text, ":._-")),
            (text::PrintableText::PATTERN, |text| {
                onboard(&OnboardRequest {
                    hostname: "h".to_owned(),
                    bmc_address: Some("10.0.0.1".to_owned()),
                    bmc_user: Some(text.to_owned()),
                    ..OnboardRequest::default()
                })
                .map(drop)
            }),
            (text::ArchitectureText::PATTERN, |text| {
                onboard(&OnboardRequest {
                    hostname: "h".to_owned(),
                    architecture: Some(text.to_owned()),
                    ..OnboardRequest::default()
                })
                .map(drop)
            }),
        ];
        // A schema names the invisible characters of the basic plane alone.
        let visible = |text: &String| !text.chars().all(text::is_invisible);
        for (pattern, check) in checks {
            for text in drawn(pattern).into_iter().filter(visible) {
                check(&text).unwrap_or_else(|problem| panic!("{pattern}: {text:?}: {problem}"));
            }
        }
        for moment in drawn(text::TimestampText::PATTERN) {
            assert!(gpuaas_types::Timestamp::from_rfc3339(&moment).is_some(), "{moment}");
        }
        for text in drawn(text::MaasKeyText::PATTERN) {
            assert!(text.parse::<maas_client::ApiKey>().is_ok(), "{text:?}");
        }
        assert!(reason(&format!("{}x", " ".repeat(600))).is_ok(), "white space is no limit");
    }

    #[test]
    fn hostnames() {
        assert_eq!(hostname("h", "J22u11").unwrap(), "j22u11");
        for bad in ["", "-a", "a-", "a_b", "a b", &"a".repeat(64), "a..b", "é"] {
            assert!(hostname("h", bad).is_err(), "{bad}");
        }
        assert!(hostname("h", "a.b.c").unwrap_err().hint.contains("domain"));
        for address in ["10.0.0.9", "2001:db8::9", "::ffff:10.0.0.9"] {
            let problem = hostname("h", address).unwrap_err();
            assert!(problem.errors[0].message.contains("this is an IP address"), "{problem:?}");
        }
        assert_eq!(hostname("h", "42").unwrap(), "42", "digits alone are a name, kept whole");
    }

    #[test]
    fn messages_are_cut_and_cleaned() {
        assert_eq!(plain_text("a\u{1b}[31m\nb\0", 10), "a[31m b");
        assert_eq!(plain_text(&"é".repeat(3000), 2000).chars().count(), 2000);
    }
}
