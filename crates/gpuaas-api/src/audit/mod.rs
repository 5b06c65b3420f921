//! The audit log as operators read it, and how refused credentials get into it.

pub(crate) mod entries;
pub(crate) mod rejection_limit;
pub(crate) mod rejections;
