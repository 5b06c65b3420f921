//! What only PostgreSQL has: the pool, starting, and statements that are sent in groups.

pub(crate) mod group;
pub(crate) mod group_state;
pub(crate) mod pool;
pub(crate) mod scratch;
pub(crate) mod shared_read;
pub(crate) mod startup;
