//! The dialect room: the only place that knows there are two databases.
//!
//! Every statement is written once, in the part of SQL that SQLite 3.51 and PostgreSQL 15 share:
//! `$1` placeholders, `RETURNING`, `ON CONFLICT`, partial indexes, `WITH ... AS MATERIALIZED`.
//! Three things differ and are handled here:
//!
//! | | PostgreSQL | SQLite |
//! |---|---|---|
//! | `{SKIP}` | `FOR UPDATE SKIP LOCKED` | nothing: there is one writer |
//! | `{LOCK}` | `FOR UPDATE` | nothing: there is one writer |
//! | lists | `IN ($1, $2, ...)`, as on SQLite; `= ANY` exists here only | |
//!
//! Values travel as [`Val`] and come back through [`Cols`], so the functions above this room are
//! plain functions: neither generic over a driver nor written twice. A list is padded to a power
//! of two by repeating its last member, which keeps the number of distinct texts, and so of
//! prepared statements, small.
//!
//! Neither database accepts the same strings: PostgreSQL refuses U+0000 in text and in JSONB.
//! A node's report may hold one, so it is replaced here, on both.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::str::FromStr;

use futures::TryStreamExt as _;
use gpuaas_types::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::types::Json;
use sqlx::{
    AssertSqlSafe, Executor as _, PgConnection, Postgres, Row as _, Sqlite, SqliteConnection,
    Transaction,
};
use uuid::Uuid;

use crate::Flight;
use crate::error::StoreError;
use crate::together::{Lite, Waiting};

/// A connection to either database.
pub(crate) enum Conn {
    Pg(Transaction<'static, Postgres>),
    PgRead { connection: PoolConnection<Postgres>, _flight: Flight },
    Lite(Box<Lite>),
    LiteRead { connection: PoolConnection<Sqlite>, _flight: Flight },
}

/// A value to bind.
#[derive(Debug, Clone)]
pub(crate) enum Val {
    Int(Option<i64>),
    Bool(bool),
    Text(Option<String>),
    Id(Option<Uuid>),
    Bytes(Option<Vec<u8>>),
    Json(Option<Box<RawValue>>),
}

impl Val {
    /// `value` as JSON.
    pub(crate) fn json<T: Serialize>(value: &T) -> Result<Self, StoreError> {
        let raw = serde_json::value::to_raw_value(value)
            .map_err(|error| StoreError::corrupt("value to store", error))?;
        Ok(Self::Json(Some(without_nul(raw)?)))
    }

    /// `value` as JSON, or SQL's null.
    pub(crate) fn opt_json<T: Serialize>(value: Option<&T>) -> Result<Self, StoreError> {
        value.map_or(Ok(Self::Json(None)), Self::json)
    }
}

fn without_nul(raw: Box<RawValue>) -> Result<Box<RawValue>, StoreError> {
    if !raw.get().contains("\\u0000") {
        return Ok(raw);
    }
    let mut value: serde_json::Value = serde_json::from_str(raw.get())
        .map_err(|error| StoreError::corrupt("value to store", error))?;
    replace_nul(&mut value);
    serde_json::value::to_raw_value(&value)
        .map_err(|error| StoreError::corrupt("value to store", error))
}

fn replace_nul(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = text.replace('\0', "\u{fffd}"),
        serde_json::Value::Array(items) => items.iter_mut().for_each(replace_nul),
        serde_json::Value::Object(map) => {
            let old = std::mem::take(map);
            for (key, mut item) in old {
                replace_nul(&mut item);
                map.insert(key.replace('\0', "\u{fffd}"), item);
            }
        }
        _ => {}
    }
}

macro_rules! val_from {
    ($($from:ty => |$v:ident| $to:expr;)+) => {
        $(
            impl From<$from> for Val {
                fn from($v: $from) -> Self { $to }
            }
        )+
    };
}

val_from! {
    i64 => |v| Self::Int(Some(v));
    Option<i64> => |v| Self::Int(v);
    Timestamp => |v| Self::Int(Some(v.as_micros()));
    Option<Timestamp> => |v| Self::Int(v.map(Timestamp::as_micros));
    bool => |v| Self::Bool(v);
    &str => |v| Self::Text(Some(v.replace('\0', "\u{fffd}")));
    &String => |v| Self::from(v.as_str());
    Option<&str> => |v| v.map_or(Self::Text(None), Self::from);
    Uuid => |v| Self::Id(Some(v));
    Option<Uuid> => |v| Self::Id(v);
    &[u8] => |v| Self::Bytes(Some(v.to_vec()));
    &[u8; 32] => |v| Self::Bytes(Some(v.to_vec()));
    Vec<u8> => |v| Self::Bytes(Some(v));
}

/// `args![a, b]`: values to bind, in order.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::db::Val::from($value)),*] };
}
pub(crate) use args;

/// Rows in one insert that may travel with other statements.
const FEW_ROWS: usize = 8;

/// A statement's text.
pub(crate) type Sql = Cow<'static, str>;

/// `text` with `{LIST}` replaced by `$first, $first+1, ...` for `count` values.
pub(crate) fn with_list(text: &str, first: usize, count: usize) -> Sql {
    let mut list = String::with_capacity(count * 5);
    for n in first..first + count {
        if n > first {
            list.push(',');
        }
        write!(list, "${n}").unwrap_or_default();
    }
    Cow::Owned(text.replace("{LIST}", &list))
}

/// The values in chunks of at most 256, each padded to a power of two with its last value.
pub(crate) fn padded(ids: impl IntoIterator<Item = Uuid>) -> Vec<Vec<Uuid>> {
    let ids: Vec<Uuid> = ids.into_iter().collect();
    ids.chunks(256)
        .map(|chunk| {
            let mut chunk = chunk.to_vec();
            if let Some(last) = chunk.last().copied() {
                chunk.resize(chunk.len().next_power_of_two(), last);
            }
            chunk
        })
        .collect()
}

fn in_dialect(sql: Sql, postgres: bool) -> Sql {
    if !sql.contains('{') {
        return sql;
    }
    let (skip, lock) = if postgres { ("FOR UPDATE SKIP LOCKED", "FOR UPDATE") } else { ("", "") };
    Cow::Owned(sql.replace("{SKIP}", skip).replace("{LOCK}", lock))
}

macro_rules! bind_all {
    ($sql:expr, $args:expr, $db:ty, $arguments:ty) => {{
        let mut query: sqlx::query::Query<'_, $db, $arguments> = match $sql {
            Cow::Borrowed(text) => sqlx::query(text),
            Cow::Owned(text) => sqlx::query(AssertSqlSafe(text)),
        };
        for value in $args {
            query = match value {
                Val::Int(v) => query.bind(v),
                Val::Bool(v) => query.bind(v),
                Val::Text(v) => query.bind(v),
                Val::Id(v) => query.bind(v),
                Val::Bytes(v) => query.bind(v),
                Val::Json(v) => query.bind(v.map(Json)),
            };
        }
        query
    }};
}

enum Either<'c> {
    Pg(&'c mut PgConnection),
    Lite(&'c mut SqliteConnection),
}

impl Conn {
    fn either(&mut self) -> Either<'_> {
        match self {
            Self::Pg(transaction) => Either::Pg(transaction),
            Self::PgRead { connection, .. } => Either::Pg(connection),
            Self::Lite(lite) => Either::Lite(&mut lite.connection),
            Self::LiteRead { connection, .. } => Either::Lite(connection),
        }
    }

    /// Runs a statement; answers how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<u64, StoreError> {
        let (sql, args) = self.with_waiting(sql.into(), args);
        match self.either() {
            Either::Pg(connection) => {
                let sql = in_dialect(sql, true);
                let done = bind_all!(sql, args, Postgres, PgArguments).execute(connection).await?;
                Ok(done.rows_affected())
            }
            Either::Lite(connection) => {
                let sql = in_dialect(sql, false);
                let query = bind_all!(sql, args, Sqlite, SqliteArguments);
                let mut steps = connection.fetch_many(query);
                let mut changed = 0;
                // The last statement is the one that was asked for.
                while let Some(step) = steps.try_next().await? {
                    changed = step.left().map_or(changed, |done| done.rows_affected());
                }
                Ok(changed)
            }
        }
    }

    /// Runs a statement, without rows, whose answer nobody needs: on SQLite it waits for the next
    /// one (`together`).
    pub(crate) async fn later(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<(), StoreError> {
        let Self::Lite(lite) = self else {
            return self.execute(sql, args).await.map(drop);
        };
        lite.waiting.add(&in_dialect(sql.into(), false), args);
        if lite.waiting.is_full() { self.flush().await } else { Ok(()) }
    }

    /// Runs a statement that is all of its request: on SQLite the whole transaction is one trip.
    /// What the caller finds wrong with the rows undoes nothing.
    pub(crate) async fn whole(
        &mut self,
        sql: &'static str,
        args: Vec<Val>,
    ) -> Result<Vec<Row>, StoreError> {
        let Self::Lite(lite) = self else { return self.all(sql, args).await };
        if !lite.waiting.only_begins() {
            return self.all(sql, args).await;
        }
        lite.waiting.add(&in_dialect(sql.into(), false), args);
        let rows = self.all("COMMIT", Vec::new()).await?;
        if let Self::Lite(lite) = self {
            lite.ended = true;
        }
        Ok(rows)
    }

    /// Whether the transaction that waits or runs has ended by itself; asking forgets it.
    pub(crate) fn take_ended(&mut self) -> bool {
        let Self::Lite(lite) = self else { return false };
        std::mem::take(&mut lite.ended)
    }

    /// Runs what waits.
    pub(crate) async fn flush(&mut self) -> Result<(), StoreError> {
        let Self::Lite(lite) = self else { return Ok(()) };
        if lite.waiting.is_empty() {
            return Ok(());
        }
        let (sql, args) = lite.waiting.take();
        self.execute(sql, args).await.map(drop)
    }

    fn with_waiting(&mut self, sql: Sql, args: Vec<Val>) -> (Sql, Vec<Val>) {
        let Self::Lite(lite) = self else { return (sql, args) };
        lite.trips += 1;
        lite.waiting.and(in_dialect(sql, false), args)
    }

    /// How often statements were sent to an SQLite file to be written.
    pub(crate) fn trips(&self) -> u64 {
        if let Self::Lite(lite) = self { lite.trips } else { 0 }
    }

    /// Forgets what waits, because its request failed.
    pub(crate) fn forget_waiting(&mut self) {
        if let Self::Lite(lite) = self {
            lite.waiting = Waiting::default();
        }
    }

    /// Runs a statement; answers its rows.
    pub(crate) async fn all(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<Vec<Row>, StoreError> {
        let (sql, args) = self.with_waiting(sql.into(), args);
        Ok(match self.either() {
            Either::Pg(connection) => {
                let sql = in_dialect(sql, true);
                bind_all!(sql, args, Postgres, PgArguments)
                    .fetch(connection)
                    .map_ok(Row::Pg)
                    .try_collect()
                    .await?
            }
            Either::Lite(connection) => {
                let sql = in_dialect(sql, false);
                bind_all!(sql, args, Sqlite, SqliteArguments)
                    .fetch(connection)
                    .map_ok(Row::Lite)
                    .try_collect()
                    .await?
            }
        })
    }

    /// Runs a statement; answers its first row.
    pub(crate) async fn first(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, args).await?.into_iter().next())
    }

    /// `INSERT INTO table (columns) VALUES ...` for any number of rows.
    pub(crate) async fn insert_rows(
        &mut self,
        head: &'static str,
        rows: Vec<Vec<Val>>,
    ) -> Result<(), StoreError> {
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let chunk: Vec<Vec<Val>> = rows.by_ref().take(64).collect();
            let mut sql = String::from(head);
            let mut n = 0;
            for (at, row) in chunk.iter().enumerate() {
                sql.push_str(if at == 0 { " VALUES (" } else { ", (" });
                for column in 0..row.len() {
                    n += 1;
                    let comma = if column == 0 { "" } else { "," };
                    write!(sql, "{comma}${n}").unwrap_or_default();
                }
                sql.push(')');
            }
            let few = chunk.len() <= FEW_ROWS;
            let values = chunk.into_iter().flatten().collect();
            if few {
                self.later(sql, values).await?;
            } else {
                self.flush().await?;
                self.execute(sql, values).await?;
            }
        }
        Ok(())
    }
}

/// A row of either database.
pub(crate) enum Row {
    Pg(PgRow),
    Lite(SqliteRow),
}

/// A type that both databases can hand out.
pub(crate) trait Column:
    sqlx::Type<Postgres>
    + sqlx::Type<Sqlite>
    + for<'r> sqlx::Decode<'r, Postgres>
    + for<'r> sqlx::Decode<'r, Sqlite>
{
}

impl<T> Column for T where
    T: sqlx::Type<Postgres>
        + sqlx::Type<Sqlite>
        + for<'r> sqlx::Decode<'r, Postgres>
        + for<'r> sqlx::Decode<'r, Sqlite>
{
}

impl Row {
    /// The columns from left to right.
    pub(crate) const fn cols(&self) -> Cols<'_> {
        Cols { row: self, at: 0 }
    }

    fn get<T: Column>(&self, index: usize) -> Result<T, StoreError> {
        Ok(match self {
            Self::Pg(row) => row.try_get(index)?,
            Self::Lite(row) => row.try_get(index)?,
        })
    }
}

/// Reads a row's columns from left to right, in the order of the statement's column list.
pub(crate) struct Cols<'r> {
    row: &'r Row,
    at: usize,
}

impl Cols<'_> {
    /// The next column.
    pub(crate) fn next<T: Column>(&mut self) -> Result<T, StoreError> {
        self.at += 1;
        self.row.get(self.at - 1)
    }

    /// The next column, an identifier.
    pub(crate) fn id<T>(&mut self, wrap: fn(Uuid) -> T) -> Result<T, StoreError> {
        self.next().map(wrap)
    }

    /// The next column, an identifier or null.
    pub(crate) fn opt_id<T>(&mut self, wrap: fn(Uuid) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.next::<Option<Uuid>>()?.map(wrap))
    }

    /// The next column, a moment.
    pub(crate) fn at(&mut self) -> Result<Timestamp, StoreError> {
        self.next().map(Timestamp::from_micros)
    }

    /// The next column, a moment or null.
    pub(crate) fn opt_at(&mut self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.next::<Option<i64>>()?.map(Timestamp::from_micros))
    }

    /// The next column, a word of an enumeration.
    pub(crate) fn word<T: FromStr>(&mut self) -> Result<T, StoreError>
    where
        T::Err: std::fmt::Display,
    {
        let text: String = self.next()?;
        text.parse().map_err(|error| StoreError::corrupt("word", error))
    }

    /// The next column, a word of an enumeration or null.
    pub(crate) fn opt_word<T: FromStr>(&mut self) -> Result<Option<T>, StoreError>
    where
        T::Err: std::fmt::Display,
    {
        let text: Option<String> = self.next()?;
        text.map(|text| text.parse().map_err(|error| StoreError::corrupt("word", error)))
            .transpose()
    }

    /// The next column, JSON.
    pub(crate) fn json<T: DeserializeOwned + 'static>(&mut self) -> Result<T, StoreError> {
        self.at += 1;
        Ok(match self.row {
            Row::Pg(row) => row.try_get::<Json<T>, _>(self.at - 1)?.0,
            Row::Lite(row) => row.try_get::<Json<T>, _>(self.at - 1)?.0,
        })
    }

    /// The next column, JSON or null.
    pub(crate) fn opt_json<T: DeserializeOwned + 'static>(
        &mut self,
    ) -> Result<Option<T>, StoreError> {
        self.at += 1;
        Ok(match self.row {
            Row::Pg(row) => row.try_get::<Option<Json<T>>, _>(self.at - 1)?,
            Row::Lite(row) => row.try_get::<Option<Json<T>>, _>(self.at - 1)?,
        }
        .map(|json| json.0))
    }
}
