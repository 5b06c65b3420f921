//! How listeners speak TLS. Where nodes reach it, whoever has a certificate shows it.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

/// The certificate of a listener, which may be replaced while it listens.
#[derive(Debug)]
pub struct ServerCertificate(RwLock<Arc<CertifiedKey>>);

impl ServerCertificate {
    /// Starts with this one.
    #[must_use]
    pub fn new(certified: CertifiedKey) -> Self {
        Self(RwLock::new(Arc::new(certified)))
    }

    /// New connections get this one.
    pub fn replace(&self, certified: CertifiedKey) {
        *self.0.write() = Arc::new(certified);
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// Lets every certificate pass whose key its sender holds. See the crate's text for why.
#[derive(Debug)]
struct HoldsItsKey(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for HoldsItsKey {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // No hint: a client with a certificate of somebody else's shall show it and be told.
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// How the listener of nodes speaks TLS.
///
/// # Errors
/// When rustls cannot be set up; a defect.
pub fn server_config(
    certificate: Arc<ServerCertificate>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider: CryptoProvider = rustls::crypto::ring::default_provider();
    let verifier = HoldsItsKey(provider.signature_verification_algorithms);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// How the listener of operators speaks TLS: they have tokens, so it asks for no certificate.
///
/// # Errors
/// When rustls cannot be set up; a defect.
pub fn operator_server_config(
    certificate: Arc<ServerCertificate>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider: CryptoProvider = rustls::crypto::ring::default_provider();
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
