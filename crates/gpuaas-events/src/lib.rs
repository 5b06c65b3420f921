//! Delivers events to where operators want them: one signed POST each (webhooks), or one message each on
//! a stream of NATS JetStream.
//!
//! Each sink has a row in the database with how far it is, and one control plane at a time delivers to
//! it, in the order of the events. What was delivered is written down afterwards, so an event is
//! delivered at least once, and always under the same identifier; whoever receives it tells by that.

mod delivery;
mod nats;
mod target;
#[cfg(test)]
mod tests;
mod webhook;
mod worker;

pub use delivery::EventDelivery;
pub use nats::{NatsOptions, NatsUnusable, STREAM, SUBJECTS};
