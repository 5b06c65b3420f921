//! Writes to PostgreSQL in groups.
//!
//! A transaction of its own for each request costs the server a commit that waits for its disk, and
//! the request a dozen round trips. Instead the frequent requests of a process queue up, and what
//! has queued goes into one transaction: it locks the rows of all runs concerned, updates the runs
//! that workers commit, lets each request do what is its own, writes what could be put off
//! (`group_state`), and commits. Nobody hears "done" before that.
//!
//! Two groups are under way at once: while one waits for the server's disk, the other works. What
//! comes meanwhile queues up and is the next group, so there are as many requests in a group as the
//! load asks for: one where there is one.
//!
//! Requests in a group stay strangers:
//! - Rows of runs are locked in the order of their ids, as everywhere, and only those that nobody
//!   else has locked (`SKIP LOCKED`). A request whose run is locked elsewhere, or not there, leaves
//!   the group and is made alone: a group waits for nobody's run.
//! - Where a request fails, the group is rolled back and each of its requests is made once more,
//!   alone, in a transaction of its own: only the one at fault hears of it. There are no savepoints,
//!   which would cost every good request two round trips. A request that fails before it sent
//!   anything has nothing to roll back, and its group goes on.
//! - If the commit itself fails, nobody knows whether it was kept, and everyone hears
//!   `database_unavailable`.
//!
//! A request that locks the rows of many runs, as a watcher's does, is no part of a group, and takes
//! turns with the groups (`in_turn`): begun beside them, it would wait for the rows of one group with
//! the rows of the next in its hands, whose requests would all leave it. No group is under way then.
//!
//! A request may therefore be made twice, and what it does is a function of the database and of
//! itself alone. Within a group nothing is awaited but the connection.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::{Mutex, RwLock, mpsc, oneshot};
use uuid::Uuid;

use super::group_state::{GroupState, RowsStatement};
use super::pool::{PostgresPool, TransactionCommand};
use crate::database::connection::Conn;
use crate::database::counters::SentCounters;
use crate::database::origin::RequestOrigin;
use crate::database::panic::catch_panic;
use crate::database::value::Val;
use crate::error::StoreError;

/// Groups under way at once.
const GROUPS: usize = 2;
/// Most requests in one transaction.
const MAX_GROUP: usize = 128;
/// Requests that may queue before senders wait.
const QUEUE_CAPACITY: usize = 4096;

/// A limit keeps the look for the open run of a node one look into an index; without it the server
/// reads all open runs.
const LOCK_RUNS: RowsStatement = RowsStatement {
    head: "WITH wanted (id) AS (",
    tail: "), target (id) AS (SELECT wanted.id FROM wanted UNION SELECT open.id FROM wanted \
           CROSS JOIN LATERAL (SELECT run.id FROM run WHERE run.node_id = wanted.id \
           AND run.status IN ('running', 'waiting', 'parked') LIMIT 1) AS open) \
           SELECT run.id, run.node_id FROM run WHERE run.id IN (SELECT target.id FROM target) \
           ORDER BY run.id FOR NO KEY UPDATE SKIP LOCKED",
};

/// What workers write of runs that they hold, one row for each: answers the runs whose lease still
/// stands, with their counts of events.
pub(crate) const UPDATE_RUNS: RowsStatement = RowsStatement {
    head: "WITH v (id, lease_token, step, status, memory, wait, park, step_since, ended_at, \
           lease_until, due_at, wake_seq, now, released) AS (",
    tail: ") UPDATE run SET step = v.step, status = v.status, memory = v.memory, wait = v.wait, \
           park = v.park, step_since = v.step_since, ended_at = v.ended_at, \
           lease_until = CASE WHEN v.released THEN 0 ELSE v.lease_until END, \
           handled_seq = CASE WHEN v.released THEN v.wake_seq ELSE run.handled_seq END, \
           due_at = CASE WHEN NOT v.released THEN v.lease_until \
           WHEN run.wake_seq > v.wake_seq AND v.status <> 'parked' THEN v.now ELSE v.due_at END \
           FROM v WHERE run.id = v.id AND run.lease_token = v.lease_token \
           AND run.lease_until > 0 RETURNING run.id, run.wake_seq",
};

const WAKE_RUNS: RowsStatement = RowsStatement {
    head: "WITH v (id, events, now) AS (",
    tail: ") UPDATE run SET wake_seq = run.wake_seq + v.events, due_at = CASE \
           WHEN run.status = 'parked' OR run.lease_until > v.now OR run.due_at < v.now THEN run.due_at ELSE v.now END \
           FROM v WHERE run.id = v.id",
};

/// What a request does with the connection; it may be asked to do it twice.
pub(crate) type GroupFn<T> =
    Box<dyn for<'c> Fn(&'c mut Conn) -> BoxFuture<'c, Result<T, StoreError>> + Send + Sync>;

/// What the group does for a request before it.
#[derive(Default)]
pub(crate) struct GroupHints {
    /// The run that it writes to, or the node whose open run it writes to; none: it writes to no
    /// row of a run.
    pub(crate) target: Option<Uuid>,
    /// A worker's update of that run, by the columns of `UPDATE_RUNS`.
    pub(crate) update: Option<Vec<Val>>,
    /// It locks the rows of many runs: it has a transaction of its own between two groups.
    pub(crate) in_turn: bool,
}

impl GroupHints {
    /// For a request that writes to a run.
    pub(crate) fn of_run(run_id: Uuid) -> Self {
        Self { target: Some(run_id), ..Self::default() }
    }

    /// For a request that writes to the open run of a node.
    pub(crate) fn of_node(node_id: Uuid) -> Self {
        Self { target: Some(node_id), ..Self::default() }
    }

    /// For a request that locks the rows of many runs.
    pub(crate) fn in_turn() -> Self {
        Self { in_turn: true, ..Self::default() }
    }
}

trait Job: Send + Sync {
    fn hints(&self) -> &GroupHints;
    /// Does the work and keeps the result; answers whether it went well.
    fn work<'c>(&'c mut self, conn: &'c mut Conn) -> BoxFuture<'c, bool>;
    /// Whether the work was done and answered an error.
    fn has_failed(&self) -> bool;
    /// Tells the caller.
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Request<T> {
    hints: GroupHints,
    origin: RequestOrigin,
    work: GroupFn<T>,
    result: Option<Result<T, StoreError>>,
    sender: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send + Sync + 'static> Job for Request<T> {
    fn hints(&self) -> &GroupHints {
        &self.hints
    }

    fn work<'c>(&'c mut self, conn: &'c mut Conn) -> BoxFuture<'c, bool> {
        Box::pin(async move {
            conn.set_origin(self.origin.clone());
            let result = catch_panic(async { (self.work)(conn).await }).await;
            let ok = result.is_ok();
            self.result = Some(result);
            ok
        })
    }

    fn has_failed(&self) -> bool {
        matches!(self.result, Some(Err(_)))
    }

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let missing = || Err(StoreError::unavailable("the write was not executed"));
        let result = match (self.result, committed) {
            (Some(Ok(value)), committed) => committed.map(|()| value),
            (Some(Err(error)), _) => Err(error),
            (None, committed) => committed.and_then(|()| missing()),
        };
        // The caller may have gone away; its write stands all the same.
        self.sender.send(result).ok();
    }
}

/// Hands requests to the tasks that commit them, which live as long as any clone of this.
#[derive(Clone)]
pub(crate) struct GroupWriter {
    queue: mpsc::Sender<Box<dyn Job>>,
}

impl GroupWriter {
    /// Starts them on a pool.
    pub(crate) fn start(pool: Arc<PostgresPool>, counters: Arc<SentCounters>) -> Self {
        let (queue, inbox) = mpsc::channel(QUEUE_CAPACITY);
        let inbox = Arc::new(Mutex::new(inbox));
        let committer = Committer { pool, counters, turn: Arc::default() };
        for _ in 0..GROUPS {
            let (inbox, committer) = (Arc::clone(&inbox), committer.clone());
            tokio::spawn(async move {
                loop {
                    let mut group = Vec::new();
                    if inbox.lock().await.recv_many(&mut group, MAX_GROUP).await == 0 {
                        return;
                    }
                    committer.commit(group).await;
                }
            });
        }
        Self { queue }
    }

    /// Queues a request of this `origin` and waits until it is committed.
    pub(crate) async fn write<T: Send + Sync + 'static>(
        &self,
        hints: GroupHints,
        origin: RequestOrigin,
        work: GroupFn<T>,
    ) -> Result<T, StoreError> {
        let stopped = || StoreError::unavailable("the store is closed");
        let (sender, receiver) = oneshot::channel();
        let request = Request { hints, origin, work, result: None, sender };
        self.queue.send(Box::new(request)).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }
}

/// Why a group was not kept.
enum Failed {
    /// Nothing was: its requests can be made again.
    RolledBack,
    /// Nobody knows.
    Unknown(StoreError),
}

#[derive(Clone)]
struct Committer {
    pool: Arc<PostgresPool>,
    counters: Arc<SentCounters>,
    /// Groups share it; a request that takes turns with them has it for itself.
    turn: Arc<RwLock<()>>,
}

impl Committer {
    async fn commit(&self, requests: Vec<Box<dyn Job>>) {
        let (in_turn, group): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|job| job.hints().in_turn);
        if !group.is_empty() {
            let _turn = self.turn.read().await;
            self.commit_group(group).await;
        }
        for mut job in in_turn {
            let _turn = self.turn.write().await;
            match self.transact_briefly(&mut *job).await {
                Ok(true) => job.reply(Ok(())),
                // It waits for another process, or is at fault.
                Ok(false) => self.spawn_alone(vec![job]),
                Err(error) => job.reply(Err(error)),
            }
        }
    }

    async fn commit_group(&self, mut group: Vec<Box<dyn Job>>) {
        let mut alone = Vec::new();
        match self.transact(&mut group, &mut alone).await {
            Ok(()) => {
                self.counters.note_commit(group.len());
                group.into_iter().for_each(|job| job.reply(Ok(())));
            }
            Err(Failed::Unknown(error)) => {
                group.into_iter().for_each(|job| job.reply(Err(error.clone())));
            }
            // The fault of the only one there is its own.
            Err(Failed::RolledBack) if matches!(&*group, [only] if only.has_failed()) => {
                group.into_iter().for_each(|job| job.reply(Ok(())));
            }
            Err(Failed::RolledBack) => self.spawn_alone(group),
        }
        self.spawn_alone(alone);
    }

    /// Makes each request in a transaction of its own, beside the groups that follow: one that
    /// waits for a lock holds up nobody.
    fn spawn_alone(&self, jobs: Vec<Box<dyn Job>>) {
        for mut job in jobs {
            let committer = self.clone();
            tokio::spawn(async move {
                let committed = committer.transact_alone(&mut *job).await;
                job.reply(committed);
            });
        }
    }

    async fn transact_alone(&self, job: &mut dyn Job) -> Result<(), StoreError> {
        let mut conn = Conn::postgres(self.pool.acquire().await?, &self.counters);
        conn.control(TransactionCommand::Begin).await?;
        if job.work(&mut conn).await {
            conn.control(TransactionCommand::Commit).await?;
            self.counters.note_commit(1);
        } else if conn.in_transaction() {
            conn.control(TransactionCommand::Rollback).await?;
        }
        Ok(())
    }

    /// Makes a request in a transaction of its own that waits for no lock longer than a moment.
    /// Answers `false` where nothing was kept.
    ///
    /// # Errors
    /// Nobody knows whether it was kept.
    async fn transact_briefly(&self, job: &mut dyn Job) -> Result<bool, StoreError> {
        let Ok(session) = self.pool.acquire().await else { return Ok(false) };
        let mut conn = Conn::postgres(session, &self.counters);
        if conn.control(TransactionCommand::BeginBrief).await.is_err() {
            return Ok(false);
        }
        if job.work(&mut conn).await {
            conn.control(TransactionCommand::Commit).await?;
            self.counters.note_commit(1);
            return Ok(true);
        }
        if conn.in_transaction() {
            // Where even that fails, the session ends, and its transaction with it.
            conn.control(TransactionCommand::Rollback).await.ok();
        }
        Ok(false)
    }

    /// Runs every request of `group` and commits; those that cannot be part of it go to `alone`.
    async fn transact(
        &self,
        group: &mut Vec<Box<dyn Job>>,
        alone: &mut Vec<Box<dyn Job>>,
    ) -> Result<(), Failed> {
        let again = |error: StoreError| {
            tracing::debug!(%error, "retrying a group of writes one by one");
            Failed::RolledBack
        };
        let session = self.pool.acquire().await.map_err(again)?;
        let mut conn = Conn::postgres(session, &self.counters).grouped();
        conn.control(TransactionCommand::Begin).await.map_err(again)?;
        let worked = async {
            lock_runs(&mut conn, group, alone).await?;
            update_runs(&mut conn, group).await?;
            for job in group.iter_mut() {
                let before = conn.group().map(|state| state.touched());
                if !job.work(&mut conn).await && conn.group().map(|state| state.touched()) != before
                {
                    return Err(StoreError::unavailable("a request in the group failed"));
                }
            }
            write_pending(&mut conn).await
        };
        if let Err(error) = worked.await {
            if conn.in_transaction() {
                // Where even that fails, the session ends, and its transaction with it.
                conn.control(TransactionCommand::Rollback).await.ok();
            }
            return Err(again(error));
        }
        conn.control(TransactionCommand::Commit).await.map_err(Failed::Unknown)
    }
}

/// Locks the rows of all runs that the group writes to. Requests for other rows leave it.
async fn lock_runs(
    conn: &mut Conn,
    group: &mut Vec<Box<dyn Job>>,
    alone: &mut Vec<Box<dyn Job>>,
) -> Result<(), StoreError> {
    let wanted: BTreeSet<Uuid> = group.iter().filter_map(|job| job.hints().target).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let rows = wanted.into_iter().map(|id| vec![Val::from(id)]).collect();
    let mut locked = Vec::new();
    for row in conn.query_rows(LOCK_RUNS, rows).await? {
        let mut cols = row.cols();
        locked.push((cols.next::<Uuid>()?, cols.next::<Uuid>()?));
    }
    if let Some(state) = conn.group() {
        locked.into_iter().for_each(|(run_id, node_id)| state.note_locked(run_id, node_id));
        let is_locked = |id: Uuid| state.has_locked(id);
        let (stay, leave) = std::mem::take(group)
            .into_iter()
            .partition(|job| job.hints().target.is_none_or(is_locked));
        (*group, *alone) = (stay, leave);
    }
    Ok(())
}

/// Makes the updates of all workers in the group.
async fn update_runs(conn: &mut Conn, group: &[Box<dyn Job>]) -> Result<(), StoreError> {
    let updates = group.iter().filter_map(|job| {
        let hints = job.hints();
        hints.target.zip(hints.update.clone())
    });
    let (run_ids, rows): (Vec<Uuid>, Vec<Vec<Val>>) = updates.unzip();
    if rows.is_empty() {
        return Ok(());
    }
    if run_ids.iter().collect::<BTreeSet<_>>().len() < run_ids.len() {
        // Two workers, one of which has lost its lease.
        return Err(StoreError::unavailable("two updates of one run in a group"));
    }
    let mut updated = Vec::new();
    for row in conn.query_rows(UPDATE_RUNS, rows).await? {
        let mut cols = row.cols();
        updated.push((cols.next::<Uuid>()?, cols.next::<i64>()?));
    }
    if let Some(state) = conn.group() {
        run_ids.into_iter().for_each(|id| state.note_updated(id, None));
        updated.into_iter().for_each(|(id, wake_seq)| state.note_updated(id, Some(wake_seq)));
    }
    Ok(())
}

/// Writes what the requests of the group put off.
async fn write_pending(conn: &mut Conn) -> Result<(), StoreError> {
    let Some((wakes, pending)) = conn.group().map(GroupState::take_pending) else {
        return Ok(());
    };
    for (statement, mut rows) in pending {
        // Rows that may be there are locked in the order of their keys.
        if statement.tail.contains("DO UPDATE") {
            rows.sort_by_key(|row| match row.first() {
                Some(Val::Id(id)) => *id,
                _ => None,
            });
        }
        conn.query_rows(statement, rows).await?;
    }
    if wakes.is_empty() {
        return Ok(());
    }
    let rows = wakes
        .into_iter()
        .map(|(id, wake)| vec![Val::from(id), Val::from(wake.events), Val::from(wake.now_micros)]);
    conn.query_rows(WAKE_RUNS, rows.collect()).await.map(drop)
}
