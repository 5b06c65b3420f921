//! Credentials. Only their SHA-256 is stored: they are 256 random bits, so a slow hash would
//! add cost and no safety.
//!
//! An enrollment token works once, with one exception. An agent that dies between enrolling and
//! saving who it is must be able to enroll again. It had its key before it asked, so until the
//! first heartbeat of the run the token works again for that key, and a certificate for it is of no
//! use to anybody else. For any other key it is used up: whoever copied it gets nothing, and ends
//! nothing. Stand-ins have no keys; of theirs the latest enrollment counts.
//!
//! The tokens of a run live as long as it works: an install that takes a day, of which nobody knew
//! when they were minted, must not find them expired. Every step has a deadline, so no run works
//! for ever. It ends, and they are refused as `run_over`; or it parks, and then they have an end,
//! which is counted from there and moves on while the node still calls back. An operator who
//! resumes the run makes them good again, so the node can go on where it was.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use gpuaas_core::record::ReportKind;
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::{NodeId, RunId, Timestamp, TokenId};
use sha2::{Digest as _, Sha256};

use crate::agent::report_rows;
use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Conn, GroupHints, args};
use crate::error::{StoreError, TokenRejection};
use crate::identity::certificate_rows::{self, CertificateEnding, NewCertificate};
use crate::identity::token_rows::{
    NewToken, StoredToken, TokenGrant, TokenPurpose, extend_expiry, honoured_tokens, insert,
    tokens_with_hashes,
};
use crate::run::{rows as run, timeline_rows};
use crate::store::Store;

/// SHA-256 of a credential, as it is stored.
#[must_use]
pub fn sha256(credential: &str) -> [u8; 32] {
    Sha256::digest(credential.as_bytes()).into()
}

/// What an agent proves with, from its enrollment on, that it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewAgentCredential {
    /// A certificate that was issued to it.
    Certificate(NewCertificate),
    /// A bearer credential, for stand-ins of simulated fleets.
    Bearer {
        /// Identifier of the token.
        id: TokenId,
        /// SHA-256 of the token.
        hash: [u8; 32],
    },
}

/// An agent that enrolls.
#[derive(Debug, Clone)]
pub struct NewEnrollment {
    /// Hash of the enrollment token.
    pub hash: [u8; 32],
    /// Run that the agent names; must be the token's.
    pub run_id: RunId,
    /// SHA-256 of the public key that it asks a certificate for; none: a stand-in.
    pub key: Option<[u8; 32]>,
    /// Version of the agent.
    pub agent_version: String,
    /// Hostname it believes it has.
    pub hostname: String,
    /// Credential that it is given.
    pub credential: NewAgentCredential,
    /// Lines for the timeline of the node.
    pub timeline: Vec<TimelineEvent>,
}

/// An agent that has enrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnrolledAgent {
    /// Node of the agent.
    pub node_id: NodeId,
    /// Run that the agent enrolled in.
    pub run_id: RunId,
    /// The token had been used before for the same key, by an agent that lost the answer.
    pub again: bool,
}

async fn enroll(
    conn: &mut Conn,
    now: Timestamp,
    request: &NewEnrollment,
) -> Result<EnrolledAgent, StoreError> {
    let unknown = || StoreError::Token(TokenRejection::Unknown);
    // The run first, as everywhere; that also lets enrollments of a run in one by one.
    run::lock(conn, request.run_id).await?.ok_or_else(unknown)?;
    let found = tokens_with_hashes(conn, [request.hash]).await?.remove(&request.hash);
    let token = found.ok_or_else(unknown)?;
    if token.grant.run_id != Some(request.run_id) {
        return Err(unknown());
    }
    token.check_key(now, request.key.as_ref()).map_err(StoreError::Token)?;
    let node_id = token.grant.node_id.ok_or_else(unknown)?;
    let again = token.used_at.is_some();

    // The token is used up, and whoever was the node's agent before is not any more.
    let used_key = request.key.map(|key| key.to_vec());
    conn.execute(
        "UPDATE token SET used_at = CASE WHEN id = $1 THEN $2 ELSE used_at END, \
         used_key = CASE WHEN id = $1 THEN $3 ELSE used_key END, \
         revoked_at = CASE WHEN id = $1 THEN revoked_at ELSE $2 END \
         WHERE id = $1 OR (node_id = $4 AND purpose = 'agent' AND revoked_at IS NULL)",
        args![token.grant.id.0, now, used_key, node_id.0],
    )
    .await?;
    if !again {
        let (ending, reason) = (CertificateEnding::Superseded, "the node's agent enrolled again");
        certificate_rows::end_all(conn, now, node_id, ending, reason).await?;
    }
    match &request.credential {
        NewAgentCredential::Certificate(new) => {
            // Those whose answers were lost are for the same key, and end by themselves.
            certificate_rows::check_live_limit(conn, now, node_id).await?;
            certificate_rows::insert(conn, now, node_id, request.run_id, new).await?;
        }
        NewAgentCredential::Bearer { id, hash } => {
            let credential = NewToken {
                id: *id,
                hash: *hash,
                purpose: TokenPurpose::Agent,
                node_id: Some(node_id),
                run_id: Some(request.run_id),
                single_use: false,
                // Another replica's clock may be behind ours.
                usable_from: Timestamp::EPOCH,
                expires_at: None,
            };
            insert(conn, now, &[credential]).await?;
        }
    }
    let kind = ReportKind::Enrolled {
        agent_version: request.agent_version.clone(),
        hostname: request.hostname.clone(),
    };
    report_rows::append_reports(conn, now, request.run_id, &kind).await?;
    run::wake_one(conn, now, request.run_id).await?;
    timeline_rows::append(conn, request.timeline.iter().map(|event| (node_id, event))).await?;
    Ok(EnrolledAgent { node_id, run_id: request.run_id, again })
}

impl Store {
    /// Stores a credential that belongs to no deployment, such as one for the admin API.
    ///
    /// # Errors
    /// `already_exists`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn add_token(&self, now: Timestamp, token: NewToken) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { insert(conn, now, &[token]).await })).await
    }

    /// Makes `token` the only credential of its identifier: one that was stored before counts no
    /// more, and the audit says so.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn replace_token(
        &self,
        now: Timestamp,
        token: NewToken,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                conn.execute("DELETE FROM token WHERE id = $1", args![token.id.0]).await?;
                insert(conn, now, &[token]).await?;
                audit::append(conn, now, &entry).await
            })
        })
        .await
    }

    /// Withdraws a credential.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn revoke_token(&self, now: Timestamp, id: TokenId) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                let found = conn
                    .execute(
                        "UPDATE token SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1",
                        args![id.0, now],
                    )
                    .await?;
                if found == 0 { Err(StoreError::not_found("token", id)) } else { Ok(()) }
            })
        })
        .await
    }

    async fn stored_token(&self, hash: [u8; 32]) -> Result<Option<StoredToken>, StoreError> {
        match self.shared_reads() {
            Some((reads, _guard)) => reads.tokens.get(hash).await,
            None => Ok(tokens_with_hashes(&mut self.reader().await?, [hash]).await?.remove(&hash)),
        }
    }

    /// What a credential stands for, if it is good for `purpose` now. Uses nothing up.
    ///
    /// # Errors
    /// [`StoreError::Token`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn check_token(
        &self,
        now: Timestamp,
        hash: [u8; 32],
        purpose: TokenPurpose,
    ) -> Result<TokenGrant, StoreError> {
        let token = self.stored_token(hash).await?;
        let token = token.ok_or(StoreError::Token(TokenRejection::Unknown))?;
        token.check(now, purpose).map_err(StoreError::Token)?;
        Ok(token.grant)
    }

    /// What an enrollment token stands for, used or not: whose key used it is known once the
    /// request is read, and [`Self::check_enrollment`] says so. Uses nothing up.
    ///
    /// # Errors
    /// [`StoreError::Token`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn enrollment_grant(
        &self,
        now: Timestamp,
        hash: [u8; 32],
    ) -> Result<TokenGrant, StoreError> {
        let token = self.stored_token(hash).await?;
        let token = token.ok_or(StoreError::Token(TokenRejection::Unknown))?;
        match token.check(now, TokenPurpose::Enrollment) {
            Ok(()) | Err(TokenRejection::Used) => Ok(token.grant),
            Err(rejection) => Err(StoreError::Token(rejection)),
        }
    }

    /// Whether an enrollment token is good for an agent with this key now, and the node may have one more
    /// certificate. Uses nothing up.
    ///
    /// # Errors
    /// [`StoreError::Token`], `certificates_too_many`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn check_enrollment(
        &self,
        now: Timestamp,
        hash: [u8; 32],
        key: Option<[u8; 32]>,
    ) -> Result<(), StoreError> {
        let token = self.stored_token(hash).await?;
        let token = token.ok_or(StoreError::Token(TokenRejection::Unknown))?;
        token.check_key(now, key.as_ref()).map_err(StoreError::Token)?;
        // The first use of a token ends the certificates that were given before.
        match token.grant.node_id.filter(|_| token.used_at.is_some()) {
            Some(node_id) => self.check_certificate_count(now, node_id).await,
            None => Ok(()),
        }
    }

    /// How many bootstrap and enrollment tokens of the node would be honoured now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn count_honoured_tokens(&self, node_id: NodeId) -> Result<i64, StoreError> {
        let count = match self.shared_reads() {
            Some((reads, _guard)) => reads.honoured_tokens.get(node_id).await?,
            None => {
                let conn = &mut self.reader().await?;
                honoured_tokens(conn, [node_id]).await?.remove(&node_id)
            }
        };
        Ok(count.unwrap_or_default())
    }

    /// The node that a credential was made for, good or not.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn token_owner(&self, hash: [u8; 32]) -> Result<Option<NodeId>, StoreError> {
        let sql = "SELECT node_id FROM token WHERE hash = $1";
        let row = self.reader().await?.first(sql, args![&hash]).await?;
        row.map_or(Ok(None), |row| row.cols().opt_id(NodeId))
    }

    /// Takes an agent: uses its enrollment token up, replaces whatever credential the node's
    /// agent had, notes the report and wakes the run, all at once. What the same enrollment gave
    /// before, in an answer that was lost, stays good.
    ///
    /// # Errors
    /// [`StoreError::Token`], `certificates_too_many`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn use_enrollment_token(
        &self,
        now: Timestamp,
        request: NewEnrollment,
    ) -> Result<EnrolledAgent, StoreError> {
        let hints = GroupHints::of_run(request.run_id.0);
        let request = Arc::new(request);
        let enrolled = self
            .write_grouped(hints, move |conn| {
                let request = Arc::clone(&request);
                Box::pin(async move { enroll(conn, now, &request).await })
            })
            .await?;
        self.signal_due();
        Ok(enrolled)
    }

    /// Moves the end that a run's tokens have while it is parked on to `expires_at`, never back:
    /// when it parks, as part of [`crate::RunWrite`], and when its node says something all the
    /// same.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn start_token_clock(
        &self,
        run_id: RunId,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move { extend_expiry(conn, run_id, expires_at).await })
        })
        .await
    }
}
