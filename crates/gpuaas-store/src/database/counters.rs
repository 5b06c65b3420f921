//! What was sent to the database since the store was opened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts of one opened store. Each count is of what was sent, whether or not it was taken.
#[derive(Debug, Default)]
pub(crate) struct SentCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) largest_group: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) statements: AtomicU64,
    texts: Mutex<Texts>,
}

type Texts = Option<BTreeMap<String, u64>>;

impl SentCounters {
    /// Notes the commit of a group of requests.
    pub(crate) fn note_commit(&self, requests: usize) {
        let requests = u64::try_from(requests).unwrap_or(u64::MAX);
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.largest_group.fetch_max(requests, Ordering::Relaxed);
    }

    /// Notes that a request whose commit is noted was several.
    pub(crate) fn note_gathered(&self, requests: usize) {
        let requests = u64::try_from(requests).unwrap_or(u64::MAX);
        self.requests.fetch_add(requests.saturating_sub(1), Ordering::Relaxed);
        self.largest_group.fetch_max(requests, Ordering::Relaxed);
    }

    /// Notes a statement that is about to be sent; `begins`: it begins a transaction, or is one.
    pub(crate) fn note_statement(&self, text: &str, begins: bool) {
        self.statements.fetch_add(1, Ordering::Relaxed);
        if begins {
            self.transactions.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(texts) = self.lock_texts().as_mut() {
            *texts.entry(text.to_owned()).or_default() += 1;
        }
    }

    /// Counts statements by their texts, too, from now on.
    pub(crate) fn count_texts(&self) {
        self.lock_texts().get_or_insert_default();
    }

    /// Statements by their texts since [`Self::count_texts`]; empty before.
    pub(crate) fn texts(&self) -> BTreeMap<String, u64> {
        self.lock_texts().clone().unwrap_or_default()
    }

    fn lock_texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
