//! The reads that share statements on PostgreSQL; see `database/shared_read.rs`.

use std::sync::Arc;

use gpuaas_core::record::{Report, RunRecord};
use gpuaas_types::agent::TaskKeys;
use gpuaas_types::{NodeId, RunId};

use crate::database::{PostgresPool, SentCounters, SharedRead};
use crate::tables::report::reports_of;
use crate::tables::run::runs_with_ids;
use crate::tables::task::{OpenTask, open_tasks};
use crate::tables::task_key::read_task_keys;
use crate::tables::token::{StoredToken, tokens_with_hashes};

/// One queue of questions for each kind.
pub(crate) struct SharedReads {
    /// Runs by their ids.
    pub(crate) runs: SharedRead<RunId, RunRecord>,
    /// Reports of runs.
    pub(crate) reports: SharedRead<RunId, Vec<Report>>,
    /// Credentials by their hashes.
    pub(crate) tokens: SharedRead<[u8; 32], StoredToken>,
    /// Tasks of nodes that are not finished.
    pub(crate) tasks: SharedRead<NodeId, Vec<OpenTask>>,
    /// The keys that sign tasks.
    pub(crate) task_keys: SharedRead<(), TaskKeys>,
}

impl SharedReads {
    /// Reads on a pool.
    pub(crate) fn new(pool: &Arc<PostgresPool>, counters: &Arc<SentCounters>) -> Self {
        Self {
            runs: SharedRead::new(pool, counters, |conn, ids| Box::pin(runs_with_ids(conn, ids))),
            reports: SharedRead::new(pool, counters, |conn, ids| Box::pin(reports_of(conn, ids))),
            tokens: SharedRead::new(pool, counters, |conn, hashes| {
                Box::pin(tokens_with_hashes(conn, hashes))
            }),
            tasks: SharedRead::new(pool, counters, |conn, ids| Box::pin(open_tasks(conn, ids))),
            task_keys: SharedRead::new(pool, counters, |conn, _| {
                Box::pin(async move { Ok([((), read_task_keys(conn).await?)].into()) })
            }),
        }
    }
}
