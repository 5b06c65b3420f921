//! Claims: who has which slots.
//!
//! A claim is planned with what the store remembers of free slots (`placement`), and made by one
//! statement that takes the planned slots where all of them are still free, of the digest that was
//! approved, and their node is ready; else it changes nothing, and the claim is planned anew. The slots
//! are taken in ascending order. Claims and releases that come at the same time are made together
//! (`claim_group`). On PostgreSQL their statement passes over locked rows, for a group of writes
//! waits for nobody; a claim that met others too often looks at the whole database and then waits for
//! locks, alone, so nobody hears that there are no slots because somebody else had them locked.
//!
//! `slice_claim_device` has the devices of live claims under its primary key: whatever plans and
//! statements do, the database has no device in two of them.
//!
//! The row of the node is locked in share mode while slots of it are claimed, and what would take a
//! node from under its claims locks the row before it looks for them.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use futures::future::try_join_all;
use gpuaas_core::placement::PlacementRefusal;
use gpuaas_types::claim::ClaimState;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{ClaimId, Timestamp};

use crate::database::args;
use crate::error::StoreError;
use crate::slice::claim_queue::ClaimWork;
use crate::slice::claim_rows::{NewSlotClaim, SlotClaim, SlotClaimRelease, slot_set};
use crate::slice::placement::{PlanGuard, SlotDemand};
use crate::store::Store;

/// Plans that a claim makes at most.
const PLANS: usize = 12;
/// Plans after which a claim looks at the whole database and waits for locks.
const HASTY_PLANS: usize = 4;
/// Expired claims that are ended at once.
const EXPIRED_AT_ONCE: i64 = 256;

/// What became of a request for a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimOutcome {
    /// It was made, or had been made by an earlier request with the same key.
    Claimed {
        /// The claim.
        claim: Box<SlotClaim>,
        /// Plans whose slots were gone.
        conflicts: usize,
    },
    /// There are no slots for it.
    Refused(PlacementRefusal),
}

impl Store {
    /// Claims slots of one node: a set that the fabric can join, chosen by best fit.
    ///
    /// # Errors
    /// `slots_contended` where others took what was planned each time; `idempotency_key_reused`,
    /// `idempotency_key_in_use`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case
    /// nothing was claimed, but that of [`StoreError::Unavailable`] is not known.
    #[boxed]
    pub async fn claim_slots(
        &self,
        now: Timestamp,
        new: NewSlotClaim,
    ) -> Result<ClaimOutcome, StoreError> {
        let key = new.idempotency.clone();
        let placed = self.place_claim(now, Arc::new(new)).await;
        let Some(key) = key else { return placed };
        match &placed {
            Ok(ClaimOutcome::Claimed { .. }) | Err(StoreError::Unavailable { .. }) => placed,
            // What this request is refused may be what an earlier one with its key was given.
            _ => match self.replayed_response::<ClaimId>(&key).await? {
                Some(id) => {
                    let claim = Box::new(self.slot_claim(id).await?);
                    Ok(ClaimOutcome::Claimed { claim, conflicts: 0 })
                }
                None => placed,
            },
        }
    }

    async fn place_claim(
        &self,
        now: Timestamp,
        new: Arc<NewSlotClaim>,
    ) -> Result<ClaimOutcome, StoreError> {
        let demand = SlotDemand { gpus: new.gpus, numa: new.numa, site_id: new.site_id };
        let placements = &self.inner.placements;
        let mut conflicts = 0;
        let mut patient = false;
        for _ in 0..PLANS {
            let planned = if patient {
                self.expire_slot_claims(now).await?;
                self.look_at_slots(now, true).await?;
                match placements.plan_again(new.id, demand) {
                    Ok(planned) => planned,
                    Err(refusal) => return Ok(ClaimOutcome::Refused(refusal)),
                }
            } else {
                if placements.is_old(now) {
                    self.look_at_slots(now, false).await?;
                }
                match placements.plan(new.id, demand) {
                    Some(planned) => planned,
                    None => {
                        patient = true;
                        continue;
                    }
                }
            };
            let mut plan = PlanGuard::new(placements, new.id);
            let work = ClaimWork::Take(Arc::clone(&new), planned.clone());
            let taken = self.make_claim_request(now, work, patient).await;
            plan.taken = matches!(taken, Ok(Some(_)));
            drop(plan);
            if let Some(claim) = taken? {
                return Ok(ClaimOutcome::Claimed { claim: Box::new(claim), conflicts });
            }
            conflicts += 1;
            patient = patient || conflicts >= HASTY_PLANS;
            self.look_at_node(planned.node_id, planned.slots).await?;
        }
        let detail = format!("other claims took the planned slots {conflicts} times");
        Err(StoreError::conflict(ProblemCode::SlotsContended, detail))
    }

    /// Ends a claim that is only reserved: its slots are free again, or stale where a discovery saw
    /// that their host changed meanwhile. One that ended already stays as it is, and what was launched
    /// is for [`Store::begin_slice_release`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `claim_in_use`, `claim_fenced`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn release_slot_claim(
        &self,
        now: Timestamp,
        release: SlotClaimRelease,
    ) -> Result<SlotClaim, StoreError> {
        let id = release.id;
        let fence = release.fence;
        if let Some(claim) = self.end_claim(now, release, ClaimState::Released).await? {
            return Ok(claim);
        }
        let claim = self.slot_claim(id).await?;
        let refused = |code, detail: String| Err(StoreError::conflict(code, detail));
        let is_own = fence.is_none_or(|fence| fence == claim.fence);
        match claim.state {
            state if !state.is_live() => Ok(claim),
            _ if !is_own => {
                let detail = format!("claim {id} has the fencing token {}", claim.fence);
                refused(ProblemCode::ClaimFenced, detail)
            }
            state => refused(ProblemCode::ClaimInUse, format!("claim {id} is {state}")),
        }
    }

    async fn end_claim(
        &self,
        now: Timestamp,
        release: SlotClaimRelease,
        state: ClaimState,
    ) -> Result<Option<SlotClaim>, StoreError> {
        let work = ClaimWork::End(release, state);
        let ended = self.make_claim_request(now, work, false).await?;
        if let Some(claim) = &ended {
            self.inner.placements.give_back(claim.node_id, slot_set(&claim.slots));
        }
        Ok(ended)
    }

    /// Ends reserved claims whose time is over; answers how many.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn expire_slot_claims(&self, now: Timestamp) -> Result<usize, StoreError> {
        let sql = "SELECT id FROM slice_claim WHERE state = 'reserved' AND expires_at <= $1 \
                   ORDER BY expires_at LIMIT $2";
        let rows = self.reader().await?.all(sql, args![now, EXPIRED_AT_ONCE]).await?;
        let ids: Vec<ClaimId> =
            rows.iter().map(|row| row.cols().id(ClaimId)).collect::<Result<_, _>>()?;
        let ends = ids.into_iter().map(|id| {
            let release = SlotClaimRelease {
                id,
                fence: None,
                actor: "gpuaas".to_owned(),
                reason: "it was not launched in time".to_owned(),
            };
            self.end_claim(now, release, ClaimState::Expired)
        });
        let ended = try_join_all(ends).await?;
        Ok(ended.iter().flatten().count())
    }
}
