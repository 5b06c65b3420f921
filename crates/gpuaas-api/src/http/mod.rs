//! What requests have in common, whatever they ask for: bodies, limits, pages, revisions, problems.

pub(crate) mod body;
pub(crate) mod etag;
pub(crate) mod guard;
pub(crate) mod id_prefix;
pub(crate) mod idempotency;
pub(crate) mod long_poll;
pub(crate) mod open_bodies;
pub(crate) mod pages;
pub mod problem;
pub(crate) mod rate_limit;
pub(crate) mod request_metrics;
pub(crate) mod strict;
pub(crate) mod zeroed;
