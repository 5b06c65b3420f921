//! Secrets at rest: how they are sealed, where they are kept, and the master keys that seal them.

pub(crate) mod key_ring;
pub(crate) mod key_rotation;
pub(crate) mod rows;
pub(crate) mod seal;
pub(crate) mod sealed_columns;
pub(crate) mod secrets;
