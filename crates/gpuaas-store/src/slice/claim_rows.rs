//! Rows of `slice_claim` and `slice_claim_device`.

use gpuaas_core::placement::SlotSet;
use gpuaas_types::claim::{ClaimDeviceKind, ClaimState, ClaimedSlot, NumaPreference};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::slot::SlotState;
use gpuaas_types::{ClaimId, NodeId, SiteId, Timestamp};

use crate::audit::rows::IdempotencyKey;
use crate::database::{Cols, Conn, args};
use crate::error::StoreError;

/// Name of the sealed user-data of a claim's guest. Neither the run nor a task of it holds the text.
pub(crate) const USER_DATA: &str = "user_data";

/// A claim as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotClaim {
    /// Identifier of the claim.
    pub id: ClaimId,
    /// Node that its slots are of.
    pub node_id: NodeId,
    /// Hostname of the node.
    pub hostname: String,
    /// Name of the node's site.
    pub site: String,
    /// It has the node as a whole.
    pub whole_node: bool,
    /// Who has it.
    pub owner: String,
    /// How it stands.
    pub state: ClaimState,
    /// Requested NUMA placement of its GPUs.
    pub numa: NumaPreference,
    /// Grows with each holder of the claim, and with each claim of one of its slots.
    pub fence: i64,
    /// Its slots, by number.
    pub slots: Vec<ClaimedSlot>,
    /// Moment at which it was made.
    pub created_at: Timestamp,
    /// Moment at which it expires; none: it does not.
    pub expires_at: Option<Timestamp>,
    /// Moment at which it ended; none: it is live.
    pub ended_at: Option<Timestamp>,
    /// Why it ended; empty: it is live.
    pub reason: String,
}

/// The end of a claim that an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotClaimRelease {
    /// Identifier of the claim.
    pub id: ClaimId,
    /// The claim's fencing token; none: whoever holds it.
    pub fence: Option<i64>,
    /// Actor who asks.
    pub actor: String,
    /// Reason that the actor names.
    pub reason: String,
}

/// A claim to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSlotClaim {
    /// Identifier of the claim.
    pub id: ClaimId,
    /// GPUs, all of one node.
    pub gpus: u32,
    /// How near to each other they have to be.
    pub numa: NumaPreference,
    /// Site of the node; none: any.
    pub site_id: Option<SiteId>,
    /// Who has the slots from then on.
    pub owner: String,
    /// Moment at which the claim expires, unless something launched it.
    pub expires_at: Timestamp,
    /// Actor who asks.
    pub actor: String,
    /// Reason that the actor names.
    pub reason: String,
    /// The request may be repeated under this key.
    pub idempotency: Option<IdempotencyKey>,
}

/// Devices of a slot that no other claim may have.
pub(crate) fn devices(slot: &ClaimedSlot) -> impl Iterator<Item = (ClaimDeviceKind, &str)> {
    [
        (ClaimDeviceKind::Gpu, Some(slot.gpu.as_str())),
        (ClaimDeviceKind::FabricVf, slot.fabric_vf.as_deref()),
        (ClaimDeviceKind::Nvme, slot.nvme.as_deref()),
    ]
    .into_iter()
    .filter_map(|(kind, device)| Some((kind, device?)))
}

/// What a statement that changes claims returns of them.
macro_rules! claim_columns {
    () => {
        "id, node_id, (SELECT node.hostname FROM node WHERE node.id = slice_claim.node_id), \
         (SELECT site.name FROM node JOIN site ON site.id = node.site_id \
         WHERE node.id = slice_claim.node_id), whole_node, owner, state, numa, fence, slots, \
         created_at, expires_at, ended_at, reason"
    };
}
pub(crate) use claim_columns;

/// Statement that reads claims, of the claims that `$rest` chooses.
macro_rules! select_claims {
    ($rest:literal) => {
        concat!(
            "SELECT slice_claim.id, slice_claim.node_id, node.hostname, site.name, \
             slice_claim.whole_node, slice_claim.owner, slice_claim.state, slice_claim.numa, slice_claim.fence, \
             slice_claim.slots, slice_claim.created_at, slice_claim.expires_at, \
             slice_claim.ended_at, slice_claim.reason FROM slice_claim \
             JOIN node ON node.id = slice_claim.node_id JOIN site ON site.id = node.site_id ",
            $rest
        )
    };
}
pub(crate) use select_claims;

pub(crate) fn read_claim(mut cols: Cols<'_>) -> Result<SlotClaim, StoreError> {
    Ok(SlotClaim {
        id: cols.id(ClaimId)?,
        node_id: cols.id(NodeId)?,
        hostname: cols.next()?,
        site: cols.next()?,
        whole_node: cols.next()?,
        owner: cols.next()?,
        state: cols.enum_str()?,
        numa: cols.enum_str()?,
        fence: cols.next()?,
        slots: cols.json()?,
        created_at: cols.at()?,
        expires_at: cols.opt_at()?,
        ended_at: cols.opt_at()?,
        reason: cols.next()?,
    })
}

/// Refuses what would take a node from under its claims. The caller has locked the row of the node,
/// so no claim of it is on its way.
pub(crate) async fn refuse_while_claimed(
    conn: &mut Conn,
    node_id: NodeId,
    what: &str,
) -> Result<(), StoreError> {
    // A whole node that is being taken back is cleaned by the very runs that its claim kept away.
    let sql = "SELECT id, owner FROM slice_claim WHERE id IN \
               (SELECT claim_id FROM slice_slot WHERE node_id = $1 AND claim_id IS NOT NULL) \
               OR (state <> 'releasing' AND id IN (SELECT claim_id FROM slice_claim_device \
               WHERE node_id = $1 AND kind = 'node')) ORDER BY id";
    let mut claims = Vec::new();
    for row in conn.all(sql, args![node_id.0]).await? {
        let mut cols = row.cols();
        let (id, owner) = (cols.id(ClaimId)?, cols.next::<String>()?);
        claims.push(format!("{id} of {owner}"));
    }
    if claims.is_empty() {
        return Ok(());
    }
    let detail = format!("the {what} would end claims of the node: {}", claims.join(", "));
    Err(StoreError::conflict(ProblemCode::NodeHasClaims, detail))
}

/// Ends the claims of a node whose system is gone. A whole node that is being taken back keeps its
/// claim: the run that released the system has not ended yet.
pub(crate) async fn lose(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
) -> Result<(), StoreError> {
    conn.execute(
        "UPDATE slice_claim SET state = 'lost', ended_at = $2, \
         reason = 'the system of the node was released' WHERE ended_at IS NULL AND (id IN \
         (SELECT claim_id FROM slice_slot WHERE node_id = $1 AND claim_id IS NOT NULL) \
         OR (state <> 'releasing' AND id IN (SELECT claim_id FROM slice_claim_device \
         WHERE node_id = $1 AND kind = 'node')))",
        args![node_id.0, now],
    )
    .await?;
    let sql = "DELETE FROM slice_claim_device WHERE node_id = $1 AND claim_id IN \
               (SELECT slice_claim.id FROM slice_claim WHERE slice_claim.node_id = $1 \
               AND slice_claim.ended_at IS NOT NULL)";
    conn.execute(sql, args![node_id.0]).await?;
    let sql = "DELETE FROM secret WHERE name = $2 AND owner IN (SELECT slice_claim.id FROM slice_claim \
               WHERE slice_claim.node_id = $1 AND slice_claim.ended_at IS NOT NULL)";
    conn.execute(sql, args![node_id.0, USER_DATA]).await.map(drop)
}

/// Sets how a live claim stands, and its slots with it.
pub(crate) async fn set_states(
    conn: &mut Conn,
    now: Timestamp,
    claim: &SlotClaim,
    (claim_state, slot_state): (ClaimState, SlotState),
    reason: &str,
) -> Result<(), StoreError> {
    let sql = "UPDATE slice_claim SET state = $2, expires_at = NULL \
               WHERE id = $1 AND ended_at IS NULL";
    conn.execute(sql, args![claim.id.0, claim_state.as_str()]).await?;
    let sql = "UPDATE slice_slot SET state = $3, since = $4, reason = $5 \
               WHERE node_id = $1 AND claim_id = $2";
    let values = args![claim.node_id.0, claim.id.0, slot_state.as_str(), now, reason];
    conn.execute(sql, values).await.map(drop)
}

/// Ends a live claim. Its slots are as `slot_state` says; one that would be free is stale where its host
/// is no longer what was approved.
pub(crate) async fn end(
    conn: &mut Conn,
    now: Timestamp,
    claim: &SlotClaim,
    (claim_state, slot_state): (ClaimState, SlotState),
    reason: &str,
) -> Result<(), StoreError> {
    let sql = "UPDATE slice_claim SET state = $2, ended_at = $3, reason = $4 \
               WHERE id = $1 AND ended_at IS NULL";
    conn.execute(sql, args![claim.id.0, claim_state.as_str(), now, reason]).await?;
    let free = "UPDATE slice_slot SET claim_id = NULL, since = $3, \
                state = CASE WHEN flagged IS NULL THEN 'free' ELSE 'stale' END, \
                reason = COALESCE(flagged, $4), flagged = NULL \
                WHERE node_id = $1 AND claim_id = $2";
    let faulted = "UPDATE slice_slot SET claim_id = NULL, since = $3, state = 'faulted', \
                   reason = $4 WHERE node_id = $1 AND claim_id = $2";
    let sql = if slot_state == SlotState::Free { free } else { faulted };
    conn.execute(sql, args![claim.node_id.0, claim.id.0, now, reason]).await?;
    let sql = "DELETE FROM slice_claim_device WHERE node_id = $1 AND claim_id = $2";
    conn.execute(sql, args![claim.node_id.0, claim.id.0]).await.map(drop)
}

/// A claim, as a transaction sees it.
pub(crate) async fn read_one(conn: &mut Conn, id: ClaimId) -> Result<SlotClaim, StoreError> {
    let row = conn.first(select_claims!("WHERE slice_claim.id = $1"), args![id.0]).await?;
    read_claim(row.ok_or_else(|| StoreError::not_found("claim", id))?.cols())
}

/// The slots as a set.
pub(crate) fn slot_set(slots: &[ClaimedSlot]) -> SlotSet {
    slots.iter().fold(0, |set, slot| set | 1u32.checked_shl(slot.index).unwrap_or(0))
}
