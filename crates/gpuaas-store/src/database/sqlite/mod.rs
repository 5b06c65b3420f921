//! What only SQLite has: connections to the file, and its one writer.

pub(crate) mod connection;
#[cfg(test)]
pub(crate) mod query_plan;
pub(crate) mod writer;
