//! The master keys that a control plane has at hand.
//!
//! Usually one. While values are rewrapped from one key to the next there are two: every control plane
//! opens values of both. Which one seals is the database's word, not the process's: so of several
//! control planes none goes on with a key that another one has retired. A trigger of each table with
//! sealed values refuses those of a former key; whoever meets it reads the word again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpuaas_types::Timestamp;
use secrecy::SecretString;

use crate::error::StoreError;
use crate::identity::secret::seal::{MasterKey, sealing_key_id};

/// A key that seals nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerMasterKey {
    /// Its identifier, 16 hexadecimal digits.
    pub id: String,
    /// The key that came after it.
    pub successor: String,
    /// When that was.
    pub begun_at: Timestamp,
    /// From then on no value was sealed with it; none: values are still to be moved.
    pub ended_at: Option<Timestamp>,
}

/// Which master keys a database was sealed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterKeyState {
    /// Identifier of the key that seals, 16 hexadecimal digits.
    pub sealing: String,
    /// Those before it, the oldest first.
    pub former: Vec<FormerMasterKey>,
}

impl MasterKeyState {
    /// The key whose values are being moved; none: no rotation is under way.
    #[must_use]
    pub fn moving(&self) -> Option<&FormerMasterKey> {
        self.former.iter().find(|key| key.ended_at.is_none())
    }
}

/// Master keys by their identifiers. Clones share which one seals.
#[derive(Debug, Clone)]
pub struct KeyRing {
    keys: Arc<[MasterKey]>,
    sealing: Arc<AtomicUsize>,
}

impl From<MasterKey> for KeyRing {
    fn from(key: MasterKey) -> Self {
        Self { keys: [key].into(), sealing: Arc::default() }
    }
}

impl KeyRing {
    /// `first`, which seals in a new database, and others that values may be sealed with.
    #[must_use]
    pub fn new(first: MasterKey, others: impl IntoIterator<Item = MasterKey>) -> Self {
        let mut keys = vec![first];
        for key in others {
            if keys.iter().all(|one| one.id_hex() != key.id_hex()) {
                keys.push(key);
            }
        }
        Self { keys: keys.into(), sealing: Arc::default() }
    }

    /// Identifiers of the keys, 16 hexadecimal digits each, the first one first.
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        self.keys.iter().map(MasterKey::id_hex).collect()
    }

    /// 32 bytes for one purpose, derived from the key that seals; they say nothing about the key.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        self.sealing().derive(purpose)
    }

    /// The key with this identifier.
    pub(crate) fn find(&self, id: &str) -> Option<&MasterKey> {
        self.keys.iter().find(|key| key.id_hex() == id)
    }

    /// The key that seals. A ring is never empty.
    pub(crate) fn sealing(&self) -> &MasterKey {
        &self.keys[self.sealing.load(Ordering::Acquire).min(self.keys.len() - 1)]
    }

    /// Seals with the key of this identifier from now on. Answers whether the ring has it.
    pub(crate) fn seal_with(&self, id: &str) -> bool {
        let position = self.keys.iter().position(|key| key.id_hex() == id);
        if let Some(position) = position {
            self.sealing.store(position, Ordering::Release);
        }
        position.is_some()
    }

    /// Seals with the key that the database says. Fails where that, or one whose values are still to be
    /// moved, is not at hand: with a sentence that names it.
    pub(crate) fn take_word(&self, state: &MasterKeyState) -> Result<(), String> {
        let moving = state.moving().map(|key| key.id.as_str());
        let wanted = [Some(state.sealing.as_str()), moving].into_iter().flatten();
        let missing: Vec<&str> = wanted.filter(|id| self.find(id).is_none()).collect();
        if missing.is_empty() {
            self.seal_with(&state.sealing);
            return Ok(());
        }
        Err(format!(
            "the secrets of this database are sealed with key {}, not {}",
            missing.join(" and "),
            self.ids().join(" or ")
        ))
    }

    /// Seals `secret` for `owner`; see [`MasterKey::seal`].
    ///
    /// # Errors
    /// `random_unavailable`, or [`StoreError::Corrupt`] where it is too long.
    pub(crate) fn seal(&self, owner: &str, secret: &SecretString) -> Result<Vec<u8>, StoreError> {
        self.sealing().seal(owner, secret)
    }

    /// Opens what was sealed for the same owner with any of the keys.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: it was made with another key, for another owner, or is damaged.
    pub(crate) fn open(&self, owner: &str, sealed: &[u8]) -> Result<SecretString, StoreError> {
        let id = sealing_key_id(sealed);
        let key = id.and_then(|id| self.find(&id)).unwrap_or_else(|| self.sealing());
        key.open(owner, sealed)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_ring_opens_by_the_key_that_sealed() {
        let [old, new] = [[1; 32], [2; 32]].map(MasterKey::from_bytes);
        let ring = KeyRing::new(old.clone(), [new.clone(), old.clone()]);
        assert_eq!(ring.ids(), [old.id_hex(), new.id_hex()]);
        let secret = SecretString::from("hush".to_owned());
        let before = ring.seal("a", &secret).unwrap();
        assert!(ring.seal_with(&new.id_hex()) && !ring.seal_with("00"));
        let after = ring.clone().seal("a", &secret).unwrap();
        for sealed in [&before, &after] {
            assert_eq!(ring.open("a", sealed).unwrap().expose_secret(), "hush");
        }
        assert!(old.open("a", &after).is_err() && new.open("a", &before).is_err());
        assert!(ring.open("b", &after).is_err() && ring.open("a", &[1]).is_err());
    }
}
