//! Identifiers between two others: what the begin of one may stand for.
//!
//! Both databases compare identifiers as sixteen bytes, so those that begin alike lie together.

use async_recursion::async_recursion as boxed;
use uuid::Uuid;

use crate::database::{Row, args};
use crate::error::StoreError;
use crate::store::Store;

/// Whose identifiers are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// The control plane's own of nodes, not those of MAAS.
    Node,
    /// Those of runs, open and over.
    Run,
    /// Tasks that operators gave.
    Task,
    /// Claims of slots, live and over.
    Claim,
    /// Requests that wait, or waited, for another person.
    Approval,
}

impl IdKind {
    const fn sql(self) -> &'static str {
        match self {
            Self::Node => {
                "SELECT id, hostname FROM node WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3"
            }
            Self::Run => {
                "SELECT run.id, node.hostname FROM run JOIN node ON node.id = run.node_id \
                 WHERE run.id >= $1 AND run.id <= $2 ORDER BY run.id LIMIT $3"
            }
            Self::Task => {
                "SELECT node_task.id, node.hostname FROM node_task \
                 JOIN node ON node.id = node_task.node_id WHERE node_task.actor IS NOT NULL \
                 AND node_task.claim_id IS NULL AND node_task.id >= $1 AND node_task.id <= $2 ORDER BY node_task.id LIMIT $3"
            }
            Self::Claim => {
                "SELECT slice_claim.id, node.hostname FROM slice_claim \
                 JOIN node ON node.id = slice_claim.node_id WHERE slice_claim.id >= $1 \
                 AND slice_claim.id <= $2 ORDER BY slice_claim.id LIMIT $3"
            }
            Self::Approval => {
                "SELECT id, summary FROM approval WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3"
            }
        }
    }
}

impl Store {
    /// Identifiers from `first` to `last` in their order, each with its node's hostname; at most
    /// `limit`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn ids_between(
        &self,
        kind: IdKind,
        first: Uuid,
        last: Uuid,
        limit: u32,
    ) -> Result<Vec<(Uuid, String)>, StoreError> {
        let values = args![first, last, i64::from(limit)];
        let rows = self.reader().await?.all(kind.sql(), values).await?;
        let read = |row: &Row| -> Result<(Uuid, String), StoreError> {
            let mut cols = row.cols();
            Ok((cols.next()?, cols.next()?))
        };
        rows.iter().map(read).collect()
    }
}
