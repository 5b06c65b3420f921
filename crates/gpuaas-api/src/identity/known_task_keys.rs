//! The keys that sign tasks, as this control plane read them a moment ago.
//!
//! Each poll that brings a task, each heartbeat and each enrollment asks for them, and they change
//! once a month. A change that this control plane makes is known to it at once, one of another
//! within [`GOOD_SECONDS`]; agents trust a key from before it signs until long after.

use std::sync::Arc;

use gpuaas_bundle::SigningKey;
use gpuaas_types::Timestamp;
use gpuaas_types::agent::{TaskKeyState, TaskKeys};
use parking_lot::Mutex;

/// How long keys that were read are taken as they were, in seconds.
const GOOD_SECONDS: f64 = 1.0;

/// See the module's text.
#[derive(Default)]
pub(crate) struct KnownTaskKeys(Mutex<Known>);

#[derive(Default)]
struct Known {
    keys: Option<(Timestamp, TaskKeys)>,
    /// The key that was active when it last signed, with its public half.
    signer: Option<(String, Arc<SigningKey>)>,
}

impl KnownTaskKeys {
    /// The keys, where they were read less than [`GOOD_SECONDS`] ago.
    pub(crate) fn keys(&self, now: Timestamp) -> Option<TaskKeys> {
        let known = self.0.lock();
        let (read_at, keys) = known.keys.as_ref()?;
        (0.0..GOOD_SECONDS).contains(&now.seconds_since(*read_at)).then(|| keys.clone())
    }

    /// Notes the keys as they were read. A private half that signs no longer is forgotten.
    pub(crate) fn note(&self, now: Timestamp, keys: &TaskKeys) {
        let mut known = self.0.lock();
        let active = keys.keys.iter().find(|key| key.state == TaskKeyState::Active);
        known.signer.take_if(|(public, _)| active.is_none_or(|key| key.public_key != *public));
        known.keys = Some((now, keys.clone()));
    }

    /// The private half of the key that signs.
    pub(crate) fn signer(&self, public_key: &str) -> Option<Arc<SigningKey>> {
        let known = self.0.lock();
        let (_, signer) = known.signer.as_ref().filter(|(public, _)| public == public_key)?;
        Some(Arc::clone(signer))
    }

    /// Notes the private half of the key that signs.
    pub(crate) fn note_signer(&self, public_key: &str, signer: &Arc<SigningKey>) {
        self.0.lock().signer = Some((public_key.to_owned(), Arc::clone(signer)));
    }

    /// Has the keys be read anew: they were changed here.
    pub(crate) fn forget(&self) {
        *self.0.lock() = Known::default();
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::agent::TaskKey;

    use super::*;

    fn keys(revision: i64, active: &str) -> TaskKeys {
        let state = TaskKeyState::Active;
        let key = TaskKey { public_key: active.to_owned(), state, until: None };
        TaskKeys { revision, keys: vec![key] }
    }

    #[test]
    fn keys_are_good_for_a_second_and_not_before_they_were_read() {
        let known = KnownTaskKeys::default();
        let now = Timestamp::from_rfc3339("2026-11-24T00:00:00Z").unwrap();
        assert_eq!(known.keys(now), None);
        known.note(now, &keys(1, "one"));
        assert_eq!(known.keys(now.plus_seconds(0.9)), Some(keys(1, "one")));
        assert_eq!(known.keys(now.plus_seconds(1.0)), None);
        assert_eq!(known.keys(now.plus_seconds(-0.1)), None);
        known.forget();
        assert_eq!(known.keys(now), None);
    }

    #[test]
    fn a_private_half_is_forgotten_once_another_key_signs() {
        let known = KnownTaskKeys::default();
        let now = Timestamp::from_rfc3339("2026-11-24T00:00:00Z").unwrap();
        let signer = Arc::new(SigningKey::generate().unwrap());
        known.note_signer("one", &signer);
        known.note(now, &keys(1, "one"));
        assert!(known.signer("one").is_some() && known.signer("two").is_none());
        known.note(now, &keys(2, "two"));
        assert!(known.signer("one").is_none());
    }
}
