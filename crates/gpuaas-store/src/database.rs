//! Access to either database: connections, statements, values, and the SQLite writer.

mod connection;
mod counters;
mod enum_str;
mod group;
mod group_state;
mod in_flight;
mod origin;
mod panic;
mod postgres_pool;
#[cfg(test)]
pub(crate) mod query_plan;
mod shared_read;
mod sqlite;
mod statement;
mod value;
mod writer;

pub(crate) use connection::{Cols, Conn, Row};
pub(crate) use counters::SentCounters;
pub(crate) use enum_str::{enum_from_str, enum_str};
pub(crate) use group::{GroupFn, GroupHints, GroupWriter, UPDATE_RUNS};
pub(crate) use group_state::{PendingRows, RowsStatement};
pub(crate) use in_flight::InFlightGuard;
pub use origin::{ApprovalExecution, RequestOrigin, current_origin, with_origin};
pub(crate) use panic::{catch_panic, note_panic_locations};
pub(crate) use postgres_pool::{PATIENCE, PostgresPool, PostgresSession, TransactionCommand};
pub(crate) use shared_read::SharedRead;
pub(crate) use sqlite::{Readers, SqliteLocation};
pub(crate) use statement::{padded, with_list};
pub(crate) use value::{Val, args};
pub(crate) use writer::Writer;
