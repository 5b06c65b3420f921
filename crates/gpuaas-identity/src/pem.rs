//! PEM in and out of DER.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::authority::AuthorityError;

/// Every certificate of a PEM text; at least one.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let broken = |why: &dyn std::fmt::Display| AuthorityError::Broken(why.to_string());
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|error| broken(&format!("cannot parse the PEM: {error}")))?;
    if all.is_empty() {
        return Err(broken(&"the PEM contains no certificate"));
    }
    Ok(all)
}
