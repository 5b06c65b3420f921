//! Moving everything from an SQLite file to PostgreSQL: one transaction there, and a mark here.
//!
//! The file is read as it is at one moment, table by table (`tables`), in batches of bounded size,
//! and written into one transaction of the server. Before that is committed, rows and digests of each
//! table are compared, and the regions that this database changes are taken with a higher term, so
//! that a copy of the file which comes back yields. A transfer that ends anywhere before the commit
//! leaves a database with empty tables, and the next one begins anew.
//!
//! # The mark
//! The file is marked as moved *before* the commit: a process that is killed between the two must not
//! leave two databases that both serve. So a mark alone does not say that the move was made; the
//! database that it names does. A repeated transfer looks there: it finds the same control plane, and
//! there is nothing left to do, or it finds empty tables, and copies. Nobody else can open the file
//! ([`Store::open`] refuses it), so what is copied again is what was copied before.
//!
//! # Against a control plane that starts there meanwhile
//! The transaction has the startup lock, and locks `store_meta`, which every opened store writes first:
//! whoever was there before is seen by the look for rows, and whoever comes later waits.

mod digest;
mod layout;
mod source;
mod tables;
mod target;

use std::path::{Path, PathBuf};

use gpuaas_types::codes::CommandCode;
use gpuaas_types::{AuditAction, Timestamp};
use serde::Serialize;
use serde_json::json;

pub use self::layout::TransferredTable;
use self::layout::{MovedTo, parse_mark};
use self::source::SourceFile;
use self::tables::MOVED_TO;
use self::target::Target;
use crate::audit::rows::NewAuditEntry;
use crate::database::schema::inspection::{SchemaVersion, inspect_file};
use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::identity::secret::key_ring::KeyRing;
use crate::identity::secret::key_rotation::MASTER_KEY_ID;
use crate::open::DatabaseUrl;
use crate::store::{Db, Store};

/// What is moved, where, and who says so.
#[derive(Debug, Clone)]
pub struct StoreTransfer {
    /// The SQLite file. Nobody may have it open: whoever calls holds its lock.
    pub file: PathBuf,
    /// URL of the PostgreSQL database, whose tables are empty.
    pub url: String,
    /// The keys that the secrets are sealed with.
    pub keys: KeyRing,
    /// The database that the file was moved to before will never be used again.
    pub earlier_is_gone: bool,
    /// Who moves it; kept in the audit of the new database.
    pub actor: String,
    /// Reason of the move; kept in the audit.
    pub reason: String,
}

/// What a transfer did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TransferReport {
    /// Everything was there already: an earlier transfer did it, and was killed before it could tell.
    pub was_done: bool,
    /// The tables that moved, in the order in which they did.
    pub tables: Vec<TransferredTable>,
    /// Regions that the new database changes from now on.
    pub regions: u64,
}

/// What [`transfer_store`] would move. Blocking.
///
/// # Errors
/// [`StoreError::Open`] with code `transfer_source_unready` or `store_moved`, or
/// [`StoreError::Unavailable`].
pub fn measure_transfer(file: &Path) -> Result<Vec<TransferredTable>, StoreError> {
    check_source(file)?;
    SourceFile::open(file)?.measure()
}

/// Moves everything of an SQLite file to PostgreSQL, and marks the file as moved.
///
/// # Errors
/// [`StoreError::Open`] with code `database_url_invalid`, `database_unreachable`,
/// `transfer_source_unready`, `master_key_wrong`, `store_moved`, `transfer_target_used` or
/// `transfer_differs`; nothing was moved then. [`StoreError::Unavailable`], after which the same call
/// finds out what was done.
pub async fn transfer_store(
    transfer: StoreTransfer,
    now: Timestamp,
) -> Result<TransferReport, StoreError> {
    let DatabaseUrl::Postgres(options) = DatabaseUrl::parse(&transfer.url)? else {
        let hint = "use --to postgres://USER:PASSWORD@HOST:PORT/DATABASE";
        let detail = "the target must be a PostgreSQL database".to_owned();
        return Err(StoreError::open("database_url_invalid", detail, hint));
    };
    let public_url = target::public_url(&options);
    let path = transfer.file.clone();
    let source = tokio::task::spawn_blocking(move || {
        check_source(&path)?;
        SourceFile::open(&path)
    });
    let source = source.await.map_err(StoreError::unavailable)??;
    check_key(&source, &transfer.keys)?;
    target::refuse_other_version(&transfer.url, &public_url).await?;
    let mut target = Target::begin(*options).await?;
    let place = target.location().await?;
    let earlier = source.moved_to()?;
    if let Some(earlier) = &earlier
        && earlier.place != place
        && !transfer.earlier_is_gone
    {
        return Err(moved(&transfer.file, earlier));
    }
    if earlier.is_some_and(|earlier| earlier.place == place)
        && target.plane().await?.is_some_and(|plane| source.plane().ok() == Some(plane))
    {
        return Ok(TransferReport { was_done: true, tables: Vec::new(), regions: 0 });
    }
    target.refuse_used(&public_url).await?;
    let tables = target.copy(source).await?;
    let entry = NewAuditEntry {
        actor: transfer.actor,
        action: AuditAction::StoreMigrate,
        subject: public_url.clone(),
        detail: json!({
            "reason": transfer.reason, "from": transfer.file.display().to_string(),
            "tables": tables.len(), "rows": tables.iter().map(|table| table.rows).sum::<u64>(),
        }),
    };
    let regions = target.settle(&place, now, &entry).await?;
    mark(&transfer.file, Some(&MovedTo { place, url: public_url, at: now }))?;
    target.commit().await?;
    Ok(TransferReport { was_done: false, tables, regions })
}

/// Refuses a file whose tables are not of this version, or which is damaged.
fn check_source(file: &Path) -> Result<(), StoreError> {
    let folder = file.parent().unwrap_or(Path::new(".")).display().to_string();
    let unready = |why: &str, hint: String| {
        let detail = format!("{}: {why}", file.display());
        Err(StoreError::open(CommandCode::TransferSourceUnready.as_str(), detail, hint))
    };
    if !file.is_file() {
        let hint = "pass the data folder of `gpuaas serve` with --from DIR".to_owned();
        return unready("the file does not exist", hint);
    }
    let inspection = inspect_file(file)?;
    if let Some(damage) = inspection.damage {
        let hint = format!("check the damage: `gpuaas doctor --data {folder}`");
        return unready(&damage, hint);
    }
    match inspection.schema {
        SchemaVersion::Current => Ok(()),
        SchemaVersion::Empty => {
            let hint = "start directly on PostgreSQL: `gpuaas serve --database URL`".to_owned();
            unready("it has no tables yet", hint)
        }
        SchemaVersion::Older => {
            let hint =
                format!("upgrade it first: run `gpuaas serve --data {folder}`, then stop it");
            unready("its tables are from an earlier version", hint)
        }
        SchemaVersion::Expanded | SchemaVersion::Newer => {
            let hint = "move it with the gpuaas version that used it last".to_owned();
            unready("its tables are from a later version", hint)
        }
    }
}

fn check_key(source: &SourceFile, keys: &KeyRing) -> Result<(), StoreError> {
    match source.meta(MASTER_KEY_ID)? {
        Some(noted) if keys.find(&noted).is_none() => Err(StoreError::open(
            "master_key_wrong",
            format!(
                "the secrets of this database are sealed with key {noted}, not {}",
                keys.ids().join(", ")
            ),
            "place the master key file that was created with this database next to it",
        )),
        _ => Ok(()),
    }
}

/// Writes the mark of a file; none: takes it away.
fn mark(file: &Path, moved_to: Option<&MovedTo>) -> Result<(), StoreError> {
    let connection = source::open_to_write(file)?;
    connection.execute("DELETE FROM store_meta WHERE name = ?1", [MOVED_TO])?;
    if let Some(moved_to) = moved_to {
        let text = serde_json::to_string(moved_to)
            .map_err(|error| StoreError::corrupt("move marker", error))?;
        let sql = "INSERT INTO store_meta (name, value) VALUES (?1, ?2)";
        connection.execute(sql, [MOVED_TO, text.as_str()])?;
    }
    Ok(())
}

fn moved(file: &Path, moved_to: &MovedTo) -> StoreError {
    let folder = file.parent().unwrap_or(Path::new(".")).display();
    let MovedTo { url, at, .. } = moved_to;
    StoreError::open(
        CommandCode::StoreMoved.as_str(),
        format!("{} was moved to {url} at {at}", file.display()),
        format!(
            "start on that database: `gpuaas serve --data {folder} --database {url}`, with the \
             password in the URL or in PGPASSWORD; if the move was interrupted, finish it: \
             `gpuaas migrate-store --from {folder} --to {url}`"
        ),
    )
}

impl Store {
    /// Refuses a file whose content was moved.
    pub(crate) async fn refuse_moved(&self, file: Option<&Path>) -> Result<(), StoreError> {
        let (Db::Sqlite { .. }, Some(file)) = (&self.inner.db, file) else { return Ok(()) };
        match moved_note(&mut self.reader().await?).await? {
            Some(moved_to) => Err(moved(file, &moved_to)),
            None => Ok(()),
        }
    }
}

async fn moved_note(conn: &mut Conn) -> Result<Option<MovedTo>, StoreError> {
    let sql = "SELECT value FROM store_meta WHERE name = $1";
    let Some(row) = conn.first(sql, args![MOVED_TO]).await? else { return Ok(None) };
    parse_mark(&row.cols().next::<String>()?).map(Some)
}
