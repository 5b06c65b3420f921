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
use rusqlite::types::FromSql;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _, Transaction};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::Flight;
use crate::error::StoreError;
use crate::lite::{Lite, LiteRow, Reader};

/// A connection to either database.
pub(crate) enum Conn {
    Pg(Transaction<'static, Postgres>),
    PgRead { connection: PoolConnection<Postgres>, _flight: Flight },
    Lite(OwnedMutexGuard<Lite>),
    LiteRead { reader: Reader, _flight: Flight },
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
    Option<Vec<u8>> => |v| Self::Bytes(v);
}

/// `args![a, b]`: values to bind, in order.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::db::Val::from($value)),*] };
}
pub(crate) use args;

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

fn pg_query(sql: Sql, args: Vec<Val>) -> sqlx::query::Query<'static, Postgres, PgArguments> {
    let mut query = match sql {
        Cow::Borrowed(text) => sqlx::query(text),
        Cow::Owned(text) => sqlx::query(AssertSqlSafe(text)),
    };
    for value in args {
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
}

enum Either<'c> {
    Pg(&'c mut PgConnection),
    Lite(&'c mut Lite),
}

impl Conn {
    fn either(&mut self) -> Result<Either<'_>, StoreError> {
        Ok(match self {
            Self::Pg(transaction) => Either::Pg(transaction),
            Self::PgRead { connection, .. } => Either::Pg(connection),
            Self::Lite(lite) => Either::Lite(lite),
            Self::LiteRead { reader, .. } => Either::Lite(reader.lite()?),
        })
    }

    /// Runs a statement; answers how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<u64, StoreError> {
        match self.either()? {
            Either::Pg(connection) => {
                let sql = in_dialect(sql.into(), true);
                Ok(pg_query(sql, args).execute(connection).await?.rows_affected())
            }
            Either::Lite(lite) => lite.execute(&in_dialect(sql.into(), false), &args),
        }
    }

    /// Runs a statement; answers its rows.
    pub(crate) async fn all(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<Vec<Row>, StoreError> {
        match self.either()? {
            Either::Pg(connection) => {
                let sql = in_dialect(sql.into(), true);
                let rows = pg_query(sql, args).fetch(connection).map_ok(Row::Pg);
                Ok(rows.try_collect().await?)
            }
            Either::Lite(lite) => {
                let rows = lite.all(&in_dialect(sql.into(), false), &args)?;
                Ok(rows.into_iter().map(Row::Lite).collect())
            }
        }
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
            self.execute(sql, chunk.into_iter().flatten().collect()).await?;
        }
        Ok(())
    }
}

/// A row of either database.
pub(crate) enum Row {
    Pg(PgRow),
    Lite(LiteRow),
}

/// A type that both databases can hand out.
pub(crate) trait Column:
    sqlx::Type<Postgres> + for<'r> sqlx::Decode<'r, Postgres> + FromSql
{
}

impl<T> Column for T where T: sqlx::Type<Postgres> + for<'r> sqlx::Decode<'r, Postgres> + FromSql {}

impl Row {
    /// The columns from left to right.
    pub(crate) const fn cols(&self) -> Cols<'_> {
        Cols { row: self, at: 0 }
    }

    fn get<T: Column>(&self, index: usize) -> Result<T, StoreError> {
        Ok(match self {
            Self::Pg(row) => row.try_get(index)?,
            Self::Lite(row) => row.get(index)?,
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
        self.opt_json()?.ok_or_else(|| StoreError::corrupt("value", "it is missing"))
    }

    /// The next column, JSON or null.
    pub(crate) fn opt_json<T: DeserializeOwned + 'static>(
        &mut self,
    ) -> Result<Option<T>, StoreError> {
        self.at += 1;
        match self.row {
            Row::Pg(row) => Ok(row.try_get::<Option<Json<T>>, _>(self.at - 1)?.map(|json| json.0)),
            Row::Lite(row) => {
                let text = row.text(self.at - 1)?;
                let value = text.map(serde_json::from_str).transpose();
                value.map_err(|error| StoreError::corrupt("value", error))
            }
        }
    }
}
