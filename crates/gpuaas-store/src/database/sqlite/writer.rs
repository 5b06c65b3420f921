//! The one writer of an SQLite file, and why it commits in groups.
//!
//! SQLite has one writer at a time, and with `synchronous=FULL` every commit waits for the disk.
//! One transaction per request therefore costs one fsync per request, and requests that arrive
//! meanwhile queue for the file's lock, where each polls and none is woken in order. A control
//! plane must not lose its last commits when the power goes, so `NORMAL` is not an answer.
//!
//! Instead all writes of a process go through one writer. It takes what has queued up, at most
//! [`MAX_GROUP`] requests, and runs them in one transaction: `BEGIN IMMEDIATE`, for each request a
//! `SAVEPOINT`, one `COMMIT`, and only then the answers. A request alone pays what it always
//! paid; under load the fsync is shared and throughput grows with the queue instead of the queue
//! with the load. Nobody hears "done" before the disk has it.
//!
//! Because a commit waits for the disk, the writer has a thread of its own. In memory it waits for
//! nothing, so it is a task beside its callers.
//!
//! Requests in a group stay strangers:
//! - A request that fails is rolled back to its savepoint; the others are kept. A group of one
//!   needs no savepoint: rolling back the transaction is the same.
//! - A request that panics is one that failed; its caller gets [`StoreError::Panicked`].
//! - Each sees what those before it wrote, as it would have in a transaction of its own.
//! - If SQLite gives up the whole transaction (disk full, I/O error) or the commit fails, nobody
//!   was kept, and everyone in the group hears `database_unavailable`.
//!
//! `IMMEDIATE` because a transaction that first reads and then wants to write fails at once when
//! another process wrote in between, whatever the busy timeout.
//!
//! What breaks if this changes: with two writers in one process the order of the queue is lost
//! and `SQLITE_BUSY` appears; answering before `COMMIT` makes a crash lose a lease that a worker
//! believes it has.

use std::sync::Arc;
use std::thread;

use futures::executor::block_on;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::connection::{SqliteLocation, WriterConnection};
use crate::database::connection::{CommitHook, Conn};
use crate::database::counters::SentCounters;
use crate::database::origin::RequestOrigin;
use crate::database::panic::catch_panic;
use crate::error::StoreError;

/// Most requests in one transaction.
pub(crate) const MAX_GROUP: usize = 256;
/// Requests that may queue before senders wait.
const QUEUE_CAPACITY: usize = 4096;

/// What a request does with the connection.
pub(crate) type WriteFn<T> =
    Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, StoreError>> + Send>;

type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

struct JobResult {
    ok: bool,
    reply: Reply,
}

type Job = Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, JobResult> + Send>;

enum Message {
    Job(Job),
    Close(oneshot::Sender<()>),
}

/// Hands requests to the writer, which lives as long as any clone of this.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Message>,
}

impl Writer {
    /// Starts it on an open connection.
    ///
    /// # Errors
    /// `database_unavailable` when there is no room for a thread.
    pub(crate) fn start(
        location: SqliteLocation,
        connection: WriterConnection,
        counters: Arc<SentCounters>,
    ) -> Result<Self, StoreError> {
        let (queue, inbox) = mpsc::channel(QUEUE_CAPACITY);
        let in_memory = location == SqliteLocation::Memory;
        let running = WriterTask { location, connection, counters }.run(inbox);
        if in_memory {
            tokio::spawn(running);
        } else {
            let thread = thread::Builder::new().name("gpuaas-writer".to_owned());
            thread.spawn(move || block_on(running)).map_err(StoreError::unavailable)?;
        }
        Ok(Self { queue })
    }

    /// Queues `write`, which a request of this `origin` makes, and waits until it is committed.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        origin: RequestOrigin,
        write: WriteFn<T>,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |conn| {
            Box::pin(async move {
                conn.set_origin(origin);
                let result = catch_panic(async move { write(conn).await }).await;
                let ok = result.is_ok();
                let reply: Reply = Box::new(move |committed| {
                    // The caller may have gone away; its write stands all the same.
                    sender.send(result.and_then(|value| committed.map(|()| value))).ok();
                });
                JobResult { ok, reply }
            })
        });
        self.queue.send(Message::Job(job)).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }

    /// Returns when nothing can be queued any more: the writer was closed, or it has ended.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }

    /// Waits until everything queued so far is written and the file is closed.
    pub(crate) async fn close(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.queue.send(Message::Close(sender)).await.is_ok() {
            receiver.await.ok();
        }
    }
}

fn stopped() -> StoreError {
    StoreError::unavailable("the store is closed")
}

struct WriterTask {
    location: SqliteLocation,
    connection: WriterConnection,
    counters: Arc<SentCounters>,
}

impl WriterTask {
    async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(MAX_GROUP);
        let mut closing = Vec::new();
        while closing.is_empty() && inbox.recv_many(&mut messages, MAX_GROUP).await > 0 {
            let mut group = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                match message {
                    Message::Job(job) => group.push(job),
                    Message::Close(done) => closing.push(done),
                }
            }
            if !group.is_empty() {
                self.group(group).await;
            }
        }
        drop(self.connection);
        for done in closing {
            done.send(()).ok();
        }
    }

    async fn group(&mut self, group: Vec<Job>) {
        let size = group.len();
        let mut replies = Vec::with_capacity(size);
        let connection = Arc::clone(&self.connection).lock_owned().await;
        let mut conn = Conn::sqlite_writer(connection, &self.counters);
        let kept = transact(&mut conn, group, &mut replies).await;
        if kept.is_ok() {
            self.counters.note_commit(size);
        } else {
            self.recover(&mut conn).await;
        }
        drop(conn);
        for reply in replies {
            reply(kept.clone());
        }
    }

    /// Leaves the failed transaction; opens a file anew where even that fails.
    async fn recover(&self, conn: &mut Conn) {
        if !conn.in_transaction() || exec(conn, "ROLLBACK").await.is_ok() {
            return;
        }
        let (Some(connection), SqliteLocation::File(_)) = (conn.sqlite_mut(), &self.location)
        else {
            return;
        };
        match self.location.open() {
            Ok(opened) => *connection = opened,
            Err(error) => tracing::error!(%error, "cannot reopen the database file"),
        }
    }
}

/// Runs every job and commits. Jobs not reached after a failure drop their sender, which tells
/// their callers that the write was not made.
async fn transact(
    conn: &mut Conn,
    group: Vec<Job>,
    replies: &mut Vec<Reply>,
) -> Result<(), StoreError> {
    let several = group.len() > 1;
    exec(conn, "BEGIN IMMEDIATE").await?;
    for job in group {
        if several {
            exec(conn, "SAVEPOINT request").await?;
        }
        let JobResult { ok, reply } = job(conn).await;
        replies.push(reply);
        match (several, ok) {
            (false, false) => return exec(conn, "ROLLBACK").await,
            (false, true) => {}
            (true, true) => exec(conn, "RELEASE request").await?,
            (true, false) => {
                exec(conn, "ROLLBACK TO request").await?;
                exec(conn, "RELEASE request").await?;
            }
        }
    }
    if let Some(hook) = conn.take_commit_hook() {
        call_hook(conn, hook).await?;
    }
    exec(conn, "COMMIT").await
}

/// What a hook cannot do is not done, and takes no request with it.
async fn call_hook(conn: &mut Conn, hook: CommitHook) -> Result<(), StoreError> {
    exec(conn, "SAVEPOINT hook").await?;
    if let Err(error) = catch_panic(async { hook(conn).await }).await {
        tracing::error!(%error, "a pre-commit hook failed");
        exec(conn, "ROLLBACK TO hook").await?;
    }
    exec(conn, "RELEASE hook").await
}

async fn exec(conn: &mut Conn, text: &'static str) -> Result<(), StoreError> {
    conn.execute(text, Vec::new()).await.map(drop)
}
