//! OAuth 1.0a PLAINTEXT as MAAS checks it (docs/maas.md#authentication).
//!
//! There is no signature to compute. The value is the escaped (empty) consumer secret, `&`, and the
//! escaped token secret. It is escaped once more, because it stands in a header. What matters is
//! freshness: MAAS stores every nonce and refuses a header that it has seen. So a header belongs to
//! one attempt, never to a call that may be tried again.

use std::fmt;
use std::str::FromStr;

use secrecy::zeroize::Zeroizing;

use crate::encode::escape;
use crate::error::Error;

/// A MAAS API key, `consumer_key:token_key:token_secret`. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    consumer_key: String,
    token_key: String,
    token_secret: Zeroizing<String>,
}

impl ApiKey {
    /// The `Authorization` header value for one attempt.
    ///
    /// `timestamp` is in seconds since 1970; MAAS refuses one more than 300 s behind its clock.
    /// `nonce` must never have been used with this key before.
    pub fn authorization(&self, nonce: &str, timestamp: i64) -> String {
        let secret = Zeroizing::new(format!("&{}", escape(&self.token_secret)));
        let signature = Zeroizing::new(escape(&secret));
        format!(
            "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", \
             oauth_consumer_key=\"{}\", oauth_token=\"{}\", oauth_signature=\"{}\", \
             oauth_nonce=\"{}\", oauth_timestamp=\"{timestamp}\"",
            escape(&self.consumer_key),
            escape(&self.token_key),
            *signature,
            escape(nonce),
        )
    }

    /// The secret part, for masking it in foreign texts.
    pub(crate) fn token_secret(&self) -> &str {
        &self.token_secret
    }
}

impl FromStr for ApiKey {
    type Err = Error;

    /// Parses the form that MAAS hands out, as editors save it: with a byte order mark, blanks, or quotes.
    ///
    /// # Errors
    /// [`Error::Invalid`], which does not repeat the text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        let quoted = |mark: char| parts(text.strip_prefix(mark)?.strip_suffix(mark)?);
        let found = quoted('"').or_else(|| quoted('\'')).or_else(|| parts(text));
        let [consumer, token, secret] = found.ok_or_else(|| {
            Error::invalid("invalid MAAS API key: expected three parts, consumer:token:secret")
        })?;
        Ok(Self {
            consumer_key: consumer.to_owned(),
            token_key: token.to_owned(),
            token_secret: Zeroizing::new(secret.to_owned()),
        })
    }
}

/// The three parts of a key.
fn parts(text: &str) -> Option<[&str; 3]> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_clean = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_graphic());
    parts.iter().all(is_clean).then(|| parts.try_into().ok())?
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(***)")
    }
}

/// A fresh 128-bit nonce in hex.
pub(crate) fn fresh_nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_what_oauthlib_and_cloud_init_send() {
        let key: ApiKey = "ck:tk:t&s/+".parse().unwrap();
        assert_eq!(
            key.authorization("n0", 1_795_181_527),
            "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", \
             oauth_consumer_key=\"ck\", oauth_token=\"tk\", \
             oauth_signature=\"%26t%2526s%252F%252B\", oauth_nonce=\"n0\", \
             oauth_timestamp=\"1795181527\""
        );
    }

    #[test]
    fn plain_secret_is_escaped_once() {
        for saved in [" ck:tk:TS\n", "\u{feff}  ck:tk:TS  \r\n", "\"ck:tk:TS\""] {
            let key: ApiKey = saved.parse().unwrap();
            assert!(key.authorization("n", 0).contains("oauth_signature=\"%26TS\""), "{saved:?}");
        }
    }

    #[test]
    fn refuses_other_shapes_without_repeating_them() {
        for bad in ["", "a:b", "a:b:c:d", "a::sekrit", "a:b:sek rit"] {
            let error = ApiKey::from_str(bad).unwrap_err();
            assert_eq!(error.code(), "maas_invalid_request");
            assert!(!error.to_string().contains("sek"), "{error}");
        }
    }

    #[test]
    fn debug_shows_nothing_and_nonces_differ() {
        let key: ApiKey = "ck:tk:sekrit".parse().unwrap();
        assert_eq!(format!("{key:?}"), "ApiKey(***)");
        assert_ne!(fresh_nonce(), fresh_nonce());
        assert_eq!(fresh_nonce().len(), 32);
    }
}
