//! Bundles that may run on nodes, the keys that sign them, and the secret values that they are given.

pub(crate) mod bundles;
pub(crate) mod inputs;
pub(crate) mod profile_bundles;
pub(crate) mod secrets;
