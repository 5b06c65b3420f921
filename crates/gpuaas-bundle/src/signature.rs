//! Signatures of bundles.
//!
//! A signature is a DSSE envelope (Dead Simple Signing Envelope 1.0, as in-toto and Sigstore use
//! it) around a [`Statement`], signed with Ed25519 (RFC 8032). What is signed is the exact text of
//! the statement with its type, so no canonical form of JSON is needed, and a signature of
//! something else never fits. The statement names the digest; bytes of another digest are refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_types::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::digest::Digest;

/// DSSE payload type of a [`Statement`].
pub const PAYLOAD_TYPE: &str = "application/vnd.gpuaas.bundle.v1+json";
/// Longest envelope, in bytes.
const MAX_ENVELOPE_BYTES: usize = 16 * 1024;

/// The statement of a signer about a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The bundle's reference, `name@version`.
    pub bundle: String,
    /// SHA-256 of the archive.
    pub digest: Digest,
    /// Time of the signature.
    pub signed_at: Timestamp,
    /// Time at which the signature expires; `None`: it is valid as long as its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A DSSE envelope: a payload and its signatures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    /// Type of the payload, such as [`PAYLOAD_TYPE`].
    pub payload_type: String,
    /// The payload, in base64.
    pub payload: String,
    /// Signatures of the payload.
    pub signatures: Vec<Signature>,
}

/// One signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// [`PublicKey::id`] of the signer.
    pub keyid: String,
    /// 64 bytes, in base64.
    pub sig: String,
}

/// An Ed25519 private key. Its `Debug` form shows only the key id.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    pkcs8: Zeroizing<Vec<u8>>,
}

/// An Ed25519 public key: 32 bytes, as text in base64.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// A public key whose signatures are trusted, and its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedKey {
    /// Name of its owner.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// Time from which the key is not trusted any more; `None`: it is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Why a bundle is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not an envelope, or not of the expected payload type.
    #[error("malformed signature or key: {0}")]
    Malformed(String),
    /// No trusted key has signed it.
    #[error("not signed by a trusted key; signed by {}", .signers.join(", "))]
    UnknownKey {
        /// Key ids in the envelope.
        signers: Vec<String>,
    },
    /// The signature does not fit the trusted key that it names.
    #[error("the signature does not match the key of {signer}")]
    Forged {
        /// Name of the key's owner.
        signer: String,
    },
    /// The key is not trusted any more.
    #[error("the key of {signer} has not been trusted since {until}")]
    KeyRetired {
        /// Name of the key's owner.
        signer: String,
        /// Time from which it is not trusted.
        until: Timestamp,
    },
    /// The signature has expired.
    #[error("the signature expired at {at}")]
    Expired {
        /// Time of the expiry.
        at: Timestamp,
    },
    /// Signed in the future: this host's clock, or the signer's, is wrong.
    #[error("the signature is dated {at}, which is in the future: check the clock")]
    NotYet {
        /// Time of the signature.
        at: Timestamp,
    },
    /// The bytes are not the ones that were signed.
    #[error("the content has digest {seen}, but {signed} was signed")]
    WrongDigest {
        /// Digest of the bytes.
        seen: Digest,
        /// Digest in the statement.
        signed: Digest,
    },
    /// The statement is about another bundle.
    #[error("{signed} was signed, but {wanted} was requested")]
    WrongBundle {
        /// Bundle of the statement.
        signed: String,
        /// Bundle that was expected.
        wanted: String,
    },
}

impl SignatureError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "signature_malformed",
            Self::UnknownKey { .. } => "signature_key_unknown",
            Self::Forged { .. } => "signature_forged",
            Self::KeyRetired { .. } => "signature_key_retired",
            Self::Expired { .. } => "signature_expired",
            Self::NotYet { .. } => "signature_not_yet_valid",
            Self::WrongDigest { .. } => "bundle_digest_mismatch",
            Self::WrongBundle { .. } => "bundle_name_mismatch",
        }
    }
}

/// Largest clock error, in seconds, before a signature counts as one of the future.
const MAX_CLOCK_ERROR_SECONDS: f64 = 300.0;

/// The bytes that are signed: the pre-authentication encoding (PAE) of DSSE 1.0.
fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

impl SigningKey {
    /// A new key, from the system's randomness.
    ///
    /// # Errors
    /// The system has none to give.
    pub fn generate() -> Result<Self, SignatureError> {
        let failed =
            |_| SignatureError::Malformed("the system provided no random bytes".to_owned());
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(failed)?;
        Self::from_pkcs8(document.as_ref().to_vec())
    }

    /// The key of a PKCS #8 version 2 document (RFC 8410).
    ///
    /// # Errors
    /// It holds no such key.
    pub fn from_pkcs8(pkcs8: Vec<u8>) -> Result<Self, SignatureError> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8)
            .map_err(|error| SignatureError::Malformed(format!("not an Ed25519 key: {error}")))?;
        Ok(Self { pair, pkcs8: Zeroizing::new(pkcs8) })
    }

    /// The key as a PEM file (RFC 7468).
    #[must_use]
    pub fn to_pem(&self) -> String {
        let text = BASE64.encode(&*self.pkcs8);
        format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
    }

    /// The key of a PEM file.
    ///
    /// # Errors
    /// It holds no Ed25519 key.
    pub fn from_pem(text: &str) -> Result<Self, SignatureError> {
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
            SignatureError::Malformed("expected a PEM file with a PRIVATE KEY block".to_owned())
        })?;
        Self::from_pkcs8(pkcs8.secret_pkcs8_der().to_vec())
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// Signs a statement.
    ///
    /// # Errors
    /// The statement has no JSON form.
    pub fn sign(&self, statement: &Statement) -> Result<Envelope, SignatureError> {
        self.sign_payload(PAYLOAD_TYPE, statement)
    }

    /// Signs any payload of type `payload_type`.
    ///
    /// # Errors
    /// It has no JSON form.
    pub fn sign_payload<T: Serialize>(
        &self,
        payload_type: &str,
        value: &T,
    ) -> Result<Envelope, SignatureError> {
        let payload = serde_json::to_vec(value)
            .map_err(|error| SignatureError::Malformed(error.to_string()))?;
        let signature = self.pair.sign(&pre_authentication_encoding(payload_type, &payload));
        Ok(Envelope {
            payload_type: payload_type.to_owned(),
            payload: BASE64.encode(&payload),
            signatures: vec![Signature {
                keyid: self.public().id(),
                sig: BASE64.encode(signature.as_ref()),
            }],
        })
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}

impl PublicKey {
    /// The key id in an envelope: the first 16 hexadecimal digits of the SHA-256 of the key.
    #[must_use]
    pub fn id(&self) -> String {
        Digest::sha256(&self.0).to_string().chars().take(16).collect()
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&BASE64.encode(self.0))
    }
}

impl std::str::FromStr for PublicKey {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed =
            || SignatureError::Malformed("expected a public key of 32 bytes in base64".to_owned());
        let bytes = BASE64.decode(text.trim()).map_err(|_| malformed())?;
        Ok(Self(bytes.try_into().map_err(|_| malformed())?))
    }
}

impl Serialize for PublicKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Envelope {
    /// Reads an envelope.
    ///
    /// # Errors
    /// [`SignatureError::Malformed`].
    pub fn parse(text: &[u8]) -> Result<Self, SignatureError> {
        if text.len() > MAX_ENVELOPE_BYTES {
            return Err(SignatureError::Malformed(format!("{} bytes", text.len())));
        }
        serde_json::from_slice(text).map_err(|error| SignatureError::Malformed(error.to_string()))
    }

    /// The statement without any verification of its signatures. For display only.
    ///
    /// # Errors
    /// [`SignatureError::Malformed`].
    pub fn unverified_statement(&self) -> Result<Statement, SignatureError> {
        self.payload(PAYLOAD_TYPE)
    }

    /// The payload, if it is of `payload_type` and a key that is trusted at `now` has signed it.
    ///
    /// # Errors
    /// Malformed, of an unknown or retired key, or forged.
    pub fn verify_payload<T: DeserializeOwned>(
        &self,
        payload_type: &str,
        trusted: &[TrustedKey],
        now: Timestamp,
    ) -> Result<T, SignatureError> {
        let payload = self.payload(payload_type)?;
        self.signer(trusted, now)?;
        Ok(payload)
    }

    /// The payload without any verification of its signatures. For display only.
    ///
    /// # Errors
    /// [`SignatureError::Malformed`], also where it is of another type.
    pub fn unverified_payload<T: DeserializeOwned>(
        &self,
        payload_type: &str,
    ) -> Result<T, SignatureError> {
        self.payload(payload_type)
    }

    /// Who signed it, of the keys that are trusted at `now`, whatever it says.
    ///
    /// # Errors
    /// Malformed, of an unknown or retired key, or forged.
    pub fn verify_signature(
        &self,
        trusted: &[TrustedKey],
        now: Timestamp,
    ) -> Result<String, SignatureError> {
        self.signer(trusted, now)
    }

    fn payload<T: DeserializeOwned>(&self, payload_type: &str) -> Result<T, SignatureError> {
        let malformed = |what: String| SignatureError::Malformed(what);
        if self.payload_type != payload_type {
            return Err(malformed(format!(
                "the payload type is {:?}, expected {payload_type}",
                self.payload_type
            )));
        }
        let payload =
            BASE64.decode(&self.payload).map_err(|_| malformed("invalid base64".into()))?;
        serde_json::from_slice(&payload).map_err(|error| malformed(error.to_string()))
    }

    /// Whether `bytes` are the bundle `wanted` (`name@version`), as somebody trusted said. Gives
    /// who that was.
    ///
    /// # Errors
    /// Why not: see [`SignatureError`].
    pub fn verify(
        &self,
        trusted: &[TrustedKey],
        wanted: &str,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<String, SignatureError> {
        self.verify_digest(trusted, wanted, Digest::sha256(bytes), now)
    }

    /// The same for bytes whose digest is known.
    ///
    /// # Errors
    /// See [`Self::verify`].
    pub fn verify_digest(
        &self,
        trusted: &[TrustedKey],
        wanted: &str,
        seen: Digest,
        now: Timestamp,
    ) -> Result<String, SignatureError> {
        let statement = self.unverified_statement()?;
        let signer = self.signer(trusted, now)?;
        if statement.bundle != wanted {
            let wanted = wanted.to_owned();
            return Err(SignatureError::WrongBundle { signed: statement.bundle, wanted });
        }
        if seen != statement.digest {
            return Err(SignatureError::WrongDigest { seen, signed: statement.digest });
        }
        if let Some(at) = statement.expires_at.filter(|at| *at <= now) {
            return Err(SignatureError::Expired { at });
        }
        if statement.signed_at > now.plus_seconds(MAX_CLOCK_ERROR_SECONDS) {
            return Err(SignatureError::NotYet { at: statement.signed_at });
        }
        Ok(signer)
    }

    /// The trusted signer whose signature fits.
    fn signer(&self, trusted: &[TrustedKey], now: Timestamp) -> Result<String, SignatureError> {
        let payload = BASE64
            .decode(&self.payload)
            .map_err(|_| SignatureError::Malformed("no base64".to_owned()))?;
        let signed = pre_authentication_encoding(&self.payload_type, &payload);
        let mut reason = None;
        for signature in &self.signatures {
            let Some(known) = trusted.iter().find(|known| known.key.id() == signature.keyid) else {
                continue;
            };
            let signer = known.name.clone();
            if let Some(until) = known.until.filter(|until| *until <= now) {
                reason = Some(SignatureError::KeyRetired { signer, until });
                continue;
            }
            let fits = BASE64.decode(&signature.sig).is_ok_and(|sig| {
                UnparsedPublicKey::new(&ED25519, known.key.0).verify(&signed, &sig).is_ok()
            });
            if fits {
                return Ok(signer);
            }
            reason = Some(SignatureError::Forged { signer });
        }
        Err(reason.unwrap_or_else(|| SignatureError::UnknownKey {
            signers: self.signatures.iter().map(|signature| signature.keyid.clone()).collect(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &[u8] = b"a bundle";

    fn at(seconds: f64) -> Timestamp {
        Timestamp::EPOCH.plus_seconds(seconds)
    }

    fn statement() -> Statement {
        Statement {
            bundle: "a@1".to_owned(),
            digest: Digest::sha256(BYTES),
            signed_at: at(1000.0),
            expires_at: Some(at(2000.0)),
        }
    }

    fn trusted(key: &SigningKey) -> Vec<TrustedKey> {
        vec![TrustedKey { name: "site ops".to_owned(), key: key.public(), until: None }]
    }

    #[test]
    fn a_signed_bundle_names_its_signer() {
        let key = SigningKey::generate().unwrap();
        let key = SigningKey::from_pem(&key.to_pem()).unwrap();
        let envelope = key.sign(&statement()).unwrap();
        let text = serde_json::to_vec(&envelope).unwrap();
        let envelope = Envelope::parse(&text).unwrap();
        let signer = envelope.verify(&trusted(&key), "a@1", BYTES, at(1500.0)).unwrap();
        assert_eq!(signer, "site ops");
        assert_eq!(key.public().to_string().parse::<PublicKey>().unwrap(), key.public());
        assert!(!format!("{key:?}").contains("PRIVATE"));
    }

    #[test]
    fn every_refusal_has_its_own_cause() {
        let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let envelope = key.sign(&statement()).unwrap();
        let good = trusted(&key);
        let code = |envelope: &Envelope, trusted: &[TrustedKey], wanted, bytes, now| {
            envelope.verify(trusted, wanted, bytes, at(now)).unwrap_err().code()
        };
        assert_eq!(code(&envelope, &good, "a@1", b"other", 1500.0), "bundle_digest_mismatch");
        assert_eq!(code(&envelope, &good, "a@2", BYTES, 1500.0), "bundle_name_mismatch");
        assert_eq!(code(&envelope, &good, "a@1", BYTES, 2000.0), "signature_expired");
        assert_eq!(code(&envelope, &good, "a@1", BYTES, 600.0), "signature_not_yet_valid");
        assert_eq!(code(&envelope, &[], "a@1", BYTES, 1500.0), "signature_key_unknown");
        assert_eq!(
            code(&envelope, &trusted(&other), "a@1", BYTES, 1500.0),
            "signature_key_unknown"
        );
        let mut retired = trusted(&key);
        retired[0].until = Some(at(1400.0));
        assert_eq!(code(&envelope, &retired, "a@1", BYTES, 1500.0), "signature_key_retired");
        let mut forged = other.sign(&statement()).unwrap();
        forged.signatures[0].keyid = key.public().id();
        assert_eq!(code(&forged, &good, "a@1", BYTES, 1500.0), "signature_forged");
        let mut altered = envelope.clone();
        let later = Statement { expires_at: None, ..statement() };
        altered.payload = BASE64.encode(serde_json::to_vec(&later).unwrap());
        assert_eq!(code(&altered, &good, "a@1", BYTES, 1500.0), "signature_forged");
        let mut elsewhere = envelope;
        elsewhere.payload_type = "application/vnd.in-toto+json".to_owned();
        assert_eq!(code(&elsewhere, &good, "a@1", BYTES, 1500.0), "signature_malformed");
        assert!(Envelope::parse(b"{}").is_err());
    }

    /// RFC 8032, section 7.1, test 1: the key and the encoding are the standard's.
    #[test]
    fn keys_are_those_of_rfc_8032() {
        let mut pkcs8 = hex("302e020100300506032b657004220420");
        pkcs8.extend(hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"));
        let key = SigningKey::from_pkcs8(pkcs8).unwrap();
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(key.public().0.to_vec(), public);
    }

    fn hex(text: &str) -> Vec<u8> {
        hex::decode(text).unwrap()
    }
}
