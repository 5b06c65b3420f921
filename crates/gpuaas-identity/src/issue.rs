//! Asking an authority, and looking at what it gave before it counts.

use std::sync::{Arc, OnceLock};

use gpuaas_types::{NodeId, Timestamp};
use parking_lot::RwLock;
use rcgen::{CertificateParams, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

use crate::authority::{Authority, AuthorityError, CertificateRequest, Subject};
use crate::peer::PeerReader;
use crate::{der, pem};

/// Clocks that are behind by this much still find a new certificate valid; less where it lives
/// shortly.
const SKEW_SECONDS: f64 = 300.0;

/// An authority's clock may be ahead of ours by this much; its certificate counts that much later.
const AHEAD_SECONDS: f64 = 60.0;

/// How long certificates live, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lifetimes {
    /// A node's. Its agent asks for the next one after about two thirds of it, so a control plane
    /// may be away for the last third.
    pub node_seconds: f64,
    /// The control plane's own, for its listener.
    pub server_seconds: f64,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { node_seconds: 30.0 * 86_400.0, server_seconds: 90.0 * 86_400.0 }
    }
}

/// A node's certificate, as it is handed out and written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// PEM, the leaf first.
    pub chain_pem: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// SHA-256 of the leaf's DER: what the certificate is found by.
    pub fingerprint: [u8; 32],
    /// First moment.
    pub not_before: Timestamp,
    /// Last moment.
    pub not_after: Timestamp,
    /// Generation of the authority that signed it.
    pub authority: i64,
}

/// An authority with the house's rules around it.
#[derive(Debug, Clone)]
pub struct Issuer {
    authority: Arc<RwLock<Arc<dyn Authority>>>,
    /// What judges clients, once somebody does.
    reader: Arc<OnceLock<PeerReader>>,
    delivers_anchors: bool,
    lifetimes: Lifetimes,
    provider: Arc<CryptoProvider>,
}

fn broken(why: impl std::fmt::Display) -> AuthorityError {
    AuthorityError::Broken(why.to_string())
}

impl Issuer {
    /// Asks `authority`.
    #[must_use]
    pub fn new(authority: Arc<dyn Authority>, lifetimes: Lifetimes) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authority = Arc::new(RwLock::new(authority));
        Self { authority, reader: Arc::default(), delivers_anchors: true, lifetimes, provider }
    }

    /// The same for a listener whose certificate is not the authority's: nodes are not given its anchors.
    #[must_use]
    pub fn without_delivery(self) -> Self {
        Self { delivers_anchors: false, ..self }
    }

    /// Whether nodes are given the authority's anchors.
    #[must_use]
    pub const fn delivers_anchors(&self) -> bool {
        self.delivers_anchors
    }

    /// Asks another authority from now on, and judges clients by its anchors.
    ///
    /// # Errors
    /// [`AuthorityError::Broken`] when an anchor is no certificate; nothing is changed then.
    pub fn replace_authority(&self, authority: Arc<dyn Authority>) -> Result<(), AuthorityError> {
        let reader = PeerReader::new(authority.anchors(), &self.provider)?;
        // What it signs is to be known before it signs.
        if let Some(known) = self.reader.get() {
            known.replace(&reader);
        }
        *self.authority.write() = authority;
        Ok(())
    }

    /// Whether the authority is the control plane's own, which another one may take the place of.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.authority().is_own()
    }

    fn authority(&self) -> Arc<dyn Authority> {
        Arc::clone(&self.authority.read())
    }

    /// What nodes shall trust, PEM.
    #[must_use]
    pub fn anchors_pem(&self) -> String {
        self.authority().anchors_pem().to_owned()
    }

    /// Which of the control plane's own authorities signs: 1 for the first one.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.authority().generation()
    }

    /// The anchors that nodes are given, PEM, and their SHA-256; none: they are given none.
    #[must_use]
    pub fn delivered_anchors(&self) -> Option<(String, String)> {
        let authority = self.authority();
        let digest = authority.trust_digest()?.to_owned();
        Some((digest, authority.anchors_pem().to_owned()))
    }

    /// The digest of what [`Self::delivered_anchors`] answers.
    #[must_use]
    pub fn delivered_digest(&self) -> Option<String> {
        self.authority().trust_digest().map(str::to_owned)
    }

    /// Judges what clients present, by the anchors of the authority that is asked then.
    ///
    /// # Errors
    /// [`AuthorityError::Broken`] when an anchor is no certificate.
    pub fn reader(&self) -> Result<PeerReader, AuthorityError> {
        if let Some(known) = self.reader.get() {
            return Ok(known.clone());
        }
        let made = PeerReader::new(self.authority().anchors(), &self.provider)?;
        Ok(self.reader.get_or_init(|| made).clone())
    }

    /// A certificate for the agent of `node_id`, good from about `now` on.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub async fn node(
        &self,
        node_id: NodeId,
        csr_pem: &str,
        now: Timestamp,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let key = csr_key(csr_pem)?;
        let subject = Subject::Node(node_id);
        let request = request(subject, csr_pem.to_owned(), now, self.lifetimes.node_seconds)?;
        let authority = self.authority();
        let chain_pem = authority.issue(&request).await?;
        let chain = pem::certificates(&chain_pem)?;
        let seen = PeerReader::new(authority.anchors(), &self.provider)?.read(&chain);
        let leaf = leaf(&chain)?;
        if leaf.public_key().raw != key {
            return Err(broken("the certificate is for another key"));
        }
        if !seen.ours {
            return Err(broken(format!(
                "the certificate does not chain to the authority's own trust anchor: {}",
                seen.why_not
            )));
        }
        if seen.node_id != Some(node_id) {
            return Err(broken("the certificate names another node"));
        }
        check_purpose(&leaf)?;
        let soon = now.plus_seconds(AHEAD_SECONDS);
        if seen.not_after > request.not_after || seen.not_after <= now || seen.not_before > soon {
            let (from, to) = (seen.not_before, seen.not_after);
            return Err(broken(format!(
                "the certificate is valid from {from} to {to}, but the time is {now}"
            )));
        }
        Ok(IssuedCertificate {
            chain_pem,
            serial: seen.serial,
            fingerprint: seen.fingerprint,
            not_before: seen.not_before,
            not_after: seen.not_after,
            authority: authority.generation(),
        })
    }

    /// A key and a certificate for a listener that nodes reach under `names`, and until when it
    /// counts.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub async fn server(
        &self,
        names: Vec<String>,
        now: Timestamp,
    ) -> Result<(CertifiedKey, Timestamp), AuthorityError> {
        let key = KeyPair::generate().map_err(broken)?;
        let csr = CertificateParams::default().serialize_request(&key).map_err(broken)?;
        let csr_pem = csr.pem().map_err(broken)?;
        let seconds = self.lifetimes.server_seconds;
        let request = request(Subject::Server(names), csr_pem, now, seconds)?;
        let chain = pem::certificates(&self.authority().issue(&request).await?)?;
        let not_after = der::whole_seconds(leaf(&chain)?.validity().not_after.timestamp());
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(broken)?;
        let key = self.provider.key_provider.load_private_key(key).map_err(broken)?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(broken)?;
        Ok((certified, not_after))
    }
}

fn whole(at: Timestamp) -> Timestamp {
    der::whole_seconds(at.as_micros().div_euclid(1_000_000))
}

fn request(
    subject: Subject,
    csr_pem: String,
    now: Timestamp,
    seconds: f64,
) -> Result<CertificateRequest, AuthorityError> {
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(broken)?;
    // Positive, and without leading zeros that one side writes and the other does not.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    Ok(CertificateRequest {
        subject,
        csr_pem,
        serial,
        not_before: whole(now.plus_seconds(-SKEW_SECONDS.min(seconds / 10.0))),
        not_after: whole(now.plus_seconds(seconds)),
    })
}

fn leaf<'a>(chain: &'a [CertificateDer<'_>]) -> Result<X509Certificate<'a>, AuthorityError> {
    let first = chain.first().ok_or_else(|| broken("it returned no certificate"))?;
    Ok(X509Certificate::from_der(first).map_err(broken)?.1)
}

/// SHA-256 of the public key of a signing request whose sender holds the private half.
///
/// # Errors
/// [`AuthorityError::Csr`].
pub fn key_digest(csr_pem: &str) -> Result<[u8; 32], AuthorityError> {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, &csr_key(csr_pem)?).as_ref());
    Ok(out)
}

/// The public key of a signing request whose sender holds the private half.
fn csr_key(csr_pem: &str) -> Result<Vec<u8>, AuthorityError> {
    let bad = |why: &str| AuthorityError::Csr(why.to_owned());
    let (_, block) = x509_parser::pem::parse_x509_pem(csr_pem.as_bytes())
        .map_err(|_| bad("expected a signing request in PEM"))?;
    let (_, csr) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|_| bad("not a signing request"))?;
    csr.verify_signature().map_err(|_| bad("its signature does not match its key"))?;
    Ok(csr.certification_request_info.subject_pki.raw.to_vec())
}

/// A node's certificate makes no server, and signs nothing.
fn check_purpose(leaf: &X509Certificate<'_>) -> Result<(), AuthorityError> {
    let usage = leaf.extended_key_usage().map_err(broken)?.map(|usage| usage.value);
    let client_only = usage.is_some_and(|u| u.client_auth && !u.server_auth && !u.any);
    if client_only && !leaf.is_ca() {
        return Ok(());
    }
    Err(broken("the certificate is not limited to client authentication"))
}
