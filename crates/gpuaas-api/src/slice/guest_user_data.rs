//! User-data of a guest that would keep it from calling its host.
//!
//! A guest calls by cloud-init's `phone_home`, which its vendor-data sets; user-data comes before that. So a
//! `phone_home` or a `vendor_data` of the tenant's makes a guest that is never heard, and whose launch is
//! taken back after its timeout. The keys are searched for in all forms in which cloud-init reads them,
//! without a parser of YAML: a false match costs a tenant one rewording.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Keys of cloud-config that silence a guest.
const KEYS: [&str; 2] = ["phone_home", "vendor_data"];

/// The key in `user_data` that would silence the guest; none: there is none.
#[must_use]
pub(crate) fn silencing_key(user_data: &str) -> Option<&'static str> {
    let decoded = encoded_parts(user_data);
    std::iter::once(user_data).chain(decoded.iter().map(String::as_str)).find_map(key_of)
}

fn key_of(text: &str) -> Option<&'static str> {
    // A script configures nothing.
    if text.trim_start().starts_with("#!") {
        return None;
    }
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let without_comments = lines.fold(String::new(), |all, line| all + line + "\n");
    let plain = unescaped(&without_comments);
    let is_patch = text.contains("jsonp");
    KEYS.into_iter().find(|key| names(&plain, key, is_patch))
}

/// Whether a text has the key: plain or quoted, at the start of a line or within braces. A JSON patch
/// (`cloud-config-jsonp`) names it in a path.
fn names(text: &str, key: &str, is_patch: bool) -> bool {
    text.match_indices(key).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + key.len()..).unwrap_or_default();
        let after = after.trim_start_matches(['"', '\'']).trim_start();
        match before {
            Some('/') => is_patch,
            Some(c) if !c.is_whitespace() && !matches!(c, '"' | '\'' | '{' | ',') => false,
            _ => after.starts_with(':'),
        }
    })
}

/// The text with the escapes of JSON and YAML resolved: `\u005f`, `\x5f`.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let digits = match after.chars().next() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => 0,
        };
        let code = after.get(1..=digits).filter(|_| digits > 0);
        let letter = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        match letter.and_then(char::from_u32) {
            Some(letter) => {
                out.push(letter);
                rest = after.get(1 + digits..).unwrap_or_default();
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

/// Parts of a MIME message that are encoded, decoded.
fn encoded_parts(text: &str) -> Vec<String> {
    let lower = text.to_ascii_lowercase();
    let mut parts = Vec::new();
    if lower.contains("quoted-printable") {
        parts.push(unquoted(text));
    }
    if lower.contains("base64") {
        let is_coded = |line: &&str| {
            let coded = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
            !line.is_empty() && line.chars().all(coded)
        };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let runs = lines.split(|line| !is_coded(line)).filter(|run| !run.is_empty());
        let decoded = runs.filter_map(|run| STANDARD.decode(run.concat()).ok());
        parts.extend(decoded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
    }
    parts
}

/// Quoted-printable (RFC 2045 section 6.7).
fn unquoted(text: &str) -> String {
    let joined = text.replace("=\r\n", "").replace("=\n", "");
    let mut pieces = joined.split('=');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let letter = piece.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        match letter {
            Some(letter) => {
                out.push(char::from(letter));
                out.push_str(piece.get(2..).unwrap_or_default());
            }
            None => {
                out.push('=');
                out.push_str(piece);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mime(encoding: &str, body: &str) -> String {
        format!(
            "Content-Type: multipart/mixed; boundary=\"B\"\nMIME-Version: 1.0\n\n--B\n\
             Content-Type: text/cloud-config\nContent-Transfer-Encoding: {encoding}\n\n{body}\n--B--\n"
        )
    }

    #[test]
    fn keys_are_found_in_each_form_that_cloud_init_reads() {
        let encoded = STANDARD.encode("phone_home: {url: http://elsewhere/}\n");
        let (first, second) = encoded.split_at(20);
        for text in [
            "#cloud-config\nphone_home: {url: http://elsewhere/}\n".to_owned(),
            "#cloud-config\n\"phone_home\": {}\n".to_owned(),
            "#cloud-config\n'phone_home' : {}\n".to_owned(),
            "#cloud-config\n{\"packages\": [], \"phone_home\": {}}\n".to_owned(),
            "#cloud-config\n{packages: [], phone_home: {}}\n".to_owned(),
            "#cloud-config\n\"phone\\u005fhome\": {}\n".to_owned(),
            "#cloud-config\n\"\\x70hone_home\": {}\n".to_owned(),
            "#cloud-config\n? phone_home\n: {}\n".to_owned(),
            "#cloud-config\n!!str phone_home: {}\n".to_owned(),
            "#cloud-config-archive\n- type: text/cloud-config\n  content: |\n    phone_home: {}\n"
                .to_owned(),
            "#cloud-config-jsonp\n[{\"op\": \"add\", \"path\": \"/phone_home\", \"value\": {}}]\n"
                .to_owned(),
            mime("7bit", "phone_home: {}"),
            mime("base64", &format!("{first}\n{second}")),
            mime("quoted-printable", "phone=5Fho=\nme: {}"),
        ] {
            assert_eq!(silencing_key(&text), Some("phone_home"), "{text}");
        }
        assert_eq!(silencing_key("#cloud-config\n\"vendor_data\": {}\n"), Some("vendor_data"));
    }

    #[test]
    fn what_does_not_silence_a_guest_is_taken() {
        for text in [
            "",
            "#cloud-config\n# phone_home: is the host's\npackages: [curl]\n",
            "#cloud-config\nruncmd: [echo phone_home]\n",
            "#cloud-config\nmy_phone_home: 1\nphone_home_url: x\n",
            "#!/bin/sh\necho 'phone_home: x'\n",
            "#cloud-config\nwrite_files:\n- path: /etc/phone_home\n  content: \"\\\\ \\u00\"\n",
            "#cloud-config\nwrite_files:\n- {encoding: b64, content: aGVsbG8=}\n",
        ] {
            assert_eq!(silencing_key(text), None, "{text}");
        }
    }
}
