//! The authority that every control plane can be: one key, one self-signed certificate.

use std::time::Duration;

use async_trait::async_trait;
use gpuaas_types::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::authority::{Authority, AuthorityError, CertificateRequest, Subject};
use crate::pem;

const NAME: &str = "GPUaaS node authority";
/// Its own certificate lives for twenty years: it ends with its key, not with a date that nobody
/// remembers.
const LIFE_SECONDS: f64 = 20.0 * 365.25 * 86_400.0;
/// Hosts whose clocks are behind trust it all the same.
const BACKDATED_SECONDS: f64 = 366.0 * 86_400.0;

/// See the module text.
pub struct BuiltIn {
    issuer: rcgen::Issuer<'static, KeyPair>,
    key_pem: Zeroizing<String>,
    anchor_pem: String,
    /// Its key, certified by the authority before it, PEM; empty: there is none.
    cross_pem: String,
    anchors: Vec<CertificateDer<'static>>,
}

impl std::fmt::Debug for BuiltIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BuiltIn(..)")
    }
}

fn broken(error: &rcgen::Error) -> AuthorityError {
    AuthorityError::Broken(error.to_string())
}

/// Sets from when to when it counts, in whole seconds as certificates write moments.
fn live(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let moment = |at: Timestamp| {
        let seconds = u64::try_from(at.as_micros() / 1_000_000).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = moment(from);
    params.not_after = moment(to);
}

impl BuiltIn {
    /// A new one.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate(now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate().map_err(|error| broken(&error))?;
        let certificate =
            own_params(now, NAME).self_signed(&key).map_err(|error| broken(&error))?;
        Self::from_parts(key, certificate.pem())
    }

    /// The one that is to take its place, and the key of that one certified by this one, PEM: whoever
    /// knows only this one so trusts what the next one signs.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn successor(
        &self,
        now: Timestamp,
        generation: i64,
    ) -> Result<(Self, String), AuthorityError> {
        let key = KeyPair::generate().map_err(|error| broken(&error))?;
        let params = own_params(now, &format!("{NAME} {generation}"));
        let cross = params.signed_by(&key, &self.issuer).map_err(|error| broken(&error))?.pem();
        let certificate = params.self_signed(&key).map_err(|error| broken(&error))?;
        Ok((Self::from_parts(key, certificate.pem())?, cross))
    }

    /// The same, which sends its key as another authority certified it with what it signs for servers.
    #[must_use]
    pub fn with_cross_certificate(self, cross_pem: String) -> Self {
        Self { cross_pem, ..self }
    }

    /// One that [`Self::to_pem`] wrote.
    ///
    /// # Errors
    /// The text is no key and certificate.
    pub fn from_pem(text: &str) -> Result<Self, AuthorityError> {
        let begin = text.find("-----BEGIN CERTIFICATE-----");
        let begin = begin.ok_or_else(|| AuthorityError::Broken("it is incomplete".to_owned()))?;
        let (key, certificate) = text.split_at(begin);
        let key = KeyPair::from_pem(key).map_err(|error| broken(&error))?;
        Self::from_parts(key, certificate.to_owned())
    }

    /// Its key and its certificate. Secret.
    #[must_use]
    pub fn to_pem(&self) -> String {
        format!("{}{}", *self.key_pem, self.anchor_pem)
    }

    fn from_parts(key: KeyPair, anchor_pem: String) -> Result<Self, AuthorityError> {
        let key_pem = Zeroizing::new(key.serialize_pem());
        let issuer =
            rcgen::Issuer::from_ca_cert_pem(&anchor_pem, key).map_err(|error| broken(&error))?;
        let anchors = pem::certificates(&anchor_pem)?;
        Ok(Self { issuer, key_pem, anchor_pem, cross_pem: String::new(), anchors })
    }
}

/// What the certificate of an authority says.
fn own_params(now: Timestamp, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let (from, to) = (now.plus_seconds(-BACKDATED_SECONDS), now.plus_seconds(LIFE_SECONDS));
    live(&mut params, from, to);
    params
}

/// What a certificate says; nothing of it comes from the signing request.
fn params(request: &CertificateRequest) -> Result<CertificateParams, AuthorityError> {
    let mut params = match &request.subject {
        Subject::Server(names) => CertificateParams::new(names.clone()),
        Subject::Node(_) => CertificateParams::new(Vec::new()),
    }
    .map_err(|error| broken(&error))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, request.subject.common_name());
    params.serial_number = Some(SerialNumber::from_slice(&request.serial));
    live(&mut params, request.not_before, request.not_after);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = match &request.subject {
        Subject::Node(node_id) => {
            let uri = Subject::node_uri(*node_id).try_into().map_err(|error| broken(&error))?;
            params.subject_alt_names.push(SanType::URI(uri));
            vec![ExtendedKeyUsagePurpose::ClientAuth]
        }
        Subject::Server(_) => vec![ExtendedKeyUsagePurpose::ServerAuth],
    };
    Ok(params)
}

#[async_trait]
impl Authority for BuiltIn {
    fn anchors(&self) -> &[CertificateDer<'static>] {
        &self.anchors
    }

    fn anchors_pem(&self) -> &str {
        &self.anchor_pem
    }

    async fn issue(&self, request: &CertificateRequest) -> Result<String, AuthorityError> {
        // This verifies that the sender holds the key.
        let mut csr = CertificateSigningRequestParams::from_pem(&request.csr_pem)
            .map_err(|error| AuthorityError::Csr(error.to_string()))?;
        csr.params = params(request)?;
        let certificate = csr.signed_by(&self.issuer).map_err(|error| broken(&error))?;
        match request.subject {
            Subject::Node(_) => Ok(certificate.pem()),
            Subject::Server(_) => Ok(format!("{}{}", certificate.pem(), self.cross_pem)),
        }
    }
}
