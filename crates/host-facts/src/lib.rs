//! host-facts
