//! Whether a certificate bundle is final: real PEM certificates, not what a template left behind.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Why a certificate bundle is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaError {
    /// Nothing between BEGIN CERTIFICATE and END CERTIFICATE anywhere.
    #[error("no PEM certificate in the bundle")]
    NoCertificate,
    /// A template's placeholder is still there.
    #[error("the bundle still holds a template placeholder: {0}")]
    Placeholder(String),
    /// A block that is not a certificate, such as a private key.
    #[error("the bundle holds a {0} block; only CERTIFICATE blocks belong in it")]
    ForeignBlock(String),
    /// A block that does not hold one DER certificate.
    #[error("certificate {number} of the bundle is damaged: {reason}")]
    Damaged {
        /// Which, from 1.
        number: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

impl CaError {
    /// Stable code for a problem body.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "ca_bundle_invalid"
    }
}

/// Checks a PEM bundle (RFC 7468) and counts its certificates. Text between blocks is allowed.
///
/// Each block must hold base64 of exactly one DER SEQUENCE; signatures and dates are not looked
/// at, because a node's clock and trust decide those.
///
/// # Errors
/// See [`CaError`].
pub fn validate_ca_bundle(pem: &str) -> Result<usize, CaError> {
    if let Some(found) = placeholder(pem) {
        return Err(CaError::Placeholder(found));
    }
    let mut count = 0;
    let mut block: Option<String> = None;
    for line in pem.lines().map(str::trim) {
        if let Some(label) = label(line, "-----BEGIN ") {
            if block.is_some() {
                return Err(CaError::Damaged { number: count + 1, reason: "it has no end line" });
            }
            if label != "CERTIFICATE" {
                return Err(CaError::ForeignBlock(label.to_owned()));
            }
            block = Some(String::new());
        } else if label(line, "-----END ").is_some() {
            let number = count + 1;
            let text =
                block.take().ok_or(CaError::Damaged { number, reason: "it has no begin line" })?;
            let der = STANDARD
                .decode(text)
                .map_err(|_| CaError::Damaged { number, reason: "it is not base64" })?;
            if !is_one_der_sequence(&der) {
                return Err(CaError::Damaged { number, reason: "it is not one DER sequence" });
            }
            count = number;
        } else if let Some(text) = &mut block {
            text.push_str(line);
        }
    }
    match (block, count) {
        (Some(_), _) => Err(CaError::Damaged { number: count + 1, reason: "it has no end line" }),
        (None, 0) => Err(CaError::NoCertificate),
        (None, count) => Ok(count),
    }
}

fn label<'a>(line: &'a str, begin: &str) -> Option<&'a str> {
    line.strip_prefix(begin)?.strip_suffix("-----")
}

/// A SEQUENCE tag and a definite length that covers the rest exactly (X.690 section 8.1.3).
fn is_one_der_sequence(der: &[u8]) -> bool {
    let Some((&[0x30, first], rest)) = der.split_first_chunk::<2>() else {
        return false;
    };
    if first < 0x80 {
        return rest.len() == usize::from(first) && !rest.is_empty();
    }
    let octets = usize::from(first & 0x7f);
    if !(1..=4).contains(&octets) || rest.len() < octets {
        return false;
    }
    let (length, body) = rest.split_at(octets);
    let length = length.iter().fold(0usize, |sum, &byte| (sum << 8) | usize::from(byte));
    body.len() == length
}

/// The first template placeholder in `text`: `{{...`, `REPLACE_ME`, `CHANGE_ME`, `<LIKE THIS>`.
pub(crate) fn placeholder(text: &str) -> Option<String> {
    let upper = text.to_uppercase();
    for word in ["{{", "}}", "REPLACE_ME", "REPLACE-ME", "CHANGE_ME", "CHANGEME"] {
        if upper.contains(word) {
            return Some(word.to_owned());
        }
    }
    let start = text.find('<')?;
    let inside = text.get(start..)?.split_once('>')?.0;
    let short = inside.len() <= 60 && !inside.contains('\n');
    short.then(|| format!("{inside}>"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A self-signed certificate that openssl wrote for the test ("gpuaas test ca").
    pub(crate) const CA: &str = include_str!("../tests/ca.pem");

    #[test]
    fn counts_certificates_and_tolerates_comments() {
        assert_eq!(validate_ca_bundle(CA), Ok(1));
        assert_eq!(validate_ca_bundle(&format!("# root\n{CA}\n# issuing\n{CA}")), Ok(2));
        assert_eq!(validate_ca_bundle(&CA.replace('\n', "\r\n")), Ok(1));
    }

    #[test]
    fn refuses_what_is_no_certificate() {
        let key = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        assert_eq!(validate_ca_bundle(""), Err(CaError::NoCertificate));
        assert_eq!(validate_ca_bundle("not a pem"), Err(CaError::NoCertificate));
        assert!(matches!(validate_ca_bundle(key), Err(CaError::ForeignBlock(_))));
        for template in ["{{ ca }}", "<SITE CA PEM>", "REPLACE_ME"] {
            assert!(matches!(validate_ca_bundle(template), Err(CaError::Placeholder(_))));
            let wrapped =
                format!("-----BEGIN CERTIFICATE-----\n{template}\n-----END CERTIFICATE-----\n");
            assert!(matches!(validate_ca_bundle(&wrapped), Err(CaError::Placeholder(_))));
        }
    }

    #[test]
    fn refuses_damaged_blocks() {
        let lines: Vec<&str> = CA.lines().collect();
        let shortened = [&lines[..2], &lines[3..]].concat().join("\n");
        let endless = lines[..lines.len() - 1].join("\n");
        let headless = lines[1..].join("\n");
        let letters = CA.replacen('M', "!", 1);
        for bad in [shortened, endless.clone(), headless, letters, format!("{endless}\n{CA}")] {
            assert!(matches!(validate_ca_bundle(&bad), Err(CaError::Damaged { number: 1, .. })));
        }
    }
}
