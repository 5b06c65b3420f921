//! Profiles, what they may say of a kernel, and the way back to their previous image.

pub(crate) mod image_rollback;
pub(crate) mod kernel_arguments;
pub(crate) mod profiles;
