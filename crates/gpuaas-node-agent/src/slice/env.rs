//! What the slices of a host share.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::guest_listener::GuestCallListener;

/// What the slices of a host share. Copies share the same.
#[derive(Debug, Clone, Default)]
pub struct SliceEnv {
    /// Hears the first calls of guests.
    pub guest_calls: GuestCallListener,
    /// Held by whoever looks at partitions of the fabric manager to change them.
    pub(super) fabric_turn: Arc<Mutex<()>>,
}
