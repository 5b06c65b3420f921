//! The keys of a provider (RFC 7517).

use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Keys of a set that are read; a provider has a handful.
const MOST_KEYS: usize = 64;

/// Why a provider's keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    /// It is no set of keys.
    #[error("not a key set: {0}")]
    Malformed(String),
    /// There is no key in it that could sign a token.
    #[error("the key set contains no key that can sign tokens")]
    Empty,
}

/// One key, and the algorithms that it may be used with.
struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The keys of a provider that sign tokens.
pub struct KeySet(Vec<Key>);

impl KeySet {
    /// Reads a set. A key of a kind that is not known here is left out, as RFC 7517 section 5 says.
    ///
    /// # Errors
    /// [`KeySetFault`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetFault> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(bytes)
            .map_err(|error| KeySetFault::Malformed(error.to_string()))?;
        let keys: Vec<Key> = set.keys.into_iter().take(MOST_KEYS).filter_map(read_key).collect();
        if keys.is_empty() { Err(KeySetFault::Empty) } else { Ok(Self(keys)) }
    }

    /// The key for a token that names this key and this algorithm. A token that names no key gets the
    /// only one that the algorithm fits.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let mut fitting = self.0.iter().filter(|key| key.algorithms.contains(&algorithm));
        match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)).map(|found| &found.key),
            None => match (fitting.next(), fitting.next()) {
                (Some(only), None) => Some(&only.key),
                _ => None,
            },
        }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

fn read_key(value: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
        return None;
    }
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(pair) => match pair.curve {
            EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
            _ => return None,
        },
        // A secret that is shared belongs into no set that anybody may read.
        _ => return None,
    };
    if let Some(named) = &jwk.common.key_algorithm {
        let named = named.to_string().parse::<Algorithm>().ok()?;
        algorithms.retain(|algorithm| *algorithm == named);
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (!algorithms.is_empty()).then_some(Key { id: jwk.common.key_id, algorithms, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

    fn ec(id: &str, more: &str) -> String {
        format!(r#"{{"kty":"EC","crv":"P-256","kid":"{id}","x":"{X}","y":"{X}"{more}}}"#)
    }

    fn set(keys: &[String]) -> Result<KeySet, KeySetFault> {
        KeySet::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes())
    }

    #[test]
    fn a_key_is_used_as_its_kind_and_its_own_words_allow() {
        let keys = set(&[ec("a", ""), ec("b", r#","use":"enc""#), ec("c", r#","alg":"ES256""#)]);
        let keys = keys.unwrap();
        let finds = |id, algorithm| keys.find(id, algorithm).is_some();
        assert!(finds(Some("a"), Algorithm::ES256) && finds(Some("c"), Algorithm::ES256));
        for (id, algorithm) in [
            (Some("a"), Algorithm::RS256),
            (Some("a"), Algorithm::HS256),
            (Some("a"), Algorithm::ES384),
            (Some("b"), Algorithm::ES256),
            (Some("d"), Algorithm::ES256),
            (None, Algorithm::ES256),
        ] {
            assert!(!finds(id, algorithm), "{id:?} {algorithm:?}");
        }
        let one = set(&[ec("a", "")]).unwrap();
        assert!(one.find(None, Algorithm::ES256).is_some());
    }

    #[test]
    fn kinds_that_are_not_known_are_left_out_and_secrets_are_no_keys() {
        let odd = r#"{"kty":"XYZ","kid":"x"}"#.to_owned();
        let secret = r#"{"kty":"oct","kid":"s","k":"c2VjcmV0"}"#.to_owned();
        let keys = set(&[odd.clone(), secret.clone(), "7".to_owned(), ec("a", "")]).unwrap();
        assert_eq!(keys.0.len(), 1);
        assert!(keys.find(Some("s"), Algorithm::HS256).is_none());
        assert_eq!(set(&[odd, secret]).unwrap_err(), KeySetFault::Empty);
        assert!(matches!(KeySet::parse(b"<html>"), Err(KeySetFault::Malformed(_))));
    }
}
