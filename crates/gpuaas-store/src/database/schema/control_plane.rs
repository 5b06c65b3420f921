//! Control planes that have the database open (table `control_plane`), by lease, and what that means
//! for its tables: two versions may run side by side while one takes over from the other.
//!
//! Moments here are the database's own, `{NOW}`: whether another process lives is not to depend on
//! whose clock is right, nor on the clock of a simulation.
//!
//! A migration that only adds is made at once, whoever runs. One that takes something away waits until
//! no control plane lives that still uses it; `postgres/startup.rs` has the rules, and the
//! floor that it leaves (`schema_floor` in `store_meta`) keeps older executables from starting, or from
//! going on.

use async_recursion::async_recursion as boxed;
use gpuaas_types::Timestamp;
use uuid::Uuid;

use crate::database::postgres::startup;
use crate::database::schema::migrations::schema_contracted;
use crate::database::{Cols, Conn, Row, args};
use crate::error::StoreError;
use crate::store::{Db, Store};

/// For how long a row stays whose control plane is gone, in microseconds.
const FORGOTTEN_AFTER: i64 = 24 * 3_600 * 1_000_000;

/// A control plane that has the database open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneView {
    /// Names this process's opened store.
    pub id: Uuid,
    /// Version of its executable.
    pub version: String,
    /// Number of the newest migration that it knows.
    pub schema_known: i64,
    /// Since when it runs, by the database's clock.
    pub started_at: Timestamp,
    /// When it last said so, by the database's clock.
    pub renewed_at: Timestamp,
}

fn read(mut cols: Cols<'_>) -> Result<ControlPlaneView, StoreError> {
    Ok(ControlPlaneView {
        id: cols.next()?,
        version: cols.next()?,
        schema_known: cols.next()?,
        started_at: cols.at()?,
        renewed_at: cols.at()?,
    })
}

/// Control planes that have the database open and not the master key `key_id`, as ID (VERSION). One of
/// before 0530 does not say which it has.
pub(crate) async fn without_master_key(
    conn: &mut Conn,
    key_id: &str,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT id, version FROM control_plane WHERE lease_until > {NOW} \
               AND COALESCE(master_keys, '') NOT LIKE '%' || $1 || '%' ORDER BY started_at, id";
    let name = |row: &Row| {
        let mut cols = row.cols();
        let (id, version): (Uuid, String) = (cols.next()?, cols.next()?);
        Ok(format!("{id} ({version})"))
    };
    conn.all(sql, args![key_id]).await?.iter().map(name).collect()
}

impl Store {
    /// Says that this control plane, of an executable of `version`, has the database open for another
    /// `lease_seconds`.
    ///
    /// # Errors
    /// [`StoreError::Open`] with code `schema_contracted` where the tables went on without it: it has
    /// to end. [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn renew_control_plane(
        &self,
        version: &str,
        lease_seconds: u32,
    ) -> Result<(), StoreError> {
        let known = self.inner.schema.newest();
        let lease = i64::from(lease_seconds) * 1_000_000;
        let keys = self.key().ids().join(",");
        let values = args![self.inner.instance, version, known, lease, &keys];
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "INSERT INTO control_plane (id, version, schema_known, started_at, \
                           renewed_at, lease_until, master_keys) \
                           VALUES ($1, $2, $3, {NOW}, {NOW}, {NOW} + $4, $5) \
                           ON CONFLICT (id) DO UPDATE SET renewed_at = excluded.renewed_at, \
                           lease_until = excluded.lease_until, master_keys = excluded.master_keys";
                conn.execute(sql, values).await?;
                let sql = "DELETE FROM control_plane WHERE lease_until < {NOW} - $1";
                conn.execute(sql, args![FORGOTTEN_AFTER]).await?;
                let sql = "SELECT value FROM store_meta WHERE name = 'schema_floor'";
                let Some(row) = conn.first(sql, args![]).await? else { return Ok(()) };
                let floor: String = row.cols().next()?;
                match floor.parse() {
                    Ok(floor) if floor > known => Err(schema_contracted(floor, known)),
                    Ok(_) => Ok(()),
                    Err(error) => Err(StoreError::corrupt("schema_floor", error)),
                }
            })
        })
        .await
    }

    /// Says that this control plane will not use the database any more.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn withdraw_control_plane(&self) -> Result<(), StoreError> {
        let id = self.inner.instance;
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "DELETE FROM control_plane WHERE id = $1";
                conn.execute(sql, args![id]).await.map(drop)
            })
        })
        .await
    }

    /// Control planes that have the database open, the oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn control_planes(&self) -> Result<Vec<ControlPlaneView>, StoreError> {
        let sql = "SELECT id, version, schema_known, started_at, renewed_at FROM control_plane \
                   WHERE lease_until > {NOW} ORDER BY started_at, id";
        let rows = self.reader().await?.all(sql, args![]).await?;
        rows.iter().map(|row| read(row.cols())).collect()
    }

    /// Makes the migrations that waited until older control planes were gone, as far as they are.
    /// Answers how many are still to be made.
    ///
    /// # Errors
    /// [`StoreError::Open`] with code `migration_failed` or `startup_locked`;
    /// [`StoreError::Unavailable`].
    #[boxed]
    pub async fn finish_migrations(&self) -> Result<usize, StoreError> {
        let Db::Postgres { pool, .. } = &self.inner.db else { return Ok(0) };
        if !self.inner.schema.contracts() {
            return Ok(0);
        }
        let mut session = pool.acquire().await?;
        startup::migrate(session.connection()?, &self.inner.schema).await
    }
}
