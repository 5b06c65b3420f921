//! A token of a provider (RFC 7519, RFC 9068), judged by its keys.

use std::fmt::Write as _;

use gpuaas_types::Timestamp;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, AlgorithmFamily, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::key_set::KeySet;
use super::ring_verifier;
use super::settings::OidcSettings;

/// Seconds by which clocks may differ.
const LEEWAY_SECONDS: f64 = 60.0;
/// Longest time that a token may still be valid: a provider that issues longer ones cannot revoke them here.
const MAX_LIFETIME_SECONDS: f64 = 86_400.0;
/// Length of a token that is looked at, in bytes.
const MOST_BYTES: usize = 16 << 10;
/// What a token may say it is (RFC 9068 section 2.1). Others of the same issuer, such as those that
/// sign somebody out, are signed with the same keys and sent by everybody.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Why a token does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignInRejection {
    /// It is no signed token.
    #[error("the token is not a signed JWT")]
    Malformed,
    /// Its algorithm is none that a key of the provider may be used with.
    #[error("the token's signature algorithm is not accepted")]
    Algorithm,
    /// It is for something else than access.
    #[error("unexpected token type {0}")]
    Type(String),
    /// The provider has no such key.
    #[error("the provider has no key with the token's key ID")]
    KeyUnknown,
    /// The signature is not of these bytes and this key.
    #[error("the token's signature is invalid")]
    Signature,
    /// Somebody else issued it.
    #[error("the token is from another issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// A claim is missing, or has another type than it has to have.
    #[error("the token's claim {0} is missing or malformed")]
    Claim(&'static str),
    /// It is bound to a key that nobody shows here.
    #[error("the token is bound to its holder's key, which is not supported here")]
    Bound,
    /// It counts later.
    #[error("the token is not valid before {0}: the clocks of the provider and this host differ")]
    NotYetValid(Timestamp),
    /// Its time is over: it was good until then.
    #[error("the token of {subject} expired at {at}")]
    Expired {
        /// Whose it is.
        subject: String,
        /// Since when.
        at: Timestamp,
    },
}

/// What a token says before its signature is known: which key, which algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenHead {
    key_id: Option<String>,
    algorithm: Algorithm,
}

impl TokenHead {
    /// Whether `text` looks like a signed token, and not like a credential that was made here.
    #[must_use]
    pub fn is_likely(text: &str) -> bool {
        text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// Reads the head.
    ///
    /// # Errors
    /// [`SignInRejection::Malformed`], [`SignInRejection::Algorithm`] or [`SignInRejection::Type`].
    pub fn read(token: &str) -> Result<Self, SignInRejection> {
        if token.len() > MOST_BYTES {
            return Err(SignInRejection::Malformed);
        }
        let head = decode_header(token).map_err(|_| SignInRejection::Malformed)?;
        if head.crit.is_some() {
            return Err(SignInRejection::Malformed);
        }
        if head.alg.family() == AlgorithmFamily::Hmac {
            return Err(SignInRejection::Algorithm);
        }
        if let Some(kind) = head.typ.filter(|kind| !TYPES.contains(&kind.to_lowercase().as_str())) {
            return Err(SignInRejection::Type(kind.chars().take(40).collect()));
        }
        Ok(Self { key_id: head.kid, algorithm: head.alg })
    }

    /// Whether the key that it names is in the set.
    #[must_use]
    pub fn has_key_in(&self, keys: &KeySet) -> bool {
        keys.find(self.key_id.as_deref(), self.algorithm).is_some()
    }

    #[cfg(test)]
    pub(super) fn of_key(id: &str) -> Self {
        Self { key_id: Some(id.to_owned()), algorithm: Algorithm::ES256 }
    }
}

/// Who signed in, as the provider says.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedIn {
    /// The issuer and the subject there: `https://idp.example#248289761001`. The same person has the
    /// same one for ever, whatever they call themselves.
    pub id: String,
    /// Name for people; none: the provider says none.
    pub display: Option<String>,
    /// Values of the claim that gives roles.
    pub values: Vec<String>,
}

/// Judges a token by the provider's keys at `now`.
///
/// # Errors
/// [`SignInRejection`]. [`SignInRejection::Expired`] only where everything else is right.
pub fn verify(
    token: &str,
    keys: &KeySet,
    settings: &OidcSettings,
    now: Timestamp,
) -> Result<SignedIn, SignInRejection> {
    ring_verifier::install();
    let head = TokenHead::read(token)?;
    let key =
        keys.find(head.key_id.as_deref(), head.algorithm).ok_or(SignInRejection::KeyUnknown)?;
    let mut wanted = Validation::new(head.algorithm);
    // By the clock of the control plane, below.
    (wanted.validate_exp, wanted.validate_nbf) = (false, false);
    wanted.set_audience(&settings.audiences);
    wanted.set_issuer(&[settings.issuer.as_str()]);
    wanted.set_required_spec_claims(&["iss", "aud", "exp", "sub"]);
    let claims =
        decode::<Map<String, Value>>(token, key, &wanted).map_err(|error| fault(&error))?;
    read_claims(&claims.claims, settings, now)
}

fn fault(error: &jsonwebtoken::errors::Error) -> SignInRejection {
    match error.kind() {
        ErrorKind::InvalidSignature => SignInRejection::Signature,
        ErrorKind::InvalidIssuer => SignInRejection::Issuer,
        ErrorKind::InvalidAudience => SignInRejection::Audience,
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => SignInRejection::Algorithm,
        ErrorKind::MissingRequiredClaim(name) => SignInRejection::Claim(match name.as_str() {
            "iss" => "iss",
            "aud" => "aud",
            "exp" => "exp",
            _ => "sub",
        }),
        _ => SignInRejection::Malformed,
    }
}

fn read_claims(
    claims: &Map<String, Value>,
    settings: &OidcSettings,
    now: Timestamp,
) -> Result<SignedIn, SignInRejection> {
    // The library also takes a list of issuers, which no provider sends.
    if claims.get("iss").and_then(Value::as_str) != Some(settings.issuer.as_str()) {
        return Err(SignInRejection::Issuer);
    }
    if claims.contains_key("cnf") {
        return Err(SignInRejection::Bound);
    }
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    if subject.is_empty() || subject.len() > 255 {
        return Err(SignInRejection::Claim("sub"));
    }
    let id = format!("{}#{}", settings.issuer, escaped(subject));
    let begins = seconds(claims, "nbf")?;
    if let Some(begins) = begins.filter(|at| at.seconds_since(now) > LEEWAY_SECONDS) {
        return Err(SignInRejection::NotYetValid(begins));
    }
    let ends = seconds(claims, "exp")?.ok_or(SignInRejection::Claim("exp"))?;
    if now.seconds_since(ends) > LEEWAY_SECONDS {
        return Err(SignInRejection::Expired { subject: id, at: ends });
    }
    if ends.seconds_since(now) > MAX_LIFETIME_SECONDS {
        return Err(SignInRejection::Claim("exp"));
    }
    let display = claim(claims, &settings.name_claim).and_then(Value::as_str);
    let display = display.map(|name| plain(name, 100)).filter(|name| !name.is_empty());
    let values = match claim(claims, &settings.roles_claim) {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => {
            many.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    Ok(SignedIn { id, display, values })
}

/// A claim by its name; one that is within others by the way to it, with dots.
fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    rest.split('.').try_fold(claims.get(first)?, |value, part| value.get(part))
}

fn seconds(
    claims: &Map<String, Value>,
    name: &'static str,
) -> Result<Option<Timestamp>, SignInRejection> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().filter(|seconds| (0.0..1e11).contains(seconds));
    let seconds = seconds.ok_or(SignInRejection::Claim(name))?;
    Ok(Some(Timestamp::EPOCH.plus_seconds(seconds)))
}

/// Whatever is no plain character is written as `%XX`, so that no subject looks like another one, or
/// like something that the control plane says of it.
fn escaped(subject: &str) -> String {
    let mut text = String::new();
    for byte in subject.bytes() {
        match byte {
            b'0'..=b'9'
            | b'A'..=b'Z'
            | b'a'..=b'z'
            | b'-'
            | b'.'
            | b'_'
            | b'~'
            | b'@'
            | b'|'
            | b':'
            | b'/'
            | b'+'
            | b'=' => text.push(char::from(byte)),
            // Writing to a String cannot fail.
            other => write!(text, "%{other:02X}").unwrap_or_default(),
        }
    }
    text
}

fn plain(text: &str, most: usize) -> String {
    let kept =
        text.chars().filter(|c| !gpuaas_types::text::is_invisible(*c) && !"[]()".contains(*c));
    kept.take(most).collect::<String>().trim().to_owned()
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
