//! Reads of one kind that share statements, on PostgreSQL.
//!
//! A fleet of agents asks for the same few things: what a credential is worth, what a node has to
//! do. While one statement is under way, further questions of its kind queue up, and the next
//! statement answers all of them. Whoever asks is answered by a statement that began after that, as
//! if it had been sent for this question alone.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::pool::PostgresPool;
use crate::database::connection::Conn;
use crate::database::counters::SentCounters;
use crate::error::StoreError;

/// Most questions in one statement.
const MAX_KEYS: usize = 256;

/// Reads what is stored under each key; what is not stored is left out.
pub(crate) type ReadMany<K, V> =
    for<'c> fn(&'c mut Conn, Vec<K>) -> BoxFuture<'c, Result<HashMap<K, V>, StoreError>>;

/// See the module's text.
pub(crate) struct SharedRead<K, V> {
    pool: Arc<PostgresPool>,
    counters: Arc<SentCounters>,
    read: ReadMany<K, V>,
    queue: Arc<Mutex<Queue<K, V>>>,
}

struct Queue<K, V> {
    waiting: Vec<Question<K, V>>,
    reading: bool,
}

struct Question<K, V> {
    key: K,
    answer: oneshot::Sender<Result<Option<V>, StoreError>>,
}

fn lock<K, V>(queue: &Mutex<Queue<K, V>>) -> MutexGuard<'_, Queue<K, V>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V> SharedRead<K, V>
where
    K: Eq + Hash + Clone + Send + 'static,
    V: Clone + Send + 'static,
{
    /// Reads of one kind on a pool.
    pub(crate) fn new(
        pool: &Arc<PostgresPool>,
        counters: &Arc<SentCounters>,
        read: ReadMany<K, V>,
    ) -> Self {
        let queue = Queue { waiting: Vec::new(), reading: false };
        Self {
            pool: Arc::clone(pool),
            counters: Arc::clone(counters),
            read,
            queue: Arc::new(Mutex::new(queue)),
        }
    }

    /// What is stored under `key`.
    ///
    /// # Errors
    /// Those of the statement.
    pub(crate) async fn get(&self, key: K) -> Result<Option<V>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let begin = {
            let mut queue = lock(&self.queue);
            queue.waiting.push(Question { key, answer });
            !std::mem::replace(&mut queue.reading, true)
        };
        if begin {
            // A task of its own: whoever asked may go away.
            let reader = Reader {
                pool: Arc::clone(&self.pool),
                counters: Arc::clone(&self.counters),
                read: self.read,
                queue: Arc::clone(&self.queue),
            };
            tokio::spawn(async move { reader.answer_all().await });
        }
        answered.await.map_err(|_| StoreError::unavailable("the read was abandoned"))?
    }
}

struct Reader<K, V> {
    pool: Arc<PostgresPool>,
    counters: Arc<SentCounters>,
    read: ReadMany<K, V>,
    queue: Arc<Mutex<Queue<K, V>>>,
}

impl<K: Eq + Hash + Clone, V: Clone> Reader<K, V> {
    async fn answer_all(&self) {
        loop {
            let questions = {
                let mut queue = lock(&self.queue);
                let count = queue.waiting.len().min(MAX_KEYS);
                queue.reading = count > 0;
                queue.waiting.drain(..count).collect::<Vec<_>>()
            };
            if questions.is_empty() {
                return;
            }
            let keys = questions.iter().map(|question| question.key.clone()).collect();
            let answers = self.read(keys).await;
            for Question { key, answer } in questions {
                let of_key = answers.as_ref().map(|found| found.get(&key).cloned());
                // Whoever asked may have gone away.
                answer.send(of_key.map_err(Clone::clone)).ok();
            }
        }
    }

    async fn read(&self, keys: HashSet<K>) -> Result<HashMap<K, V>, StoreError> {
        let mut conn = Conn::postgres(self.pool.acquire().await?, &self.counters);
        (self.read)(&mut conn, keys.into_iter().collect()).await
    }
}

impl<K, V> Drop for Reader<K, V> {
    fn drop(&mut self) {
        // After a panic, or with the runtime: those who wait hear of it, and the next one who asks
        // begins anew. Otherwise nobody waits.
        if std::thread::panicking() {
            let mut queue = lock(&self.queue);
            queue.waiting.clear();
            queue.reading = false;
        }
    }
}
