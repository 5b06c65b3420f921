//! Requests for claims and releases that wait to be made together (`claim_group`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuaas_types::Timestamp;
use gpuaas_types::claim::ClaimState;
use tokio::sync::oneshot;

use crate::database::RequestOrigin;
use crate::error::StoreError;
use crate::slice::claim_rows::{NewSlotClaim, SlotClaim, SlotClaimRelease};
use crate::slice::placement::PlannedSlots;

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) enum ClaimWork {
    /// Takes slots that were planned, where all of them are still free.
    Take(Arc<NewSlotClaim>, PlannedSlots),
    /// Ends a claim that is reserved.
    End(SlotClaimRelease, ClaimState),
}

/// A request with what its writes say of it.
#[derive(Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) now: Timestamp,
    pub(crate) origin: RequestOrigin,
    pub(crate) work: ClaimWork,
}

/// The claim that was made or ended; none: the slots are not all free any more, or the claim is not
/// reserved, or has another fencing token, and nothing was changed.
pub(crate) type ClaimAnswer = Option<SlotClaim>;

/// Somebody who waits for an answer.
pub(crate) struct ClaimWaiter {
    pub(crate) request: Arc<ClaimRequest>,
    pub(crate) answer: oneshot::Sender<Result<ClaimAnswer, StoreError>>,
}

#[derive(Default)]
struct Waiting {
    waiters: Vec<ClaimWaiter>,
    /// A transaction was asked for that has not taken them yet.
    has_asked: bool,
}

/// Requests that wait for a group.
#[derive(Default)]
pub(crate) struct ClaimQueue {
    waiting: Mutex<Waiting>,
    /// Held by a group from its begin to its commit, on PostgreSQL.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl ClaimQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request; answers whether a transaction has to be asked for.
    pub(crate) fn push(&self, waiter: ClaimWaiter) -> bool {
        let mut waiting = self.lock();
        waiting.waiters.push(waiter);
        !std::mem::replace(&mut waiting.has_asked, true)
    }

    /// Takes all that wait.
    pub(crate) fn take(&self) -> Vec<ClaimWaiter> {
        let mut waiting = self.lock();
        waiting.has_asked = false;
        std::mem::take(&mut waiting.waiters)
    }
}
