//! Sessions: a token sealed in a cookie, and one-time codes that begin one.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gpuaas_types::{SecretText, Timestamp};
use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Seconds after which a person has to sign in again.
pub(crate) const SESSION_SECONDS: f64 = 12.0 * 3600.0;
/// Seconds for which a one-time address is valid.
pub(crate) const CODE_SECONDS: f64 = 60.0;
/// One-time addresses that are valid at once.
const MOST_CODES: usize = 64;
/// What the sealed bytes are for; a value sealed for another use is refused.
const USE: &[u8] = b"console session 1";

/// A signed-in person's credential.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The bearer token of the admin API.
    pub(crate) token: SecretText,
    /// When the person signed in.
    pub(crate) since: Timestamp,
}

/// Seals sessions with AES-256-GCM.
pub(crate) struct SessionSeal {
    key: Option<LessSafeKey>,
    random: SystemRandom,
}

impl SessionSeal {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new);
        Self { key, random: SystemRandom::new() }
    }

    /// The value of the cookie; none if the operating system gives no random bytes.
    pub(crate) fn seal(&self, session: &Session) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut bytes = serde_json::to_vec(session).ok()?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.as_ref()?.seal_in_place_append_tag(unique, Aad::from(USE), &mut bytes).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &bytes].concat()))
    }

    /// The session of a cookie; none if it was not sealed here or has expired.
    pub(crate) fn open(&self, value: &str, now: Timestamp) -> Option<Session> {
        let sealed = URL_SAFE_NO_PAD.decode(value).ok()?;
        let (nonce, bytes) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut bytes = bytes.to_vec();
        let plain = self.key.as_ref()?.open_in_place(nonce, Aad::from(USE), &mut bytes).ok()?;
        let session: Session = serde_json::from_slice(plain).ok()?;
        let age = now.seconds_since(session.since);
        (age < SESSION_SECONDS).then_some(session)
    }

    /// A code that nobody can guess; none if the operating system gives no random bytes.
    pub(crate) fn random_code(&self) -> Option<String> {
        let mut bytes = [0; 24];
        self.random.fill(&mut bytes).ok()?;
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// One-time codes by their digest, each with the token that it signs in with.
#[derive(Default)]
pub(crate) struct LoginCodes {
    codes: Mutex<HashMap<[u8; 32], (String, Timestamp)>>,
}

impl LoginCodes {
    /// Keeps a code; false if too many are valid already.
    pub(crate) fn add(&self, code: &str, token: &str, now: Timestamp) -> bool {
        let mut codes = self.codes.lock();
        codes.retain(|_, (_, until)| *until > now);
        if codes.len() >= MOST_CODES {
            return false;
        }
        codes.insert(digest(code), (token.to_owned(), now.plus_seconds(CODE_SECONDS)));
        true
    }

    /// The token of a code, once; none if the code is unknown, used or expired.
    pub(crate) fn take(&self, code: &str, now: Timestamp) -> Option<String> {
        let (token, until) = self.codes.lock().remove(&digest(code))?;
        (until > now).then_some(token)
    }
}

fn digest(code: &str) -> [u8; 32] {
    Sha256::digest(code.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::from_micros(1_764_000_000_000_000);

    #[test]
    fn session_is_opened_with_its_key_until_it_expires() {
        let seal = SessionSeal::new(&[7; 32]);
        let session = Session { token: "gptoken-x".into(), since: T0 };
        let value = seal.seal(&session).unwrap();
        assert!(!value.contains("gptoken"));
        let opened = |seal: &SessionSeal, seconds| {
            seal.open(&value, T0.plus_seconds(seconds)).map(|session| session.token)
        };
        assert_eq!(opened(&seal, 1.0), Some("gptoken-x".into()));
        assert_eq!(opened(&SessionSeal::new(&[7; 32]), 1.0), Some("gptoken-x".into()));
        assert_eq!(opened(&SessionSeal::new(&[8; 32]), 1.0), None);
        assert_eq!(opened(&seal, SESSION_SECONDS), None);
        for changed in ["", "AAAA", &value[1..], &format!("{value}A")] {
            assert!(seal.open(changed, T0).is_none(), "{changed}");
        }
    }

    #[test]
    fn code_signs_in_once_within_a_minute() {
        let codes = LoginCodes::default();
        assert!(codes.add("a", "token-a", T0) && codes.add("b", "token-b", T0));
        assert_eq!(codes.take("a", T0.plus_seconds(59.0)).as_deref(), Some("token-a"));
        assert_eq!(codes.take("a", T0), None);
        assert_eq!(codes.take("b", T0.plus_seconds(60.0)), None);
        assert_eq!(codes.take("never", T0), None);
    }
}
