//! Certificates of nodes' agents.
//!
//! A certificate counts while it is written down here and has not ended, whatever its own dates
//! say; so one that an authority signed behind our back, or for a database that was restored from
//! a backup, opens nothing. It ends as **revoked** (an operator, or the node left) or as
//! **superseded** (its system was released, or another one of the node enrolled or is about to). A
//! renewal ends nothing: the one before stays good until its own end, since its agent may not have got
//! the answer.

use async_recursion::async_recursion as boxed;
use gpuaas_core::record::ReportKind;
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, RunId, Timestamp};

use crate::agent::report_rows;
use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Cols, Conn, args};
use crate::error::StoreError;
use crate::identity::certificate_rows::{self, CertificateEnding, NewCertificate};
use crate::run::{rows as run, timeline_rows};
use crate::store::Store;

/// A certificate that was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCertificate {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// Node of the agent that it was issued to.
    pub node_id: NodeId,
    /// The run that the system enrolled in.
    pub run_id: RunId,
    /// Moment at which it was issued.
    pub issued_at: Timestamp,
    /// First moment at which it is valid.
    pub not_before: Timestamp,
    /// Last moment at which it is valid.
    pub not_after: Timestamp,
    /// How, when and why it ended before its time.
    pub ended: Option<(CertificateEnding, Timestamp, String)>,
    /// Generation of the authority that signed it.
    pub authority: i64,
}

pub(crate) const CERTIFICATE_COLUMNS: &str = "serial, node_id, run_id, issued_at, not_before, not_after, ended_as, ended_at, end_reason, \
     authority";

pub(crate) fn read_certificate(mut cols: Cols<'_>) -> Result<StoredCertificate, StoreError> {
    let mut stored = StoredCertificate {
        serial: cols.next()?,
        node_id: cols.id(NodeId)?,
        run_id: cols.id(RunId)?,
        issued_at: cols.at()?,
        not_before: cols.at()?,
        not_after: cols.at()?,
        ended: None,
        authority: 1,
    };
    let (how, at): (Option<CertificateEnding>, _) = (cols.opt_enum_str()?, cols.opt_at()?);
    let why: Option<String> = cols.next()?;
    stored.ended = how.zip(at).map(|(how, at)| (how, at, why.unwrap_or_default()));
    stored.authority = cols.next()?;
    Ok(stored)
}

fn revoked_error() -> StoreError {
    StoreError::conflict(ProblemCode::CertificateRevoked, "the certificate has just been revoked")
}

async fn renew(
    conn: &mut Conn,
    now: Timestamp,
    from: [u8; 32],
    new: &NewCertificate,
    history: Vec<TimelineEvent>,
) -> Result<(), StoreError> {
    // The run first, as everywhere; that also lets renewals of a node in one by one.
    let sql = "SELECT run_id FROM node_certificate WHERE fingerprint = $1";
    let row = conn.first(sql, args![&from]).await?.ok_or_else(revoked_error)?;
    let run_id = row.cols().id(RunId)?;
    conn.first("SELECT id FROM run WHERE id = $1 {LOCK}", args![run_id.0]).await?;
    let sql = "SELECT node_id FROM node_certificate WHERE fingerprint = $1 AND ended_as IS NULL";
    let row = conn.first(sql, args![&from]).await?.ok_or_else(revoked_error)?;
    let node_id = row.cols().id(NodeId)?;
    certificate_rows::check_live_limit(conn, now, node_id).await?;
    certificate_rows::insert(conn, now, node_id, run_id, new).await?;
    timeline_rows::append(conn, history.iter().map(|event| (node_id, event))).await
}

impl Store {
    /// What is known of the certificate with this SHA-256: one look into an index.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn certificate(
        &self,
        fingerprint: [u8; 32],
    ) -> Result<Option<StoredCertificate>, StoreError> {
        let sql =
            format!("SELECT {CERTIFICATE_COLUMNS} FROM node_certificate WHERE fingerprint = $1");
        let row = self.reader().await?.first(sql, args![&fingerprint]).await?;
        row.map(|row| read_certificate(row.cols())).transpose()
    }

    /// Every certificate that a node was given, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn certificates_of_node(
        &self,
        node_id: NodeId,
    ) -> Result<Vec<StoredCertificate>, StoreError> {
        let sql = format!(
            "SELECT {CERTIFICATE_COLUMNS} FROM node_certificate WHERE node_id = $1 \
             ORDER BY issued_at, serial"
        );
        let rows = self.reader().await?.all(sql, args![node_id.0]).await?;
        rows.iter().map(|row| read_certificate(row.cols())).collect()
    }

    /// Checks that a node may have one more certificate.
    ///
    /// # Errors
    /// `certificates_too_many`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn check_certificate_count(
        &self,
        now: Timestamp,
        node_id: NodeId,
    ) -> Result<(), StoreError> {
        certificate_rows::check_live_limit(&mut self.reader().await?, now, node_id).await
    }

    /// Writes down the certificate that follows the one with fingerprint `from`, which stays good
    /// until its own end.
    ///
    /// # Errors
    /// `certificate_revoked` when that one has ended meanwhile, `certificates_too_many`;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn renew_certificate(
        &self,
        now: Timestamp,
        from: [u8; 32],
        new: NewCertificate,
        history: Vec<TimelineEvent>,
    ) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { renew(conn, now, from, &new, history).await }))
            .await
    }

    /// Withdraws every certificate of a node that still counts, and forgets its TPM. Answers how many
    /// certificates.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn revoke_certificates(
        &self,
        now: Timestamp,
        node_id: NodeId,
        reason: &str,
        history: Vec<TimelineEvent>,
        audit: NewAuditEntry,
    ) -> Result<u64, StoreError> {
        let reason = reason.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                // Runs first, as everywhere.
                conn.all("SELECT id FROM run WHERE node_id = $1 {LOCK}", args![node_id.0]).await?;
                let ending = CertificateEnding::Revoked;
                let ended = certificate_rows::end_all(conn, now, node_id, ending, &reason).await?;
                // Whoever is the node from now on shows a TPM anew.
                conn.execute("DELETE FROM node_tpm WHERE node_id = $1", args![node_id.0]).await?;
                if ended > 0 {
                    let history = history.iter().map(|event| (node_id, event));
                    timeline_rows::append(conn, history).await?;
                    let mut entry = audit;
                    entry.detail["certificates"] = ended.into();
                    audit::append(conn, now, &entry).await?;
                }
                Ok(ended)
            })
        })
        .await
    }

    /// Notes that another key asked to enroll with a token that was used: revokes what the node's
    /// agents and the run's deployment have, and wakes the run, which parks. Answers whether it was
    /// the first to ask.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a run; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn contest_enrollment(
        &self,
        now: Timestamp,
        run_id: RunId,
        address: String,
        history: Vec<TimelineEvent>,
    ) -> Result<bool, StoreError> {
        let is_first = self
            .write(move |conn| {
                Box::pin(async move {
                    let node_id = run::wake_one(conn, now, run_id).await?;
                    // What is revoked is refused as that, so nobody contests it once more.
                    let sql = "UPDATE token SET revoked_at = $2 WHERE run_id = $1 \
                               AND revoked_at IS NULL";
                    if conn.execute(sql, args![run_id.0, now]).await? == 0 {
                        return Ok(false);
                    }
                    let reason = "another key asked to enroll with the node's token";
                    let ending = CertificateEnding::Revoked;
                    certificate_rows::end_all(conn, now, node_id, ending, reason).await?;
                    // Whoever came first may have shown a TPM of their own.
                    conn.execute("DELETE FROM node_tpm WHERE run_id = $1", args![run_id.0]).await?;
                    let kind = ReportKind::EnrollmentContested { address };
                    report_rows::append_reports(conn, now, run_id, &kind).await?;
                    timeline_rows::append(conn, history.iter().map(|event| (node_id, event)))
                        .await?;
                    Ok(true)
                })
            })
            .await?;
        if is_first {
            self.signal_due();
        }
        Ok(is_first)
    }
}
