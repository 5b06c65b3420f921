//! Identifiers from a seeded stream, so that a seed gives one history.

use std::sync::{Mutex, PoisonError};

use gpuaas_types::ids::uuid_v7;
use gpuaas_types::{IdSource, Timestamp};
use maas_sim::SimRng;
use uuid::Uuid;

/// Identifiers from a seeded stream.
pub(crate) struct SeededIds(Mutex<SimRng>);

impl SeededIds {
    /// The identifiers of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(SimRng::for_name(seed, "ids")))
    }
}

impl IdSource for SeededIds {
    fn uuid(&self, now: Timestamp) -> Uuid {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0u8; 10];
        for byte in &mut bytes {
            *byte = u8::try_from(rng.below(256)).unwrap_or_default();
        }
        uuid_v7(now, bytes)
    }
}
