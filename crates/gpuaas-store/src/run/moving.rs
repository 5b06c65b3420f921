//! Queries of the engine, and of a process that starts, that belong to no one table.

use async_recursion::async_recursion as boxed;
use gpuaas_core::record::NodeRecord;
use gpuaas_types::{NodeId, RunId, SiteId, Step, Timestamp};

use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::event::watch_rows::watched_until;
use crate::identity::token_rows::honoured_tokens;
use crate::node::rows::{node_columns, node_from, read_node};
use crate::site::rows::sites_of_region;
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

    /// Whether nodes of the site are in service: active, or held back, with a machine.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn has_nodes_in_service(&self, site_id: SiteId) -> Result<bool, StoreError> {
        let row = self
            .reader()
            .await?
            .first(
                "SELECT 1 FROM node WHERE site_id = $1 AND system_id IS NOT NULL \
                 AND state IN ('active', 'offline', 'quarantined', 'draining') LIMIT 1",
                args![site_id.0],
            )
            .await?;
        Ok(row.is_some())
    }

    /// Whether a control plane watches the site now and has a cursor of its event feed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn is_watched(&self, site_id: SiteId, now: Timestamp) -> Result<bool, StoreError> {
        let until = match self.shared_reads() {
            Some((reads, _guard)) => reads.watched_until.get(site_id).await?,
            None => watched_until(&mut self.reader().await?, [site_id]).await?.remove(&site_id),
        };
        Ok(until.is_some_and(|until| until > now))
    }

    /// The node in care that holds a machine of the site's region, whichever site of the region the
    /// node is of.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn node_by_system_id(
        &self,
        site_id: SiteId,
        system_id: &str,
    ) -> Result<Option<NodeRecord>, StoreError> {
        const SQL: &str = concat!(
            "SELECT ",
            node_columns!(),
            " FROM ",
            node_from!(),
            " WHERE node.system_id = $2 AND node.site_id IN ",
            sites_of_region!(),
            " AND node.state NOT IN ('retired', 'detached', 'deleted') ORDER BY node.created_at"
        );
        let row = self.reader().await?.first(SQL, args![site_id.0, system_id]).await?;
        row.map(|row| read_node(&mut row.cols())).transpose()
    }

    /// How many bootstrap and enrollment tokens of the node would be honoured now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn count_honoured_tokens(&self, node_id: NodeId) -> Result<i64, StoreError> {
        let count = match self.shared_reads() {
            Some((reads, _guard)) => reads.honoured_tokens.get(node_id).await?,
            None => {
                let conn = &mut self.reader().await?;
                honoured_tokens(conn, [node_id]).await?.remove(&node_id)
            }
        };
        Ok(count.unwrap_or_default())
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
