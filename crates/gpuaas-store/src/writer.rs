//! The one writer of an SQLite file, and why it commits in groups.
//!
//! SQLite has one writer at a time, and with `synchronous=FULL` every commit waits for the disk.
//! One transaction per request therefore costs one fsync per request, and requests that arrive
//! meanwhile queue for the file's lock, where each polls and none is woken in order. A control
//! plane must not lose its last commits when the power goes, so `NORMAL` is not an answer.
//!
//! Instead all writes of a process go through one task. It takes what has queued up, at most
//! [`GROUP`] requests, and runs them in one transaction: `BEGIN IMMEDIATE`, for each request a
//! `SAVEPOINT`, one `COMMIT`, and only then the answers. A request alone pays what it always
//! paid; under load the fsync is shared and throughput grows with the queue instead of the queue
//! with the load. Nobody hears "done" before the disk has it.
//!
//! Statements of a request travel to SQLite's thread together where they can ([`crate::together`]).
//!
//! Requests in a group stay strangers:
//! - A request that fails is rolled back to its savepoint; the others are kept. A group of one
//!   needs no savepoint: rolling back the transaction is the same.
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
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use crate::db::Conn;
use crate::error::StoreError;
use crate::together::{BEGIN, Lite};

/// Most requests in one transaction.
pub(crate) const GROUP: usize = 256;
/// Requests that may queue before senders wait.
const QUEUE: usize = 4096;

/// What a request does with the connection.
pub(crate) type Work<T> =
    Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, StoreError>> + Send>;

type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

struct Ran {
    ok: bool,
    answer: Answer,
}

type Job = Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Ran> + Send>;

enum Message {
    Job(Job),
    Close(oneshot::Sender<()>),
}

/// How much was written, since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) transactions: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) largest_group: AtomicU64,
}

impl Written {
    pub(crate) fn note(&self, requests: usize) {
        let requests = u64::try_from(requests).unwrap_or(u64::MAX);
        self.transactions.fetch_add(requests, Ordering::Relaxed);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.largest_group.fetch_max(requests, Ordering::Relaxed);
    }
}

/// Hands requests to the writer task, which lives as long as any clone of this.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Message>,
}

impl Writer {
    /// Starts the task on an open connection.
    pub(crate) fn start(
        options: SqliteConnectOptions,
        connection: SqliteConnection,
        written: Arc<Written>,
    ) -> Self {
        let (queue, inbox) = mpsc::channel(QUEUE);
        let task = Task { options, conn: Conn::Lite(Box::new(Lite::new(connection))), written };
        tokio::spawn(task.run(inbox));
        Self { queue }
    }

    /// Queues `work` and waits until it is committed.
    pub(crate) async fn write<T: Send + 'static>(&self, work: Work<T>) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |conn| {
            Box::pin(async move {
                let result = work(conn).await;
                let ok = result.is_ok();
                let answer: Answer = Box::new(move |committed| {
                    // The caller may have gone away; its write stands all the same.
                    sender.send(result.and_then(|value| committed.map(|()| value))).ok();
                });
                Ran { ok, answer }
            })
        });
        self.queue.send(Message::Job(job)).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
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

struct Task {
    options: SqliteConnectOptions,
    conn: Conn,
    written: Arc<Written>,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(GROUP);
        let mut closing = Vec::new();
        while closing.is_empty() && inbox.recv_many(&mut messages, GROUP).await > 0 {
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
        if let Conn::Lite(lite) = self.conn
            && let Err(error) = lite.connection.close().await
        {
            tracing::warn!(%error, "closing the database file failed");
        }
        for done in closing {
            done.send(()).ok();
        }
    }

    async fn group(&mut self, group: Vec<Job>) {
        let size = group.len();
        let mut answers = Vec::with_capacity(size);
        let kept = self.transact(group, &mut answers).await;
        if kept.is_ok() {
            self.written.note(size);
        } else {
            self.recover().await;
        }
        for (answer, own) in answers {
            answer(kept.clone().and(own));
        }
    }

    /// Runs every job and commits. With its answer each leaves what became of its own last
    /// statements. Jobs not reached after a failure drop their sender, which tells their callers
    /// that the write was not made.
    async fn transact(
        &mut self,
        mut group: Vec<Job>,
        answers: &mut Vec<(Answer, Result<(), StoreError>)>,
    ) -> Result<(), StoreError> {
        if group.len() > 1 {
            return self.transact_several(group, answers).await;
        }
        let Some(job) = group.pop() else { return Ok(()) };
        self.conn.later(BEGIN, Vec::new()).await?;
        if !self.run_job(job, "ROLLBACK", answers).await? || self.conn.take_ended() {
            return Ok(());
        }
        self.end("COMMIT").await
    }

    async fn transact_several(
        &mut self,
        group: Vec<Job>,
        answers: &mut Vec<(Answer, Result<(), StoreError>)>,
    ) -> Result<(), StoreError> {
        const UNDO: &str = "ROLLBACK TO request;RELEASE request";
        self.conn.execute(BEGIN, Vec::new()).await?;
        for job in group {
            self.conn.later("SAVEPOINT request", Vec::new()).await?;
            if self.run_job(job, UNDO, answers).await?
                && let Err(error) = self.end("RELEASE request").await
            {
                if let Some((_, own)) = answers.last_mut() {
                    *own = Err(error);
                }
                self.conn.execute(UNDO, Vec::new()).await?;
            }
        }
        self.end("COMMIT").await
    }

    /// Runs a job, and `undo` if it failed after it had sent anything. Answers whether it worked.
    async fn run_job(
        &mut self,
        job: Job,
        undo: &'static str,
        answers: &mut Vec<(Answer, Result<(), StoreError>)>,
    ) -> Result<bool, StoreError> {
        let before = self.conn.trips();
        let Ran { ok, answer } = job(&mut self.conn).await;
        answers.push((answer, Ok(())));
        if !ok {
            self.conn.forget_waiting();
            if self.conn.trips() > before && !self.conn.take_ended() {
                self.conn.execute(undo, Vec::new()).await?;
            }
        }
        Ok(ok)
    }

    /// Sends what waits, and then `text`.
    async fn end(&mut self, text: &'static str) -> Result<(), StoreError> {
        self.conn.later(text, Vec::new()).await?;
        self.conn.flush().await
    }

    /// Leaves the failed transaction; opens the file anew where even that fails.
    async fn recover(&mut self) {
        self.conn.forget_waiting();
        if self.conn.execute("ROLLBACK", Vec::new()).await.is_ok() {
            return;
        }
        match self.options.connect().await {
            Ok(connection) => self.conn = Conn::Lite(Box::new(Lite::new(connection))),
            Err(error) => tracing::error!(%error, "the database file cannot be opened again"),
        }
    }
}
