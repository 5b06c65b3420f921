//! Addresses of the API, and bodies that the console's forms make.

use serde::Serialize;

/// Items of a table's page.
pub(crate) const PER_PAGE: u32 = 50;

/// `path?name=value&...`, without the values that are empty.
pub(crate) fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
    let given: Vec<_> = pairs.iter().filter(|(_, value)| !value.is_empty()).collect();
    match serde_urlencoded::to_string(&given) {
        Ok(query) if !query.is_empty() => format!("{path}?{query}"),
        _ => path.to_owned(),
    }
}

/// One part of a path, percent-encoded.
pub(crate) fn part(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~@:".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Body of an action on a run, an approval or a batch.
#[derive(Serialize)]
pub(crate) struct Reasoned<'a> {
    /// The API takes the name of the credential's owner.
    pub(crate) actor: &'a str,
    pub(crate) reason: &'a str,
}

/// A word of a shell command: quoted unless it is plain.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '@' | '=' | ',')
    };
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_paths_are_encoded() {
        assert_eq!(
            with_query("/api/v1/nodes", &[("filter", "state=active a>1"), ("after", "")]),
            "/api/v1/nodes?filter=state%3Dactive+a%3E1"
        );
        assert_eq!(with_query("/x", &[("a", "")]), "/x");
        assert_eq!(part("a/../b c?"), "a%2F..%2Fb%20c%3F");
    }

    #[test]
    fn words_of_a_shell_are_quoted() {
        assert_eq!(shell_word("state=active"), "state=active");
        assert_eq!(shell_word("a>1 it's"), r"'a>1 it'\''s'");
    }
}
