//! Keys of a provider of OpenID Connect that tests play, and the tokens that it signs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// A key for ES256 (RFC 7518 section 3.4).
pub struct IssuerKey {
    /// Its `kid`.
    pub id: String,
    pair: EcdsaKeyPair,
}

impl IssuerKey {
    /// A new one.
    ///
    /// # Panics
    /// Where the operating system gives no random bytes.
    #[must_use]
    #[expect(clippy::expect_used, reason = "tests have no better way out")]
    pub fn new(id: &str) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("random bytes");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key");
        Self { id: id.to_owned(), pair }
    }

    /// Its public part, as it stands in a set of keys (RFC 7517).
    #[must_use]
    pub fn jwk(&self) -> Value {
        let (x, y) = self.coordinates();
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id, "x": x, "y": y })
    }

    /// The public key as bytes, for who would use it as a secret.
    #[must_use]
    pub fn public_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn coordinates(&self) -> (String, String) {
        // 0x04, then both coordinates (SEC 1 section 2.3.3).
        let (x, y) = self.public_bytes()[1..].split_at(32);
        (BASE64URL.encode(x), BASE64URL.encode(y))
    }

    /// A token with these claims and the usual head.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({ "alg": "ES256", "typ": "at+jwt", "kid": self.id }), claims)
    }

    /// A token with this head, whatever it says.
    ///
    /// # Panics
    /// Where the operating system gives no random bytes.
    #[must_use]
    #[expect(clippy::expect_used, reason = "tests have no better way out")]
    pub fn sign_with(&self, head: &Value, claims: &Value) -> String {
        let message = unsigned(head, claims);
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes());
        let signature = signature.expect("random bytes");
        format!("{message}.{}", BASE64URL.encode(signature))
    }
}

/// Head and claims of a token, without the signature.
#[must_use]
pub fn unsigned(head: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64URL.encode(value.to_string());
    format!("{}.{}", part(head), part(claims))
}

/// A token that is signed with a secret (HS256).
#[must_use]
pub fn sign_with_secret(secret: &[u8], head: &Value, claims: &Value) -> String {
    let message = unsigned(head, claims);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let tag = ring::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", BASE64URL.encode(tag))
}
