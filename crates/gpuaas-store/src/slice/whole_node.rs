//! Claims of bare-metal hosts as a whole.
//!
//! Such a claim has one device, the node itself, under the primary key of `slice_claim_device`: of any
//! number of claims at once one gets it. There is nothing to launch, so the owner has the host as soon as
//! the claim is made. A claim that is released stays live until a run that wiped the
//! host has ended well, which records what was wiped and how: nobody else gets the node before, and no
//! timer frees it.

use async_recursion::async_recursion as boxed;
use gpuaas_core::record::{ReportKind, RunRecord};
use gpuaas_core::run_state::DISKS_ERASED;
use gpuaas_types::agent::TaskResult;
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::claim::{ClaimDeviceKind, ClaimState};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::slice::{ProofResult, ProofSubject, RecordedProof, SliceProof};
use gpuaas_types::spec::{ProfileSpec, ReleaseMode};
use gpuaas_types::{AuditAction, ClaimId, NodeId, RunKind, RunStatus, SiteId, Timestamp};
use serde_json::json;

use crate::agent::report_rows::reports_of;
use crate::audit::rows::{self as audit, IdempotencyKey, NewAuditEntry};
use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::run::timeline_rows;
use crate::slice::claim_rows::{self, SlotClaim, SlotClaimRelease};
use crate::slice::launch_rows::{append_proofs, proofs_of};
use crate::store::Store;

/// Nodes that are looked at for one claim.
const CANDIDATES: i64 = 64;

/// A claim of a whole node to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNodeClaim {
    /// Identifier of the claim.
    pub id: ClaimId,
    /// Site of the node; none: any.
    pub site_id: Option<SiteId>,
    /// Who has the host from then on.
    pub owner: String,
    /// Actor who asks.
    pub actor: String,
    /// Reason that the actor names.
    pub reason: String,
    /// The request may be repeated under this key.
    pub idempotency: Option<IdempotencyKey>,
}

/// What keeps a claim of a whole node from being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeNodeCounts {
    /// Bare-metal hosts in service.
    pub in_service: u64,
    /// Those of them that somebody has.
    pub claimed: u64,
    /// Those of the rest that are not ready: not active, with an open run, or with a gate that is closed.
    pub not_ready: u64,
}

/// What became of a request for a whole node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeClaimOutcome {
    /// It was made, or had been made by an earlier request with the same key.
    Claimed(Box<SlotClaim>),
    /// There is no node for it.
    Refused(WholeNodeCounts),
}

/// Hosts whose agent was heard, and whose system is not one for slices: `$1` the site.
macro_rules! bare_metal_hosts {
    () => {
        "node JOIN heartbeat ON heartbeat.node_id = node.id JOIN run ON run.id = node.run_id \
         WHERE ($1 IS NULL OR node.site_id = $1) \
         AND node.state NOT IN ('registered', 'retired', 'detached', 'deleted') \
         AND NOT EXISTS (SELECT 1 FROM slice_slot WHERE slice_slot.node_id = node.id \
         AND slice_slot.state NOT IN ('candidate', 'retired')) \
         AND NOT EXISTS (SELECT 1 FROM node_gate WHERE node_gate.node_id = node.id \
         AND node_gate.gate = 'slice_ready' AND node_gate.run_id = heartbeat.run_id)"
    };
}

macro_rules! is_claimed {
    () => {
        "EXISTS (SELECT 1 FROM slice_claim_device WHERE slice_claim_device.node_id = node.id)"
    };
}

macro_rules! is_ready {
    () => {
        "(node.state = 'active' AND run.status NOT IN ('running', 'waiting', 'parked') \
         AND NOT EXISTS (SELECT 1 FROM node_gate WHERE node_gate.node_id = node.id \
         AND node_gate.run_id = heartbeat.run_id AND NOT node_gate.passed))"
    };
}

/// By hostname, so that the answer does not depend on what the database likes.
const CANDIDATE: &str = concat!(
    "SELECT node.id, (SELECT spec FROM profile_revision WHERE profile_id = node.profile_id \
     ORDER BY revision DESC LIMIT 1) FROM ",
    bare_metal_hosts!(),
    " AND ",
    is_ready!(),
    " AND NOT ",
    is_claimed!(),
    " ORDER BY node.hostname, node.id LIMIT $2 {SHARE_NODE}"
);

const COUNT: &str = concat!(
    "SELECT COUNT(*), COALESCE(SUM(CASE WHEN ",
    is_claimed!(),
    " THEN 1 ELSE 0 END), 0), COALESCE(SUM(CASE WHEN NOT ",
    is_claimed!(),
    " AND NOT ",
    is_ready!(),
    " THEN 1 ELSE 0 END), 0) FROM ",
    bare_metal_hosts!()
);

async fn take(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewNodeClaim,
) -> Result<NodeClaimOutcome, StoreError> {
    let site = new.site_id.map(|id| id.0);
    let mut candidates = Vec::new();
    for row in conn.all(CANDIDATE, args![site, CANDIDATES]).await? {
        let mut cols = row.cols();
        let (id, spec) = (cols.id(NodeId)?, cols.json::<ProfileSpec>()?);
        // What was handed over is never taken back by us, so it cannot be leased.
        if spec.release_mode != ReleaseMode::Handoff {
            candidates.push(id);
        }
    }
    for node_id in candidates {
        let device = "INSERT INTO slice_claim_device (node_id, kind, device, slot_index, claim_id) \
                      VALUES ($1, $2, $3, -1, $4) ON CONFLICT DO NOTHING";
        let kind = ClaimDeviceKind::Node.as_str();
        let values = args![node_id.0, kind, &node_id.to_string(), new.id.0];
        // Another claim was quicker, and has it.
        if conn.execute(device, values).await? == 0 {
            continue;
        }
        let sql = "INSERT INTO slice_claim (id, node_id, whole_node, owner, state, numa, fence, \
                   slots, created_at, reason) \
                   VALUES ($1, $2, TRUE, $3, 'in_use', 'preferred', 1, '[]', $4, '')";
        conn.execute(sql, args![new.id.0, node_id.0, &new.owner, now]).await?;
        let claim = claim_rows::read_one(conn, new.id).await?;
        let NewNodeClaim { id, owner, actor, reason, .. } = new;
        let detail = json!({ "claim": id, "owner": owner, "whole_node": true, "reason": reason });
        let text = format!("{owner} claimed the whole node as {id}: {reason}");
        note(
            conn,
            now,
            &claim,
            (AuditAction::SliceClaim, actor, detail),
            (TimelineCode::NodeClaimed, text),
        )
        .await?;
        return Ok(NodeClaimOutcome::Claimed(Box::new(claim)));
    }
    let row = conn.first(COUNT, args![site]).await?;
    let row = row.ok_or_else(|| StoreError::corrupt("count of nodes", "row is missing"))?;
    let mut cols = row.cols();
    let mut count = || Ok::<_, StoreError>(u64::try_from(cols.next::<i64>()?).unwrap_or_default());
    let counts = WholeNodeCounts { in_service: count()?, claimed: count()?, not_ready: count()? };
    Ok(NodeClaimOutcome::Refused(counts))
}

async fn claim(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewNodeClaim,
) -> Result<NodeClaimOutcome, StoreError> {
    let Some(key) = &new.idempotency else { return take(conn, now, new).await };
    if !audit::insert_response(conn, now, key, &new.id).await? {
        let earlier: Option<ClaimId> = audit::read_response(conn, key).await?;
        let missing = || StoreError::corrupt("idempotency record", "row is missing");
        let id = earlier.ok_or_else(missing)?;
        let claim = claim_rows::read_one(conn, id).await?;
        return Ok(NodeClaimOutcome::Claimed(Box::new(claim)));
    }
    let outcome = take(conn, now, new).await?;
    if matches!(outcome, NodeClaimOutcome::Refused(_)) {
        // A refusal is not kept: the same request may be lucky later.
        audit::forget_response(conn, key).await?;
    }
    Ok(outcome)
}

async fn note(
    conn: &mut Conn,
    now: Timestamp,
    claim: &SlotClaim,
    (action, actor, detail): (AuditAction, &str, serde_json::Value),
    (code, text): (TimelineCode, String),
) -> Result<(), StoreError> {
    let entry = NewAuditEntry {
        actor: actor.to_owned(),
        action,
        subject: claim.node_id.to_string(),
        detail,
    };
    audit::append(conn, now, &entry).await?;
    append_line(conn, now, claim.node_id, Source::Operator, (code, text)).await
}

async fn append_line(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    source: Source,
    (code, text): (TimelineCode, String),
) -> Result<(), StoreError> {
    let line = TimelineEvent { at: now, run_id: None, step: None, source, code: code.into(), text };
    timeline_rows::append(conn, [(node_id, &line)]).await
}

async fn release(
    conn: &mut Conn,
    now: Timestamp,
    asked: &SlotClaimRelease,
) -> Result<SlotClaim, StoreError> {
    let SlotClaimRelease { id, fence, actor, reason } = asked;
    // Two requests at once: the second one waits for the first.
    conn.first("SELECT id FROM slice_claim WHERE id = $1 {LOCK}", args![id.0]).await?;
    let claim = claim_rows::read_one(conn, *id).await?;
    if claim.state != ClaimState::InUse {
        return Ok(claim);
    }
    if fence.is_some_and(|fence| fence != claim.fence) {
        let detail = format!("claim {id} has the fencing token {}", claim.fence);
        return Err(StoreError::conflict(ProblemCode::ClaimFenced, detail));
    }
    let sql = "UPDATE slice_claim SET state = 'releasing', fence = fence + 1, reason = $2 \
               WHERE id = $1";
    conn.execute(sql, args![id.0, reason]).await?;
    let detail = json!({ "claim": id, "whole_node": true, "reason": reason });
    let text = format!("{actor} took the whole node back from {}: {reason}", claim.owner);
    let line = (TimelineCode::NodeClaimReleased, text);
    note(conn, now, &claim, (AuditAction::SliceRelease, actor, detail), line).await?;
    claim_rows::read_one(conn, *id).await
}

/// What a run that ended well makes of a claim that is being taken back.
enum ClaimEnding {
    /// The host is clean; the text says what was wiped and how, and who says so.
    Clean { method: String, reader: &'static str },
    /// The machine left, uncleaned.
    Lost,
    /// The host is not clean, so nobody else gets it.
    Held,
}

async fn ending_of(conn: &mut Conn, run: &RunRecord) -> Result<Option<ClaimEnding>, StoreError> {
    let erased = run.state.checks.get(DISKS_ERASED).filter(|check| check.passed);
    let erased =
        erased.map(|check| ClaimEnding::Clean { method: check.evidence.clone(), reader: "MAAS" });
    Ok(Some(match run.kind {
        RunKind::Onboard => return Ok(None),
        RunKind::Detach | RunKind::Remove => ClaimEnding::Lost,
        RunKind::Reimage => erased.unwrap_or(ClaimEnding::Held),
        RunKind::Decommission => erased.unwrap_or(ClaimEnding::Lost),
        RunKind::SoftReset | RunKind::StorageCleanup => {
            let reports = reports_of(conn, [run.id]).await?.remove(&run.id).unwrap_or_default();
            let result = reports.into_iter().rev().find_map(|report| match report.kind {
                ReportKind::TaskFinished { result, .. } if result.succeeded => Some(result),
                _ => None,
            });
            match result {
                Some(result) => ClaimEnding::Clean {
                    method: format!("{} by the agent: {}", run.kind, wiped_by_agent(&result)),
                    reader: "agent",
                },
                None => ClaimEnding::Held,
            }
        }
    }))
}

/// What the agent says that it emptied, and what it left.
fn wiped_by_agent(result: &TaskResult) -> String {
    let findings = result.findings.iter().map(|one| format!("{}: {}", one.name, one.seen));
    let said: Vec<String> = findings.collect();
    if said.is_empty() { result.message.clone() } else { said.join("; ") }
}

/// Ends the claim of a whole node that is being taken back, with the run that made its host one for
/// another tenant, and records what was wiped and how; or with one that let the machine go, uncleaned. A
/// run that erased nothing ends no claim: the host is held.
pub(crate) async fn end_with_run(
    conn: &mut Conn,
    now: Timestamp,
    run: &RunRecord,
) -> Result<(), StoreError> {
    if run.status != RunStatus::Succeeded {
        return Ok(());
    }
    let sql = "SELECT slice_claim.id FROM slice_claim JOIN slice_claim_device AS device \
               ON device.claim_id = slice_claim.id WHERE device.node_id = $1 \
               AND device.kind = 'node' AND slice_claim.state = 'releasing'";
    let Some(row) = conn.first(sql, args![run.node_id.0]).await? else { return Ok(()) };
    let id = row.cols().id(ClaimId)?;
    let Some(ending) = ending_of(conn, run).await? else { return Ok(()) };
    let (state, reason) = match &ending {
        ClaimEnding::Clean { method, .. } => {
            (ClaimState::Released, format!("the {} {} ended: {method}", run.kind, run.id))
        }
        ClaimEnding::Lost => {
            (ClaimState::Lost, format!("the {} {} gave up the machine", run.kind, run.id))
        }
        ClaimEnding::Held => return hold(conn, now, run, id).await,
    };
    if let ClaimEnding::Clean { method, reader } = ending {
        let proof = SliceProof {
            slot: 0,
            subject: ProofSubject::HostWiped,
            device: run.node_id.to_string(),
            method,
            result: ProofResult::Proven,
            reader: reader.to_owned(),
            detail: String::new(),
        };
        append_proofs(conn, now, id, &[proof]).await?;
    }
    let sql = "UPDATE slice_claim SET state = $2, ended_at = $3, reason = $4 WHERE id = $1";
    conn.execute(sql, args![id.0, state.as_str(), now, &reason]).await?;
    let sql = "DELETE FROM slice_claim_device WHERE node_id = $1 AND claim_id = $2";
    conn.execute(sql, args![run.node_id.0, id.0]).await?;
    let text = format!("whole-node claim {id} is {state}: {reason}");
    let line = (TimelineCode::NodeClaimEnded, text);
    append_line(conn, now, run.node_id, Source::ControlPlane, line).await
}

/// Keeps the claim, so that nobody else gets a host whose disks nobody erased.
async fn hold(
    conn: &mut Conn,
    now: Timestamp,
    run: &RunRecord,
    id: ClaimId,
) -> Result<(), StoreError> {
    let reason = format!(
        "the {} {} did not erase the disks: set `release_erase=true` in the profile and \
         release the claim again",
        run.kind, run.id
    );
    let sql = "UPDATE slice_claim SET reason = $2 WHERE id = $1";
    conn.execute(sql, args![id.0, &reason]).await?;
    let text = format!("holding the host for claim {id}: {reason}");
    let line = (TimelineCode::NodeClaimHeld, text);
    append_line(conn, now, run.node_id, Source::ControlPlane, line).await
}

impl Store {
    /// Claims a bare-metal host as a whole: one that is active, has no open run and no shut gate, is not
    /// one for slices, and that nobody has.
    ///
    /// # Errors
    /// `idempotency_key_reused`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case
    /// nothing was claimed, but that of [`StoreError::Unavailable`] is not known.
    #[boxed]
    pub async fn claim_node(
        &self,
        now: Timestamp,
        new: NewNodeClaim,
    ) -> Result<NodeClaimOutcome, StoreError> {
        self.write(move |conn| Box::pin(async move { claim(conn, now, &new).await })).await
    }

    /// What was proven of the release of a claim, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn claim_proofs(&self, id: ClaimId) -> Result<Vec<RecordedProof>, StoreError> {
        proofs_of(&mut self.reader().await?, id).await
    }

    /// Begins to take a whole node back: its claim is live, and nobody else gets the node, until a run
    /// that cleans it has ended. A claim that is being taken back, or that ended, stays as it is.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `claim_fenced`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn begin_node_release(
        &self,
        now: Timestamp,
        asked: SlotClaimRelease,
    ) -> Result<SlotClaim, StoreError> {
        self.write(move |conn| Box::pin(async move { release(conn, now, &asked).await })).await
    }
}
