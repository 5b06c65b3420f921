//! Connections to PostgreSQL: their limits, the migrations, and starting together.
//!
//! # Limits
//! A control plane may stand still at any line: a suspended machine, a stopped process, a host that
//! lost its network. Whatever it has locked then stays locked until the server ends its session, so
//! the server is told when to. The limits form a chain, each below the next:
//!
//! | setting | seconds | why |
//! |---|---|---|
//! | `idle_in_transaction_session_timeout` | 4 | statements of one transaction follow each other at once |
//! | `tcp_user_timeout` | 4 | a client that takes no more bytes is as good as gone |
//! | `lock_timeout` | 8 | longer than the two above, so a waiter outlives the session that it waits for |
//! | `statement_timeout` | 30 | longer than any wait for a lock; no statement of ours takes that long |
//!
//! A replica that stands still therefore holds up the others for some five seconds, and only where
//! they need the rows that it has locked. With a `lock_timeout` below the first two, the waiters
//! would fail instead of going on.
//!
//! # Plans
//! The joins of our statements are written in the order in which they are to be made, so the server
//! is told to keep that order (`join_collapse_limit = 1`). For the list of nodes, nine tables, it
//! otherwise tries orders for 26 ms, and needs 2 ms to read the list of 200. None of our statements
//! runs for as long as it takes to compile it, so there is no `jit`.
//!
//! A connection keeps the plans that it made first. On a new database it made them for tables with
//! nothing in them, of which the server would rather read all than look into an index, and until
//! its statistics are made anew it goes on so, with a thousand runs and all their dead rows. Hence
//! `enable_seqscan = off`, which leaves reading all to statements that no index serves, and the cost
//! of a page that is in memory or on flash (`random_page_cost`).
//!
//! The server plans a statement anew each time where it takes that plan for cheaper than one that fits
//! any value. Planning was a fifth of what a claim and its release took. One plan is enough here
//! (`plan_cache_mode`); SQLite is told the same (`sqlite/connection.rs`).
//!
//! # Two versions
//! Control planes of two versions may share a database while one takes over from the other, so a start
//! makes what adds, and leaves what takes away until no control plane lives that uses it
//! (`schema/control_plane.rs`; the marks are in `schema/migrations.rs`). What was taken away leaves a
//! floor, and who does not know that migration does not start.
//!
//! # Starting together
//! The first start of a control plane makes tables and keys. Replicas that start at the same moment
//! do so one after the other: [`StartupLock`] is an advisory lock that lasts as long as a
//! transaction, so it ends with the session, however that ends. It saves work and errors; that there
//! is one key of each kind does not rest on it, because each is made by one atomic statement.

use async_recursion::async_recursion as boxed;

use futures::future::BoxFuture;
use gpuaas_types::text::is_loopback_host;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _, raw_sql};
use tokio::time::timeout;

use crate::database::schema::migrations::{self, Schema};
use crate::database::{PATIENCE, PostgresPool, PostgresSession, TransactionCommand};
use crate::error::StoreError;
use crate::store::{Db, Store};

/// Prepared statements kept by each connection: room for every statement, and for the lengths that
/// lists come in.
const STATEMENTS: usize = 256;

/// See the table in the module's text, and what it says of plans.
const SETTINGS: [(&str, &str); 9] = [
    ("idle_in_transaction_session_timeout", "4s"),
    ("tcp_user_timeout", "4s"),
    ("lock_timeout", "8s"),
    ("statement_timeout", "30s"),
    ("join_collapse_limit", "1"),
    ("jit", "off"),
    ("enable_seqscan", "off"),
    ("random_page_cost", "1.1"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// Key of the advisory lock under which control planes start. Advisory locks belong to a database,
/// so it needs to be unlike no other than those of this crate.
pub(crate) const STARTUP_KEY: i64 = 0x6770_7561_6173_0001;
/// Limits of the transaction that holds the startup lock. A replica waits for it longer than one
/// that stands still can hold it.
const STARTUP_LIMITS: &str = "SET LOCAL idle_in_transaction_session_timeout = '30s'; \
     SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = '60s'";
/// `invalid_authorization_specification`: what PostgreSQL answers where its `pg_hba.conf` has no rule.
const NO_RULE: &str = "28000";
/// `lock_not_available`: what PostgreSQL answers when `lock_timeout` has passed.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Opens a pool on the server and brings its tables up to date.
///
/// # Errors
/// [`StoreError::Open`] with code `database_unreachable`, `startup_locked` or `migration_failed`.
pub(crate) async fn open(
    options: PgConnectOptions,
    schema: &Schema,
) -> Result<PostgresPool, StoreError> {
    let (options, mut first) = connect(options).await?;
    migrate(&mut first, schema).await?;
    Ok(PostgresPool::new(options, first))
}

/// A connection, and the options that the server took.
///
/// # Errors
/// [`StoreError::Open`] with code `database_unreachable`.
pub(crate) async fn connect(
    options: PgConnectOptions,
) -> Result<(PgConnectOptions, PgConnection), StoreError> {
    let place = format!("{}:{}", options.get_host(), options.get_port());
    let unreachable = |why: &dyn std::fmt::Display| {
        StoreError::open(
            "database_unreachable",
            format!("cannot connect to PostgreSQL at {place}: {why}"),
            "check that the server is running, that the database exists, and that the user \
             name and password are correct",
        )
    };
    let mut options =
        options.statement_cache_capacity(STATEMENTS).application_name("gpuaas").options(SETTINGS);
    let plain = without_tls(&options);
    let mut first = timeout(PATIENCE, plain.as_ref().unwrap_or(&options).connect()).await;
    match plain {
        Some(_) if first.as_ref().is_ok_and(wants_tls) => {
            first = timeout(PATIENCE, options.connect()).await;
        }
        Some(plain) => options = plain,
        None => {}
    }
    match first {
        Err(_) => Err(unreachable(&"no response")),
        Ok(Err(error)) => Err(unreachable(&error)),
        Ok(Ok(connection)) => Ok((options, connection)),
    }
}

/// The options for a connection that does not leave this host and for which nobody asked for TLS:
/// `prefer`, which they say then, takes any certificate and so guards against nobody.
fn without_tls(options: &PgConnectOptions) -> Option<PgConnectOptions> {
    let stays_here = is_loopback_host(options.get_host());
    let asked_for = !matches!(options.get_ssl_mode(), PgSslMode::Prefer);
    (stays_here && !asked_for).then(|| options.clone().ssl_mode(PgSslMode::Disable))
}

/// Whether the server has no rule for a connection like this one, as where it wants TLS.
fn wants_tls(connected: &Result<PgConnection, sqlx::Error>) -> bool {
    let refused = connected.as_ref().err().and_then(sqlx::Error::as_database_error);
    refused.and_then(|error| error.code()).is_some_and(|code| code == NO_RULE)
}

/// Brings the tables up to date under the startup lock, as far as the control planes that run allow:
/// all of it or nothing. Answers how many changes have to wait.
///
/// # Errors
/// [`StoreError::Open`] with code `startup_locked`, `migration_failed` or `schema_contracted`.
pub(crate) fn migrate<'c>(
    connection: &'c mut PgConnection,
    schema: &'c Schema,
) -> BoxFuture<'c, Result<usize, StoreError>> {
    // A box, because the compiler cannot tell of what is in it that it may go to another thread.
    Box::pin(run_migrations(connection, schema))
}

async fn run_migrations(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<usize, StoreError> {
    let mut transaction = connection.begin().await?;
    lock(&mut transaction).await?;
    // A migration may take as long as the data needs.
    raw_sql("SET LOCAL statement_timeout = 0").execute(&mut *transaction).await?;
    let made = made_migrations(&mut transaction).await?;
    let known = schema.newest();
    let floor = schema_floor(&mut transaction).await?;
    if floor > known {
        return Err(migrations::schema_contracted(floor, known));
    }
    // A later version has added what is above, and nothing that is used here is gone. What is between
    // is of another line of versions.
    if let Some(stray) = made.iter().find(|number| **number < known && !schema.knows(**number)) {
        let detail = format!("migration {stray} was applied, but this version does not know it");
        return Err(StoreError::migration_failed(&detail, true));
    }
    let oldest = if made.is_empty() { None } else { oldest_schema(&mut transaction).await? };
    let (due, waiting) = schema.due(&made, oldest);
    migrations::migrator(&due)
        .set_locking(false)
        .run_direct(None, &mut *transaction, false)
        .await
        .map_err(|error| StoreError::migration_failed(&error, false))?;
    if let Some(floor) = migrations::floor(&due) {
        let sql = "INSERT INTO store_meta (name, value) VALUES ('schema_floor', $1) \
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        sqlx::query(sql).bind(floor.to_string()).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(waiting)
}

/// Numbers of the migrations that were made.
async fn made_migrations(connection: &mut PgConnection) -> Result<Vec<i64>, StoreError> {
    if !has_table(connection, "_sqlx_migrations").await? {
        return Ok(Vec::new());
    }
    let sql = "SELECT version FROM _sqlx_migrations ORDER BY version";
    Ok(sqlx::query_scalar(sql).fetch_all(connection).await?)
}

/// The migration that an executable has to know to use these tables; 0: any.
///
/// # Errors
/// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
pub(crate) async fn schema_floor(connection: &mut PgConnection) -> Result<i64, StoreError> {
    if !has_table(connection, "store_meta").await? {
        return Ok(0);
    }
    let sql = "SELECT value FROM store_meta WHERE name = 'schema_floor'";
    let floor: Option<String> = sqlx::query_scalar(sql).fetch_optional(connection).await?;
    let floor = floor.map_or(Ok(0), |text| text.parse());
    floor.map_err(|error| StoreError::corrupt("schema_floor", error))
}

/// The oldest schema that a control plane knows which runs; none: none runs. Those of before the table
/// are of schema 0: whether one runs nobody can tell.
async fn oldest_schema(connection: &mut PgConnection) -> Result<Option<i64>, StoreError> {
    if !has_table(connection, "control_plane").await? {
        return Ok(Some(0));
    }
    let sql = "SELECT MIN(schema_known) FROM control_plane WHERE lease_until > \
               CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";
    Ok(sqlx::query_scalar(sql).fetch_one(connection).await?)
}

async fn has_table(connection: &mut PgConnection, name: &'static str) -> Result<bool, StoreError> {
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    Ok(sqlx::query_scalar(sql).bind(name).fetch_one(connection).await?)
}

/// Takes the startup lock in the transaction that is open.
async fn lock(connection: &mut PgConnection) -> Result<(), StoreError> {
    raw_sql(STARTUP_LIMITS).execute(&mut *connection).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(STARTUP_KEY)
        .execute(&mut *connection)
        .await
        .map_err(|error| match error.as_database_error().and_then(|e| e.code()) {
            Some(code) if code == LOCK_NOT_AVAILABLE => StoreError::open(
                "startup_locked",
                "another control plane has been starting on this database for a minute",
                "check what it is waiting for, or stop it; then start again",
            ),
            _ => error.into(),
        })?;
    Ok(())
}

/// The right to make what a first start makes, such as keys. Others that start on the same database
/// wait until it is given back or dropped. An SQLite file has one process anyway.
pub struct StartupLock(Option<PostgresSession>);

impl StartupLock {
    /// Lets the next control plane go on.
    #[boxed]
    pub async fn release(self) {
        if let Some(mut session) = self.0
            && let Err(error) = session.control(TransactionCommand::Rollback).await
        {
            // The server ended the session, and the lock with it.
            tracing::warn!(%error, "lost the startup lock before startup finished");
        }
    }
}

impl Store {
    /// Waits until no other control plane starts on this database, and keeps others from it.
    ///
    /// # Errors
    /// [`StoreError::Open`] with code `startup_locked` after a minute, or the database's.
    #[boxed]
    pub async fn lock_startup(&self) -> Result<StartupLock, StoreError> {
        match &self.inner.db {
            Db::Postgres { pool, .. } => {
                let mut session = pool.acquire().await?;
                session.control(TransactionCommand::Begin).await?;
                lock(session.connection()?).await?;
                Ok(StartupLock(Some(session)))
            }
            Db::Sqlite { .. } => Ok(StartupLock(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;

    #[test]
    fn tls_is_left_out_where_nobody_is_in_between_and_nobody_asked_for_it() {
        for (url, plain) in [
            ("postgres://u@127.0.0.1:5432/d", true),
            ("postgres://u@localhost/d?sslmode=prefer", true),
            ("postgres://u@[::1]:5432/d", true),
            ("postgres://u@127.0.0.1/d?sslmode=require", false),
            ("postgres://u@127.0.0.1/d?sslmode=verify-full", false),
            ("postgres://u@10.0.0.7/d", false),
            ("postgres://u@db.example/d", false),
        ] {
            let options = PgConnectOptions::from_str(url).unwrap().options(SETTINGS);
            let left_out = without_tls(&options);
            assert_eq!(left_out.is_some(), plain, "{url}");
            assert!(left_out.is_none_or(|o| matches!(o.get_ssl_mode(), PgSslMode::Disable)));
        }
    }
}
