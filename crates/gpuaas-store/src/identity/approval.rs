//! Requests that wait for another person, and the erasing runs that count against one.
//!
//! A request is kept whole and sealed, since the manifest of a batch may hold passwords; what is shown
//! of it beside that is written out. It is decided by one conditional statement, so that of two people
//! who decide at the same time one does, and nothing is carried out twice.

use async_recursion::async_recursion as boxed;
use gpuaas_core::second_person::{
    COUNTED_SECONDS, GuardedRequest, Verdict, state_at, wants_second_person,
};
use gpuaas_types::access::RoleGrant;
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest, ApprovalState};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::spec::SecondPersonPolicy;
use gpuaas_types::{ApprovalId, NodeId, SiteId, Timestamp, TokenId};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::page::Page;
use crate::database::{Cols, Conn, Val, args};
use crate::error::StoreError;
use crate::identity::secret::key_ring::KeyRing;
use crate::identity::secret::sealed_columns::approval_owner;
use crate::run::timeline_rows;
use crate::store::Store;

/// Who asked, as the credential said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequester {
    /// Whom the caller is told from others by.
    pub id: String,
    /// The same, with what people call it.
    pub name: String,
    /// What it may do.
    pub grants: Vec<RoleGrant>,
    /// The person behind it.
    pub person: String,
    /// The token that it sent; none: it was none of those that are made here.
    pub token: Option<TokenId>,
}

/// A request that is to wait for another person.
#[derive(Debug, Clone, PartialEq)]
pub struct NewApproval {
    /// Identifier of the request.
    pub id: ApprovalId,
    /// What it is about.
    pub kind: ApprovalKind,
    /// Site that it concerns.
    pub site_id: SiteId,
    /// Node that it concerns; none: it concerns no single node.
    pub node_id: Option<NodeId>,
    /// What was asked, a clause.
    pub summary: String,
    /// Who asks.
    pub requester: ApprovalRequester,
    /// Reason that was given; empty: none.
    pub reason: String,
    /// SHA-256 of the request, hex.
    pub digest: String,
    /// SHA-256 of what it is about as it is now, hex.
    pub target_digest: String,
    /// The request; sealed before it is stored.
    pub request: ApprovalRequest,
    /// Moment from which on nobody may agree.
    pub expires_at: Timestamp,
    /// Lines for the timeline of the node.
    pub history: Vec<TimelineEvent>,
    /// Entry for the audit log.
    pub audit: NewAuditEntry,
}

/// A request that waits, or waited, for another person.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredApproval {
    /// Identifier of the request.
    pub id: ApprovalId,
    /// What it is about.
    pub kind: ApprovalKind,
    /// How it stands; one that nobody decided in time is still pending here.
    pub state: ApprovalState,
    /// Name of the site that it concerns.
    pub site: String,
    /// Node that it concerns.
    pub node_id: Option<NodeId>,
    /// Hostname of that node.
    pub hostname: Option<String>,
    /// What was asked, a clause.
    pub summary: String,
    /// Who asked.
    pub requester: ApprovalRequester,
    /// Reason that was given; empty: none.
    pub reason: String,
    /// SHA-256 of the request, hex.
    pub digest: String,
    /// SHA-256 of what it was about when it was asked, hex.
    pub target_digest: String,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// Moment from which on nobody may agree.
    pub expires_at: Timestamp,
    /// Who decided.
    pub decided_by: Option<String>,
    /// When that was.
    pub decided_at: Option<Timestamp>,
    /// Reason of whoever decided.
    pub decision_reason: Option<String>,
    /// What was answered when it was carried out.
    pub answer: Option<Value>,
}

/// Somebody's word on a request.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalVerdict {
    /// Identifier of the request.
    pub id: ApprovalId,
    /// What is said.
    pub verdict: Verdict,
    /// Who says so.
    pub decided_by: String,
    /// Reason that is given.
    pub reason: String,
    /// Lines for the timeline of the node.
    pub history: Vec<TimelineEvent>,
    /// Entry for the audit log.
    pub audit: NewAuditEntry,
}

/// Which requests to list; what is left empty does not matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only those that concern this site.
    pub site_id: Option<SiteId>,
    /// Only those that concern this node.
    pub node_id: Option<NodeId>,
    /// Only those that may be decided at this moment.
    pub open_at: Option<Timestamp>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT approval.id, approval.kind, approval.state, site.name, approval.node_id, \
             node.hostname, approval.summary, approval.requester, approval.reason, \
             approval.digest, approval.target_digest, approval.requested_at, \
             approval.expires_at, approval.decided_by, approval.decided_at, \
             approval.decision_reason, approval.answer FROM approval \
             JOIN site ON site.id = approval.site_id \
             LEFT JOIN node ON node.id = approval.node_id ",
            $rest
        )
    };
}

fn read(mut cols: Cols<'_>) -> Result<StoredApproval, StoreError> {
    Ok(StoredApproval {
        id: cols.id(ApprovalId)?,
        kind: cols.enum_str()?,
        state: cols.enum_str()?,
        site: cols.next()?,
        node_id: cols.opt_id(NodeId)?,
        hostname: cols.next()?,
        summary: cols.next()?,
        requester: cols.json()?,
        reason: cols.next()?,
        digest: cols.next()?,
        target_digest: cols.next()?,
        requested_at: cols.at()?,
        expires_at: cols.at()?,
        decided_by: cols.next()?,
        decided_at: cols.opt_at()?,
        decision_reason: cols.next()?,
        answer: cols.opt_json()?,
    })
}

async fn find(conn: &mut Conn, id: ApprovalId) -> Result<StoredApproval, StoreError> {
    let row = conn.first(select!("WHERE approval.id = $1"), args![id.0]).await?;
    read(row.ok_or_else(|| StoreError::not_found("approval", id))?.cols())
}

/// Locks a site, so that what is counted there is counted one after the other.
async fn lock_site(conn: &mut Conn, id: SiteId) -> Result<(), StoreError> {
    conn.first("SELECT id FROM site WHERE id = $1 {LOCK}", args![id.0]).await.map(drop)
}

/// The same request of the same person that waits already. Requests are compared opened: the digest of
/// one that holds a secret is like no other.
async fn find_same(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewApproval,
    key: &KeyRing,
) -> Result<Option<ApprovalId>, StoreError> {
    let waiting = "SELECT id, sealed FROM approval WHERE state = 'pending' AND site_id = $1 \
                   AND person = $2 AND kind = $3 AND target_digest = $4 AND expires_at > $5";
    let (person, kind) = (&new.requester.person, new.kind.as_str());
    let values = args![new.site_id.0, person, kind, &new.target_digest, now];
    for row in conn.all(waiting, values).await? {
        let mut cols = row.cols();
        let (id, sealed) = (cols.id(ApprovalId)?, cols.next::<Vec<u8>>()?);
        if open_request(key, id, &sealed)? == new.request {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn open_request(
    key: &KeyRing,
    id: ApprovalId,
    sealed: &[u8],
) -> Result<ApprovalRequest, StoreError> {
    let text = key.open(&approval_owner(id), sealed)?;
    serde_json::from_str(text.expose_secret())
        .map_err(|error| StoreError::corrupt("kept request", error))
}

async fn insert(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewApproval,
    (sealed, key): (Vec<u8>, KeyRing),
) -> Result<ApprovalId, StoreError> {
    lock_site(conn, new.site_id).await?;
    if let Some(id) = find_same(conn, now, new, &key).await? {
        return Ok(id);
    }
    let person = &new.requester.person;
    conn.execute(
        "INSERT INTO approval (id, kind, state, site_id, node_id, summary, requested_by, \
         requester, person, reason, digest, target_digest, sealed, requested_at, expires_at) \
         VALUES ($1, $2, 'pending', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        vec![
            new.id.0.into(),
            new.kind.as_str().into(),
            new.site_id.0.into(),
            new.node_id.map(|id| id.0).into(),
            (&new.summary).into(),
            (&new.requester.name).into(),
            Val::json(&new.requester)?,
            person.into(),
            (&new.reason).into(),
            (&new.digest).into(),
            (&new.target_digest).into(),
            sealed.into(),
            now.into(),
            new.expires_at.into(),
        ],
    )
    .await?;
    if let Some(node_id) = new.node_id {
        timeline_rows::append(conn, new.history.iter().map(|line| (node_id, line))).await?;
    }
    audit::append(conn, now, &new.audit).await?;
    Ok(new.id)
}

async fn decide(conn: &mut Conn, now: Timestamp, word: &ApprovalVerdict) -> Result<(), StoreError> {
    let state = match word.verdict {
        Verdict::Approve => ApprovalState::Approved,
        Verdict::Deny => ApprovalState::Denied,
    };
    let values = args![word.id.0, state.as_str(), &word.decided_by, now, &word.reason];
    let decided = conn
        .execute(
            "UPDATE approval SET state = $2, decided_by = $3, decided_at = $4, \
             decision_reason = $5 WHERE id = $1 AND state = 'pending' AND expires_at > $4",
            values,
        )
        .await?;
    let found = find(conn, word.id).await?;
    if decided == 0 {
        let (code, stands) = match state_at(found.state, found.expires_at, now) {
            ApprovalState::Expired => (ProblemCode::ApprovalExpired, ApprovalState::Expired),
            other => (ProblemCode::ApprovalDecided, other),
        };
        return Err(StoreError::conflict(code, format!("{} is {stands}", word.id)));
    }
    if let Some(node_id) = found.node_id {
        timeline_rows::append(conn, word.history.iter().map(|line| (node_id, line))).await?;
    }
    audit::append(conn, now, &word.audit).await
}

impl Store {
    /// Keeps a request for another person to decide. The same request of the same person that still
    /// waits is not kept twice; answers which one waits.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn hold_request(
        &self,
        now: Timestamp,
        new: NewApproval,
    ) -> Result<ApprovalId, StoreError> {
        let text = serde_json::to_string(&new.request)
            .map_err(|error| StoreError::corrupt("request to keep", error))?;
        let sealed = self.key().seal(&approval_owner(new.id), &SecretString::from(text))?;
        let kept = (sealed, self.key().clone());
        self.write(move |conn| Box::pin(async move { insert(conn, now, &new, kept).await })).await
    }

    /// A request.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn approval(&self, id: ApprovalId) -> Result<StoredApproval, StoreError> {
        find(&mut self.reader().await?, id).await
    }

    /// What was asked, opened.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn held_request(&self, id: ApprovalId) -> Result<ApprovalRequest, StoreError> {
        let sql = "SELECT sealed FROM approval WHERE id = $1";
        let row = self.reader().await?.first(sql, args![id.0]).await?;
        let sealed: Vec<u8> =
            row.ok_or_else(|| StoreError::not_found("approval", id))?.cols().next()?;
        open_request(self.key(), id, &sealed)
    }

    /// A page of the requests that a filter lets pass, newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn approvals(
        &self,
        filter: ApprovalFilter,
        page: Page<ApprovalId>,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        let sql = select!(
            "WHERE ($1 IS NULL OR approval.site_id = $1) AND ($2 IS NULL OR approval.node_id = $2) \
             AND ($3 IS NULL OR (approval.state = 'pending' AND approval.expires_at > $3)) \
             AND ($4 IS NULL OR (approval.requested_at, approval.id) < \
             (SELECT before.requested_at, before.id FROM approval AS before WHERE before.id = $4)) \
             ORDER BY approval.requested_at DESC, approval.id DESC LIMIT $5"
        );
        let values = args![
            filter.site_id.map(|id| id.0),
            filter.node_id.map(|id| id.0),
            filter.open_at,
            page.after.map(|id| id.0),
            i64::from(page.limit)
        ];
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| read(row.cols())).collect()
    }

    /// Writes down what somebody says to a request. Of two people who do so one is heard.
    ///
    /// # Errors
    /// `approval_decided`, `approval_expired`; [`StoreError::NotFound`]; [`StoreError::Unavailable`]
    /// or [`StoreError::Corrupt`]. In each case nothing was changed.
    #[boxed]
    pub async fn decide_approval(
        &self,
        now: Timestamp,
        word: ApprovalVerdict,
    ) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { decide(conn, now, &word).await })).await
    }

    /// Approved requests that had no effect although they were decided before `before`, such as by a
    /// control plane that was killed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn unexecuted_approvals(
        &self,
        before: Timestamp,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        let sql = select!(
            "WHERE approval.state = 'approved' AND approval.decided_at < $1 \
             ORDER BY approval.decided_at, approval.id LIMIT 100"
        );
        let rows = self.reader().await?.all(sql, args![before]).await?;
        rows.iter().map(|row| read(row.cols())).collect()
    }

    /// Stores the response to an approved request, which is `done` already if it had an effect.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn end_approval(
        &self,
        id: ApprovalId,
        state: ApprovalState,
        answer: Value,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                let values = vec![id.0.into(), state.as_str().into(), Val::json(&answer)?];
                let sql = "UPDATE approval SET state = $2, answer = $3 \
                           WHERE id = $1 AND state IN ('approved', 'done') AND answer IS NULL";
                conn.execute(sql, values).await.map(drop)
            })
        })
        .await
    }

    /// Counts erasing runs on `nodes` nodes at a site against a person, unless this policy asks for another
    /// person. Returns whether it does; then nothing is counted. What the person did at the other sites of
    /// the region counts as well.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn count_erasing(
        &self,
        now: Timestamp,
        (site_id, others): (SiteId, Vec<SiteId>),
        policy: SecondPersonPolicy,
        person: &str,
        nodes: u32,
    ) -> Result<bool, StoreError> {
        let person = person.to_owned();
        // In one order, so that two requests at sites of one region do not lock each other out.
        let mut region = others;
        region.push(site_id);
        region.sort_unstable();
        self.write(move |conn| {
            Box::pin(async move {
                let old = now.plus_seconds(-COUNTED_SECONDS);
                let mut counted: u32 = 0;
                for site in &region {
                    lock_site(conn, *site).await?;
                    let sql = "DELETE FROM erasing_note WHERE site_id = $1 AND at <= $2";
                    conn.execute(sql, args![site.0, old]).await?;
                    let sql = "SELECT CAST(COALESCE(SUM(nodes), 0) AS BIGINT) FROM erasing_note \
                               WHERE site_id = $1 AND person = $2";
                    let row = conn.first(sql, args![site.0, &person]).await?;
                    let at_site: i64 = row.map_or(Ok(0), |row| row.cols().next())?;
                    counted = counted.saturating_add(u32::try_from(at_site).unwrap_or(u32::MAX));
                }
                if wants_second_person(&policy, GuardedRequest::Erase { nodes, counted }) {
                    return Ok(true);
                }
                let sql = "INSERT INTO erasing_note (site_id, person, at, nodes) \
                           VALUES ($1, $2, $3, $4)";
                conn.execute(sql, args![site_id.0, &person, now, i64::from(nodes)]).await?;
                Ok(false)
            })
        })
        .await
    }
}
