//! Redacts secrets in text before it leaves the host.
//!
//! A value that is known to be secret is redacted wherever it occurs. Beyond that, a name such as
//! `password`, an `Authorization` header and a PEM private key mark what follows as secret. It is
//! better to lose a harmless value than to show a password, so a name that may be a secret's is
//! enough.

/// Replaces a secret.
const REDACTED: &str = "[redacted]";
/// Parts of names whose values are redacted.
const SECRET_NAMES: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "credential",
    "private_key",
    "access_key",
    "authorization",
];
/// Shortest secret, in bytes, that is redacted within words; a shorter one is redacted only as a
/// word of its own, because it occurs within harmless words.
const MIN_SUBSTRING_BYTES: usize = 8;
/// Shortest secret, in bytes, that is redacted at all: without its `1`s a text says nothing.
const MIN_WORD_BYTES: usize = 4;

/// Redacts these secrets in `text`, as they are and as quoted texts contain them.
pub(crate) fn redact_values(text: &str, secrets: &[String]) -> String {
    let inner = |quoted: String| {
        let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        inner.unwrap_or_default().to_owned()
    };
    let forms = |secret: &String| {
        let json = serde_json::to_string(secret).unwrap_or_default();
        [secret.clone(), inner(format!("{secret:?}")), inner(json)]
    };
    let mut known: Vec<String> = secrets.iter().flat_map(forms).collect();
    known.retain(|secret| secret.len() >= MIN_WORD_BYTES && *secret != REDACTED);
    // One that is part of another would leave the rest of that.
    known.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
    known.dedup();
    let mut text = text.to_owned();
    for secret in known {
        if secret.len() >= MIN_SUBSTRING_BYTES {
            text = text.replace(&secret, REDACTED);
        } else {
            text = redact_word(&text, &secret);
        }
    }
    text
}

fn redact_word(text: &str, word: &str) -> String {
    let (mut clean, mut from) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.match_indices(word) {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|text| text.chars().next());
        if before.is_some_and(char::is_alphanumeric) || after.is_some_and(char::is_alphanumeric) {
            continue;
        }
        clean.push_str(text.get(from..at).unwrap_or_default());
        clean.push_str(REDACTED);
        from = at + word.len();
    }
    clean.push_str(text.get(from..).unwrap_or_default());
    clean
}

/// Redacts these secrets in `text`, and what its names, headers, URLs and PEM blocks mark as secret.
pub(crate) fn redact_all(text: &str, secrets: &[String]) -> String {
    let text = redact_values(text, secrets);
    let mut clean = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.lines() {
        if line.contains("-----BEGIN ") && line.contains("PRIVATE KEY") {
            in_key = true;
        }
        if in_key {
            if line.contains("-----END ") {
                in_key = false;
                clean.push_str("[redacted private key]\n");
            }
            continue;
        }
        clean.push_str(&redact_urls(&redact_assignments(line)));
        clean.push('\n');
    }
    if in_key {
        clean.push_str("[redacted private key]\n");
    }
    clean
}

/// Redacts the value behind `NAME=`, `NAME: ` or `"NAME":`, and what follows `Bearer` or `Basic`.
fn redact_assignments(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for name in SECRET_NAMES {
        for (at, _) in lower.match_indices(name) {
            if let Some(cut) = assigned_value(line, at + name.len()) {
                cuts.push(cut);
            }
        }
    }
    for scheme in ["bearer ", "basic "] {
        for (at, _) in lower.match_indices(scheme) {
            let begin = at + scheme.len();
            cuts.push((begin, end_of_word(line, begin)));
        }
    }
    cuts.sort_unstable();
    let (mut text, mut from) = (String::new(), 0);
    for (begin, end) in cuts {
        if begin >= from && end > begin {
            text.push_str(line.get(from..begin).unwrap_or_default());
            text.push_str(REDACTED);
            from = end;
        }
    }
    text.push_str(line.get(from..).unwrap_or_default());
    text
}

/// Begin and end of the value in `line` that is assigned to a name which ends behind `from`.
fn assigned_value(line: &str, from: usize) -> Option<(usize, usize)> {
    let rest = line.get(from..)?;
    let sign = rest.find(['=', ':'])?;
    let between = rest.get(..sign)?;
    let name = |c: char| c.is_ascii_alphanumeric() || "_-\"' ".contains(c);
    if between.len() > 24 || !between.chars().all(name) {
        return None;
    }
    let behind = rest.get(sign + 1..)?;
    let space = behind.len() - behind.trim_start_matches([' ', '=', '"', '\'']).len();
    let begin = from + sign + 1 + space;
    let quoted = behind.get(..space)?.contains(['"', '\'']);
    let value = line.get(begin..)?;
    if ["bearer ", "basic "].iter().any(|scheme| value.to_ascii_lowercase().starts_with(scheme)) {
        return None;
    }
    let end = if quoted {
        value.find(['"', '\'']).map_or(line.len(), |end| begin + end)
    } else {
        end_of_word(line, begin)
    };
    (end > begin).then_some((begin, end))
}

fn end_of_word(line: &str, from: usize) -> usize {
    let rest = line.get(from..).unwrap_or_default();
    let end = |c: char| c.is_whitespace() || c == ',' || c == ';' || c == '"' || c == '\'';
    rest.find(end).map_or(line.len(), |end| from + end)
}

/// Redacts `USER:PASSWORD` of `SCHEME://USER:PASSWORD@HOST`.
fn redact_urls(line: &str) -> String {
    let (mut text, mut rest) = (String::new(), line);
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        text.push_str(head);
        let end = tail.find(['/', ' ', '"', '\'']).unwrap_or(tail.len());
        let authority = tail.get(..end).unwrap_or_default();
        rest = match authority.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => {
                text.push_str(REDACTED);
                tail.get(user.len()..).unwrap_or_default()
            }
            _ => tail,
        };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_and_the_rest_stays() {
        let known = ["end", "gpagent_0123456789", "short", "gpagent_0", "a'b\\c/d e\""];
        let known = known.map(str::to_owned).to_vec();
        for (line, clean) in [
            ("connect with gpagent_0123456789 now", "connect with [redacted] now"),
            ("a shorter line, of short(s)", "a shorter line, of [redacted](s)"),
            ("the end", "the end"),
            ("a'b\\c/d e\", \"a'b\\\\c/d e\\\"\"", "[redacted], \"[redacted]\""),
            ("PASSWORD=hunter2 next", "PASSWORD=[redacted] next"),
            ("db_password: \"a b c\", x: 1", "db_password: \"[redacted]\", x: 1"),
            (
                "{\"enrollment_token\":\"abc\",\"n\":1}",
                "{\"enrollment_token\":\"[redacted]\",\"n\":1}",
            ),
            ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
            ("GET / authorization: basic dXNlcg==", "GET / authorization: basic [redacted]"),
            ("clone https://ada:pw@git.example/x", "clone https://[redacted]@git.example/x"),
            ("see https://ada@git.example/x:y", "see https://ada@git.example/x:y"),
            ("the token was refused", "the token was refused"),
            ("MAAS api_key = a:b:c", "MAAS api_key = [redacted]"),
            ("größe=5 passwort", "größe=5 passwort"),
        ] {
            assert_eq!(redact_all(line, &known), format!("{clean}\n"), "{line}");
        }
    }

    #[test]
    fn a_private_key_is_gone_as_a_whole() {
        let text = "a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb\n";
        assert_eq!(redact_all(text, &[]), "a\n[redacted private key]\nb\n");
        assert_eq!(redact_all("-----BEGIN PRIVATE KEY-----\nMHc", &[]), "[redacted private key]\n");
    }
}
