//! Claims and releases of slots that are made together.
//!
//! A claim takes six statements and a release five, and a commit each. Alone, that is most of what they
//! cost: the rows themselves take a tenth of it. So requests queue up here, and whoever comes first asks
//! for a transaction. By the time it has begun, others have come; all of them are made in it, with an
//! array for each column. The next group gathers until this one is committed: one at a time, so a group
//! is as large as the load makes it, and two of them never hold rows that the other one waits for.
//!
//! On PostgreSQL a group sends five statements, however many requests it has: it begins, ends what is
//! released and frees its slots, takes what was planned, writes everything that follows from that in one
//! go (`Conn::write_together`), and commits. SQLite does row after row with statements that stay prepared,
//! and one savepoint.
//!
//! Requests stay strangers, as in every group of writes. One whose slots are gone is told so, and the
//! others are made. Where something fails, nothing of the group was kept, and each of its requests is
//! made once more, alone; only the one at fault hears of it. Where the commit fails, nobody knows, and
//! everyone hears that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuaas_core::placement::SlotSet;
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::claim::{ClaimState, ClaimedSlot};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::slot::CandidateSlot;
use gpuaas_types::{AuditAction, ClaimId, NodeId, Timestamp};
use serde_json::json;
use tokio::sync::oneshot;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Conn, PendingRows, RowsStatement, Val, args, catch_panic, current_origin};
use crate::error::StoreError;
use crate::run::timeline_rows;
use crate::slice::claim_queue::{ClaimAnswer, ClaimRequest, ClaimWaiter, ClaimWork};
use crate::slice::claim_rows::{
    NewSlotClaim, SlotClaim, SlotClaimRelease, claim_columns, devices, read_claim,
};
use crate::slice::placement::PlannedSlots;
use crate::store::{Db, Store};

/// What is planned comes first in each join: SQLite keeps the order of `CROSS JOIN`, where it would else read
/// every slot of every node for a claim.
macro_rules! take_slots {
    ($share:literal, $lock:literal) => {
        RowsStatement {
            head: "WITH v (node_id, digest, wanted, size, claim_id, since, reason) AS (",
            tail: concat!(
                "), host AS (SELECT node.id FROM v CROSS JOIN node CROSS JOIN node_gate AS gate \
                 CROSS JOIN run WHERE node.id = v.node_id AND gate.node_id = node.id \
                 AND gate.gate = 'slice_ready' AND run.id = node.run_id \
                 AND node.state = 'active' AND gate.passed \
                 AND run.status NOT IN ('running', 'waiting', 'parked') ",
                $share,
                "), target AS MATERIALIZED (SELECT v.claim_id AS claim, \
                 slice_slot.node_id AS host_id, slice_slot.slot_index AS number, \
                 slice_slot.fence AS token FROM v CROSS JOIN slice_slot \
                 WHERE slice_slot.node_id = v.node_id \
                 AND slice_slot.state = 'free' AND slice_slot.digest = v.digest \
                 AND ((v.wanted >> CAST(slice_slot.slot_index AS INTEGER)) & 1) = 1 \
                 ORDER BY slice_slot.node_id, slice_slot.slot_index ",
                $lock,
                "), fit AS (SELECT v.claim_id AS claim, v.since AS taken_at, v.reason AS why, \
                 MAX(target.token) + 1 AS next_token FROM v CROSS JOIN target \
                 WHERE target.claim = v.claim_id AND v.node_id IN (SELECT host.id FROM host) \
                 GROUP BY v.claim_id, v.since, v.reason, v.size HAVING COUNT(*) = v.size), \
                 won AS MATERIALIZED (SELECT target.host_id, target.number, fit.claim, \
                 fit.taken_at, fit.why, fit.next_token FROM fit CROSS JOIN target \
                 WHERE target.claim = fit.claim) UPDATE slice_slot SET state = 'reserved', \
                 claim_id = won.claim, since = won.taken_at, reason = won.why, \
                 fence = won.next_token FROM won WHERE slice_slot.node_id = won.host_id \
                 AND slice_slot.slot_index = won.number \
                 RETURNING claim_id, slot, fence"
            ),
        }
    };
}

/// A group waits for no row.
const TAKE_UNLOCKED: RowsStatement = take_slots!("{SHARE_NODE_SKIP}", "{SKIP}");
const TAKE: RowsStatement = take_slots!("{SHARE_NODE}", "{LOCK}");

/// The state from which a claim ends is a value like the others: written into the statement, it would
/// have PostgreSQL read every reserved claim from the index of those that expire.
macro_rules! end_claims {
    () => {
        concat!(
            "UPDATE slice_claim SET state = asked.state_after, ended_at = asked.at, \
             reason = asked.why FROM asked WHERE slice_claim.id = asked.claim \
             AND slice_claim.state = asked.state_before \
             AND (asked.own_fence IS NULL OR slice_claim.fence = asked.own_fence) \
             AND (asked.state_after <> 'expired' OR slice_claim.expires_at <= asked.at) RETURNING ",
            claim_columns!()
        )
    };
}
macro_rules! return_slots {
    () => {
        "UPDATE slice_slot SET claim_id = NULL, since = v.now, flagged = NULL, \
         state = CASE WHEN slice_slot.flagged IS NULL THEN 'free' ELSE 'stale' END, \
         reason = COALESCE(slice_slot.flagged, v.reason) FROM v \
         WHERE slice_slot.node_id = v.node_id AND slice_slot.claim_id = v.claim_id"
    };
}

const END: RowsStatement = RowsStatement {
    head: "WITH asked (claim, own_fence, state_before, state_after, at, why) AS (",
    tail: concat!(") ", end_claims!()),
};
const RETURN_SLOTS: RowsStatement = RowsStatement {
    head: "WITH v (node_id, claim_id, now, reason) AS (",
    tail: concat!(") ", return_slots!()),
};
/// Both, which SQLite cannot have in one: slots in the order in which they are locked elsewhere, with the
/// text of [`ended_text`].
const END_AND_RETURN_SLOTS: RowsStatement = RowsStatement {
    head: END.head,
    tail: concat!(
        "), ended AS (",
        end_claims!(),
        "), v (node_id, claim_id, now, reason) AS MATERIALIZED (SELECT node_id, id, ended_at, \
         'claim ' || id || ' was ' || state || ': ' || reason FROM ended \
         ORDER BY node_id, CAST(slots->0->'index' AS INTEGER)), returned AS (",
        return_slots!(),
        ") SELECT * FROM ended"
    ),
};

const PUT_CLAIM: RowsStatement = RowsStatement {
    head: "INSERT INTO slice_claim (id, node_id, owner, state, numa, fence, slots, created_at, \
           expires_at, reason)",
    tail: "",
};
const PUT_DEVICES: RowsStatement = RowsStatement {
    head: "INSERT INTO slice_claim_device (node_id, kind, device, slot_index, claim_id)",
    tail: "",
};
/// By the node, which their key begins with.
const RETURN_DEVICES: RowsStatement = RowsStatement {
    head: "WITH v (node_id, claim_id) AS (",
    tail: ") DELETE FROM slice_claim_device \
           WHERE (node_id, claim_id) IN (SELECT v.node_id, v.claim_id FROM v)",
};

/// Makes the requests; with `waits` it waits for rows that others have locked.
async fn make(
    conn: &mut Conn,
    requests: &[Arc<ClaimRequest>],
    waits: bool,
) -> Result<Vec<ClaimAnswer>, StoreError> {
    // A group that has taken slots waits for no slot any more: else two of them could wait for each other,
    // since a lock stays on a row that is no longer free once it is had.
    let ended = end(conn, requests).await?;
    let taken = take(conn, requests, if waits { TAKE } else { TAKE_UNLOCKED }).await?;
    let origin = conn.origin().clone();
    let before = conn.begin_collecting();
    let made = catch_panic(async { follow(conn, requests, taken, ended).await }).await;
    let collected = conn.end_collecting(before);
    conn.set_origin(origin);
    let answers = made?;
    write_collected(conn, requests, &answers, collected).await?;
    Ok(answers)
}

/// Whether a claim that ended is this request's: several may ask for the end of one.
fn is_its(release: &SlotClaimRelease, state: ClaimState, claim: &SlotClaim) -> bool {
    claim.state == state && release.fence.is_none_or(|fence| fence == claim.fence)
}

fn ended_text(id: ClaimId, state: ClaimState, reason: &str) -> String {
    format!("claim {id} was {state}: {reason}")
}

/// Takes slots of requests that want none of the same; answers each claim's with its fencing token.
async fn take(
    conn: &mut Conn,
    requests: &[Arc<ClaimRequest>],
    statement: RowsStatement,
) -> Result<HashMap<ClaimId, (Vec<ClaimedSlot>, i64)>, StoreError> {
    let mut planned: HashMap<NodeId, SlotSet> = HashMap::new();
    let mut rows = Vec::new();
    for request in requests {
        let ClaimWork::Take(new, plan) = &request.work else { continue };
        let others = planned.entry(plan.node_id).or_default();
        // Whoever looked anew may plan what another request of the group is about to get.
        if *others & plan.slots != 0 {
            continue;
        }
        *others |= plan.slots;
        rows.push(vec![
            Val::from(plan.node_id.0),
            (&plan.digest).into(),
            i64::from(plan.slots).into(),
            i64::from(plan.slots.count_ones()).into(),
            new.id.0.into(),
            request.now.into(),
            (&format!("claimed by {}", new.owner)).into(),
        ]);
    }
    let mut taken: HashMap<ClaimId, (Vec<ClaimedSlot>, i64)> = HashMap::new();
    for row in conn.query_each(statement, rows).await? {
        let mut cols = row.cols();
        let claim_id = cols.id(ClaimId)?;
        let slot: CandidateSlot = cols.json()?;
        let (slots, fence) = taken.entry(claim_id).or_default();
        slots.push(claimed_slot(slot));
        *fence = cols.next()?;
    }
    taken.values_mut().for_each(|(slots, _)| slots.sort_by_key(|slot| slot.index));
    Ok(taken)
}

/// Ends claims, and frees their slots.
async fn end(
    conn: &mut Conn,
    requests: &[Arc<ClaimRequest>],
) -> Result<HashMap<ClaimId, SlotClaim>, StoreError> {
    let mut rows = Vec::new();
    for request in requests {
        let ClaimWork::End(release, state) = &request.work else { continue };
        let SlotClaimRelease { id, fence, reason, .. } = release;
        let before = ClaimState::Reserved.as_str();
        rows.push((*id, args![id.0, *fence, before, state.as_str(), request.now, reason]));
    }
    // Replicas that end the same claims lock them in the same order.
    rows.sort_by_key(|(id, _)| *id);
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let statement = if conn.is_postgres() { END_AND_RETURN_SLOTS } else { END };
    let ended = conn.query_each(statement, rows).await?;
    let ended: Result<Vec<SlotClaim>, _> = ended.iter().map(|row| read_claim(row.cols())).collect();
    let ended = ended?;
    if !conn.is_postgres() {
        conn.query_each(RETURN_SLOTS, ended.iter().map(returned_row).collect()).await?;
    }
    Ok(ended.into_iter().map(|claim| (claim.id, claim)).collect())
}

/// Row of [`RETURN_SLOTS`].
fn returned_row(ended: &SlotClaim) -> Vec<Val> {
    let SlotClaim { id, node_id, state, reason, ended_at, .. } = ended;
    args![node_id.0, id.0, *ended_at, &ended_text(*id, *state, reason)]
}

/// Writes down what follows from what was taken and ended.
async fn follow(
    conn: &mut Conn,
    requests: &[Arc<ClaimRequest>],
    mut taken: HashMap<ClaimId, (Vec<ClaimedSlot>, i64)>,
    mut ended: HashMap<ClaimId, SlotClaim>,
) -> Result<Vec<ClaimAnswer>, StoreError> {
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        conn.set_origin(request.origin.clone());
        answers.push(match &request.work {
            ClaimWork::Take(new, plan) => match taken.remove(&new.id) {
                Some((slots, fence)) => {
                    let claim = reserved(request.now, new, plan, slots, fence);
                    write_claim(conn, request.now, new, &claim).await?;
                    Some(claim)
                }
                None => None,
            },
            ClaimWork::End(release, state) => {
                let is_own = |claim: &SlotClaim| is_its(release, *state, claim);
                let own = ended.get(&release.id).is_some_and(is_own);
                let claim = if own { ended.remove(&release.id) } else { None };
                if let Some(claim) = &claim {
                    return_slots(conn, request.now, release, *state, claim).await?;
                }
                claim
            }
        });
    }
    Ok(answers)
}

/// Sends what was written down, and the answers that are kept for requests with a key.
async fn write_collected(
    conn: &mut Conn,
    requests: &[Arc<ClaimRequest>],
    answers: &[ClaimAnswer],
    mut collected: Vec<PendingRows>,
) -> Result<(), StoreError> {
    let mut keys = Vec::new();
    for (request, answer) in requests.iter().zip(answers) {
        let (ClaimWork::Take(new, _), Some(_)) = (&request.work, answer) else { continue };
        if let Some(key) = &new.idempotency {
            keys.push((key, audit::response_row(request.now, key, &new.id)?));
        }
    }
    // Two groups with the same keys wait for each other in one order.
    keys.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
    let count = keys.len();
    if count > 0 {
        let rows = keys.into_iter().map(|(_, row)| row).collect();
        collected.push((audit::PUT_RESPONSES, rows));
    }
    let written = conn.write_together(collected).await?;
    if count > 0 && written.len() < count {
        let detail = "the first request with this key is still in progress";
        return Err(StoreError::conflict(ProblemCode::IdempotencyKeyInUse, detail));
    }
    Ok(())
}

fn reserved(
    now: Timestamp,
    new: &NewSlotClaim,
    plan: &PlannedSlots,
    slots: Vec<ClaimedSlot>,
    fence: i64,
) -> SlotClaim {
    SlotClaim {
        id: new.id,
        node_id: plan.node_id,
        hostname: plan.hostname.clone(),
        site: plan.site.clone(),
        whole_node: false,
        owner: new.owner.clone(),
        state: ClaimState::Reserved,
        numa: new.numa,
        fence,
        slots,
        created_at: now,
        expires_at: Some(new.expires_at),
        ended_at: None,
        reason: String::new(),
    }
}

async fn write_claim(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewSlotClaim,
    claim: &SlotClaim,
) -> Result<(), StoreError> {
    let (SlotClaim { node_id, slots, .. }, NewSlotClaim { id, owner, actor, reason, .. }) =
        (claim, new);
    let row = vec![
        id.0.into(),
        node_id.0.into(),
        owner.into(),
        claim.state.as_str().into(),
        claim.numa.as_str().into(),
        claim.fence.into(),
        Val::json(slots)?,
        now.into(),
        claim.expires_at.into(),
        "".into(),
    ];
    conn.write_rows(PUT_CLAIM, vec![row]).await?;
    let devices = slots.iter().flat_map(|slot| {
        devices(slot).map(move |(kind, device)| {
            let index = i64::from(slot.index);
            args![node_id.0, kind.as_str(), device, index, id.0]
        })
    });
    conn.write_rows(PUT_DEVICES, devices.collect()).await?;
    let entry = NewAuditEntry {
        actor: actor.clone(),
        action: AuditAction::SliceClaim,
        subject: node_id.to_string(),
        detail: json!({
            "claim": id, "owner": owner, "slots": indices(slots), "reason": reason,
        }),
    };
    audit::append(conn, now, &entry).await?;
    let text = format!("{owner} claimed slots {} as {id}: {reason}", listed(slots));
    let line = line(now, Source::Operator, TimelineCode::SlotsClaimed, text);
    timeline_rows::append(conn, [(*node_id, &line)]).await
}

async fn return_slots(
    conn: &mut Conn,
    now: Timestamp,
    release: &SlotClaimRelease,
    state: ClaimState,
    claim: &SlotClaim,
) -> Result<(), StoreError> {
    let SlotClaimRelease { id, actor, reason, .. } = release;
    let SlotClaim { node_id, slots, .. } = claim;
    let why = ended_text(*id, state, reason);
    conn.write_rows(RETURN_DEVICES, vec![args![node_id.0, id.0]]).await?;
    let entry = NewAuditEntry {
        actor: actor.clone(),
        action: AuditAction::SliceRelease,
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
    let text = format!("slots {} were returned: {why}", listed(slots));
    let line = line(now, source, TimelineCode::SlotsReturned, text);
    timeline_rows::append(conn, [(*node_id, &line)]).await
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

impl Store {
    /// Makes a request with others of its kind; with `waits` alone, and then it waits for rows that
    /// others have locked.
    pub(crate) async fn make_claim_request(
        &self,
        now: Timestamp,
        work: ClaimWork,
        waits: bool,
    ) -> Result<ClaimAnswer, StoreError> {
        let request = Arc::new(ClaimRequest { now, origin: current_origin(), work });
        if waits {
            return self.make_alone(request, true).await;
        }
        let _guard = self.track_in_flight();
        let (answer, answered) = oneshot::channel();
        if self.inner.claim_queue.push(ClaimWaiter { request, answer }) {
            // A task of its own, so that nobody who gives up takes the others with him.
            let store = self.clone();
            tokio::spawn(async move { store.make_claim_group().await });
        }
        let closed = |_| StoreError::unavailable("the store is closed");
        answered.await.map_err(closed)?
    }

    async fn make_alone(
        &self,
        request: Arc<ClaimRequest>,
        waits: bool,
    ) -> Result<ClaimAnswer, StoreError> {
        let made =
            self.write(move |conn| Box::pin(async move { make(conn, &[request], waits).await }));
        Ok(made.await?.pop().flatten())
    }

    async fn make_claim_group(&self) {
        let taken: Arc<Mutex<Vec<ClaimWaiter>>> = Arc::default();
        let worked = Arc::new(AtomicBool::new(false));
        // The writer of a file makes one group after the other by itself.
        let queue = &self.inner.claim_queue;
        let turn = match &self.inner.db {
            Db::Postgres { .. } => Some(queue.turn.lock().await),
            Db::Sqlite { .. } => None,
        };
        let made = self.write({
            let (store, taken, worked) = (self.clone(), Arc::clone(&taken), Arc::clone(&worked));
            move |conn| {
                Box::pin(async move {
                    let requests = store.take_waiting(&taken);
                    let answers = make(conn, &requests, false).await?;
                    worked.store(true, Ordering::SeqCst);
                    Ok(answers)
                })
            }
        });
        let made = made.await;
        drop(turn);
        if made.is_err() && lock(&taken).is_empty() {
            // No transaction was begun: nobody waits for another one that fails as this did.
            self.take_waiting(&taken);
        }
        let waiters = std::mem::take(&mut *lock(&taken));
        self.inner.counters.note_gathered(waiters.len());
        match made {
            Ok(answers) => {
                for (waiter, answer) in waiters.into_iter().zip(answers) {
                    // Who gave up meanwhile has the claim all the same, until it expires.
                    waiter.answer.send(Ok(answer)).ok();
                }
            }
            Err(error) if worked.load(Ordering::SeqCst) || waiters.len() == 1 => {
                waiters.into_iter().for_each(|one| drop(one.answer.send(Err(error.clone()))));
            }
            Err(error) => {
                tracing::debug!(%error, "retrying a group of claims one by one");
                for ClaimWaiter { request, answer } in waiters {
                    let store = self.clone();
                    tokio::spawn(async move {
                        answer.send(store.make_alone(request, false).await).ok();
                    });
                }
            }
        }
    }

    /// Takes those that wait.
    fn take_waiting(&self, taken: &Mutex<Vec<ClaimWaiter>>) -> Vec<Arc<ClaimRequest>> {
        let waiters = self.inner.claim_queue.take();
        let requests = waiters.iter().map(|waiter| Arc::clone(&waiter.request)).collect();
        *lock(taken) = waiters;
        requests
    }
}

fn lock(taken: &Mutex<Vec<ClaimWaiter>>) -> MutexGuard<'_, Vec<ClaimWaiter>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::sqlite::query_plan::scanned;

    /// A claim is of one node, however many there are.
    #[tokio::test]
    async fn sqlite_finds_the_rows_of_a_group_by_keys() {
        let statements = [(TAKE, 7), (END, 6), (RETURN_SLOTS, 4), (RETURN_DEVICES, 2)];
        for (RowsStatement { head, tail }, columns) in statements {
            let row = vec!["?"; columns].join(", ");
            let text = format!("{head}VALUES ({row}){tail}");
            let text = text.replace("{SHARE_NODE}", "").replace("{LOCK}", "");
            let scanned = scanned(&text, columns).await;
            let is_of_a_table = |name: &&String| {
                ["node", "gate", "run", "slice"].iter().any(|table| name.starts_with(table))
            };
            assert_eq!(scanned.iter().find(is_of_a_table), None, "{scanned:#?}");
        }
    }
}
