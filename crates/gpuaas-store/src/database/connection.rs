//! Connections to either database: the only place that knows there are two.
//!
//! Every statement is written once, in the part of SQL that SQLite 3.51 and PostgreSQL 15 share:
//! `$1` placeholders, `RETURNING`, `ON CONFLICT`, partial indexes, `WITH ... AS MATERIALIZED`.
//! Six things differ and are handled here:
//!
//! | | PostgreSQL | SQLite |
//! |---|---|---|
//! | `{SKIP}` | `FOR NO KEY UPDATE SKIP LOCKED` | nothing: there is one writer |
//! | `{LOCK}` | `FOR NO KEY UPDATE`, which lets others add rows that refer to the locked ones | nothing: there is one writer |
//! | `{LOCK_KEY}` | `FOR UPDATE`, which does not | nothing: there is one writer |
//! | `{SHARE_NODE}`, `{SHARE_NODE_SKIP}` | `FOR SHARE OF node`, which lets others do so too, and keeps the row as it is | nothing: there is one writer |
//! | `{NOW}` | the server's clock, in microseconds | the system's |
//! | lists | `IN ($1, $2, ...)`, as on SQLite; `= ANY` exists here only | |
//!
//! Values travel as [`Val`] and come back through [`Cols`], so the functions above are
//! plain functions: neither generic over a driver nor written twice. A list is padded to a power
//! of two by repeating its last member, which keeps the number of distinct texts, and so of
//! prepared statements, small.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use futures::future::BoxFuture;
use gpuaas_types::Timestamp;
use rusqlite::types::FromSql;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, Row as _};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::counters::SentCounters;
use super::in_flight::InFlightGuard;
use super::origin::RequestOrigin;
use super::postgres::group_state::{GroupState, PendingRows, RowsStatement};
use super::postgres::pool::{PostgresSession, TransactionCommand};
use super::sqlite::connection::{Reader, SqliteConnection, SqliteRow};
use super::statement::{Sql, in_dialect};
use super::value::{Column as ValueColumn, Val, columns_of};
use crate::error::StoreError;

/// A connection to either database.
pub(crate) struct Conn {
    driver: Driver,
    counters: Arc<SentCounters>,
    /// What a group of writes shares; none: the connection is of one request.
    group: Option<Box<GroupState>>,
    /// The request that the writes are made for.
    origin: RequestOrigin,
    before_commit: Option<CommitHook>,
    _guard: Option<InFlightGuard>,
}

/// What a transaction does last.
pub(crate) type CommitHook = for<'c> fn(&'c mut Conn) -> BoxFuture<'c, Result<(), StoreError>>;

enum Driver {
    Postgres(PostgresSession),
    Sqlite(OwnedMutexGuard<SqliteConnection>),
    SqliteRead(Reader),
}

impl Conn {
    /// A connection that begins and ends transactions when told to.
    pub(crate) fn postgres(session: PostgresSession, counters: &Arc<SentCounters>) -> Self {
        Self::new(Driver::Postgres(session), counters)
    }

    /// The connection of the SQLite writer.
    pub(crate) fn sqlite_writer(
        connection: OwnedMutexGuard<SqliteConnection>,
        counters: &Arc<SentCounters>,
    ) -> Self {
        Self::new(Driver::Sqlite(connection), counters)
    }

    /// A connection that only reads an SQLite file.
    pub(crate) fn sqlite_reader(reader: Reader, counters: &Arc<SentCounters>) -> Self {
        Self::new(Driver::SqliteRead(reader), counters)
    }

    fn new(driver: Driver, counters: &Arc<SentCounters>) -> Self {
        let (counters, origin) = (Arc::clone(counters), RequestOrigin::default());
        Self { driver, counters, group: None, origin, before_commit: None, _guard: None }
    }

    /// Whether the database is a PostgreSQL server.
    pub(crate) const fn is_postgres(&self) -> bool {
        matches!(self.driver, Driver::Postgres(_))
    }

    /// The writes that follow are made for this request.
    pub(crate) fn set_origin(&mut self, origin: RequestOrigin) {
        self.origin = origin;
    }

    /// The request that writes are made for.
    pub(crate) const fn origin(&self) -> &RequestOrigin {
        &self.origin
    }

    /// Has the one writer of SQLite call `hook` before it commits; nobody else does.
    pub(crate) fn call_before_commit(&mut self, hook: CommitHook) {
        if let Driver::Sqlite(_) = self.driver {
            self.before_commit = Some(hook);
        }
    }

    /// What is to be called before the commit.
    pub(crate) fn take_commit_hook(&mut self) -> Option<CommitHook> {
        self.before_commit.take()
    }

    /// The same, and `guard` lives as long as the connection.
    pub(crate) fn guarded(self, guard: InFlightGuard) -> Self {
        Self { _guard: Some(guard), ..self }
    }

    /// The same for a group of writes: what can be put off is written at its end.
    pub(crate) fn grouped(self) -> Self {
        Self { group: Some(Box::default()), ..self }
    }

    /// What the group shares that this connection writes for; none: it is of one request.
    pub(crate) fn group(&mut self) -> Option<&mut GroupState> {
        self.group.as_deref_mut()
    }

    /// Whether a transaction is open.
    pub(crate) fn in_transaction(&self) -> bool {
        match &self.driver {
            Driver::Postgres(session) => session.in_transaction(),
            Driver::Sqlite(connection) => !connection.is_autocommit(),
            Driver::SqliteRead(_) => false,
        }
    }

    /// The connection to the file, where it is the writer's.
    pub(crate) fn sqlite_mut(&mut self) -> Option<&mut SqliteConnection> {
        match &mut self.driver {
            Driver::Sqlite(connection) => Some(connection),
            _ => None,
        }
    }

    /// Begins, commits or rolls back a transaction on PostgreSQL.
    pub(crate) async fn control(&mut self, command: TransactionCommand) -> Result<(), StoreError> {
        self.counters.note_statement(command.text(), command.begins());
        match &mut self.driver {
            Driver::Postgres(session) => session.control(command).await,
            _ => Err(StoreError::unavailable("the SQLite writer manages its own transactions")),
        }
    }

    fn note(&mut self, sql: &str) {
        if let Some(group) = &mut self.group {
            group.touch();
        }
        self.counters.note_statement(sql, !self.in_transaction());
    }

    /// Runs a statement; answers how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<u64, StoreError> {
        let sql = sql.into();
        self.note(&sql);
        match &mut self.driver {
            Driver::Postgres(session) => session.execute(in_dialect(sql, true), &args).await,
            Driver::Sqlite(sqlite) => sqlite.execute(&in_dialect(sql, false), &args),
            Driver::SqliteRead(reader) => {
                reader.connection()?.execute(&in_dialect(sql, false), &args)
            }
        }
    }

    /// Runs a statement; answers its rows.
    pub(crate) async fn all(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = sql.into();
        self.note(&sql);
        let rows = match &mut self.driver {
            Driver::Postgres(session) => {
                let rows = session.query(in_dialect(sql, true), &args).await?;
                return Ok(rows.into_iter().map(Row::Postgres).collect());
            }
            Driver::Sqlite(sqlite) => sqlite.query(&in_dialect(sql, false), &args)?,
            Driver::SqliteRead(reader) => {
                reader.connection()?.query(&in_dialect(sql, false), &args)?
            }
        };
        Ok(rows.into_iter().map(Row::Sqlite).collect())
    }

    /// Runs a statement; answers its first row.
    pub(crate) async fn first(
        &mut self,
        sql: impl Into<Sql>,
        args: Vec<Val>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, args).await?.into_iter().next())
    }

    /// `INSERT INTO table (columns)` for any number of rows.
    pub(crate) async fn insert_rows(
        &mut self,
        head: &'static str,
        rows: Vec<Vec<Val>>,
    ) -> Result<(), StoreError> {
        self.write_rows(RowsStatement { head, tail: "" }, rows).await
    }

    /// Runs a statement for any number of rows, at the end of the group where there is one.
    pub(crate) async fn write_rows(
        &mut self,
        statement: RowsStatement,
        rows: Vec<Vec<Val>>,
    ) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        match &mut self.group {
            Some(group) => {
                group.add_rows(statement, rows);
                Ok(())
            }
            None => self.query_rows(statement, rows).await.map(drop),
        }
    }

    /// Runs a statement that does with each row what it would do with it alone; answers what it
    /// returns. PostgreSQL gets all rows at once. SQLite gets one after the other, with one text for any
    /// number of them, so that the statement stays prepared.
    pub(crate) async fn query_each(
        &mut self,
        statement: RowsStatement,
        rows: Vec<Vec<Val>>,
    ) -> Result<Vec<Row>, StoreError> {
        let Some(width) = rows.first().map(Vec::len) else { return Ok(Vec::new()) };
        if self.is_postgres() {
            return self.query_rows(statement, rows).await;
        }
        let sql = one_row(statement, width);
        let mut answers = Vec::new();
        for row in rows {
            answers.extend(self.all(sql.clone(), row).await?);
        }
        Ok(answers)
    }

    /// From here on [`Self::write_rows`] only collects. Answers what has to be given back at the end.
    pub(crate) fn begin_collecting(&mut self) -> Option<Box<GroupState>> {
        self.group.replace(Box::default())
    }

    /// What was collected, statement by statement.
    pub(crate) fn end_collecting(&mut self, before: Option<Box<GroupState>>) -> Vec<PendingRows> {
        let collected = std::mem::replace(&mut self.group, before);
        collected.map(|mut state| state.take_pending().1).unwrap_or_default()
    }

    /// Runs statements none of which writes to a row that another one reads or writes; answers what the
    /// last one returns. PostgreSQL gets them as one, SQLite one after the other.
    pub(crate) async fn write_together(
        &mut self,
        mut statements: Vec<PendingRows>,
    ) -> Result<Vec<Row>, StoreError> {
        statements.retain(|(_, rows)| !rows.is_empty());
        if !self.is_postgres() || statements.len() < 2 {
            let mut answers = Vec::new();
            for (statement, rows) in statements {
                answers = self.query_each(statement, rows).await?;
            }
            return Ok(answers);
        }
        let (mut sql, mut columns) = (String::with_capacity(4096), Vec::new());
        let mut answer = "SELECT 1 WHERE FALSE".to_owned();
        for (at, (RowsStatement { head, tail }, rows)) in statements.into_iter().enumerate() {
            let first = columns.len() + 1;
            columns.extend(columns_of(rows));
            let list: Vec<String> = (first..=columns.len()).map(|n| format!("${n}")).collect();
            let (before, list) = (if at == 0 { "WITH" } else { "," }, list.join(","));
            write!(sql, "{before} w{at} AS ({head} SELECT * FROM UNNEST({list}) {tail})")
                .unwrap_or_default();
            if tail.contains("RETURNING") {
                answer = format!("SELECT * FROM w{at}");
            }
        }
        write!(sql, " {answer}").unwrap_or_default();
        self.query_as_columns(Cow::Owned(sql), columns).await
    }

    async fn query_as_columns(
        &mut self,
        sql: Sql,
        columns: Vec<ValueColumn>,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = in_dialect(sql, true);
        self.note(&sql);
        let Driver::Postgres(session) = &mut self.driver else { return Ok(Vec::new()) };
        let rows = session.query_columns(sql, columns).await?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    /// `INSERT INTO table (columns)` for any number of rows, on PostgreSQL.
    pub(crate) async fn insert_arrays(
        &mut self,
        head: &str,
        rows: Vec<Vec<Val>>,
    ) -> Result<(), StoreError> {
        let width = rows.first().map_or(0, Vec::len);
        let columns: Vec<String> = (1..=width).map(|n| format!("${n}")).collect();
        let sql = format!("{head} SELECT * FROM UNNEST({})", columns.join(", "));
        self.query_as_columns(Cow::Owned(sql), columns_of(rows)).await.map(drop)
    }

    /// Calls `visit` with each row of a statement as it comes, on PostgreSQL: not all are in memory.
    pub(crate) async fn visit_rows(
        &mut self,
        sql: String,
        mut visit: impl FnMut(&Row) -> Result<(), StoreError> + Send,
    ) -> Result<(), StoreError> {
        self.note(&sql);
        match &mut self.driver {
            Driver::Postgres(session) => {
                session.visit(Cow::Owned(sql), |row| visit(&Row::Postgres(row))).await
            }
            _ => Err(StoreError::unavailable("SQLite cannot stream rows")),
        }
    }

    /// Runs a statement for any number of rows, now; answers what it returns.
    ///
    /// PostgreSQL gets an array for each column, so there is one text, and one plan, for any number
    /// of rows; SQLite, which has no arrays, gets the values one by one.
    pub(crate) async fn query_rows(
        &mut self,
        RowsStatement { head, tail }: RowsStatement,
        rows: Vec<Vec<Val>>,
    ) -> Result<Vec<Row>, StoreError> {
        if let Driver::Postgres(_) = self.driver {
            let width = rows.first().map_or(0, Vec::len);
            let columns: Vec<String> = (1..=width).map(|n| format!("${n}")).collect();
            let sql = format!("{head} SELECT * FROM UNNEST({}) {tail}", columns.join(", "));
            return self.query_as_columns(Cow::Owned(sql), columns_of(rows)).await;
        }
        let mut answers = Vec::new();
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let chunk: Vec<Vec<Val>> = rows.by_ref().take(64).collect();
            let mut sql = format!("{head} VALUES ");
            let mut n = 0;
            for (at, row) in chunk.iter().enumerate() {
                sql.push_str(if at == 0 { "(" } else { ", (" });
                for column in 0..row.len() {
                    n += 1;
                    let comma = if column == 0 { "" } else { "," };
                    write!(sql, "{comma}${n}").unwrap_or_default();
                }
                sql.push(')');
            }
            sql.push(' ');
            sql.push_str(tail);
            answers.extend(self.all(sql, chunk.into_iter().flatten().collect()).await?);
        }
        Ok(answers)
    }
}

/// `INSERT ... VALUES ($1, ...)` and its like, for one row.
fn one_row(RowsStatement { head, tail }: RowsStatement, width: usize) -> Sql {
    let columns: Vec<String> = (1..=width).map(|n| format!("${n}")).collect();
    in_dialect(Cow::Owned(format!("{head} VALUES ({}) {tail}", columns.join(","))), false)
}

/// A row of either database.
pub(crate) enum Row {
    Postgres(PgRow),
    Sqlite(SqliteRow),
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
            Self::Postgres(row) => row.try_get(index)?,
            Self::Sqlite(row) => row.get(index)?,
        })
    }
}

/// Reads a row's columns from left to right, in the order of the statement's column list.
pub(crate) struct Cols<'r> {
    row: &'r Row,
    at: usize,
}

impl Cols<'_> {
    /// The value of the next column.
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
    pub(crate) fn enum_str<T: FromStr>(&mut self) -> Result<T, StoreError>
    where
        T::Err: std::fmt::Display,
    {
        self.opt_enum_str()?.ok_or_else(|| StoreError::corrupt("word", "it is missing"))
    }

    /// The next column, a word of an enumeration or null.
    pub(crate) fn opt_enum_str<T: FromStr>(&mut self) -> Result<Option<T>, StoreError>
    where
        T::Err: std::fmt::Display,
    {
        self.at += 1;
        let word = match self.row {
            Row::Postgres(row) => row.try_get::<Option<&str>, _>(self.at - 1)?,
            Row::Sqlite(row) => row.text(self.at - 1)?,
        };
        let word = word.map(str::parse).transpose();
        word.map_err(|error| StoreError::corrupt("word", error))
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
            Row::Postgres(row) => {
                Ok(row.try_get::<Option<Json<T>>, _>(self.at - 1)?.map(|json| json.0))
            }
            Row::Sqlite(row) => {
                let text = row.text(self.at - 1)?;
                let value = text.map(serde_json::from_str).transpose();
                value.map_err(|error| StoreError::corrupt("value", error))
            }
        }
    }
}
