//! Until when certificates in PEM count.

use gpuaas_types::Timestamp;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::authority::AuthorityError;
use crate::der::{fingerprint, whole_seconds};
use crate::pem;

/// A certificate's subject, and until when it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateLifetime {
    /// Its subject, as it is written for people.
    pub subject: String,
    /// Its last moment.
    pub not_after: Timestamp,
    /// SHA-256 of its DER, hexadecimal.
    pub sha256: String,
}

/// The certificates of a PEM text, in its order.
///
/// # Errors
/// [`AuthorityError::Broken`] where the text has none, or one that cannot be read.
pub fn certificate_lifetimes(pem: &str) -> Result<Vec<CertificateLifetime>, AuthorityError> {
    let all = pem::certificates(pem)?;
    let read = all.iter().map(|certificate| {
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|error| AuthorityError::Broken(error.to_string()))?;
        Ok(CertificateLifetime {
            subject: parsed.subject().to_string(),
            not_after: whole_seconds(parsed.validity().not_after.timestamp()),
            sha256: hex::encode(fingerprint(certificate)),
        })
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_certificate_of_a_text_has_its_end() {
        let now = Timestamp::from_micros(1_795_190_400_000_000);
        let authority = crate::BuiltIn::generate(now).unwrap();
        let anchor = crate::Authority::anchors_pem(&authority).to_owned();
        let read = certificate_lifetimes(&format!("{anchor}{anchor}")).unwrap();
        assert_eq!(read.len(), 2);
        assert!(read[0].not_after > now && !read[0].subject.is_empty());
        assert!(certificate_lifetimes("nothing").is_err());
    }
}
