//! Opening a store: which database, its settings, its migrations, its master key.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

use crate::db::args;
use crate::error::StoreError;
use crate::seal::MasterKey;
use crate::writer::{Writer, Written};
use crate::{Db, Inner, Store};

static SQLITE: Migrator = sqlx::migrate!("migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("migrations/postgres");

const READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 16;
/// Room for every statement, and for the lengths that lists come in.
const STATEMENTS: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);

impl Store {
    /// Opens the database that `url` names, makes it if it is an SQLite file that is not there,
    /// and brings its tables up to date. `sqlite:PATH` and a plain path are files;
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE` is a server.
    ///
    /// # Errors
    /// [`StoreError::Open`] with code `database_url_invalid`, `database_unreachable`,
    /// `database_unwritable`, `migration_failed` or `master_key_wrong`, each with a hint.
    pub async fn open(url: &str, key: MasterKey) -> Result<Self, StoreError> {
        Self::open_as(url, key, SqliteSynchronous::Full).await
    }

    /// The same, but an SQLite file is not synced to the disk: a power failure loses what was
    /// written last, or all of it. For simulations, whose files nobody reads again.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub async fn open_unsynced(url: &str, key: MasterKey) -> Result<Self, StoreError> {
        Self::open_as(url, key, SqliteSynchronous::Off).await
    }

    async fn open_as(
        url: &str,
        key: MasterKey,
        sync: SqliteSynchronous,
    ) -> Result<Self, StoreError> {
        let written = Arc::new(Written::default());
        let db = match Place::parse(url)? {
            Place::Postgres(options) => Db::Pg(postgres(*options).await?),
            Place::File(path) => sqlite(&path, sync, Arc::clone(&written)).await?,
        };
        let (due, _) = watch::channel(0);
        let (batches, _) = watch::channel(0);
        let (tasks, _) = broadcast::channel(1024);
        let store = Self {
            inner: Arc::new(Inner {
                db,
                key,
                written,
                in_flight: Arc::default(),
                due,
                batches,
                tasks,
            }),
        };
        store.check_key().await?;
        Ok(store)
    }

    /// The first key to open a database is noted in it; another one is refused before it can
    /// seal anything.
    async fn check_key(&self) -> Result<(), StoreError> {
        let id = self.key().id_hex();
        let mine = id.clone();
        let noted: String = self
            .write(move |conn| {
                Box::pin(async move {
                    conn.execute(
                        "INSERT INTO store_meta (name, value) VALUES ('master_key_id', $1) \
                         ON CONFLICT DO NOTHING",
                        args![&id],
                    )
                    .await?;
                    let row = conn
                        .first("SELECT value FROM store_meta WHERE name = 'master_key_id'", args![])
                        .await?;
                    row.ok_or_else(|| StoreError::corrupt("master key id", "it is missing"))?
                        .cols()
                        .next()
                })
            })
            .await?;
        if noted == mine {
            return Ok(());
        }
        Err(StoreError::open(
            "master_key_wrong",
            format!("the secrets of this database are sealed with key {noted}, not {mine}"),
            "start with the master key file that was made together with this database",
        ))
    }
}

enum Place {
    File(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

impl Place {
    fn parse(url: &str) -> Result<Self, StoreError> {
        let hint = "use sqlite:PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE";
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            // The parser's words may quote the URL, and that may hold a password.
            let options = PgConnectOptions::from_str(url).map_err(|_| {
                let detail = "the PostgreSQL URL cannot be read".to_owned();
                StoreError::open("database_url_invalid", detail, hint)
            })?;
            let options = options.statement_cache_capacity(STATEMENTS).application_name("gpuaas");
            return Ok(Self::Postgres(Box::new(options)));
        }
        let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"));
        let path = path.unwrap_or(url);
        if path.contains("://") {
            let scheme = path.split("://").next().unwrap_or_default();
            let detail = format!("{scheme:?} is not a database that GPUaaS knows");
            return Err(StoreError::open("database_url_invalid", detail, hint));
        }
        if path.is_empty() || path.contains(":memory:") {
            let detail = "an SQLite database needs the path of a file".to_owned();
            return Err(StoreError::open("database_url_invalid", detail, hint));
        }
        Ok(Self::File(PathBuf::from(path)))
    }
}

async fn postgres(options: PgConnectOptions) -> Result<PgPool, StoreError> {
    let place = format!("{}:{}", options.get_host(), options.get_port());
    let unreachable = |why: &dyn std::fmt::Display| {
        StoreError::open(
            "database_unreachable",
            format!("PostgreSQL at {place} did not take the connection: {why}"),
            "check that the server runs there, that the database exists, and the user name \
             and password",
        )
    };
    // A pool tries again until its patience ends; a first connection of our own tells at once.
    match timeout(PATIENCE, options.connect()).await {
        Err(_) => return Err(unreachable(&"it does not answer")),
        Ok(Err(error)) => return Err(unreachable(&error)),
        Ok(Ok(connection)) => connection.close().await?,
    }
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(PATIENCE)
        .connect_with(options)
        .await
        .map_err(|error| unreachable(&error))?;
    POSTGRES.run(&pool).await.map_err(migration_failed)?;
    Ok(pool)
}

async fn sqlite(
    path: &Path,
    sync: SqliteSynchronous,
    written: Arc<Written>,
) -> Result<Db, StoreError> {
    make_private(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(sync)
        .foreign_keys(true)
        .busy_timeout(PATIENCE)
        .statement_cache_capacity(STATEMENTS);
    let mut connection = options.connect().await.map_err(|error| unwritable(path, &error))?;
    SQLITE.run(&mut connection).await.map_err(migration_failed)?;
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(PATIENCE)
        .connect_with(options.clone().read_only(true))
        .await
        .map_err(|error| unwritable(path, &error))?;
    let writer = Writer::start(options, connection, written);
    Ok(Db::Lite { writer, readers })
}

/// Makes the file before SQLite does: SQLite gives its companions the file's mode.
fn make_private(path: &Path) -> Result<(), StoreError> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::open(
        "database_unwritable",
        format!("the database file {} cannot be opened: {error}", path.display()),
        "make its folder, and let this user write there; or name another file",
    )
}

fn migration_failed(error: MigrateError) -> StoreError {
    let hint = match error {
        MigrateError::VersionMissing(_) | MigrateError::VersionTooNew(..) => {
            "the database was used by a newer gpuaas: start that version"
        }
        _ => "check that the database belongs to gpuaas and that its user may create tables",
    };
    let detail = format!("the tables of the database could not be brought up to date: {error}");
    StoreError::open("migration_failed", detail, hint)
}
