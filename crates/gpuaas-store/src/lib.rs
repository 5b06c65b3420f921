//! All SQL of GPUaaS. Nobody above this crate knows what a table is called.
//!
//! # One interface, two databases
//! [`Store`] keeps its state in one SQLite file (the default: nothing to install) or in
//! PostgreSQL (any number of control planes share it). Each statement is written once; what
//! differs lives in `db`, the dialect room, and one conformance suite runs every function on
//! both. Every moment is stored as whole microseconds in a BIGINT: the databases' own time types
//! differ in precision and in text form, integers do not.
//!
//! # How runs are handed out
//! A run row is the queue entry, the lease and the state at once.
//!
//! - `due_at` says when a worker should look. [`Store::claim`] takes what is due and not parked,
//!   in a batch, over a partial index. A claimed run is due again when its lease ends, so a dead
//!   worker's runs come back by themselves and the range "due" of the index never holds anything
//!   that could not be claimed; [`Store::next_due`] is one look at the index for the same reason.
//! - `lease_token` is a fencing token: it grows with every claim, every write of a worker names
//!   the one it got, and a write with an older one is refused whole ([`StoreError::LeaseLost`]).
//!   A worker that was away too long, for whatever reason, cannot do damage.
//! - `wake_seq` counts events. The worker that gives a run back writes the count *it read at the
//!   claim* to `handled_seq`; if the count grew meanwhile, the run is due at once. An event that
//!   arrives during the work is thus never lost, and never interrupts it either.
//!
//! In PostgreSQL, rows are locked in one order everywhere (run, node, then the rest), so that
//! two transactions cannot wait for each other.
//!
//! # Writes
//! On SQLite all writes go through one writer that commits in groups (`writer`, read there why).
//! On PostgreSQL each write is a transaction of its own on the pool.
//!
//! # Secrets
//! Sealed before they reach a statement (`seal`); tokens are kept as SHA-256 hashes only.

mod agent;
mod audit;
mod batch;
mod bundle;
mod certificate;
mod db;
mod drift;
mod error;
mod gate;
mod input_secret;
mod journal;
mod lite;
mod lookups;
mod node;
mod open;
mod operator_task;
mod order;
mod pace;
mod profile;
mod roce;
mod rows;
mod run;
mod scratch;
mod seal;
mod site;
mod task_key;
mod timeline;
mod token;
mod watch;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use gpuaas_types::NodeId;
use sqlx::PgPool;
use tokio::sync::{broadcast, watch as signal};

pub use agent::Heartbeat;
pub use audit::{AuditEntry, IdempotencyKey, NewAudit};
pub use batch::{
    BatchAdvance, BatchCommand, BeginMember, MemberRun, NewBatch, StoredBatch, StoredMember,
};
pub use bundle::{BundleApproval, BundleKey, NewBundle, StoredBundle};
pub use certificate::{CertificateEnding, NewCertificate, StoredCertificate};
pub use drift::{ListedDrift, MissedWork, SweepFinding, SweepSubject};
pub use error::StoreError;
pub use gate::StoredGate;
pub use input_secret::SecretOwner;
pub use journal::BatchScope;
pub use node::{ListedNode, NewNode, NewRun, NodeFilter, Onboard, Onboarded, RunBrief, StartRun};
pub use operator_task::{NewOperatorTask, OperatorTask};
pub use order::Order;
pub use pace::RunClass;
pub use profile::ProfileRevision;
pub use run::{Claimed, NewTask, NodeChange, RunWrite, Transition};
pub use scratch::ScratchDatabase;
pub use seal::{MasterKey, Secret};
pub use timeline::TimelineRow;
pub use token::{
    AgentCredential, Enroll, Enrolled, NewToken, TokenFault, TokenGrant, TokenPurpose, sha256,
};
pub use watch::{MachineRead, ObservedEvent, WatchBatch, WatchLease, Watched};

use db::Conn;
use lite::Readers;
use writer::{Writer, Written};

/// The state of a control plane. Cheap to clone; see the crate's text.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    db: Db,
    key: MasterKey,
    written: Arc<Written>,
    in_flight: Arc<AtomicU64>,
    due: signal::Sender<u64>,
    batches: signal::Sender<u64>,
    tasks: broadcast::Sender<NodeId>,
}

/// A caller that waits for the database.
pub(crate) struct Flight(Arc<AtomicU64>);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

enum Db {
    Pg(PgPool),
    Lite { writer: Writer, readers: Readers },
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.engine())
    }
}

/// How much was written through this store since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Requests committed, including those that failed on their own without harming others.
    pub write_transactions: u64,
    /// Commits made for them.
    pub write_groups: u64,
    /// Most requests that shared a commit.
    pub largest_group: u64,
}

impl Store {
    /// `sqlite` or `postgresql`.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match self.inner.db {
            Db::Pg(_) => "postgresql",
            Db::Lite { .. } => "sqlite",
        }
    }

    /// How much was written.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let written = &self.inner.written;
        Counters {
            write_transactions: written.transactions.load(Ordering::Relaxed),
            write_groups: written.groups.load(Ordering::Relaxed),
            largest_group: written.largest_group.load(Ordering::Relaxed),
        }
    }

    /// Callers of this store that wait for the database at this moment. A simulation lets time
    /// pass only when there are none.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.inner.in_flight.load(Ordering::SeqCst)
    }

    fn fly(&self) -> Flight {
        self.inner.in_flight.fetch_add(1, Ordering::SeqCst);
        Flight(Arc::clone(&self.inner.in_flight))
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

    /// Names each node for which this process issued a task. A receiver that lags should read
    /// its node's tasks.
    #[must_use]
    pub fn task_signal(&self) -> broadcast::Receiver<NodeId> {
        self.inner.tasks.subscribe()
    }

    /// Finishes queued writes and closes every connection; later calls answer
    /// `database_unavailable`.
    pub async fn close(&self) {
        match &self.inner.db {
            Db::Pg(pool) => pool.close().await,
            Db::Lite { writer, readers } => {
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

    pub(crate) fn signal_task(&self, node_id: NodeId) {
        // Nobody listening is fine: tasks are found by reading.
        self.inner.tasks.send(node_id).ok();
    }

    pub(crate) fn key(&self) -> &MasterKey {
        &self.inner.key
    }

    /// A connection that only reads.
    pub(crate) async fn reader(&self) -> Result<Conn, StoreError> {
        let _flight = self.fly();
        Ok(match &self.inner.db {
            Db::Pg(pool) => Conn::PgRead { connection: pool.acquire().await?, _flight },
            Db::Lite { readers, .. } => {
                Conn::LiteRead { reader: readers.acquire().await?, _flight }
            }
        })
    }

    /// Runs `work` in a transaction: all of it is kept, or, when it answers an error, nothing.
    pub(crate) async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let _flight = self.fly();
        match &self.inner.db {
            Db::Lite { writer, .. } => writer.write(Box::new(work)).await,
            Db::Pg(pool) => {
                let mut conn = Conn::Pg(pool.begin().await?);
                let result = work(&mut conn).await;
                let Conn::Pg(transaction) = conn else {
                    return Err(StoreError::unavailable("the transaction was lost"));
                };
                if result.is_ok() {
                    transaction.commit().await?;
                    self.inner.written.note(1);
                } else {
                    transaction.rollback().await?;
                }
                result
            }
        }
    }
}
