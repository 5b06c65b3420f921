//! What a database says of itself, read without a change: for whoever asks before it is opened.

use async_recursion::async_recursion as boxed;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuaas_types::text::is_loopback_host;
use rusqlite::{Connection, OpenFlags};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{Connection as _, Row as _};
use tokio::time::timeout;

use crate::database::postgres::startup;
use crate::database::schema::migrations::{SQLITE, Schema};
use crate::error::StoreError;
use crate::open::DatabaseUrl;

/// For all questions to a server, in wall time.
const PATIENCE: Duration = Duration::from_secs(10);
/// The oldest PostgreSQL that the statements are for, as `server_version_num` counts.
const OLDEST_POSTGRES: i64 = 150_000;

/// What a database says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseInspection {
    /// Engine and its version.
    pub engine: String,
    /// Whether the statements are for this version.
    pub is_supported: bool,
    /// Which version's tables it has.
    pub schema: SchemaVersion,
    /// What is damaged, in the database's own words; none: nothing.
    pub damage: Option<String>,
}

/// Which version's tables a database has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaVersion {
    /// It has none yet.
    Empty,
    /// Those of an earlier version.
    Older,
    /// Those of this version.
    Current,
    /// Those of a later version, which has only added to them: this version runs beside it.
    Expanded,
    /// Those of a later version.
    Newer,
}

impl SchemaVersion {
    fn compare(found: i64, newest: i64) -> Self {
        match found.cmp(&newest) {
            _ if found == 0 => Self::Empty,
            std::cmp::Ordering::Less => Self::Older,
            std::cmp::Ordering::Equal => Self::Current,
            std::cmp::Ordering::Greater => Self::Newer,
        }
    }
}

/// Asks the database at `url`, which is written as for [`crate::Store::open`], how it is.
///
/// # Errors
/// [`StoreError::Open`] with code `database_url_invalid` or `database_unreachable`;
/// [`StoreError::Unavailable`] where it does not answer, or a file is no database.
#[boxed]
pub async fn inspect_database(url: &str) -> Result<DatabaseInspection, StoreError> {
    match DatabaseUrl::parse(url)? {
        DatabaseUrl::File(path) => {
            let asked = tokio::task::spawn_blocking(move || inspect_file(&path));
            asked.await.map_err(StoreError::unavailable)?
        }
        DatabaseUrl::Postgres(options) => timeout(PATIENCE, inspect_server(*options))
            .await
            .unwrap_or_else(|_| Err(StoreError::unavailable("no response"))),
    }
}

pub(crate) fn inspect_file(path: &Path) -> Result<DatabaseInspection, StoreError> {
    let connection = open_to_read(path)?;
    let text = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let checked = text("PRAGMA quick_check(1)")?;
    let newest = i64::try_from(SQLITE.len()).unwrap_or(i64::MAX);
    Ok(DatabaseInspection {
        engine: format!("SQLite {}", rusqlite::version()),
        is_supported: true,
        schema: SchemaVersion::compare(found, newest),
        damage: Some(checked).filter(|said| said != "ok"),
    })
}

/// A connection to a file that is there, which only reads.
fn open_to_read(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(PathBuf::from(path), flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// Writes the database in the file `from` to a new file `to`, as it is at one moment, while others
/// read and write it. Blocking.
///
/// # Errors
/// [`StoreError::DiskFull`] or [`StoreError::Unavailable`]; a part of `to` may be there then.
pub fn copy_database_file(from: &Path, to: &Path) -> Result<(), StoreError> {
    let connection = open_to_read(from)?;
    // What was deleted is not copied, and each page is read and checked.
    connection.execute("VACUUM INTO $1", [to.to_string_lossy()])?;
    let inspection = inspect_file(to)?;
    match inspection.damage {
        Some(damage) => Err(StoreError::unavailable(format!("the copy is damaged: {damage}"))),
        None => Ok(()),
    }
}

async fn inspect_server(options: PgConnectOptions) -> Result<DatabaseInspection, StoreError> {
    let (_, mut connection) = startup::connect(options).await?;
    let number: i64 =
        first(&mut connection, "SELECT current_setting('server_version_num')::bigint").await?;
    let version: String =
        first(&mut connection, "SELECT current_setting('server_version')").await?;
    let has_tables: bool =
        first(&mut connection, "SELECT to_regclass('_sqlx_migrations') IS NOT NULL").await?;
    let found: i64 = if has_tables {
        first(&mut connection, "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations").await?
    } else {
        0
    };
    let newest = Schema::with(&[]).newest();
    let mut schema = SchemaVersion::compare(found, newest);
    if schema == SchemaVersion::Newer && startup::schema_floor(&mut connection).await? <= newest {
        schema = SchemaVersion::Expanded;
    }
    connection.close().await?;
    Ok(DatabaseInspection {
        engine: format!("PostgreSQL {version}"),
        is_supported: number >= OLDEST_POSTGRES,
        schema,
        damage: None,
    })
}

async fn first<T>(connection: &mut PgConnection, sql: &'static str) -> Result<T, StoreError>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    Ok(sqlx::query(sql).fetch_one(connection).await?.try_get(0)?)
}

/// Who could read or change what is said to the database at `url`: its host, where others than this
/// host are on the way and the server's certificate is not verified (`sslmode=verify-full`). None: it is
/// a file, a socket, on loopback, or verified.
///
/// # Errors
/// `database_url_invalid`.
pub fn insecure_database_host(url: &str) -> Result<Option<String>, StoreError> {
    let DatabaseUrl::Postgres(options) = DatabaseUrl::parse(url)? else { return Ok(None) };
    let host = options.get_host();
    let stays_here =
        options.get_socket().is_some() || host.starts_with('/') || is_loopback_host(host);
    let is_verified = matches!(options.get_ssl_mode(), PgSslMode::VerifyFull);
    Ok((!stays_here && !is_verified).then(|| host.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_elsewhere_is_verified() {
        for (url, host) in [
            ("sqlite:/var/lib/gpuaas/gpuaas.db", None),
            ("postgres://u@127.0.0.1:5432/d", None),
            ("postgres://u@[::1]/d", None),
            ("postgres://u@localhost/d?sslmode=disable", None),
            ("postgres://u@db.example/d?host=/var/run/postgresql", None),
            ("postgres://u@db.example/d?sslmode=verify-full", None),
            ("postgres://u@db.example/d", Some("db.example")),
            ("postgres://u@10.0.0.1/d?sslmode=require", Some("10.0.0.1")),
            ("postgres://u@db.example/d?sslmode=verify-ca", Some("db.example")),
        ] {
            assert_eq!(insecure_database_host(url).unwrap().as_deref(), host, "{url}");
        }
    }
}
