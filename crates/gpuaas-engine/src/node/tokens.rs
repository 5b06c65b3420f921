//! Secrets handed to nodes: 256 random bits. The store keeps their SHA-256 only. And the credential with
//! which a control plane fetches its own artifacts, as a node will: nothing of it is kept.

use gpuaas_artifact::Digest;
use gpuaas_store::{ExposeSecret as _, MasterKey, SecretString, Store, StoreError};
use gpuaas_types::Timestamp;

/// What the credentials of [`artifact_pass`] begin with.
const PASS_PREFIX: &str = "gppass_";
/// Seconds for which such a credential counts.
const PASS_SECONDS: f64 = 3600.0;

/// A fresh secret: a prefix that names its purpose and 64 hexadecimal characters.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn generate_token(prefix: &str) -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{prefix}_{}", hex::encode(bytes)))
}

fn purpose(digest: &Digest) -> String {
    format!("artifact/{digest}")
}

/// A credential that opens one artifact for an hour, at any control plane of this database.
///
/// # Errors
/// `random_unavailable`.
pub fn artifact_pass(store: &Store, digest: &Digest, now: Timestamp) -> Result<String, StoreError> {
    let until = now.plus_seconds(PASS_SECONDS).as_micros().to_string();
    Ok(format!("{PASS_PREFIX}{}", store.sealed_text(&purpose(digest), &until)?))
}

/// The same, for whoever has the master key of that database.
///
/// # Errors
/// `random_unavailable`.
pub fn artifact_pass_by_key(
    key: &MasterKey,
    digest: &Digest,
    now: Timestamp,
) -> Result<String, StoreError> {
    let until = now.plus_seconds(PASS_SECONDS).as_micros().to_string();
    let sealed = key.seal(&purpose(digest), &SecretString::from(until))?;
    Ok(format!("{PASS_PREFIX}{}", hex::encode(sealed)))
}

/// Whether `token` is of the form of [`artifact_pass`], and whether it opens this artifact now; none: it is
/// another kind of credential.
#[must_use]
pub fn check_artifact_pass(
    store: &Store,
    digest: &Digest,
    token: &str,
    now: Timestamp,
) -> Option<bool> {
    let sealed = token.strip_prefix(PASS_PREFIX)?;
    let until = store.open_text(&purpose(digest), sealed);
    let until = until.and_then(|text| text.expose_secret().parse().ok());
    Some(until.is_some_and(|until| now < Timestamp::from_micros(until)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_differ() {
        let (a, b) = (generate_token("gpb").unwrap(), generate_token("gpb").unwrap());
        assert_ne!(a, b);
        assert!(a.len() == 68 && a.starts_with("gpb_"));
    }

    #[tokio::test]
    async fn a_pass_opens_one_artifact_for_an_hour_at_control_planes_of_its_database() {
        let folder = tempfile::tempdir().unwrap();
        let store = async |name: &str, key: u8| {
            let url = format!("sqlite:{}", folder.path().join(name).display());
            Store::open(&url, MasterKey::from_bytes([key; 32])).await.unwrap()
        };
        let (own, other) = (store("own.db", 1).await, store("other.db", 2).await);
        let (digest, now) = (Digest::sha256(b"agent"), Timestamp::from_micros(0));
        let pass = artifact_pass(&own, &digest, now).unwrap();
        let check = |store, digest: &Digest, seconds| {
            check_artifact_pass(store, digest, &pass, now.plus_seconds(seconds))
        };
        assert_eq!(check(&own, &digest, 3599.0), Some(true));
        assert_eq!(check(&own, &digest, 3600.0), Some(false));
        assert_eq!(check(&own, &Digest::sha256(b"bundle"), 0.0), Some(false));
        assert_eq!(check(&other, &digest, 0.0), Some(false));
        assert_eq!(check_artifact_pass(&own, &digest, "gpb_0123", now), None);
    }
}
