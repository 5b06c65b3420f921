//! Slots of nodes: candidates that a discovery brings, and what operators approved of them.
//!
//! A row per slot. That of a candidate follows the node's last map; that of an approved slot keeps
//! what the approval pinned, so a host that changes makes a free slot stale and never another one.

use async_recursion::async_recursion as boxed;
use std::collections::{BTreeMap, HashMap};

use gpuaas_core::slots::{approvable, stale_reason};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::slot::{CandidateSlot, SlotMap, SlotState};
use gpuaas_types::{AuditAction, ClaimId, NodeId, SiteId, Timestamp};
use serde_json::json;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::list_filter::with_filter;
use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::run::timeline_rows;
use crate::slice::topology_rows::{lock_node, read};
use crate::store::Store;

/// An operator's word that slots of a map may be leased.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSlotApproval {
    /// Node that the slots are of.
    pub node_id: NodeId,
    /// Digest of the map that the operator saw.
    pub digest: String,
    /// Numbers of the slots; none: each that has no blocker.
    pub slots: Vec<u32>,
    /// Actor who approves.
    pub actor: String,
    /// Reason that the actor names.
    pub reason: String,
}

/// A slot as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSlot {
    /// Node that the slot is of.
    pub node_id: NodeId,
    /// Hostname of the node.
    pub hostname: String,
    /// Name of the node's site.
    pub site: String,
    /// How it stands.
    pub state: SlotState,
    /// Digest of the map that it is of; of an approved slot, that which was approved.
    pub digest: String,
    /// Its devices.
    pub slot: CandidateSlot,
    /// In this state since then.
    pub since: Timestamp,
    /// Why it is in this state.
    pub reason: String,
    /// Who approved it; none: nobody.
    pub approved_by: Option<String>,
    /// The live claim that has it; none: none.
    pub claim_id: Option<ClaimId>,
    /// Why it is not free when its claim ends; none: nothing is wrong with it.
    pub flagged: Option<String>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT slice_slot.node_id, node.hostname, site.name, slice_slot.state, \
             slice_slot.digest, slice_slot.slot, slice_slot.since, slice_slot.reason, \
             slice_slot.approved_by, slice_slot.claim_id, slice_slot.flagged FROM slice_slot JOIN node ON node.id = slice_slot.node_id \
             JOIN site ON site.id = node.site_id ",
            $rest
        )
    };
}

fn read_slot(mut cols: Cols<'_>) -> Result<StoredSlot, StoreError> {
    Ok(StoredSlot {
        node_id: cols.id(NodeId)?,
        hostname: cols.next()?,
        site: cols.next()?,
        state: cols.enum_str()?,
        digest: cols.next()?,
        slot: cols.json()?,
        since: cols.at()?,
        reason: cols.next()?,
        approved_by: cols.next()?,
        claim_id: cols.opt_id(ClaimId)?,
        flagged: cols.next()?,
    })
}

async fn slots_of(
    conn: &mut Conn,
    node_id: NodeId,
) -> Result<BTreeMap<u32, StoredSlot>, StoreError> {
    let sql = select!("WHERE slice_slot.node_id = $1");
    let mut slots = BTreeMap::new();
    for row in conn.all(sql, args![node_id.0]).await? {
        let slot = read_slot(row.cols())?;
        slots.insert(slot.slot.index, slot);
    }
    Ok(slots)
}

/// A slot with its new state.
struct SlotWrite<'a> {
    slot: &'a CandidateSlot,
    state: SlotState,
    digest: &'a str,
    reason: &'a str,
    approved_by: Option<&'a str>,
}

async fn write_slot(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    write: SlotWrite<'_>,
) -> Result<(), StoreError> {
    conn.execute(
        "INSERT INTO slice_slot \
         (node_id, slot_index, state, digest, slot, since, reason, approved_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
         ON CONFLICT (node_id, slot_index) DO UPDATE SET state = excluded.state, \
         digest = excluded.digest, slot = excluded.slot, since = excluded.since, \
         reason = excluded.reason, approved_by = excluded.approved_by",
        vec![
            node_id.0.into(),
            i64::from(write.slot.index).into(),
            write.state.as_str().into(),
            write.digest.into(),
            Val::json(write.slot)?,
            now.into(),
            write.reason.into(),
            write.approved_by.into(),
        ],
    )
    .await
    .map(drop)
}

/// Brings the slots of a node in line with its new map, under the lock of the node.
pub(crate) async fn follow_map(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    map: &SlotMap,
) -> Result<(), StoreError> {
    let known = slots_of(conn, node_id).await?;
    for slot in &map.slots {
        if known.get(&slot.index).is_none_or(|known| known.state == SlotState::Candidate) {
            let write = SlotWrite {
                slot,
                state: SlotState::Candidate,
                digest: &map.digest,
                reason: "discovered",
                approved_by: None,
            };
            write_slot(conn, now, node_id, write).await?;
        }
    }
    let mut stale = BTreeMap::<String, Vec<String>>::new();
    for (index, known) in &known {
        let is_gone = map.slots.iter().all(|slot| slot.index != *index);
        match known.state {
            SlotState::Candidate | SlotState::Stale if is_gone => {
                let sql = "DELETE FROM slice_slot WHERE node_id = $1 AND slot_index = $2";
                conn.execute(sql, args![node_id.0, i64::from(*index)]).await?;
            }
            state if state.is_claimed() => {
                let reason = stale_reason(map, *index, &known.digest);
                let sql = "UPDATE slice_slot SET flagged = $3 \
                           WHERE node_id = $1 AND slot_index = $2";
                let values = args![node_id.0, i64::from(*index), reason.as_deref()];
                conn.execute(sql, values).await?;
            }
            SlotState::Free => {
                let Some(reason) = stale_reason(map, *index, &known.digest) else { continue };
                let write = SlotWrite {
                    slot: &known.slot,
                    state: SlotState::Stale,
                    digest: &known.digest,
                    reason: &reason,
                    approved_by: known.approved_by.as_deref(),
                };
                write_slot(conn, now, node_id, write).await?;
                stale.entry(reason).or_default().push(index.to_string());
            }
            _ => {}
        }
    }
    for (reason, slots) in stale {
        let text = format!("slots {} can no longer be leased: {reason}", slots.join(", "));
        let line = line(now, Source::Agent, TimelineCode::SlotsStale, text);
        timeline_rows::append(conn, [(node_id, &line)]).await?;
    }
    Ok(())
}

fn line(at: Timestamp, source: Source, code: TimelineCode, text: String) -> TimelineEvent {
    TimelineEvent { at, run_id: None, step: None, source, code: code.into(), text }
}

async fn approve(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewSlotApproval,
) -> Result<Vec<StoredSlot>, StoreError> {
    let NewSlotApproval { node_id, digest, slots, actor, reason } = new;
    lock_node(conn, *node_id).await?;
    let refused = |code, detail: String| Err(StoreError::conflict(code, detail));
    let Some(map) = read(conn, *node_id).await?.map(|topology| topology.map) else {
        return refused(ProblemCode::SlotMapMissing, "the node has no discovered slots".to_owned());
    };
    if map.digest != *digest {
        let detail = format!("the slot map of {} changed: its digest is {}", map.node, map.digest);
        return refused(ProblemCode::SlotMapChanged, detail);
    }
    let chosen = match approvable(&map, slots) {
        Ok(chosen) => chosen,
        Err(fault) => return refused(ProblemCode::SlotBlocked, fault.to_string()),
    };
    let known = slots_of(conn, *node_id).await?;
    let mut approved = Vec::new();
    let mut overridden = Vec::new();
    for slot in chosen {
        match known.get(&slot.index).map(|known| known.state) {
            None | Some(SlotState::Candidate | SlotState::Free | SlotState::Stale) => {}
            Some(state) if slots.contains(&slot.index) => {
                let detail = format!("slot {} is {state}", slot.index);
                return refused(ProblemCode::SlotBlocked, detail);
            }
            Some(_) => continue,
        }
        let write =
            SlotWrite { slot, state: SlotState::Free, digest, reason, approved_by: Some(actor) };
        write_slot(conn, now, *node_id, write).await?;
        overridden.extend(slot.blockers.iter().map(|one| format!("{} {}", slot.index, one.code)));
        approved.push(slot.index);
    }
    let detail = json!({
        "hostname": map.node, "digest": digest, "slots": approved, "overridden": overridden,
        "reason": reason,
    });
    let entry = NewAuditEntry {
        actor: actor.clone(),
        action: AuditAction::SliceApprove,
        subject: node_id.to_string(),
        detail,
    };
    audit::append(conn, now, &entry).await?;
    let listed: Vec<String> = approved.iter().map(u32::to_string).collect();
    let text = format!("{actor} approved slots {} for leases: {reason}", listed.join(", "));
    let line = line(now, Source::Operator, TimelineCode::SlotsApproved, text);
    timeline_rows::append(conn, [(*node_id, &line)]).await?;
    Ok(slots_of(conn, *node_id).await?.into_values().collect())
}

impl Store {
    /// Makes slots of a node free for leases, as the map with this digest has them. Answers all
    /// slots of the node.
    ///
    /// # Errors
    /// `slot_map_missing`, `slot_map_changed`, `slot_blocked`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`]. In each case nothing was changed.
    #[boxed]
    pub async fn approve_slots(
        &self,
        now: Timestamp,
        new: NewSlotApproval,
    ) -> Result<Vec<StoredSlot>, StoreError> {
        self.write(move |conn| Box::pin(async move { approve(conn, now, &new).await })).await
    }

    /// Slots of the nodes of a site, or of every site, that a filter lets pass, by hostname and
    /// number.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn slots(
        &self,
        site_id: Option<SiteId>,
        filter: Option<&ListFilter>,
    ) -> Result<Vec<StoredSlot>, StoreError> {
        let sql = select!(
            "WHERE ($1 IS NULL OR node.site_id = $1) {FILTER} \
             ORDER BY node.hostname, slice_slot.node_id, slice_slot.slot_index"
        );
        let mut values = args![site_id.map(|id| id.0)];
        let sql = with_filter(sql, FilterList::Slots, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| read_slot(row.cols())).collect()
    }

    /// Approved slots of each of these nodes that has any.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn slot_counts(
        &self,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Result<HashMap<NodeId, u32>, StoreError> {
        let mut counts = HashMap::new();
        let mut conn = self.reader().await?;
        for ids in padded(nodes.into_iter().map(|id| id.0)) {
            let text = "SELECT node_id, COUNT(*) FROM slice_slot WHERE state <> 'candidate' \
                        AND node_id IN ({LIST}) GROUP BY node_id";
            let sql = with_list(text, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let mut cols = row.cols();
                let (node_id, count) = (cols.id(NodeId)?, cols.next::<i64>()?);
                counts.insert(node_id, u32::try_from(count).unwrap_or(u32::MAX));
            }
        }
        Ok(counts)
    }

    /// Slots of a node, by number.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn slots_of_node(&self, node_id: NodeId) -> Result<Vec<StoredSlot>, StoreError> {
        Ok(slots_of(&mut self.reader().await?, node_id).await?.into_values().collect())
    }
}
