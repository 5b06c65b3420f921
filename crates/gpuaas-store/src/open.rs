//! Opening a store: which database, its settings, its migrations, its master key.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;

use rusqlite::ErrorCode;
use rusqlite_migration::Migrations;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Mutex, broadcast, watch};
use uuid::Uuid;

use crate::agent::noted_heartbeats::NotedHeartbeats;
use crate::database::postgres::startup;
use crate::database::schema::meta::keep_first;
use crate::database::schema::migrations::{SQLITE, Schema, SchemaChange};
use crate::database::{
    GroupWriter, Readers, SentCounters, SqliteLocation, Writer, note_panic_locations,
};
use crate::error::StoreError;
use crate::identity::secret::key_ring::KeyRing;
use crate::identity::secret::key_rotation::{MASTER_KEY_ID, read_state};
use crate::identity::secret::seal::random;
use crate::shared_reads::SharedReads;
use crate::slice::claim_queue::ClaimQueue;
use crate::slice::placement::SlotPlacements;
use crate::store::{Db, Inner, Store};

impl Store {
    /// Opens the database that `url` names, makes it if it is an SQLite file that is not there,
    /// and brings its tables up to date. `sqlite:PATH` and a plain path are files;
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE` is a server.
    ///
    /// # Errors
    /// [`StoreError::Open`] with code `database_url_invalid`, `database_unreachable`,
    /// `database_unwritable`, `database_corrupt`, `migration_failed`, `schema_contracted`,
    /// `store_moved` or `master_key_wrong`, each with a hint.
    pub async fn open(url: &str, keys: impl Into<KeyRing>) -> Result<Self, StoreError> {
        Self::open_with_later(url, keys, &[]).await
    }

    /// The same as an executable of a later version does, which knows more changes of PostgreSQL's
    /// tables: what two versions do with one database can be tried with one of them.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub async fn open_with_later(
        url: &str,
        keys: impl Into<KeyRing>,
        later: &[SchemaChange],
    ) -> Result<Self, StoreError> {
        let (keys, schema) = (keys.into(), Schema::with(later));
        let counters = Arc::new(SentCounters::default());
        let (mut place, mut file) = (None, None);
        let db = match DatabaseUrl::parse(url)? {
            DatabaseUrl::Postgres(options) => {
                let pool = Arc::new(startup::open(*options, &schema).await?);
                let groups = GroupWriter::start(Arc::clone(&pool), Arc::clone(&counters));
                let reads = Box::new(SharedReads::new(&pool, &counters));
                Db::Postgres { pool, groups, reads }
            }
            DatabaseUrl::File(path) => {
                make_private(&path)?;
                place = file_place(&path);
                file = Some(path.clone());
                sqlite(SqliteLocation::File(path), Arc::clone(&counters))?
            }
        };
        let file = FilePlace { place, file };
        Self::opened(db, keys, counters, schema, file).await
    }

    /// An empty SQLite database in memory, gone with the last clone of the store. For simulations,
    /// which nobody reads again.
    ///
    /// # Errors
    /// [`StoreError::Open`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn in_memory(keys: impl Into<KeyRing>) -> Result<Self, StoreError> {
        let keys = keys.into();
        let counters = Arc::new(SentCounters::default());
        let db = sqlite(SqliteLocation::Memory, Arc::clone(&counters))?;
        Self::opened(db, keys, counters, Schema::with(&[]), FilePlace::default()).await
    }

    async fn opened(
        db: Db,
        key: KeyRing,
        counters: Arc<SentCounters>,
        schema: Schema,
        FilePlace { place, file }: FilePlace,
    ) -> Result<Self, StoreError> {
        note_panic_locations();
        let (due, _) = watch::channel(0);
        let (batches, _) = watch::channel(0);
        let (slices, _) = watch::channel(0);
        let (tasks, _) = broadcast::channel(1024);
        let instance = Uuid::from_bytes(random()?);
        // Processes that share a database try nodes of equal fit in different orders.
        let salt = match db {
            Db::Postgres { .. } => instance.as_u128(),
            Db::Sqlite { .. } => 0,
        };
        let store = Self {
            inner: Arc::new(Inner {
                db,
                key,
                instance,
                schema,
                file_place: place.unwrap_or_else(|| instance.to_string()),
                counters,
                placements: SlotPlacements::new(salt),
                claim_queue: ClaimQueue::default(),
                heartbeats: NotedHeartbeats::default(),
                in_flight: Arc::default(),
                due,
                batches,
                slices,
                tasks,
            }),
        };
        store.refuse_moved(file.as_deref()).await?;
        store.check_key().await?;
        store.name_regions().await?;
        store.note_place().await?;
        store.chain_earlier_audit().await?;
        Ok(store)
    }

    /// The first key to open a database is noted in it. Without the one that seals, or one whose
    /// values are still to be moved, it is refused before it can seal anything.
    async fn check_key(&self) -> Result<(), StoreError> {
        let first = self.key().sealing().id_hex();
        let state = self
            .write(move |conn| {
                Box::pin(async move {
                    keep_first(conn, MASTER_KEY_ID, &first).await?;
                    read_state(conn).await
                })
            })
            .await?;
        let Err(missing) = self.key().take_word(&state) else { return Ok(()) };
        let is_former = |id: &String| state.former.iter().any(|key| key.id == *id);
        let hint = if self.key().ids().iter().any(is_former) {
            "pass the former master key and its successor, `--master-key FORMER --master-key NEXT`, until \
             `gpuaas key show` reports no values of the former key"
        } else {
            "start with the master key file that was created with this database"
        };
        Err(StoreError::open("master_key_wrong", missing, hint))
    }
}

/// Where a file is; nothing for other databases.
#[derive(Default)]
struct FilePlace {
    /// As [`file_place`] says.
    place: Option<String>,
    file: Option<PathBuf>,
}

pub(crate) enum DatabaseUrl {
    File(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

impl DatabaseUrl {
    /// Tells a file from a server.
    ///
    /// # Errors
    /// `database_url_invalid`.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let hint = "use sqlite:PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE";
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            // The parser's words may quote the URL, and that may hold a password.
            let options = PgConnectOptions::from_str(url).map_err(|_| {
                let detail = "invalid PostgreSQL URL".to_owned();
                StoreError::open("database_url_invalid", detail, hint)
            })?;
            return Ok(Self::Postgres(Box::new(options)));
        }
        let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"));
        let path = path.unwrap_or(url);
        if path.contains("://") {
            let scheme = path.split("://").next().unwrap_or_default();
            let detail = format!("unsupported database type {scheme:?}");
            return Err(StoreError::open("database_url_invalid", detail, hint));
        }
        if path.is_empty() || path.contains(":memory:") {
            let detail = "an SQLite database needs a file path".to_owned();
            return Err(StoreError::open("database_url_invalid", detail, hint));
        }
        Ok(Self::File(PathBuf::from(path)))
    }
}

fn sqlite(location: SqliteLocation, counters: Arc<SentCounters>) -> Result<Db, StoreError> {
    let mut connection = location.open().map_err(|error| unopened(location.path(), error))?;
    Migrations::from_slice(SQLITE).to_latest(connection.for_migrations()).map_err(|error| {
        use rusqlite_migration::{Error, MigrationDefinitionError as Definition};
        if let Error::RusqliteError { err, .. } = error {
            return match err.sqlite_error_code() {
                Some(_) if is_damage(&err) => damaged(location.path(), &err),
                Some(ErrorCode::DiskFull) => err.into(),
                _ => StoreError::migration_failed(&err, false),
            };
        }
        let newer = Error::MigrationDefinition(Definition::DatabaseTooFarAhead);
        StoreError::migration_failed(&error, error == newer)
    })?;
    let connection = Arc::new(Mutex::new(connection));
    let readers = Readers::new(location.clone(), Arc::clone(&connection));
    Ok(Db::Sqlite { writer: Writer::start(location, connection, counters)?, readers })
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

/// The host and the inode of a database file: its copy has another one of them. None: they cannot be
/// read, and every start counts as one elsewhere.
fn file_place(path: &Path) -> Option<String> {
    let file = fs::metadata(path).ok()?;
    let host = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Some(format!("{}/{}/{}", host.trim(), file.dev(), file.ino()))
}

fn unopened(path: &Path, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(_) if is_damage(&error) => damaged(path, &error),
        Some(ErrorCode::DiskFull) => error.into(),
        _ => unwritable(path, &error),
    }
}

/// Whether the bytes of the file are not what SQLite wrote.
fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::open(
        "database_corrupt",
        format!("the database file {} is damaged: {error}", path.display()),
        format!(
            "nothing was written; restore {} from a backup, together with master.key",
            path.display()
        ),
    )
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::open(
        "database_unwritable",
        format!("cannot open the database file {}: {error}", path.display()),
        "create its folder and make it writable for this user, or use another file",
    )
}
