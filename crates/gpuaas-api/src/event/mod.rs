//! Events of nodes: the stream that callers follow, and the sinks that they are delivered to.

pub(crate) mod events;
pub(crate) mod feed;
pub(crate) mod sinks;
pub(crate) mod stream_limit;
