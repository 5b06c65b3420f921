//! Secrets at rest: envelope encryption with AES-256-GCM-SIV (RFC 8452).
//!
//! Each secret has a random key of its own, and that key is wrapped by the master key. Changing
//! the master key then rewraps short keys and leaves the secrets alone. GCM-SIV because its nonce
//! may repeat without giving the key away, so a bad random source costs less.
//!
//! The associated data names the owner and the purpose, so a sealed value copied to another row
//! does not open. Layout: version (1), master key id (8), nonce (12), wrapped key (32 + 16),
//! nonce (12), ciphertext and tag.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use aes_gcm_siv::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use rand::TryRngCore as _;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::error::StoreError;

const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 12;
const WRAPPED_BYTES: usize = 48;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_BYTES + WRAPPED_BYTES + NONCE_BYTES;

/// The key that wraps all others.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id_hex())
    }
}

impl MasterKey {
    /// A key from 32 bytes of good randomness.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A new random key.
    ///
    /// # Errors
    /// `random_unavailable` when the operating system gives no randomness.
    pub fn generate() -> Result<Self, StoreError> {
        Ok(Self(Zeroizing::new(random()?)))
    }

    /// 32 bytes for one purpose. The key comes last and has full entropy, so the digest is as good as
    /// a key of its own.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(b"gpuaas derived key\0");
        digest.update(purpose.as_bytes());
        digest.update(b"\0");
        digest.update(*self.0);
        digest.finalize().into()
    }

    /// Reads the key from a file of 64 hexadecimal digits, or makes one (mode 0600).
    ///
    /// # Errors
    /// `master_key_unreadable` when the file cannot be read or made, is not a key, or may be
    /// read by other users.
    pub fn load_or_create(path: &Path) -> Result<Self, StoreError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::check_mode(path).and_then(|()| Self::parse(path, text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(unreadable(path, &error, "check the path and its permissions")),
        }
    }

    fn parse(path: &Path, text: String) -> Result<Self, StoreError> {
        let text = Zeroizing::new(text);
        Self::from_text(&text).ok_or_else(|| {
            let reason = "it is not 64 hexadecimal digits";
            unreadable(path, &reason, "restore it from a backup")
        })
    }

    fn check_mode(path: &Path) -> Result<(), StoreError> {
        let mode = fs::metadata(path)
            .map_err(|error| unreadable(path, &error, "check the path"))?
            .permissions()
            .mode();
        if mode & 0o077 == 0 {
            return Ok(());
        }
        let hint = format!("chmod 600 {}", path.display());
        Err(unreadable(path, &format!("its mode is {:o}, expected 600", mode & 0o777), &hint))
    }

    /// Writes a new key beside `path` and links it there: of two processes that start at once,
    /// both use the file of the first.
    fn create(path: &Path) -> Result<Self, StoreError> {
        let key = Self::generate()?;
        let text = Zeroizing::new(hex::encode(*key.0));
        let draft = path.with_extension(format!("{}.new", key.id_hex()));
        let written = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::hard_link(&draft, path));
        fs::remove_file(&draft).ok();
        // What is sealed with it must not outlive it.
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let written =
            written.and_then(|()| fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all());
        match written {
            Ok(()) => Ok(key),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let text = fs::read_to_string(path)
                    .map_err(|error| unreadable(path, &error, "check the path"))?;
                Self::parse(path, text)
            }
            Err(error) => {
                Err(unreadable(path, &error, "create its folder, writable for this user"))
            }
        }
    }

    fn id(&self) -> [u8; KEY_ID_BYTES] {
        let digest = Sha256::new_with_prefix(b"gpuaas master key id").chain_update(*self.0);
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&digest.finalize()[..KEY_ID_BYTES]);
        id
    }

    /// Names the key without telling anything about it: 16 hexadecimal digits.
    #[must_use]
    pub fn id_hex(&self) -> String {
        hex::encode(self.id())
    }

    /// The key itself, 64 hexadecimal digits, for a file or a backup that is sealed.
    #[must_use]
    pub fn to_text(&self) -> SecretString {
        hex::encode(*self.0).into()
    }

    /// A key from 64 hexadecimal digits; none: they are not that.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let mut key = Zeroizing::new([0u8; 32]);
        hex::decode_to_slice(text.trim(), &mut *key).ok().map(|()| Self(key))
    }

    /// Wraps the key of a sealed value with `to` in this one's place; its content stays as it is.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: it was sealed with another key, for another owner, or is damaged;
    /// `random_unavailable`.
    pub(crate) fn rewrap(
        &self,
        to: &Self,
        owner: &str,
        sealed: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let refuse = |why: &str| StoreError::corrupt(format!("secret {owner}"), why);
        let parts = Parts::cut(sealed).ok_or_else(|| refuse("it is too short or unknown"))?;
        if parts.key_id != self.id() {
            return Err(refuse("it was sealed with another master key"));
        }
        let key = decrypt(&*self.0, parts.outer, owner, parts.wrapped);
        let key = key.ok_or_else(|| refuse("damaged key"))?;
        let key: Zeroizing<[u8; 32]> =
            Zeroizing::new(key.as_slice().try_into().map_err(|_| refuse("damaged key"))?);
        let outer = random::<NONCE_BYTES>()?;
        let wrapped = encrypt(&to.0, outer, owner, &*key)?;
        let mut out = Vec::with_capacity(sealed.len());
        out.push(VERSION);
        out.extend_from_slice(&to.id());
        out.extend_from_slice(&outer);
        out.extend_from_slice(&wrapped);
        out.extend_from_slice(parts.inner);
        out.extend_from_slice(parts.body);
        Ok(out)
    }

    /// Seals `secret` for `owner`.
    ///
    /// # Errors
    /// `random_unavailable`, or [`StoreError::Corrupt`] where it is too long.
    pub fn seal(&self, owner: &str, secret: &SecretString) -> Result<Vec<u8>, StoreError> {
        let key = Zeroizing::new(random::<32>()?);
        let (outer, inner) = (random::<NONCE_BYTES>()?, random::<NONCE_BYTES>()?);
        let wrapped = encrypt(&self.0, outer, owner, &*key)?;
        let sealed = encrypt(&key, inner, owner, secret.expose_secret().as_bytes())?;
        let mut out = Vec::with_capacity(HEAD_BYTES + sealed.len());
        out.push(VERSION);
        out.extend_from_slice(&self.id());
        out.extend_from_slice(&outer);
        out.extend_from_slice(&wrapped);
        out.extend_from_slice(&inner);
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Opens what [`Self::seal`] made for the same owner.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: it was made with another key, for another owner, or is damaged.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Result<SecretString, StoreError> {
        let refuse = |why: &str| StoreError::corrupt(format!("secret {owner}"), why);
        let parts = Parts::cut(sealed);
        let Parts { key_id, outer, wrapped, inner, body } =
            parts.ok_or_else(|| refuse("it is too short or of an unknown version"))?;
        if key_id != self.id() {
            return Err(refuse("it was sealed with another master key"));
        }
        let key = decrypt(&*self.0, outer, owner, wrapped).ok_or_else(|| refuse("damaged key"))?;
        let plain = decrypt(&key, inner, owner, body).ok_or_else(|| refuse("damaged content"))?;
        let text = String::from_utf8(plain.to_vec()).map_err(|_| refuse("it is not UTF-8 text"))?;
        Ok(text.into())
    }
}

/// A sealed value, cut.
struct Parts<'a> {
    key_id: &'a [u8],
    outer: &'a [u8],
    wrapped: &'a [u8],
    inner: &'a [u8],
    body: &'a [u8],
}

impl<'a> Parts<'a> {
    /// None: it is too short, or has an unknown version.
    fn cut(sealed: &'a [u8]) -> Option<Self> {
        let (head, body) = sealed.split_at_checked(HEAD_BYTES)?;
        let (version, rest) = head.split_at(1);
        let (key_id, rest) = rest.split_at(KEY_ID_BYTES);
        let (outer, rest) = rest.split_at(NONCE_BYTES);
        let (wrapped, inner) = rest.split_at(WRAPPED_BYTES);
        (version == [VERSION]).then_some(Self { key_id, outer, wrapped, inner, body })
    }
}

/// Identifier of the key that a value was sealed with, 16 hexadecimal digits; none: it is no sealed
/// value.
pub(crate) fn sealing_key_id(sealed: &[u8]) -> Option<String> {
    Parts::cut(sealed).map(|parts| hex::encode(parts.key_id))
}

fn unreadable(path: &Path, why: &dyn fmt::Display, hint: &str) -> StoreError {
    let detail = format!("cannot use the master key file {}: {why}", path.display());
    StoreError::open("master_key_unreadable", detail, hint)
}

/// Random bytes of the operating system.
///
/// # Errors
/// `random_unavailable`.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|error| {
        StoreError::open(
            "random_unavailable",
            format!("cannot get random bytes from the operating system: {error}"),
            "check /dev/urandom",
        )
    })?;
    Ok(bytes)
}

fn encrypt(
    key: &[u8; 32],
    nonce: [u8; NONCE_BYTES],
    owner: &str,
    plain: &[u8],
) -> Result<Vec<u8>, StoreError> {
    Aes256GcmSiv::new(key.into())
        .encrypt(&Nonce::from(nonce), Payload { msg: plain, aad: owner.as_bytes() })
        .map_err(|_| StoreError::corrupt(format!("secret {owner}"), "it is too long to seal"))
}

fn decrypt(key: &[u8], nonce: &[u8], owner: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
    Aes256GcmSiv::new_from_slice(key)
        .ok()?
        .decrypt(&Nonce::from(nonce), Payload { msg: sealed, aad: owner.as_bytes() })
        .ok()
        .map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> MasterKey {
        MasterKey::from_bytes([7; 32])
    }

    #[test]
    fn opens_for_its_owner_only() {
        let secret = SecretString::from("consumer:token:secret".to_owned());
        let sealed = key().seal("site/1", &secret).unwrap();
        let opened = key().open("site/1", &sealed).unwrap();
        assert_eq!(opened.expose_secret(), secret.expose_secret());
        assert_eq!(key().open("site/2", &sealed).unwrap_err().code(), "stored_data_corrupt");
        let other = MasterKey::from_bytes([8; 32]);
        assert!(other.open("site/1", &sealed).unwrap_err().to_string().contains("another master"));
        let mut bent = sealed;
        *bent.last_mut().unwrap() ^= 1;
        assert!(key().open("site/1", &bent).is_err());
        assert!(key().open("site/1", &bent[..40]).is_err());
    }

    #[test]
    fn rewraps_the_key_and_leaves_the_content() {
        let other = MasterKey::from_bytes([8; 32]);
        let sealed = key().seal("site/1", &SecretString::from("hush".to_owned())).unwrap();
        let moved = key().rewrap(&other, "site/1", &sealed).unwrap();
        assert_eq!(moved[HEAD_BYTES - NONCE_BYTES..], sealed[HEAD_BYTES - NONCE_BYTES..]);
        assert_eq!(other.open("site/1", &moved).unwrap().expose_secret(), "hush");
        assert!(key().open("site/1", &moved).is_err());
        assert!(key().rewrap(&other, "site/2", &sealed).is_err(), "another owner's");
        assert!(key().rewrap(&other, "site/1", &moved).is_err(), "another key's");
        assert_eq!(sealing_key_id(&moved), Some(other.id_hex()));
        let text = other.to_text();
        assert_eq!(MasterKey::from_text(text.expose_secret()).unwrap().id_hex(), other.id_hex());
    }

    #[test]
    fn is_never_printed() {
        let text = format!("{:?} {:?}", SecretString::from("hush".to_owned()), key());
        assert!(!text.contains("hush") && !text.contains("0707"));
    }

    #[test]
    fn key_file_is_made_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let made = MasterKey::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(MasterKey::load_or_create(&path).unwrap().0, made.0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = MasterKey::load_or_create(&path).unwrap_err();
        assert!(refused.hint().starts_with("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short").unwrap();
        assert_eq!(MasterKey::load_or_create(&path).unwrap_err().code(), "master_key_unreadable");
    }
}
