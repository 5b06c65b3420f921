//! Host images: how far each has come, what the lint found in them, and experiments between them.

pub(crate) mod experiment;
pub(crate) mod host_image;
pub(crate) mod verdict;
