//! From one master key to the next.
//!
//! Three kinds of transactions, each whole or not at all, so whoever is killed between two of them goes
//! on where it was: one that names the next key as the one that seals, many that move a batch of values
//! each, and one that looks at every value and retires the former key. A value's own key is wrapped
//! anew; its content is not touched. From the first transaction on, triggers refuse values of the
//! former key, so the batches have an end however many control planes write meanwhile.

use async_recursion::async_recursion as boxed;
use gpuaas_types::Timestamp;
use gpuaas_types::codes::ProblemCode;
use serde_json::json;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::schema::control_plane::without_master_key;
use crate::database::schema::meta::{one_at_a_time, set};
use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::identity::secret::key_ring::{FormerMasterKey, MasterKeyState};
use crate::identity::secret::sealed_columns::{SEALED_COLUMNS, SealedColumn};
use crate::store::Store;

/// Name under which the key that seals is noted.
pub(crate) const MASTER_KEY_ID: &str = "master_key_id";
/// Lock of rotations.
const LOCK: &str = "master_key_lock";

/// Values of a table by the key that they are sealed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedCount {
    /// Table that holds them.
    pub table: &'static str,
    /// Identifier of the key, 16 hexadecimal digits.
    pub key_id: String,
    /// How many there are.
    pub values: u64,
}

pub(crate) async fn read_state(conn: &mut Conn) -> Result<MasterKeyState, StoreError> {
    let sql = "SELECT value FROM store_meta WHERE name = $1";
    let row = conn.first(sql, args![MASTER_KEY_ID]).await?;
    let row = row.ok_or_else(|| StoreError::corrupt("master key", "none is noted"))?;
    let sealing = row.cols().next()?;
    let sql = "SELECT key_id, successor, begun_at, ended_at FROM former_master_key \
               ORDER BY begun_at, key_id";
    let mut former = Vec::new();
    for row in conn.all(sql, args![]).await? {
        let mut cols = row.cols();
        former.push(FormerMasterKey {
            id: cols.next()?,
            successor: cols.next()?,
            begun_at: cols.at()?,
            ended_at: cols.opt_at()?,
        });
    }
    Ok(MasterKeyState { sealing, former })
}

/// Waits for writes in flight that may have been sealed with the key so far, and lets none begin
/// before this transaction ends: SQLite has one writer anyway.
async fn lock_sealed_tables(conn: &mut Conn) -> Result<(), StoreError> {
    if !conn.is_postgres() {
        return Ok(());
    }
    for SealedColumn { table, .. } in SEALED_COLUMNS {
        let sql = format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE");
        conn.execute(sql, args![]).await?;
    }
    Ok(())
}

/// Names the key that seals from now on. Answers whether it was another one before.
async fn begin(
    conn: &mut Conn,
    now: Timestamp,
    to: &str,
    entry: &NewAuditEntry,
    force: bool,
) -> Result<bool, StoreError> {
    one_at_a_time(conn, LOCK).await?;
    let state = read_state(conn).await?;
    if state.sealing == to {
        return Ok(false);
    }
    if let Some(key) = state.moving() {
        let detail =
            format!("the rotation from key {} to key {} has not finished", key.id, key.successor);
        return Err(StoreError::open("key_rotation_unfinished", detail, FINISH));
    }
    if state.former.iter().any(|key| key.id == to) {
        let detail = format!("key {to} was retired");
        return Err(StoreError::open("master_key_retired", detail, ANOTHER));
    }
    // An embedded store is of nobody else while this runs.
    if conn.is_postgres() && !force {
        let lacking = without_master_key(conn, to).await?;
        if !lacking.is_empty() {
            let lacking = lacking.join(", ");
            let detail = format!("these control planes do not have key {to}: {lacking}");
            return Err(StoreError::open("control_planes_lack_key", detail, LACKING));
        }
    }
    lock_sealed_tables(conn).await?;
    let sql = "INSERT INTO former_master_key (key_id, successor, begun_at) VALUES ($1, $2, $3)";
    conn.execute(sql, args![&state.sealing, to, now]).await?;
    set(conn, MASTER_KEY_ID, to).await?;
    audit::append(conn, now, entry).await?;
    Ok(true)
}

const FINISH: &str = "finish that rotation: run `gpuaas key rotate --to SOURCE --reason TEXT` \
                      again, with the new key as SOURCE";
const LACKING: &str = "first start each control plane with both keys, `gpuaas serve --master-key \
                       FORMER --master-key NEXT`, and wait a minute until killed ones expire; \
                       `gpuaas key rotate --master-key FORMER --to NEXT --reason TEXT --force` \
                       continues without them, and they stop";
const ANOTHER: &str = "use a key that never sealed this database: `gpuaas key rotate --to file:PATH --reason \
                       TEXT` creates the file if it does not exist";

/// Every value that is not sealed with `sealing`, by table.
async fn counts(conn: &mut Conn) -> Result<Vec<SealedCount>, StoreError> {
    let mut all = Vec::new();
    for column in SEALED_COLUMNS {
        for (key_id, values) in column.counts(conn).await? {
            let values = u64::try_from(values).unwrap_or_default();
            all.push(SealedCount { table: column.table, key_id, values });
        }
    }
    all.sort_by(|one, other| (one.table, &one.key_id).cmp(&(other.table, &other.key_id)));
    Ok(all)
}

/// Retires the former key, once nothing is sealed with another than the one that seals.
async fn end(conn: &mut Conn, now: Timestamp, entry: NewAuditEntry) -> Result<u64, StoreError> {
    one_at_a_time(conn, LOCK).await?;
    let sealing = read_state(conn).await?.sealing;
    let counts = counts(conn).await?;
    if let Some(left) = counts.iter().find(|count| count.key_id != sealing) {
        let SealedCount { table, key_id, values } = left;
        let detail = format!("{values} values of {table} are still sealed with key {key_id}");
        return Err(StoreError::open("sealed_values_left", detail, LEFT));
    }
    let values = counts.iter().map(|count| count.values).sum();
    let sql = "UPDATE former_master_key SET ended_at = $1 WHERE ended_at IS NULL";
    if conn.execute(sql, args![now]).await? > 0 {
        let mut entry = entry;
        entry.detail["values"] = json!(values);
        audit::append(conn, now, &entry).await?;
    }
    Ok(values)
}

const LEFT: &str = "if you have that key, move its values: `gpuaas key rotate --master-key SOURCE --to \
                    SOURCE --reason TEXT`, with that key as --master-key and the current one as --to; \
                    `gpuaas key show` counts the remaining values";

impl Store {
    /// Which master keys the database was sealed with.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn master_keys(&self) -> Result<MasterKeyState, StoreError> {
        read_state(&mut self.reader().await?).await
    }

    /// How many values are sealed with which key, in the order of tables and keys.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn sealed_counts(&self) -> Result<Vec<SealedCount>, StoreError> {
        counts(&mut self.reader().await?).await
    }

    /// Seals with the key `to` from now on, one of those that the store was opened with. Where that is
    /// the key that seals already, nothing changes: a rotation goes on. `entry` is written down once.
    /// `force`: control planes that lack the key are left behind.
    ///
    /// # Errors
    /// `control_planes_lack_key`, which names them; `key_rotation_unfinished` while values are moved to another key; `master_key_retired`;
    /// `master_key_wrong` where the store has no such key; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn begin_key_rotation(
        &self,
        now: Timestamp,
        to: &str,
        entry: NewAuditEntry,
        force: bool,
    ) -> Result<bool, StoreError> {
        if self.key().find(to).is_none() {
            let detail = format!("key {to} is not among the loaded master keys");
            return Err(StoreError::open("master_key_wrong", detail, ANOTHER));
        }
        let id = to.to_owned();
        let begun = self
            .write(move |conn| Box::pin(async move { begin(conn, now, &id, &entry, force).await }))
            .await?;
        self.key().seal_with(to);
        Ok(begun)
    }

    /// Moves at most `limit` values of a former key to the one that seals. Answers how many; 0: there
    /// is none left that a key at hand opens.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; [`StoreError::Corrupt`] where a value is damaged.
    #[boxed]
    pub async fn rewrap_batch(&self, limit: i64) -> Result<u64, StoreError> {
        let ring = self.key().clone();
        self.write(move |conn| {
            Box::pin(async move {
                one_at_a_time(conn, LOCK).await?;
                let state = read_state(conn).await?;
                let to = ring
                    .find(&state.sealing)
                    .ok_or_else(|| StoreError::corrupt("master key", "the sealing key changed"))?;
                let mut moved = 0;
                for former in ring.ids().iter().filter(|id| **id != state.sealing) {
                    let Some(from) = ring.find(former) else { continue };
                    for column in SEALED_COLUMNS {
                        let left = limit.saturating_sub_unsigned(moved);
                        for row in column.rows(conn, former, left).await? {
                            let sealed = from.rewrap(to, &row.owner, &row.sealed)?;
                            moved += u64::from(column.replace(conn, row, sealed).await?);
                        }
                    }
                }
                Ok(moved)
            })
        })
        .await
    }

    /// Retires the former key: nothing is sealed with it. Answers how many values there are. `entry`
    /// is written down where there was one to retire.
    ///
    /// # Errors
    /// `sealed_values_left`, which names a table and a key; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn end_key_rotation(
        &self,
        now: Timestamp,
        entry: NewAuditEntry,
    ) -> Result<u64, StoreError> {
        self.write(move |conn| Box::pin(async move { end(conn, now, entry).await })).await
    }

    /// Compares the master keys at hand with those that the database needs by now, and seals with the
    /// one that it says. Whoever was not told of a rotation hears so here, before a secret is needed.
    ///
    /// # Errors
    /// `master_key_changed` where one of them is not at hand; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn check_master_keys(&self) -> Result<(), StoreError> {
        let state = self.master_keys().await?;
        let before = self.key().sealing().id_hex();
        self.key()
            .take_word(&state)
            .map_err(|missing| StoreError::conflict(ProblemCode::MasterKeyChanged, missing))?;
        if before != state.sealing {
            tracing::info!(key = state.sealing, "the master key has changed");
        }
        Ok(())
    }

    /// What became of a write whose value was refused because it was sealed with a former key: the
    /// caller may try again, unless this process lacks the one that seals.
    pub(crate) async fn after_refused_key(&self, refused: StoreError) -> StoreError {
        match self.check_master_keys().await {
            Ok(()) => refused,
            Err(error @ StoreError::Conflict { .. }) => {
                tracing::error!(%error, "could not write a secret");
                error
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read which master key is current");
                refused
            }
        }
    }
}
