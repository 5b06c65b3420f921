//! Who changes the machines of a site's region, and where this database is.
//!
//! A copied database knows all that its original knows. So each start compares where the database is
//! with where it was: the file of SQLite by its host and its inode, a database of PostgreSQL by its
//! cluster and its number there. A database at another place was copied or moved, and changes
//! nothing in a region before its mark has shown that no other control plane answers.

use async_recursion::async_recursion as boxed;
use std::collections::HashMap;

use gpuaas_core::control_mark::{ControlRecord, ControlState};
use gpuaas_types::api::SiteControl;
use gpuaas_types::{SiteId, Timestamp};
use uuid::Uuid;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::schema::meta::keep_first;
use crate::database::{Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::event::rows::forget_transactions;
use crate::identity::secret::seal::random;
use crate::site::rows::edit_status;
use crate::store::{Db, Store};

/// The record of a region, in a row that stays locked.
async fn read_control(conn: &mut Conn, region: &str) -> Result<ControlRecord, StoreError> {
    let new = vec![region.into(), Val::json(&ControlRecord::default())?];
    let sql = "INSERT INTO region_control (region, control) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    conn.execute(sql, new).await?;
    let sql = "SELECT control FROM region_control WHERE region = $1 {LOCK}";
    let row = conn.first(sql, args![region]).await?;
    row.ok_or_else(|| StoreError::corrupt("region_control", "row is missing"))?.cols().json()
}

async fn put_control(
    conn: &mut Conn,
    region: &str,
    record: &ControlRecord,
) -> Result<(), StoreError> {
    let values = vec![region.into(), Val::json(record)?];
    let sql = "UPDATE region_control SET control = $2 WHERE region = $1";
    conn.execute(sql, values).await.map(drop)
}

impl Store {
    /// Identity of this database; a copy of it has the same.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn plane_identity(&self) -> Result<String, StoreError> {
        let sql = "SELECT value FROM store_meta WHERE name = 'plane'";
        let row = self.reader().await?.first(sql, args![]).await?;
        row.ok_or_else(|| StoreError::corrupt("store_meta", "plane is missing"))?.cols().next()
    }

    /// Why machines of these sites are not changed; sites whose machines are changed are left out.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn held_sites(
        &self,
        ids: impl IntoIterator<Item = SiteId>,
    ) -> Result<HashMap<SiteId, SiteControl>, StoreError> {
        let mut found = HashMap::new();
        let mut conn = self.reader().await?;
        for ids in padded(ids.into_iter().map(|id| id.0)) {
            let text = "SELECT id, status -> 'control' FROM site \
                        WHERE removed_at IS NULL AND id IN ({LIST})";
            let sql = with_list(text, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let mut cols = row.cols();
                let (id, control) = (cols.id(SiteId)?, cols.opt_json::<Option<SiteControl>>()?);
                found.extend(control.flatten().map(|control| (id, control)));
            }
        }
        Ok(found)
    }

    /// What is remembered of the mark in a site's region; nothing where nobody looked at it yet.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn site_control(&self, site_id: SiteId) -> Result<ControlRecord, StoreError> {
        let sql = "SELECT control FROM region_control JOIN site \
                   ON site.region = region_control.region WHERE site.id = $1";
        let row = self.reader().await?.first(sql, args![site_id.0]).await?;
        row.map_or_else(|| Ok(ControlRecord::default()), |row| row.cols().json())
    }

    /// Writes what is remembered of the mark, and what the status of the region's sites says of it,
    /// unless it is not `known` any more: somebody else decided meanwhile. Answers whether it was
    /// written.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn set_site_control(
        &self,
        now: Timestamp,
        site_id: SiteId,
        known: ControlRecord,
        record: ControlRecord,
        control: Option<SiteControl>,
        audit: Option<NewAuditEntry>,
    ) -> Result<bool, StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "SELECT COALESCE(region, '') FROM site WHERE id = $1";
                let row = conn.first(sql, args![site_id.0]).await?;
                let row = row.ok_or_else(|| StoreError::not_found("site", site_id))?;
                let region: String = row.cols().next()?;
                if read_control(conn, &region).await? != known {
                    return Ok(false);
                }
                put_control(conn, &region, &record).await?;
                let sql =
                    "SELECT id FROM site WHERE region = $1 AND removed_at IS NULL ORDER BY id";
                for row in conn.all(sql, args![&region]).await? {
                    let control = control.clone();
                    let site_id = row.cols().id(SiteId)?;
                    edit_status(conn, now, site_id, |status| status.control = control).await?;
                }
                if let Some(audit) = audit {
                    audit::append(conn, now, &audit).await?;
                }
                Ok(true)
            })
        })
        .await
    }

    /// Takes the regions of all sites at an operator's word, without a look at them: a database that
    /// was restored knows nothing of the marks that were written after its backup was made. Another
    /// control plane that runs all the same yields when it sees the next mark. Answers how many
    /// regions there are.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn take_control_of_all(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                let mut taken = 0;
                for row in conn.all("SELECT region FROM region_control", args![]).await? {
                    let region: String = row.cols().next()?;
                    let mut record = read_control(conn, &region).await?;
                    record.take(None, now);
                    put_control(conn, &region, &record).await?;
                    taken += 1;
                    let sql =
                        "SELECT id FROM site WHERE region = $1 AND removed_at IS NULL ORDER BY id";
                    for row in conn.all(sql, args![&region]).await? {
                        let site_id = row.cols().id(SiteId)?;
                        edit_status(conn, now, site_id, |status| status.control = None).await?;
                    }
                }
                Ok(taken)
            })
        })
        .await
    }

    /// Compares where the database is with where it was when it was last opened.
    pub(crate) async fn note_place(&self) -> Result<(), StoreError> {
        let place = self.location().await?;
        let plane = Uuid::from_bytes(random()?).to_string();
        self.write(move |conn| {
            Box::pin(async move {
                keep_first(conn, "plane", &plane).await?;
                if keep_first(conn, "place", &place).await? == place {
                    return Ok(());
                }
                let sql = "UPDATE store_meta SET value = $1 WHERE name = 'place'";
                conn.execute(sql, args![&place]).await?;
                forget_transactions(conn).await?;
                for row in conn.all("SELECT region FROM region_control", args![]).await? {
                    let region: String = row.cols().next()?;
                    let mut record = read_control(conn, &region).await?;
                    record.note_move();
                    put_control(conn, &region, &record).await?;
                }
                Ok(())
            })
        })
        .await
    }

    async fn location(&self) -> Result<String, StoreError> {
        let Db::Postgres { .. } = &self.inner.db else {
            return Ok(self.inner.file_place.clone());
        };
        server_place(&mut self.reader().await?).await
    }
}

/// Identity of a PostgreSQL server and of the database there.
pub(crate) async fn server_place(conn: &mut Conn) -> Result<String, StoreError> {
    let sql = "SELECT system_identifier::text || '/' || oid::text FROM pg_control_system(), \
               pg_database WHERE datname = current_database()";
    let row = conn.first(sql, args![]).await?;
    row.ok_or_else(|| StoreError::corrupt("pg_database", "row is missing"))?.cols().next()
}

/// Takes the regions that this database changes with a higher term: another copy of it that runs all
/// the same yields. Answers how many there are; one that it had yielded stays so.
pub(crate) async fn take_held_regions(conn: &mut Conn, now: Timestamp) -> Result<u64, StoreError> {
    let mut taken = 0;
    for row in conn.all("SELECT region FROM region_control", args![]).await? {
        let region: String = row.cols().next()?;
        let mut record = read_control(conn, &region).await?;
        if record.state == ControlState::Held {
            record.take(None, now);
            put_control(conn, &region, &record).await?;
            taken += 1;
        }
    }
    Ok(taken)
}
