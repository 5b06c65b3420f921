//! Bundles, the secret inputs that they are given, and the profiles that pin them.

pub(crate) mod bundles;
pub(crate) mod input_secret;
pub(crate) mod profile;
pub(crate) mod profile_rows;
