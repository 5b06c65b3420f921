//! Authorities that are trusted while one of them signs: how one takes over from another.

use async_trait::async_trait;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

use crate::authority::{Authority, AuthorityError, CertificateRequest};
use crate::built_in::BuiltIn;
use crate::pem;

/// See the module text.
#[derive(Debug)]
pub struct AuthoritySet {
    signer: BuiltIn,
    generation: i64,
    anchors: Vec<CertificateDer<'static>>,
    anchors_pem: String,
    trust_digest: Option<String>,
}

impl AuthoritySet {
    /// `signer`, the authority of `generation`, signs, and every certificate of `trusted`, PEM, is an
    /// anchor. `is_delivered`: nodes are given these anchors.
    ///
    /// # Errors
    /// [`AuthorityError::Broken`] when one of them is no certificate.
    pub fn new(
        (generation, signer): (i64, BuiltIn),
        trusted: &[String],
        is_delivered: bool,
    ) -> Result<Self, AuthorityError> {
        let anchors_pem = trusted.concat();
        let anchors = pem::certificates(&anchors_pem)?;
        let sha256 = || hex::encode(digest(&SHA256, anchors_pem.as_bytes()));
        let trust_digest = is_delivered.then(sha256);
        Ok(Self { signer, generation, anchors, anchors_pem, trust_digest })
    }
}

#[async_trait]
impl Authority for AuthoritySet {
    fn anchors(&self) -> &[CertificateDer<'static>] {
        &self.anchors
    }

    fn anchors_pem(&self) -> &str {
        &self.anchors_pem
    }

    fn is_own(&self) -> bool {
        true
    }

    fn generation(&self) -> i64 {
        self.generation
    }

    fn trust_digest(&self) -> Option<&str> {
        self.trust_digest.as_deref()
    }

    async fn issue(&self, request: &CertificateRequest) -> Result<String, AuthorityError> {
        self.signer.issue(request).await
    }
}
