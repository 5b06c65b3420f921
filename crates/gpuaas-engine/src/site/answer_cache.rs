//! Answers that many runs share: the first one asks, the others wait for its answer.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_types::Timestamp;
use tokio::sync::Mutex;

use crate::clock::Clock;

/// Seconds for which an answer about a site is good.
pub(crate) const ANSWER_SECONDS: f64 = 60.0;

/// One answer. It is locked while somebody asks for it, so it is asked for once.
#[derive(Debug)]
pub(crate) struct CachedAnswer<T>(Mutex<Option<(Timestamp, Arc<T>)>>);

impl<T> Default for CachedAnswer<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> CachedAnswer<T> {
    /// The kept answer where `is_fresh` says so of its time and value, else what `ask` brings.
    ///
    /// # Errors
    /// Those of `ask`; the answer before is kept then.
    pub(crate) async fn get_or_ask<E, F>(
        &self,
        clock: &dyn Clock,
        is_fresh: impl Fn(Timestamp, &T) -> bool,
        ask: impl FnOnce() -> F,
    ) -> Result<Arc<T>, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut kept = self.0.lock().await;
        if let Some((at, value)) = kept.as_ref()
            && is_fresh(*at, value)
        {
            return Ok(Arc::clone(value));
        }
        let asked_at = clock.now();
        let value = Arc::new(ask().await?);
        *kept = Some((asked_at, Arc::clone(&value)));
        Ok(value)
    }

    /// Keeps an answer that somebody got in another way; asked for at `asked_at`.
    pub(crate) async fn replace_older(&self, asked_at: Timestamp, value: T) {
        let mut kept = self.0.lock().await;
        if kept.as_ref().is_none_or(|(at, _)| *at < asked_at) {
            *kept = Some((asked_at, Arc::new(value)));
        }
    }

    /// Drops the answer, so that the next one who needs it asks.
    pub(crate) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

/// Answers by name. Each is locked for itself, so one that takes long holds up no other.
#[derive(Debug)]
pub(crate) struct KeyedAnswers<T>(Mutex<HashMap<String, Arc<CachedAnswer<T>>>>);

impl<T> Default for KeyedAnswers<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> KeyedAnswers<T> {
    /// The answer of this name.
    pub(crate) async fn of_key(&self, key: &str) -> Arc<CachedAnswer<T>> {
        let mut answers = self.0.lock().await;
        Arc::clone(answers.entry(key.to_owned()).or_default())
    }
}
