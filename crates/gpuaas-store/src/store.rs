//! The store: one value that every method of this crate hangs on.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use gpuaas_types::NodeId;
use tokio::sync::{broadcast, watch as signal};
use uuid::Uuid;

use crate::agent::noted_heartbeats::NotedHeartbeats;
use crate::database::schema::migrations::Schema;
use crate::database::{
    Conn, GroupHints, GroupWriter, InFlightGuard, PostgresPool, Readers, SentCounters,
    TransactionCommand, Writer, catch_panic, current_origin,
};
use crate::error::StoreError;
use crate::identity::secret::key_ring::KeyRing;
use crate::shared_reads::SharedReads;
use crate::slice::claim_queue::ClaimQueue;
use crate::slice::placement::SlotPlacements;

/// The state of a control plane. Cheap to clone; see the crate's text.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) db: Db,
    pub(crate) key: KeyRing,
    /// Names this opened store among those of the database.
    pub(crate) instance: Uuid,
    /// The changes of the tables that this executable knows.
    pub(crate) schema: Schema,
    /// Where the database is, if it is a file: a copy is elsewhere.
    pub(crate) file_place: String,
    pub(crate) counters: Arc<SentCounters>,
    pub(crate) placements: SlotPlacements,
    pub(crate) claim_queue: ClaimQueue,
    pub(crate) heartbeats: NotedHeartbeats,
    pub(crate) in_flight: Arc<AtomicU64>,
    pub(crate) due: signal::Sender<u64>,
    pub(crate) batches: signal::Sender<u64>,
    pub(crate) slices: signal::Sender<u64>,
    pub(crate) tasks: broadcast::Sender<NodeId>,
}

pub(crate) enum Db {
    Postgres { pool: Arc<PostgresPool>, groups: GroupWriter, reads: Box<SharedReads> },
    Sqlite { writer: Writer, readers: Readers },
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.engine())
    }
}

/// What was sent to the database through this store since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreCounters {
    /// Requests committed, including those that failed on their own without harming others.
    pub write_transactions: u64,
    /// Commits made for them.
    pub write_groups: u64,
    /// Most requests that shared a commit.
    pub largest_group: u64,
    /// Transactions as the database counts them: those that were begun, and each statement outside
    /// of one.
    pub transactions: u64,
    /// Statements, those included that begin and end transactions.
    pub statements: u64,
}

impl Store {
    /// Name of the database engine: `sqlite` or `postgresql`.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match self.inner.db {
            Db::Postgres { .. } => "postgresql",
            Db::Sqlite { .. } => "sqlite",
        }
    }

    /// 32 bytes for one purpose, the same in every control plane that has the same master key.
    #[must_use]
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        self.key().derive(purpose)
    }

    /// What was sent to the database so far.
    #[must_use]
    pub fn counters(&self) -> StoreCounters {
        let counters = &self.inner.counters;
        StoreCounters {
            write_transactions: counters.requests.load(Ordering::Relaxed),
            write_groups: counters.groups.load(Ordering::Relaxed),
            largest_group: counters.largest_group.load(Ordering::Relaxed),
            transactions: counters.transactions.load(Ordering::Relaxed),
            statements: counters.statements.load(Ordering::Relaxed),
        }
    }

    /// Counts statements by their texts, too, from now on: a look at where they come from.
    pub fn count_statement_texts(&self) {
        self.inner.counters.count_texts();
    }

    /// How often each statement was sent since [`Self::count_statement_texts`]; empty before.
    #[must_use]
    pub fn statement_texts(&self) -> BTreeMap<String, u64> {
        self.inner.counters.texts()
    }

    /// Callers of this store that wait for the database at this moment. A simulation lets time
    /// pass only when there are none.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.inner.in_flight.load(Ordering::SeqCst)
    }

    /// Counts a caller that waits for the database until the guard is dropped.
    pub(crate) fn track_in_flight(&self) -> InFlightGuard {
        InFlightGuard::new(&self.inner.in_flight)
    }

    /// Changes whenever this process made a run due earlier than planned. Runs woken by another
    /// replica show in [`Self::next_due`] only.
    #[must_use]
    pub fn due_signal(&self) -> signal::Receiver<u64> {
        self.inner.due.subscribe()
    }

    /// Changes whenever something happened in this process that a batch may have waited for.
    #[must_use]
    pub fn batch_signal(&self) -> signal::Receiver<u64> {
        self.inner.batches.subscribe()
    }

    /// Changes whenever something happened in this process that a launch or a release of a slice may
    /// have waited for.
    #[must_use]
    pub fn slice_signal(&self) -> signal::Receiver<u64> {
        self.inner.slices.subscribe()
    }

    /// Names each node for which this process issued a task. A receiver that lags should read
    /// its node's tasks.
    #[must_use]
    pub fn task_signal(&self) -> broadcast::Receiver<NodeId> {
        self.inner.tasks.subscribe()
    }

    /// Finishes queued writes and closes every connection; later calls answer
    /// `database_unavailable`.
    #[boxed]
    pub async fn close(&self) {
        if let Err(error) = self.write_noted_heartbeats().await {
            tracing::warn!(%error, "could not write the heartbeats of the last second");
        }
        match &self.inner.db {
            Db::Postgres { pool, .. } => pool.close().await,
            Db::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
        }
    }

    pub(crate) fn signal_due(&self) {
        self.inner.due.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn signal_batch(&self) {
        self.inner.batches.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn signal_slice(&self) {
        self.inner.slices.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn signal_task(&self, node_id: NodeId) {
        // Nobody listening is fine: tasks are found by reading.
        self.inner.tasks.send(node_id).ok();
    }

    pub(crate) fn key(&self) -> &KeyRing {
        &self.inner.key
    }

    /// Reads that share statements, where that pays, and a guard for whoever waits for one.
    pub(crate) fn shared_reads(&self) -> Option<(&SharedReads, InFlightGuard)> {
        match &self.inner.db {
            Db::Postgres { reads, .. } => Some((reads, self.track_in_flight())),
            Db::Sqlite { .. } => None,
        }
    }

    /// A connection that only reads.
    pub(crate) async fn reader(&self) -> Result<Conn, StoreError> {
        let guard = self.track_in_flight();
        let counters = &self.inner.counters;
        let conn = match &self.inner.db {
            Db::Postgres { pool, .. } => Conn::postgres(pool.acquire().await?, counters),
            Db::Sqlite { readers, .. } => Conn::sqlite_reader(readers.acquire().await?, counters),
        };
        Ok(conn.guarded(guard))
    }

    /// Runs `work`, whose reads are for one answer: in an SQLite file all of them see one moment. It
    /// writes nothing, and soon ends: meanwhile the file's log of writes grows.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn read_one_moment<F: Future>(&self, work: F) -> Result<F::Output, StoreError> {
        match &self.inner.db {
            Db::Postgres { .. } => Ok(work.await),
            Db::Sqlite { readers, .. } => readers.in_snapshot(work).await,
        }
    }

    /// Runs `work` in a transaction: all of it is kept, or, when it answers an error, nothing.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let _guard = self.track_in_flight();
        let written = self.write_once(work).await;
        self.noticing_the_key(written).await
    }

    /// The same; reads which master key seals where a value was refused for it. The caller is told
    /// that the database is not available, and trying again is right, where this process has that key.
    async fn noticing_the_key<T>(&self, written: Result<T, StoreError>) -> Result<T, StoreError> {
        match written {
            Err(error) if error.is_refused_for_its_key() => {
                Err(self.after_refused_key(error).await)
            }
            written => written,
        }
    }

    async fn write_once<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        match &self.inner.db {
            Db::Sqlite { writer, .. } => writer.write(current_origin(), Box::new(work)).await,
            Db::Postgres { pool, .. } => {
                let counters = &self.inner.counters;
                let mut conn = Conn::postgres(pool.acquire().await?, counters);
                conn.set_origin(current_origin());
                conn.control(TransactionCommand::Begin).await?;
                let result = catch_panic(async { work(&mut conn).await }).await;
                if result.is_ok() {
                    conn.control(TransactionCommand::Commit).await?;
                    counters.note_commit(1);
                } else if conn.in_transaction() {
                    conn.control(TransactionCommand::Rollback).await?;
                }
                result
            }
        }
    }

    /// The same for frequent writes, which PostgreSQL gets in groups. `work` may be asked twice.
    pub(crate) async fn write_grouped<T, F>(
        &self,
        hints: GroupHints,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + Sync + 'static,
        F: for<'c> Fn(&'c mut Conn) -> BoxFuture<'c, Result<T, StoreError>> + Send + Sync + 'static,
    {
        if let Db::Postgres { groups, .. } = &self.inner.db {
            let _guard = self.track_in_flight();
            let written = groups.write(hints, current_origin(), Box::new(work)).await;
            return self.noticing_the_key(written).await;
        }
        self.write(work).await
    }
}
