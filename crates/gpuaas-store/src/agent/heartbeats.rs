//! Heartbeats that say nothing new, written together.
//!
//! Almost every heartbeat says what the one before it said, at a later time. A commit of its own for
//! each is a wait for the disk 167 times a second for 5,000 nodes, for a time that nobody reads sooner
//! than the next look for silent agents. So a process keeps in memory what it last wrote of each node,
//! and notes a heartbeat that says the same; what was noted is written in one transaction, by
//! [`Store::write_noted_heartbeats`]. Whatever is new (a run, a version, a trouble, the first heartbeat
//! of a system) is written before it is answered, as before.
//!
//! What is lost when a process dies is how late an agent was heard, by as much as lies between two
//! writes; the agent's next heartbeat makes up for it. While the database takes nothing, nothing is
//! noted: agents hear that it is away.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeMap;
use std::sync::Arc;

use gpuaas_types::{NodeId, RunId, Timestamp};

use crate::agent::noted_heartbeats::ReceivedHeartbeat;
use crate::database::{GroupHints, RowsStatement, Val, args};
use crate::error::StoreError;
use crate::store::Store;

/// Writes the times of heartbeats that say what is written already; answers whose are.
const WRITE: RowsStatement = RowsStatement {
    head: "WITH v (node_id, run_id, at, agent_version, troubles) AS (",
    tail: ") UPDATE heartbeat SET at = CASE WHEN heartbeat.at < v.at THEN v.at ELSE heartbeat.at END \
           FROM v WHERE heartbeat.node_id = v.node_id AND heartbeat.run_id = v.run_id \
           AND heartbeat.agent_version = v.agent_version AND heartbeat.troubles = v.troubles \
           RETURNING heartbeat.node_id",
};

impl Store {
    /// Takes a heartbeat. One that says nothing new is written with others, by
    /// [`Self::write_noted_heartbeats`], which somebody has to call about once a second; any other one
    /// is written now. Answers whether it was the first of its run.
    ///
    /// # Errors
    /// Those of [`Self::record_heartbeat`].
    #[boxed]
    pub async fn note_heartbeat(
        &self,
        now: Timestamp,
        heartbeat: ReceivedHeartbeat,
    ) -> Result<bool, StoreError> {
        let heartbeats = &self.inner.heartbeats;
        if heartbeats.note(now, &heartbeat) {
            return Ok(false);
        }
        let is_first = self.record_heartbeat(now, heartbeat.clone()).await?;
        heartbeats.remember(heartbeat);
        Ok(is_first)
    }

    /// Takes the last heartbeat of a node once more: its agent says no more than that it holds still.
    /// `is_said` tells of the agent's version and its troubles, as this process last wrote them, whether
    /// that is what the agent means. Answers false where it is not, or where nothing is known here of
    /// the run: a heartbeat is wanted then.
    #[must_use]
    pub fn repeat_heartbeat(
        &self,
        now: Timestamp,
        node_id: NodeId,
        run_id: RunId,
        is_said: impl FnOnce(&str, &str) -> bool,
    ) -> bool {
        self.inner.heartbeats.note_again(now, node_id, run_id, is_said)
    }

    /// Writes the heartbeats that were noted. One whose node was given another system meanwhile is
    /// written as any other. Answers how many of them were the first of their run.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`]; what was not written stays noted.
    #[boxed]
    pub async fn write_noted_heartbeats(&self) -> Result<usize, StoreError> {
        let heartbeats = &self.inner.heartbeats;
        let mut noted = heartbeats.take();
        if noted.is_empty() {
            return Ok(0);
        }
        let rows: Vec<Vec<Val>> = noted
            .iter()
            .map(|(node_id, (at, heartbeat))| {
                let ReceivedHeartbeat { run_id, agent_version, troubles, .. } = heartbeat;
                args![node_id.0, run_id.0, *at, agent_version, troubles]
            })
            .collect();
        let rows = Arc::new(rows);
        let written = self.write_grouped(GroupHints::default(), move |conn| {
            let rows = Arc::clone(&rows);
            Box::pin(async move {
                let written = conn.query_each(WRITE, rows.to_vec()).await?;
                written.iter().map(|row| row.cols().id(NodeId)).collect::<Result<Vec<_>, _>>()
            })
        });
        let written = written.await;
        heartbeats.set_failing(written.is_err());
        match written {
            Ok(written) => written.iter().for_each(|node_id| drop(noted.remove(node_id))),
            Err(error) => {
                heartbeats.put_back(noted.into_values());
                return Err(error);
            }
        }
        self.write_one_by_one(noted).await
    }

    /// Writes heartbeats of nodes of which something else is written than was remembered.
    async fn write_one_by_one(
        &self,
        heartbeats: BTreeMap<NodeId, (Timestamp, ReceivedHeartbeat)>,
    ) -> Result<usize, StoreError> {
        let mut firsts = 0;
        for (node_id, (at, heartbeat)) in heartbeats {
            self.inner.heartbeats.forget(node_id);
            match self.record_heartbeat(at, heartbeat).await {
                Ok(is_first) => firsts += usize::from(is_first),
                // The node or its run is gone, which its agent hears with its next request.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(firsts)
    }
}
