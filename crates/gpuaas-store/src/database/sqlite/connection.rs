//! Connections to an SQLite file.
//!
//! A statement takes SQLite some microseconds, less than a thread takes to wake another one, so
//! it runs where it is asked for. What may wait for the disk, a commit that is synced, happens on
//! the writer's own thread (`writer`); a reader of a file in WAL mode waits
//! for nobody.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{FromSql, FromSqlError, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::database::value::Val;
use gpuaas_types::codes::ProblemCode;

use crate::error::StoreError;

/// Readers of one store at the same time.
const READER_CONNECTIONS: usize = 4;
/// Room for every statement, and for the lengths that lists come in.
const CACHED_STATEMENTS: usize = 256;
/// Size of a page in memory, where the cache holds every page there is: a commit that has moved a
/// page goes through the whole cache, so fewer and larger pages keep large databases cheap.
const MEMORY_PAGE_BYTES: u32 = 16_384;
/// How long to wait for a reader, or for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection that writes; whoever uses it holds it.
pub(crate) type WriterConnection = Arc<Mutex<SqliteConnection>>;

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SqliteLocation {
    /// In a file; a commit waits until the disk has it.
    File(PathBuf),
    /// In memory, behind one connection.
    Memory,
}

/// One connection to an SQLite database.
pub(crate) struct SqliteConnection(Connection);

impl SqliteLocation {
    /// As SQLite calls it.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Memory => Path::new(":memory:"),
        }
    }

    /// Opens the connection that writes.
    pub(crate) fn open(&self) -> rusqlite::Result<SqliteConnection> {
        let connection = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        match self {
            Self::File(_) => {
                connection.0.pragma_update(None, "journal_mode", "wal")?;
                connection.0.pragma_update(None, "synchronous", "full")?;
            }
            Self::Memory => connection.0.pragma_update(None, "page_size", MEMORY_PAGE_BYTES)?,
        }
        connection.0.pragma_update(None, "foreign_keys", true)?;
        Ok(connection)
    }

    fn connect(&self, access: OpenFlags) -> rusqlite::Result<SqliteConnection> {
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.path(), flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Without it a statement whose plan might depend on a value, such as the moment in
        // `due_at <= $1`, is planned anew whenever that value changes.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        Ok(SqliteConnection(connection))
    }
}

impl SqliteConnection {
    /// The connection, for migrations.
    pub(crate) const fn for_migrations(&mut self) -> &mut Connection {
        &mut self.0
    }

    /// Whether no transaction is open.
    pub(crate) fn is_autocommit(&self) -> bool {
        self.0.is_autocommit()
    }

    /// Runs a statement; answers its rows.
    pub(crate) fn query(&self, sql: &str, args: &[Val]) -> Result<Vec<SqliteRow>, StoreError> {
        let mut statement = self.0.prepare_cached(sql)?;
        bind(&mut statement, args)?;
        let width = statement.column_count();
        let mut read = SqliteRows { width, ..SqliteRows::default() };
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            for column in 0..width {
                read.push(row.get_ref(column)?);
            }
        }
        Ok(read.split())
    }

    /// Runs a statement; answers how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, args: &[Val]) -> Result<u64, StoreError> {
        let mut statement = self.0.prepare_cached(sql)?;
        bind(&mut statement, args)?;
        let mut rows = statement.raw_query();
        while rows.next()?.is_some() {}
        drop(rows);
        drop(statement);
        Ok(self.0.changes())
    }
}

/// Binds a value for each placeholder; those that the text skips are bound, too.
fn bind(statement: &mut rusqlite::Statement<'_>, args: &[Val]) -> Result<(), StoreError> {
    for at in 1..=statement.parameter_count() {
        let missing = || StoreError::corrupt("statement", format!("parameter ?{at} has no value"));
        statement.raw_bind_parameter(at, args.get(at - 1).ok_or_else(missing)?)?;
    }
    Ok(())
}

impl ToSql for Val {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(Some(value)) => ValueRef::Integer(*value),
            Self::Bool(value) => ValueRef::Integer(i64::from(*value)),
            Self::Text(Some(value)) => ValueRef::Text(value.as_bytes()),
            Self::Id(Some(value)) => ValueRef::Blob(value.as_bytes()),
            Self::Bytes(Some(value)) => ValueRef::Blob(value),
            Self::Json(Some(value)) => ValueRef::Text(value.get().as_bytes()),
            Self::Int(None)
            | Self::Text(None)
            | Self::Id(None)
            | Self::Bytes(None)
            | Self::Json(None) => ValueRef::Null,
        }))
    }
}

/// Rows, taken out of their statement. What their columns hold is in one piece of memory: a page of
/// nodes has thousands of texts.
#[derive(Default)]
struct SqliteRows {
    width: usize,
    cells: Vec<Cell>,
    bytes: Vec<u8>,
}

/// What a column of a row holds.
enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    /// Where it is in the bytes of all rows.
    Text(Range<usize>),
    /// Where it is in the bytes of all rows.
    Blob(Range<usize>),
}

impl SqliteRows {
    fn push(&mut self, value: ValueRef<'_>) {
        let cell = match value {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(value) => Cell::Integer(value),
            ValueRef::Real(value) => Cell::Real(value),
            ValueRef::Text(text) => Cell::Text(self.add_bytes(text)),
            ValueRef::Blob(blob) => Cell::Blob(self.add_bytes(blob)),
        };
        self.cells.push(cell);
    }

    fn add_bytes(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn split(self) -> Vec<SqliteRow> {
        let (count, width) = (self.cells.len().checked_div(self.width).unwrap_or(0), self.width);
        let rows = Arc::new(self);
        (0..count).map(|n| SqliteRow { rows: Arc::clone(&rows), first: n * width }).collect()
    }
}

/// One of the rows that a statement answered.
pub(crate) struct SqliteRow {
    rows: Arc<SqliteRows>,
    /// Where its cells begin.
    first: usize,
}

impl SqliteRow {
    /// The value in `column`, counted from 0.
    pub(crate) fn get<T: FromSql>(&self, column: usize) -> Result<T, StoreError> {
        T::column_result(self.value(column)?).map_err(|error| corrupt(column, error))
    }

    /// The text in `column`, counted from 0, or null.
    pub(crate) fn text(&self, column: usize) -> Result<Option<&str>, StoreError> {
        self.value(column)?.as_str_or_null().map_err(|error| corrupt(column, error))
    }

    fn value(&self, column: usize) -> Result<ValueRef<'_>, StoreError> {
        let SqliteRows { width, cells, bytes } = &*self.rows;
        let cell = cells.get(self.first + column).filter(|_| column < *width);
        let cell = cell.ok_or_else(|| corrupt(column, FromSqlError::InvalidType))?;
        let bytes_at = |at: &Range<usize>| bytes.get(at.clone()).unwrap_or_default();
        Ok(match cell {
            Cell::Null => ValueRef::Null,
            Cell::Integer(value) => ValueRef::Integer(*value),
            Cell::Real(value) => ValueRef::Real(*value),
            Cell::Text(at) => ValueRef::Text(bytes_at(at)),
            Cell::Blob(at) => ValueRef::Blob(bytes_at(at)),
        })
    }
}

fn corrupt(column: usize, error: FromSqlError) -> StoreError {
    StoreError::corrupt(format!("column {column}"), error)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(cause, detail) = &error else {
            return Self::unavailable(error);
        };
        let detail = detail.clone().unwrap_or_else(|| cause.to_string());
        match (cause.code, cause.extended_code) {
            (
                ErrorCode::ConstraintViolation,
                ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
            ) => Self::conflict(ProblemCode::AlreadyExists, detail),
            (ErrorCode::ConstraintViolation, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
                Self::conflict(ProblemCode::RefersToNothing, detail)
            }
            (ErrorCode::DiskFull, _) => Self::DiskFull { detail },
            _ => Self::unavailable(detail),
        }
    }
}

/// Who may read at the same time: [`READER_CONNECTIONS`] connections of their own, or, in memory,
/// whoever holds the one that there is.
pub(crate) struct Readers {
    location: SqliteLocation,
    writer: WriterConnection,
    permits: Arc<Semaphore>,
    idle: Idle,
}

type Idle = Arc<std::sync::Mutex<Vec<SqliteConnection>>>;

/// A connection to read from, until it is dropped.
pub(crate) enum Reader {
    /// One of its own; without a permit where a snapshot lends it.
    Own { connection: Option<SqliteConnection>, idle: Idle, _permit: Option<OwnedSemaphorePermit> },
    /// The one that writes.
    Writer(OwnedMutexGuard<SqliteConnection>),
}

impl Readers {
    pub(crate) fn new(location: SqliteLocation, writer: WriterConnection) -> Self {
        Self {
            location,
            writer,
            permits: Arc::new(Semaphore::new(READER_CONNECTIONS)),
            idle: Arc::default(),
        }
    }

    /// Runs `work`, all of whose reads see the file as the first of them does, and share what the
    /// connection has cached, which the next commit would empty. In memory each read sees its own
    /// moment.
    pub(crate) async fn in_snapshot<F: Future>(&self, work: F) -> Result<F::Output, StoreError> {
        if self.location == SqliteLocation::Memory {
            return Ok(work.await);
        }
        let snapshot = Snapshot::begin(self.acquire().await?)?;
        let lent = Lent { of: Arc::clone(&self.idle), connection: Arc::clone(&snapshot.lent) };
        Ok(LENT.scope(lent, work).await)
    }

    /// The connection of the snapshot that the task reads; none: it reads none, or reads it at this
    /// moment.
    fn lent(&self) -> Option<Reader> {
        let lent = LENT.try_with(|lent| {
            if !Arc::ptr_eq(&lent.of, &self.idle) {
                return None;
            }
            let connection = Some(lock(&lent.connection).pop()?);
            Some(Reader::Own { connection, idle: Arc::clone(&lent.connection), _permit: None })
        });
        lent.ok().flatten()
    }

    /// Waits for a free one, or opens one.
    pub(crate) async fn acquire(&self) -> Result<Reader, StoreError> {
        if let Some(reader) = self.lent() {
            return Ok(reader);
        }
        let permit = timeout(BUSY_TIMEOUT, Arc::clone(&self.permits).acquire_owned())
            .await
            .map_err(|_| StoreError::unavailable("all readers of the database file are busy"))?
            .map_err(|_| StoreError::unavailable("the store is closed"))?;
        if self.location == SqliteLocation::Memory {
            return Ok(Reader::Writer(Arc::clone(&self.writer).lock_owned().await));
        }
        let idle = lock(&self.idle).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.location.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)?,
        };
        Ok(Reader::Own {
            connection: Some(connection),
            idle: Arc::clone(&self.idle),
            _permit: Some(permit),
        })
    }

    /// Waits until none is in use, and closes them.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(u32::try_from(READER_CONNECTIONS).unwrap_or(1)).await;
        self.permits.close();
        lock(&self.idle).clear();
        drop(all);
    }
}

impl Reader {
    /// The connection that this reader holds.
    pub(crate) fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        match self {
            Self::Writer(connection) => Ok(connection),
            Self::Own { connection, .. } => connection
                .as_mut()
                .ok_or_else(|| StoreError::unavailable("the reader was already returned")),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Self::Own { connection, idle, .. } = self {
            lock(idle).extend(connection.take());
        }
    }
}

tokio::task_local! {
    static LENT: Lent;
}

/// The connection of a snapshot, while nothing is read with it.
struct Lent {
    /// Idle connections of the readers that it is one of.
    of: Idle,
    connection: Idle,
}

/// A connection with a transaction that begins with the first read, and ends when this is dropped.
struct Snapshot {
    reader: Reader,
    lent: Idle,
}

impl Snapshot {
    fn begin(mut reader: Reader) -> Result<Self, StoreError> {
        reader.connection()?.execute("BEGIN", &[])?;
        let lent = Idle::default();
        if let Reader::Own { connection, .. } = &mut reader {
            lock(&lent).extend(connection.take());
        }
        Ok(Self { reader, lent })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let ended = lock(&self.lent).pop().filter(|lent| lent.execute("COMMIT", &[]).is_ok());
        if let Reader::Own { connection, .. } = &mut self.reader {
            *connection = ended;
        }
    }
}

fn lock(idle: &Idle) -> std::sync::MutexGuard<'_, Vec<SqliteConnection>> {
    idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
