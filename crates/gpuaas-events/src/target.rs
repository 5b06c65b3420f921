//! What events are delivered to, whatever is spoken there.

use async_trait::async_trait;
use gpuaas_types::Timestamp;
use gpuaas_types::event::{DeliveryFault, NodeEvent};

/// Longest text of a failure that is kept, in characters.
const TEXT_CHARS: usize = 300;

/// Why an event was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryFailure {
    pub(crate) fault: DeliveryFault,
    /// For people; without control characters, and not long.
    pub(crate) text: String,
}

impl DeliveryFailure {
    pub(crate) fn new(fault: DeliveryFault, text: impl AsRef<str>) -> Self {
        let text = text
            .as_ref()
            .chars()
            .filter(|c| !gpuaas_types::text::is_invisible(*c))
            .take(TEXT_CHARS)
            .collect();
        Self { fault, text }
    }
}

/// How far a delivery of several events came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// How many are delivered, from the first one on.
    pub(crate) count: usize,
    /// Why the next one is not; none: all are.
    pub(crate) failure: Option<DeliveryFailure>,
}

/// Somewhere that takes events.
#[async_trait]
pub(crate) trait Target: Send + Sync {
    /// Most events of one delivery: so many are over well before a lease is.
    fn batch(&self) -> usize;

    /// Delivers events in their order, and stops at the first one that is not taken.
    async fn deliver(&self, now: Timestamp, events: &[&NodeEvent]) -> Delivered;
}
