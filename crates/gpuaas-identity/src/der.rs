//! What certificates in DER are known by, and how they write moments.

use gpuaas_types::Timestamp;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

/// SHA-256 of a certificate's DER.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, certificate).as_ref());
    out
}

/// A moment from seconds since 1970, as certificates count it.
pub(crate) fn whole_seconds(unix_seconds: i64) -> Timestamp {
    Timestamp::from_micros(unix_seconds.saturating_mul(1_000_000))
}
