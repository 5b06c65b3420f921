//! The audit: its entries, the chain over them, and the requests that are kept to be answered again.

pub(crate) mod chain;
pub(crate) mod chain_rows;
pub(crate) mod entries;
pub(crate) mod expiry;
pub(crate) mod request_replay;
pub(crate) mod rows;
