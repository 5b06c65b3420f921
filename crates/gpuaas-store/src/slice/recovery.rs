//! An operator's word that a slot may be used again: of one whose release is unproven, or of one that
//! failed.

use async_recursion::async_recursion as boxed;
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::claim::ClaimState;
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::slice::SliceRunStatus;
use gpuaas_types::slot::SlotState;
use gpuaas_types::{AuditAction, ClaimId, NodeId, Timestamp};
use serde_json::json;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Conn, Val, args};
use crate::error::StoreError;
use crate::run::timeline_rows;
use crate::slice::claim_rows;
use crate::slice::launch_rows::{self, StoredSliceRun};
use crate::store::Store;

/// An operator's word that a slot may be used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRecovery {
    /// Node that the slot is of.
    pub node_id: NodeId,
    /// Number of the slot.
    pub index: u32,
    /// Actor who answers for it.
    pub actor: String,
    /// Reason that the actor names.
    pub reason: String,
}

async fn recover(conn: &mut Conn, now: Timestamp, asked: &SlotRecovery) -> Result<(), StoreError> {
    let SlotRecovery { node_id, index, actor, reason } = asked;
    let sql =
        "SELECT state, claim_id FROM slice_slot WHERE node_id = $1 AND slot_index = $2 {LOCK}";
    let row = conn.first(sql, args![node_id.0, i64::from(*index)]).await?;
    let row = row.ok_or_else(|| StoreError::not_found("slot", *index))?;
    let mut cols = row.cols();
    let (state, claim_id): (SlotState, _) = (cols.enum_str()?, cols.opt_id(ClaimId)?);
    match (state, claim_id) {
        (SlotState::Faulted, None) => {}
        (SlotState::CleanupBlocked, Some(claim_id)) => {
            leave_claim(conn, now, asked, claim_id).await?;
        }
        _ => {
            let detail = format!("slot {index} is {state}");
            return Err(StoreError::conflict(ProblemCode::SlotNotRecoverable, detail));
        }
    }
    let sql = "UPDATE slice_slot SET claim_id = NULL, since = $3, \
               state = CASE WHEN flagged IS NULL THEN 'free' ELSE 'stale' END, \
               reason = COALESCE(flagged, $4), flagged = NULL \
               WHERE node_id = $1 AND slot_index = $2";
    let why = format!("recovered by {actor}: {reason}");
    conn.execute(sql, args![node_id.0, i64::from(*index), now, &why]).await?;
    let entry = NewAuditEntry {
        actor: actor.clone(),
        action: AuditAction::SliceRecover,
        subject: node_id.to_string(),
        detail: json!({
            "slot": index, "was": state.as_str(), "claim": claim_id, "reason": reason,
        }),
    };
    audit::append(conn, now, &entry).await?;
    let line = TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::Operator,
        code: TimelineCode::SlotRecovered.into(),
        text: format!("slot {index} was {state} and is usable again: {why}"),
    };
    timeline_rows::append(conn, [(*node_id, &line)]).await
}

/// Takes a slot off its claim, with its devices; the claim ends with its last slot. What is left of a
/// release goes on without the slot: somebody else may have its drive by then.
async fn leave_claim(
    conn: &mut Conn,
    now: Timestamp,
    asked: &SlotRecovery,
    claim_id: ClaimId,
) -> Result<(), StoreError> {
    let stored = launch_rows::read(conn, claim_id).await?;
    let Some(StoredSliceRun { mut claim, mut run, mut spec, revision, .. }) = stored else {
        return Err(StoreError::corrupt("claim", "it was not launched"));
    };
    let reason = format!("slots recovered by {}: {}", asked.actor, asked.reason);
    let is_last = claim.slots.iter().all(|slot| slot.index == asked.index);
    if is_last {
        (run.status, run.reason) = (SliceRunStatus::Failed, reason.clone());
        let states = (ClaimState::Released, SlotState::Free);
        claim_rows::end(conn, now, &claim, states, &reason).await?;
    } else {
        claim.slots.retain(|slot| slot.index != asked.index);
        spec.devices.retain(|devices| devices.slot != asked.index);
        let sql = "UPDATE slice_claim SET slots = $2 WHERE id = $1";
        conn.execute(sql, vec![claim_id.0.into(), Val::json(&claim.slots)?]).await?;
        let sql = "UPDATE slice_run SET spec = $2 WHERE claim_id = $1";
        conn.execute(sql, vec![claim_id.0.into(), Val::json(&spec)?]).await?;
        let sql = "DELETE FROM slice_claim_device \
                   WHERE node_id = $1 AND claim_id = $2 AND slot_index = $3";
        let values = args![claim.node_id.0, claim_id.0, i64::from(asked.index)];
        conn.execute(sql, values).await?;
    }
    if launch_rows::replace(conn, claim_id, revision, &run, now).await? {
        return Ok(());
    }
    let detail = format!("claim {claim_id} has changed in the meantime");
    Err(StoreError::conflict(ProblemCode::ClaimFenced, detail))
}

impl Store {
    /// Frees a slot whose release is unproven, or that failed, at an operator's word.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `slot_not_recoverable`, `claim_fenced`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`]. In each case nothing was changed.
    #[boxed]
    pub async fn recover_slot(
        &self,
        now: Timestamp,
        asked: SlotRecovery,
    ) -> Result<(), StoreError> {
        let (node_id, slot) = (asked.node_id, 1u32.checked_shl(asked.index).unwrap_or(0));
        self.write(move |conn| Box::pin(async move { recover(conn, now, &asked).await })).await?;
        self.inner.placements.give_back(node_id, slot);
        Ok(())
    }
}
