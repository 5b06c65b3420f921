//! Access to either database: connections, statements, values, pages and filters of lists, and the
//! transfer from one to the other.

mod connection;
mod counters;
mod enum_str;
pub(crate) mod health;
pub(crate) mod id_range;
mod in_flight;
pub(crate) mod list_filter;
mod origin;
pub(crate) mod page;
mod panic;
pub(crate) mod postgres;
pub(crate) mod schema;
pub(crate) mod sqlite;
mod statement;
pub(crate) mod transfer;
mod value;

pub(crate) use connection::{Cols, Conn, Row};
pub(crate) use counters::SentCounters;
pub(crate) use enum_str::{enum_from_str, enum_str};
pub(crate) use in_flight::InFlightGuard;
pub use origin::{ApprovalExecution, RequestOrigin, current_origin, with_origin};
pub(crate) use panic::{catch_panic, note_panic_locations};
pub(crate) use postgres::group::{GroupFn, GroupHints, GroupWriter, UPDATE_RUNS};
pub(crate) use postgres::group_state::{PendingRows, RowsStatement};
pub(crate) use postgres::pool::{PATIENCE, PostgresPool, PostgresSession, TransactionCommand};
pub(crate) use postgres::shared_read::SharedRead;
pub(crate) use sqlite::connection::{Readers, SqliteLocation};
pub(crate) use sqlite::writer::Writer;
pub(crate) use statement::{padded, with_list};
pub(crate) use value::{Val, args};
