//! Connections to PostgreSQL, and who may use one.
//!
//! A pool of our own, because a library's tests each connection, with a round trip, whenever it
//! comes back or goes out, and one onboarding takes some fifty. Here a connection comes back only
//! from a statement that was answered and without an open transaction; any other is closed, and the
//! server rolls back what it had begun. One that broke while it was idle shows at its next
//! statement: a read, or the begin of a transaction, is then sent once more on a new connection.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Postgres, raw_sql};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::database::statement::Sql;
use crate::database::value::{Column, Val};
use crate::error::StoreError;

/// Connections of one control plane.
const CONNECTIONS: u32 = 16;
/// How long to wait for a connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The connections of one control plane.
pub(crate) struct PostgresPool {
    options: Arc<PgConnectOptions>,
    permits: Arc<Semaphore>,
    idle: Idle,
    closed: tokio::sync::watch::Sender<bool>,
}

type Idle = Arc<Mutex<Vec<PgConnection>>>;

fn lock(idle: &Idle) -> MutexGuard<'_, Vec<PgConnection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PostgresPool {
    /// A pool that has `first` and opens more with `options` as they are needed.
    pub(crate) fn new(options: PgConnectOptions, first: PgConnection) -> Self {
        Self {
            options: Arc::new(options),
            permits: Arc::new(Semaphore::new(CONNECTIONS as usize)),
            idle: Arc::new(Mutex::new(vec![first])),
            closed: tokio::sync::watch::Sender::new(false),
        }
    }

    /// Waits for a connection that nobody uses, or opens one.
    ///
    /// # Errors
    /// `database_unavailable` when none comes free in time, or the store is closed.
    pub(crate) async fn acquire(&self) -> Result<PostgresSession, StoreError> {
        let permit = timeout(PATIENCE, Arc::clone(&self.permits).acquire_owned())
            .await
            .map_err(|_| StoreError::unavailable("all database connections are busy"))?
            .map_err(|_| StoreError::unavailable("the store is closed"))?;
        let kept = lock(&self.idle).pop();
        let (connection, kept) = match kept {
            Some(connection) => (connection, true),
            None => (connect(&self.options).await?, false),
        };
        Ok(PostgresSession {
            connection: Some(connection),
            state: SessionState::Free,
            kept,
            options: Arc::clone(&self.options),
            idle: Arc::clone(&self.idle),
            _permit: permit,
        })
    }

    /// Waits until no connection is in use, and closes them.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(CONNECTIONS).await;
        self.permits.close();
        let idle = std::mem::take(&mut *lock(&self.idle));
        for connection in idle {
            if let Err(error) = connection.close().await {
                tracing::debug!(%error, "a connection failed before it was closed");
            }
        }
        self.closed.send_replace(true);
        drop(all);
    }

    /// Returns when the pool was closed.
    pub(crate) async fn closed(&self) {
        // The sender is here, so there is nothing but the value to wait for.
        self.closed.subscribe().wait_for(|closed| *closed).await.ok();
    }
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let connecting = timeout(PATIENCE, options.connect()).await;
    Ok(connecting
        .map_err(|_| StoreError::unavailable("timed out connecting to the database"))??)
}

/// How a transaction begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionCommand {
    /// Begins one.
    Begin,
    /// Begins one that gives up where a row is locked by somebody else for more than a moment.
    BeginBrief,
    /// Keeps what it wrote.
    Commit,
    /// Drops what it wrote.
    Rollback,
}

impl TransactionCommand {
    /// Whether it begins one.
    pub(crate) const fn begins(self) -> bool {
        matches!(self, Self::Begin | Self::BeginBrief)
    }

    /// Text of the statement.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Begin => "BEGIN",
            Self::BeginBrief => "BEGIN; SET LOCAL lock_timeout = '200ms'",
            Self::Commit => "COMMIT",
            Self::Rollback => "ROLLBACK",
        }
    }
}

/// What a session may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionState {
    /// No transaction is open.
    Free,
    /// A transaction is open.
    Open,
    /// A transaction is open, and one of its statements failed: it can be rolled back only.
    Failed,
    /// A statement was sent and not answered. Where its sender is gone, so is the session.
    Sent,
}

/// A connection in somebody's hands.
pub(crate) struct PostgresSession {
    connection: Option<PgConnection>,
    state: SessionState,
    /// It was opened for somebody else before, so it may have broken since.
    kept: bool,
    options: Arc<PgConnectOptions>,
    idle: Idle,
    _permit: OwnedSemaphorePermit,
}

impl PostgresSession {
    /// Whether a transaction is open.
    pub(crate) fn in_transaction(&self) -> bool {
        matches!(self.state, SessionState::Open | SessionState::Failed)
    }

    /// The connection itself; a transaction that is open on it stays so.
    pub(crate) fn connection(&mut self) -> Result<&mut PgConnection, StoreError> {
        self.connection.as_mut().ok_or_else(|| StoreError::unavailable("the connection was lost"))
    }

    /// Opens a new connection in place of one that broke while nobody used it. Answers whether
    /// there was reason to.
    async fn replace_broken(&mut self, error: &sqlx::Error) -> Result<bool, StoreError> {
        let broken = match error {
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
            // The server ended the session: `admin_shutdown` and its like.
            sqlx::Error::Database(error) => {
                error.code().is_some_and(|code| code.starts_with("57P"))
            }
            _ => false,
        };
        if !broken || !std::mem::take(&mut self.kept) {
            return Ok(false);
        }
        // What broke one of the idle ones mostly broke them all.
        lock(&self.idle).clear();
        self.connection = Some(connect(&self.options).await?);
        Ok(true)
    }

    /// Begins, commits or rolls back a transaction.
    pub(crate) async fn control(&mut self, command: TransactionCommand) -> Result<(), StoreError> {
        if command == TransactionCommand::Commit && self.state == SessionState::Failed {
            // PostgreSQL would roll it back and say that all is well.
            return Err(StoreError::unavailable("a statement in the transaction failed"));
        }
        self.state = SessionState::Sent;
        let mut sent = raw_sql(command.text()).execute(self.connection()?).await;
        if command.begins()
            && let Err(error) = &sent
            && self.replace_broken(error).await?
        {
            sent = raw_sql(command.text()).execute(self.connection()?).await;
        }
        sent?;
        self.state = if command.begins() { SessionState::Open } else { SessionState::Free };
        self.kept = false;
        Ok(())
    }

    /// Runs a statement; answers how many rows it changed.
    pub(crate) async fn execute(&mut self, sql: Sql, args: &[Val]) -> Result<u64, StoreError> {
        let before = std::mem::replace(&mut self.state, SessionState::Sent);
        let done = query(sql, args).execute(self.connection()?).await;
        self.answered(before, done.as_ref().err());
        Ok(done?.rows_affected())
    }

    /// Runs a statement; answers its rows.
    pub(crate) async fn query(&mut self, sql: Sql, args: &[Val]) -> Result<Vec<PgRow>, StoreError> {
        let before = std::mem::replace(&mut self.state, SessionState::Sent);
        let again = (self.kept && before == SessionState::Free).then(|| sql.clone());
        let mut rows = query(sql, args).fetch(self.connection()?).try_collect().await;
        if let (Some(sql), Err(error)) = (again, &rows)
            && self.replace_broken(error).await?
        {
            rows = query(sql, args).fetch(self.connection()?).try_collect().await;
        }
        self.answered(before, rows.as_ref().err());
        Ok(rows?)
    }

    /// Runs a statement, and calls `visit` with each of its rows as it comes. Where `visit` fails,
    /// the rows that follow are not read, and the connection is closed.
    pub(crate) async fn visit(
        &mut self,
        sql: Sql,
        mut visit: impl FnMut(PgRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let before = std::mem::replace(&mut self.state, SessionState::Sent);
        let mut rows = statement(sql).fetch(self.connection()?);
        while let Some(row) = rows.try_next().await? {
            visit(row)?;
        }
        drop(rows);
        self.answered(before, None);
        Ok(())
    }

    /// Runs a statement whose values are columns; answers its rows.
    pub(crate) async fn query_columns(
        &mut self,
        sql: Sql,
        columns: Vec<Column>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let before = std::mem::replace(&mut self.state, SessionState::Sent);
        let mut query = statement(sql);
        for column in columns {
            query = match column {
                Column::Int(v) => query.bind(v),
                Column::Bool(v) => query.bind(v),
                Column::Text(v) => query.bind(v),
                Column::Id(v) => query.bind(v),
                Column::Bytes(v) => query.bind(v),
                Column::Json(v) => {
                    query.bind(v.into_iter().map(|v| v.map(Json)).collect::<Vec<_>>())
                }
            };
        }
        let rows = query.fetch(self.connection()?).try_collect().await;
        self.answered(before, rows.as_ref().err());
        Ok(rows?)
    }

    fn answered(&mut self, before: SessionState, error: Option<&sqlx::Error>) {
        self.kept = false;
        self.state = match (error, before) {
            (None, before) => before,
            (Some(sqlx::Error::Database(error)), SessionState::Free) => {
                // After a fatal error the server closes the connection.
                let ended = error.code().is_some_and(|code| code.starts_with("57P"));
                if ended { SessionState::Sent } else { SessionState::Free }
            }
            (Some(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)), before) => before,
            (Some(sqlx::Error::Database(_)), _) => SessionState::Failed,
            (Some(_), _) => SessionState::Sent,
        };
    }
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        if self.state == SessionState::Free {
            lock(&self.idle).extend(self.connection.take());
        }
    }
}

fn statement<'q>(sql: Sql) -> Query<'q, Postgres, PgArguments> {
    match sql {
        Cow::Borrowed(text) => sqlx::query(text),
        Cow::Owned(text) => sqlx::query(AssertSqlSafe(text)),
    }
}

fn query<'q>(sql: Sql, args: &'q [Val]) -> Query<'q, Postgres, PgArguments> {
    let mut query = statement(sql);
    for value in args {
        query = match value {
            Val::Int(v) => query.bind(v),
            Val::Bool(v) => query.bind(v),
            Val::Text(v) => query.bind(v.as_deref()),
            Val::Id(v) => query.bind(v),
            Val::Bytes(v) => query.bind(v.as_deref()),
            Val::Json(v) => query.bind(v.as_deref().map(Json)),
        };
    }
    query
}
