//! Whether a bundle of certificate authorities is final: PEM certificates, and no placeholder that a
//! template left behind.

use gpuaas_types::Timestamp;
use x509_parser::error::PEMError;
use x509_parser::pem::Pem;

/// Why a bundle of certificate authorities is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaError {
    /// There is no CERTIFICATE block.
    #[error("the CA bundle contains no PEM certificate")]
    NoCertificate,
    /// A placeholder of a template is still there.
    #[error("the CA bundle still contains a template placeholder: {0}")]
    Placeholder(String),
    /// A block that is not a certificate, such as a private key.
    #[error("the CA bundle contains a {0} block: expected only CERTIFICATE blocks")]
    ForeignBlock(String),
    /// A block that does not hold one DER certificate.
    #[error("certificate {number} in the CA bundle is invalid: {reason}")]
    Damaged {
        /// Number of the block, from 1.
        number: usize,
        /// What is wrong with it.
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
/// Each block must hold exactly one X.509 certificate. Its signature is not checked, and
/// [`ca_bundle_ends_at`] says until when it is good: both are judged by the node that trusts it, at its
/// own time.
///
/// # Errors
/// See [`CaError`].
pub fn validate_ca_bundle(pem: &str) -> Result<usize, CaError> {
    if let Some(found) = placeholder(pem) {
        return Err(CaError::Placeholder(found));
    }
    // Operators indent blocks, and paste them with blanks at the end of a line.
    let lines: Vec<&str> = pem.lines().map(str::trim).collect();
    let unindented = lines.join("\n");
    let mut count = 0;
    for block in Pem::iter_from_buffer(unindented.as_bytes()) {
        let number = count + 1;
        let damaged = |reason| CaError::Damaged { number, reason };
        let block = block.map_err(|error| {
            damaged(match error {
                PEMError::IncompletePEM => "no END line",
                PEMError::Base64DecodeError => "invalid base64",
                _ => "malformed BEGIN line",
            })
        })?;
        if block.label != "CERTIFICATE" {
            return Err(CaError::ForeignBlock(block.label));
        }
        match x509_parser::parse_x509_certificate(&block.contents) {
            Ok(([], _)) => count = number,
            _ => return Err(damaged("expected exactly one DER certificate")),
        }
    }
    if count == 0 { Err(CaError::NoCertificate) } else { Ok(count) }
}

/// When the last certificate of a bundle ends. From then on a node that trusts this bundle trusts
/// nobody; one that ends earlier may stand beside its successor.
///
/// # Errors
/// Those of [`validate_ca_bundle`].
pub fn ca_bundle_ends_at(pem: &str) -> Result<Timestamp, CaError> {
    validate_ca_bundle(pem)?;
    let lines: Vec<&str> = pem.lines().map(str::trim).collect();
    let unindented = lines.join("\n");
    let blocks = Pem::iter_from_buffer(unindented.as_bytes()).flatten();
    let ends = blocks.filter_map(|block| {
        let (_, certificate) = x509_parser::parse_x509_certificate(&block.contents).ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    let last = ends.max().ok_or(CaError::NoCertificate)?;
    Ok(Timestamp::from_micros(last.saturating_mul(1_000_000)))
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
    pub(crate) const CA: &str = include_str!("tests/ca.pem");

    #[test]
    fn counts_certificates_and_tolerates_comments() {
        assert_eq!(validate_ca_bundle(CA), Ok(1));
        assert_eq!(validate_ca_bundle(&format!("# root\n{CA}\n# issuing\n{CA}")), Ok(2));
        assert_eq!(validate_ca_bundle(&CA.replace('\n', "\r\n")), Ok(1));
        assert_eq!(validate_ca_bundle(&format!("\n\n  {CA}\t\n\n")), Ok(1));
    }

    #[test]
    fn a_bundle_ends_with_its_last_certificate() {
        let end = Timestamp::from_rfc3339("2126-10-27T16:39:14Z").unwrap();
        assert_eq!(ca_bundle_ends_at(CA), Ok(end));
        assert_eq!(ca_bundle_ends_at(&format!("# old\n{CA}\n  {CA}")), Ok(end));
        assert_eq!(ca_bundle_ends_at(""), Err(CaError::NoCertificate));
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
        let letters = CA.replacen('M', "!", 1);
        let der = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n".to_owned();
        for bad in [shortened, endless.clone(), letters, format!("{endless}\n{CA}"), der] {
            assert!(matches!(validate_ca_bundle(&bad), Err(CaError::Damaged { number: 1, .. })));
        }
        assert!(matches!(
            validate_ca_bundle(&format!("{CA}{endless}")),
            Err(CaError::Damaged { number: 2, .. })
        ));
        let headless = lines[1..].join("\n");
        assert_eq!(validate_ca_bundle(&headless), Err(CaError::NoCertificate));
    }
}
