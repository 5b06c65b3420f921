//! Who is at the other end of a connection, as far as its certificate tells.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gpuaas_types::{NodeId, Timestamp};
use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::authority::{AuthorityError, Subject};
use crate::der::{fingerprint, whole_seconds};

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// What it presented and holds the key of.
    pub certificate: Option<Arc<PeerCertificate>>,
}

/// What a certificate says, and whether its signer is ours. Whether its time has come or is over
/// is left to whoever knows what time it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// SHA-256 of its DER.
    pub fingerprint: [u8; 32],
    /// Serial number, hexadecimal; empty where it cannot be read.
    pub serial: String,
    /// The node that it names.
    pub node_id: Option<NodeId>,
    /// First moment.
    pub not_before: Timestamp,
    /// Last moment.
    pub not_after: Timestamp,
    /// One of our anchors stands behind it, and it is for clients.
    pub ours: bool,
    /// Why not.
    pub why_not: String,
}

/// Reads certificates and holds them against anchors, which may be replaced while it is used.
#[derive(Debug, Clone)]
pub struct PeerReader {
    verifier: Arc<RwLock<Arc<dyn ClientCertVerifier>>>,
}

impl PeerReader {
    pub(crate) fn new(
        anchors: &[CertificateDer<'static>],
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, AuthorityError> {
        let broken = |why: &dyn std::fmt::Display| AuthorityError::Broken(why.to_string());
        let mut roots = RootCertStore::empty();
        for anchor in anchors {
            roots.add(anchor.clone()).map_err(|error| broken(&error))?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|error| broken(&error))?;
        Ok(Self { verifier: Arc::new(RwLock::new(verifier)) })
    }

    /// Holds certificates against the anchors of `other` from now on, wherever it is used.
    pub fn replace(&self, other: &Self) {
        let verifier = Arc::clone(&other.verifier.read());
        *self.verifier.write() = verifier;
    }

    /// What a chain, the leaf first, says and is worth.
    #[must_use]
    pub fn read(&self, chain: &[CertificateDer<'_>]) -> PeerCertificate {
        let Some((leaf, above)) = chain.split_first() else { return unreadable([0; 32]) };
        let fingerprint = fingerprint(leaf);
        let Ok((_, parsed)) = X509Certificate::from_der(leaf) else {
            return unreadable(fingerprint);
        };
        let validity = parsed.validity();
        let not_before = whole_seconds(validity.not_before.timestamp());
        let not_after = whole_seconds(validity.not_after.timestamp());
        // The signature first: what a stranger's certificate says of time is of no interest. At its
        // own first moment a certificate is neither early nor late.
        let begin = u64::try_from(validity.not_before.timestamp()).unwrap_or_default();
        let moment = UnixTime::since_unix_epoch(Duration::from_secs(begin));
        let verifier = Arc::clone(&self.verifier.read());
        let signed = verifier.verify_client_cert(leaf, above, moment);
        PeerCertificate {
            fingerprint,
            serial: hex::encode(parsed.raw_serial()),
            node_id: node_of(&parsed),
            not_before,
            not_after,
            ours: signed.is_ok(),
            why_not: signed.err().map(|error| error.to_string()).unwrap_or_default(),
        }
    }
}

fn unreadable(fingerprint: [u8; 32]) -> PeerCertificate {
    PeerCertificate {
        fingerprint,
        serial: String::new(),
        node_id: None,
        not_before: Timestamp::EPOCH,
        not_after: Timestamp::EPOCH,
        ours: false,
        why_not: "the certificate cannot be parsed".to_owned(),
    }
}

/// The one node that a certificate names; none where it names several things.
fn node_of(certificate: &X509Certificate<'_>) -> Option<NodeId> {
    let names = certificate.subject_alternative_name().ok()??;
    match names.value.general_names.as_slice() {
        [GeneralName::URI(uri)] => Subject::node_of_uri(uri),
        _ => None,
    }
}
