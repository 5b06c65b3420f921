//! Claims: who has which slots.
//!
//! A claim is planned with what the store remembers of free slots (`slice_placement`), and made by one
//! statement that takes the planned slots where all of them are still free, of the digest that was
//! approved, and their node is ready; else it changes nothing, and the claim is planned anew. The slots
//! are taken in ascending order. On PostgreSQL the statement passes over locked rows, for a group of
//! writes waits for nobody; a claim that met others too often looks at the whole database and then
//! waits for locks, so nobody hears that there are no slots because somebody else had them locked.
//!
//! `slice_claim_device` has the devices of live claims under its primary key: whatever plans and
//! statements do, the database has no device in two of them.
//!
//! The row of the node is locked in share mode while slots of it are claimed, and what would take a
//! node from under its claims locks the row before it looks for them.

use std::sync::Arc;

use gpuaas_core::placement::PlacementRefusal;
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::claim::{ClaimState, ClaimedSlot, NumaPreference};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::slot::CandidateSlot;
use gpuaas_types::{ClaimId, NodeId, SiteId, Timestamp};
use serde_json::json;

use crate::database::{Conn, GroupHints, RowsStatement, Val, args};
use crate::error::StoreError;
use crate::slice_placement::{PlanGuard, PlannedSlots, SlotDemand};
use crate::store::Store;
use crate::tables::audit::{self, IdempotencyKey, NewAuditEntry};
use crate::tables::slice_claim::{
    SlotClaim, SlotClaimRelease, claim_columns, devices, read_claim, slot_set,
};
use crate::tables::timeline;

/// Plans that a claim makes at most.
const PLANS: usize = 12;
/// Plans after which a claim looks at the whole database and waits for locks.
const HASTY_PLANS: usize = 4;
/// Expired claims that are ended at once.
const EXPIRED_AT_ONCE: i64 = 256;

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

macro_rules! take_slots {
    ($share:literal, $lock:literal) => {
        concat!(
            "WITH host AS (SELECT node.id FROM node \
             JOIN node_gate AS gate ON gate.node_id = node.id \
             JOIN run ON run.id = node.run_id WHERE node.id = $1 AND node.state = 'active' \
             AND gate.gate = 'slice_ready' AND gate.passed \
             AND run.status NOT IN ('running', 'waiting', 'parked') ",
            $share,
            "), target AS (SELECT slot_index, fence FROM slice_slot WHERE node_id = $1 \
             AND state = 'free' AND digest = $2 \
             AND (($3 >> CAST(slot_index AS INTEGER)) & 1) = 1 ORDER BY slot_index ",
            $lock,
            ") UPDATE slice_slot SET state = 'reserved', claim_id = $4, since = $5, reason = $6, \
             fence = (SELECT MAX(target.fence) + 1 FROM target) \
             WHERE node_id = $1 AND slot_index IN (SELECT target.slot_index FROM target) \
             AND (SELECT COUNT(*) FROM target) = $7 AND EXISTS (SELECT 1 FROM host) \
             RETURNING slot, fence"
        )
    };
}

/// A group waits for no row.
const TAKE_UNLOCKED: &str = take_slots!("{SHARE_NODE_SKIP}", "{SKIP}");
const TAKE: &str = take_slots!("{SHARE_NODE}", "{LOCK}");

const PUT_CLAIM: RowsStatement = RowsStatement {
    head: "INSERT INTO slice_claim (id, node_id, owner, state, numa, fence, slots, created_at, \
           expires_at, reason)",
    tail: "",
};
const PUT_DEVICES: RowsStatement = RowsStatement {
    head: "INSERT INTO slice_claim_device (node_id, kind, device, slot_index, claim_id)",
    tail: "",
};
const RETURN_SLOTS: RowsStatement = RowsStatement {
    head: "WITH v (node_id, claim_id, now, reason) AS (",
    tail: ") UPDATE slice_slot SET claim_id = NULL, since = v.now, flagged = NULL, \
           state = CASE WHEN slice_slot.flagged IS NULL THEN 'free' ELSE 'stale' END, \
           reason = COALESCE(slice_slot.flagged, v.reason) FROM v \
           WHERE slice_slot.node_id = v.node_id AND slice_slot.claim_id = v.claim_id",
};
/// By their whole key, so that neither database reads the devices of other claims.
const RETURN_DEVICES: RowsStatement = RowsStatement {
    head: "WITH v (node_id, kind, device, claim_id) AS (",
    tail: ") DELETE FROM slice_claim_device WHERE claim_id IN (SELECT v.claim_id FROM v) \
           AND (node_id, kind, device) IN (SELECT v.node_id, v.kind, v.device FROM v)",
};

/// Takes planned slots and writes the claim; none: they are not all free any more, and nothing was
/// changed.
async fn take(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewSlotClaim,
    planned: &PlannedSlots,
    sql: &'static str,
) -> Result<Option<SlotClaim>, StoreError> {
    let why = format!("claimed by {}", new.owner);
    let values = vec![
        planned.node_id.0.into(),
        (&planned.digest).into(),
        i64::from(planned.slots).into(),
        new.id.0.into(),
        now.into(),
        (&why).into(),
        i64::from(planned.slots.count_ones()).into(),
    ];
    let rows = conn.all(sql, values).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let (mut slots, mut fence) = (Vec::new(), 0);
    for row in rows {
        let mut cols = row.cols();
        let slot: CandidateSlot = cols.json()?;
        fence = cols.next()?;
        slots.push(claimed_slot(slot));
    }
    slots.sort_by_key(|slot| slot.index);
    if let Some(key) = &new.idempotency
        && !audit::insert_response(conn, now, key, &new.id).await?
    {
        let detail = "the first request with this key is not answered yet";
        return Err(StoreError::conflict(ProblemCode::IdempotencyKeyInUse, detail));
    }
    write_claim(conn, now, new, planned.node_id, fence, &slots).await?;
    Ok(Some(SlotClaim {
        id: new.id,
        node_id: planned.node_id,
        hostname: planned.hostname.clone(),
        site: planned.site.clone(),
        owner: new.owner.clone(),
        state: ClaimState::Reserved,
        numa: new.numa,
        fence,
        slots,
        created_at: now,
        expires_at: Some(new.expires_at),
        ended_at: None,
        reason: String::new(),
    }))
}

async fn write_claim(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewSlotClaim,
    node_id: NodeId,
    fence: i64,
    slots: &[ClaimedSlot],
) -> Result<(), StoreError> {
    let claim = vec![
        new.id.0.into(),
        node_id.0.into(),
        (&new.owner).into(),
        ClaimState::Reserved.as_str().into(),
        new.numa.as_str().into(),
        fence.into(),
        Val::json(&slots)?,
        now.into(),
        new.expires_at.into(),
        "".into(),
    ];
    conn.write_rows(PUT_CLAIM, vec![claim]).await?;
    let devices = slots.iter().flat_map(|slot| {
        devices(slot).map(move |(kind, device)| {
            let index = i64::from(slot.index);
            args![node_id.0, kind.as_str(), device, index, new.id.0]
        })
    });
    conn.write_rows(PUT_DEVICES, devices.collect()).await?;
    let NewSlotClaim { id, owner, actor, reason, .. } = new;
    let entry = NewAuditEntry {
        actor: actor.clone(),
        action: "slice.claim".to_owned(),
        subject: node_id.to_string(),
        detail: json!({
            "claim": id, "owner": owner, "slots": indices(slots), "reason": reason,
        }),
    };
    audit::append(conn, now, &entry).await?;
    let text = format!("{owner} claims slots {} as {id}: {reason}", listed(slots));
    let line = line(now, Source::Operator, TimelineCode::SlotsClaimed, text);
    timeline::append(conn, [(node_id, &line)]).await
}

fn claimed_slot(slot: CandidateSlot) -> ClaimedSlot {
    let nvme =
        slot.nvme.map(|drive| if drive.serial.is_empty() { drive.path } else { drive.serial });
    ClaimedSlot {
        index: slot.index,
        gpu: slot.gpu.address,
        fabric_vf: slot.fabric_vf.map(|vf| vf.address),
        nvme,
        numa_node: slot.numa_node,
        cpus: slot.cpus,
        hugepages: slot.hugepages,
        mac: slot.mac,
        private_ip: slot.private_ip,
    }
}

fn indices(slots: &[ClaimedSlot]) -> Vec<u32> {
    slots.iter().map(|slot| slot.index).collect()
}

fn listed(slots: &[ClaimedSlot]) -> String {
    let indices: Vec<String> = slots.iter().map(|slot| slot.index.to_string()).collect();
    indices.join(", ")
}

fn line(at: Timestamp, source: Source, code: TimelineCode, text: String) -> TimelineEvent {
    TimelineEvent { at, run_id: None, step: None, source, code: code.into(), text }
}

/// Ends a claim that is reserved; none: it is not, or has another fence, and nothing was changed.
async fn end_reserved(
    conn: &mut Conn,
    now: Timestamp,
    release: &SlotClaimRelease,
    state: ClaimState,
) -> Result<Option<SlotClaim>, StoreError> {
    const SQL: &str = concat!(
        "UPDATE slice_claim SET state = $3, ended_at = $4, reason = $5 WHERE id = $1 \
         AND state = 'reserved' AND ($2 IS NULL OR fence = $2) \
         AND ($3 <> 'expired' OR expires_at <= $4) RETURNING ",
        claim_columns!()
    );
    let SlotClaimRelease { id, fence, actor, reason } = release;
    let values = args![id.0, *fence, state.as_str(), now, reason];
    let Some(row) = conn.first(SQL, values).await? else { return Ok(None) };
    let claim = read_claim(row.cols())?;
    let SlotClaim { node_id, slots, .. } = &claim;
    let why = format!("claim {id} was {state}: {reason}");
    conn.write_rows(RETURN_SLOTS, vec![args![node_id.0, id.0, now, &why]]).await?;
    let devices = slots.iter().flat_map(devices);
    let devices =
        devices.map(|(kind, device)| args![node_id.0, kind.as_str(), device, id.0]).collect();
    conn.write_rows(RETURN_DEVICES, devices).await?;
    let entry = NewAuditEntry {
        actor: actor.clone(),
        action: "slice.release".to_owned(),
        subject: node_id.to_string(),
        detail: json!({
            "claim": id, "slots": indices(slots), "state": state.as_str(), "reason": reason,
        }),
    };
    audit::append(conn, now, &entry).await?;
    let source = match state {
        ClaimState::Expired => Source::ControlPlane,
        _ => Source::Operator,
    };
    let text = format!("slots {} are free again: {why}", listed(slots));
    let line = line(now, source, TimelineCode::SlotsReturned, text);
    timeline::append(conn, [(*node_id, &line)]).await?;
    Ok(Some(claim))
}

impl Store {
    /// Claims slots of one node: a set that the fabric can join, chosen by best fit.
    ///
    /// # Errors
    /// `slots_contended` where others took what was planned each time; `idempotency_key_reused`,
    /// `idempotency_key_in_use`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case
    /// nothing was claimed, but that of [`StoreError::Unavailable`] is not known.
    pub async fn claim_slots(
        &self,
        now: Timestamp,
        new: NewSlotClaim,
    ) -> Result<ClaimOutcome, StoreError> {
        if let Some(key) = &new.idempotency
            && let Some(id) = self.replayed_response::<ClaimId>(key).await?
        {
            let claim = Box::new(self.slot_claim(id).await?);
            return Ok(ClaimOutcome::Claimed { claim, conflicts: 0 });
        }
        let demand = SlotDemand { gpus: new.gpus, numa: new.numa, site_id: new.site_id };
        let placements = &self.inner.placements;
        let new = Arc::new(new);
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
            let taken = self.take_slots(now, &new, &planned, patient).await;
            plan.taken = matches!(taken, Ok(Some(_)));
            drop(plan);
            if let Some(claim) = taken? {
                return Ok(ClaimOutcome::Claimed { claim: Box::new(claim), conflicts });
            }
            conflicts += 1;
            patient = patient || conflicts >= HASTY_PLANS;
            self.look_at_node(planned.node_id, planned.slots).await?;
        }
        let detail = format!("{conflicts} sets that were planned went to other claims");
        Err(StoreError::conflict(ProblemCode::SlotsContended, detail))
    }

    async fn take_slots(
        &self,
        now: Timestamp,
        new: &Arc<NewSlotClaim>,
        planned: &PlannedSlots,
        patient: bool,
    ) -> Result<Option<SlotClaim>, StoreError> {
        let asked = Arc::new((Arc::clone(new), planned.clone()));
        if patient {
            return self
                .write(move |conn| {
                    Box::pin(async move { take(conn, now, &asked.0, &asked.1, TAKE).await })
                })
                .await;
        }
        self.write_grouped(GroupHints::default(), move |conn| {
            let asked = Arc::clone(&asked);
            Box::pin(async move { take(conn, now, &asked.0, &asked.1, TAKE_UNLOCKED).await })
        })
        .await
    }

    /// Ends a claim that is only reserved: its slots are free again, or stale where a discovery saw
    /// that their host changed meanwhile. One that ended already stays as it is, and what was launched
    /// is for [`Store::begin_slice_release`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `claim_in_use`, `claim_fenced`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
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
        let release = Arc::new(release);
        let ended = self
            .write_grouped(GroupHints::default(), move |conn| {
                let release = Arc::clone(&release);
                Box::pin(async move { end_reserved(conn, now, &release, state).await })
            })
            .await?;
        if let Some(claim) = &ended {
            self.inner.placements.give_back(claim.node_id, slot_set(&claim.slots));
        }
        Ok(ended)
    }

    /// Ends reserved claims whose time is over; answers how many.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn expire_slot_claims(&self, now: Timestamp) -> Result<usize, StoreError> {
        let sql = "SELECT id FROM slice_claim WHERE state = 'reserved' AND expires_at <= $1 \
                   ORDER BY expires_at LIMIT $2";
        let rows = self.reader().await?.all(sql, args![now, EXPIRED_AT_ONCE]).await?;
        let mut count = 0;
        for row in rows {
            let release = SlotClaimRelease {
                id: row.cols().id(ClaimId)?,
                fence: None,
                actor: "gpuaas".to_owned(),
                reason: "nothing launched it in time".to_owned(),
            };
            let ended = self.end_claim(now, release, ClaimState::Expired).await?;
            count += usize::from(ended.is_some());
        }
        Ok(count)
    }
}
