//! Runs that are under way at a site, and the end of every lease where no process holds one.

use async_recursion::async_recursion as boxed;
use gpuaas_types::{RunId, SiteId, Step, Timestamp};

use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::store::{Db, Store};

impl Store {
    /// Runs of the site that are open and not parked.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn moving_runs(&self, site_id: SiteId) -> Result<Vec<RunId>, StoreError> {
        let rows = self
            .reader()
            .await?
            .all(
                "SELECT run.id FROM run JOIN node ON node.id = run.node_id \
                 WHERE node.site_id = $1 AND run.status IN ('running', 'waiting')",
                args![site_id.0],
            )
            .await?;
        rows.iter().map(|row| row.cols().id(RunId)).collect()
    }

    /// Whether the site has open runs that are not parked.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn has_moving_runs(&self, site_id: SiteId) -> Result<bool, StoreError> {
        let row = self
            .reader()
            .await?
            .first(
                "SELECT 1 FROM run WHERE run.status IN ('running', 'waiting') AND EXISTS \
                 (SELECT 1 FROM node WHERE node.id = run.node_id AND node.site_id = $1) LIMIT 1",
                args![site_id.0],
            )
            .await?;
        Ok(row.is_some())
    }

    /// Steps that runs of the site are in which move, each once.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn moving_steps(&self, site_id: SiteId) -> Result<Vec<Step>, StoreError> {
        let rows = self
            .reader()
            .await?
            .all(
                "SELECT DISTINCT step FROM run WHERE site_id = $1 \
                 AND status IN ('running', 'waiting') ORDER BY step",
                args![site_id.0],
            )
            .await?;
        rows.iter().map(|row| row.cols().enum_str()).collect()
    }

    /// Ends every lease at once, so that the work of a process that died is taken up without
    /// waiting. Only where no other process can hold one: the embedded database, whose file one
    /// process owns. On PostgreSQL nothing is done, since other replicas may be at work.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn end_leases_of_dead_owner(&self, now: Timestamp) -> Result<u64, StoreError> {
        if matches!(self.inner.db, Db::Postgres { .. }) {
            return Ok(0);
        }
        self.write(move |conn| Box::pin(async move { end_leases(conn, now).await })).await
    }
}

/// Ends every lease at once, where nobody is left who holds one. Answers how many runs had one.
pub(crate) async fn end_leases(conn: &mut Conn, now: Timestamp) -> Result<u64, StoreError> {
    conn.execute("UPDATE site_watch SET lease_until = 0", args![]).await?;
    conn.execute(
        "UPDATE run SET lease_until = 0, due_at = $1 WHERE lease_until > 0 \
         AND status IN ('running', 'waiting')",
        args![now],
    )
    .await
}
