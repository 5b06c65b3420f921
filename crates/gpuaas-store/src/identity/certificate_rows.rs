//! Rows of `node_certificate`.

use std::fmt;
use std::str::FromStr;

use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, RunId, Timestamp};

use crate::database::{Conn, args};
use crate::error::StoreError;

/// Certificates of one node that may be good at once. An agent needs two while it renews, and a
/// few more where answers were lost.
const MAX_LIVE: i64 = 8;

/// How a certificate ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateEnding {
    /// An operator withdrew it, or the node left.
    Revoked,
    /// The system that had it was released, or another one of the node took its place.
    Superseded,
}

impl CertificateEnding {
    /// Stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Superseded => "superseded",
        }
    }
}

impl fmt::Display for CertificateEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CertificateEnding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Revoked, Self::Superseded].into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| format!("unknown certificate ending {text:?}"))
    }
}

/// A certificate to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCertificate {
    /// SHA-256 of its DER.
    pub fingerprint: [u8; 32],
    /// Serial number, hexadecimal.
    pub serial: String,
    /// First moment at which it is valid.
    pub not_before: Timestamp,
    /// Last moment at which it is valid.
    pub not_after: Timestamp,
    /// Generation of the authority that signed it.
    pub authority: i64,
}

pub(crate) async fn insert(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    run_id: RunId,
    new: &NewCertificate,
) -> Result<(), StoreError> {
    conn.execute(
        "INSERT INTO node_certificate (fingerprint, serial, node_id, run_id, issued_at, \
         not_before, not_after, authority) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        args![
            &new.fingerprint,
            &new.serial,
            node_id.0,
            run_id.0,
            now,
            new.not_before,
            new.not_after,
            new.authority
        ],
    )
    .await
    .map(drop)
}

/// Ends whatever certificates of the node still count. Answers how many did.
pub(crate) async fn end_all(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    ending: CertificateEnding,
    reason: &str,
) -> Result<u64, StoreError> {
    conn.execute(
        "UPDATE node_certificate SET ended_as = $2, ended_at = $3, end_reason = $4 \
         WHERE node_id = $1 AND ended_as IS NULL",
        args![node_id.0, ending.as_str(), now, reason],
    )
    .await
}

/// Refuses where the node has as many certificates as it may.
pub(crate) async fn check_live_limit(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
) -> Result<(), StoreError> {
    let sql = "SELECT COUNT(*) FROM node_certificate \
               WHERE node_id = $1 AND ended_as IS NULL AND not_after > $2";
    let row = conn.first(sql, args![node_id.0, now]).await?;
    let live: i64 = row.map_or(Ok(0), |row| row.cols().next())?;
    if live < MAX_LIVE {
        return Ok(());
    }
    let detail = format!("this node already has {live} valid certificates");
    Err(StoreError::conflict(ProblemCode::CertificatesTooMany, detail))
}
