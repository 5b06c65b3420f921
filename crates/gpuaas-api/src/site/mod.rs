//! Sites with their MAAS connection and fabric addresses, and which control plane owns a region.

pub(crate) mod ownership;
pub(crate) mod probe;
pub(crate) mod removal;
pub(crate) mod roce;
pub(crate) mod sites;
