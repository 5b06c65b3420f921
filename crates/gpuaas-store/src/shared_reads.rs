//! The reads that share statements on PostgreSQL; see `database/postgres/shared_read.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpuaas_core::record::{Report, RunRecord};
use gpuaas_types::agent::TaskKeys;
use gpuaas_types::api::{ProfileResource, SiteResource};
use gpuaas_types::{NodeId, RunId, SiteId, Timestamp};
use uuid::Uuid;

use crate::agent::report_rows::reports_of;
use crate::agent::task_rows::{OpenTask, open_tasks};
use crate::bundle::profile_rows::profiles_named;
use crate::database::{PostgresPool, SentCounters, SharedRead};
use crate::event::watch_rows::watched_until;
use crate::identity::secret::rows::secrets_of_owners;
use crate::identity::task_key_rows::read_task_keys;
use crate::identity::token_rows::{StoredToken, honoured_tokens, tokens_with_hashes};
use crate::node::tpm_rows::tpm_keys;
use crate::run::rows::runs_with_ids;
use crate::site::rows::sites_named;

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
    /// Sealed values by owner and name.
    pub(crate) secrets: SharedRead<(Uuid, String), Vec<u8>>,
    /// Sites by name.
    pub(crate) sites: SharedRead<String, SiteResource>,
    /// Profiles by name.
    pub(crate) profiles: SharedRead<String, ProfileResource>,
    /// When the leases of watchers end that follow their sites.
    pub(crate) watched_until: SharedRead<SiteId, Timestamp>,
    /// How many bootstrap and enrollment tokens of nodes are honoured.
    pub(crate) honoured_tokens: SharedRead<NodeId, i64>,
    /// Keys of nodes' TPMs.
    pub(crate) tpm_keys: SharedRead<NodeId, String>,
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
            secrets: SharedRead::new(pool, counters, |conn, keys| {
                let owners: BTreeSet<Uuid> = keys.into_iter().map(|(owner, _)| owner).collect();
                Box::pin(secrets_of_owners(conn, owners))
            }),
            sites: SharedRead::new(pool, counters, |conn, names| {
                Box::pin(sites_named(conn, names))
            }),
            profiles: SharedRead::new(pool, counters, |conn, names| {
                Box::pin(profiles_named(conn, names))
            }),
            watched_until: SharedRead::new(pool, counters, |conn, ids| {
                Box::pin(watched_until(conn, ids))
            }),
            honoured_tokens: SharedRead::new(pool, counters, |conn, ids| {
                Box::pin(honoured_tokens(conn, ids))
            }),
            tpm_keys: SharedRead::new(pool, counters, |conn, ids| Box::pin(tpm_keys(conn, ids))),
        }
    }
}
