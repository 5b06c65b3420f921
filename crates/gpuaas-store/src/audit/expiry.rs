//! Entries of the audit that go because they are old, and what the chain keeps of them.

use gpuaas_core::audit_chain::{AuditDigest, AuditExpiry, group_digest};
use gpuaas_types::audit::AuditChainEnd;
use gpuaas_types::{AuditAction, Timestamp};

use super::chain_rows::{read_digest, read_ends, read_head};
use super::rows::{self as audit, NewAuditEntry};
use crate::database::{Conn, Val, args, with_list};
use crate::error::StoreError;

/// Actor of what control planes do by themselves.
const CONTROL_PLANE: &str = "gpuaas";

/// Deletes entries by the statement `delete`, whose list is `ids`. Their rows of the chain become a
/// group, whole groups at the chain's beginning go, and a record says so. Answers how many entries
/// there were.
pub(crate) async fn expire_entries(
    conn: &mut Conn,
    now: Timestamp,
    delete: impl Into<std::borrow::Cow<'static, str>>,
    ids: Vec<Val>,
) -> Result<u64, StoreError> {
    // Whoever chains or deletes entries elsewhere waits here.
    read_head(conn, true).await?;
    let sql = "SELECT seq, row_digest FROM audit_chain WHERE expired IS NULL \
               AND entry_id IN ({LIST}) ORDER BY seq";
    let mut group = 0;
    let mut digests: Vec<AuditDigest> = Vec::new();
    for row in conn.all(with_list(sql, 1, ids.len()), ids.clone()).await? {
        let mut cols = row.cols();
        group = cols.next()?;
        digests.push(read_digest(cols.next()?)?);
    }
    if digests.is_empty() {
        return Ok(0);
    }
    let mut values = args![group];
    values.extend(ids.iter().cloned());
    let sql = "UPDATE audit_chain SET expired = $1 WHERE expired IS NULL AND entry_id IN ({LIST})";
    conn.execute(with_list(sql, 2, ids.len()), values).await?;
    let deleted = conn.execute(delete.into(), ids).await?;
    let expiry = AuditExpiry {
        group,
        entries: u64::try_from(digests.len()).unwrap_or(u64::MAX),
        digest: group_digest(&digests),
        anchor: move_anchor(conn).await?,
    };
    let entry = NewAuditEntry {
        actor: CONTROL_PLANE.to_owned(),
        action: AuditAction::AuditExpire,
        subject: format!("{} entries", expiry.entries),
        detail: serde_json::to_value(&expiry)
            .map_err(|error| StoreError::corrupt("deletion record", error))?,
    };
    audit::append(conn, now, &entry).await?;
    Ok(deleted)
}

/// Deletes the rows at the chain's beginning whose records are gone, in whole groups. Answers the
/// last one that is gone.
async fn move_anchor(conn: &mut Conn) -> Result<AuditChainEnd, StoreError> {
    let sql = "SELECT seq FROM audit_chain WHERE expired IS NULL ORDER BY seq LIMIT 1";
    let first = conn.first(sql, args![]).await?;
    let first: i64 = first.map_or(Ok(i64::MAX), |row| row.cols().next())?;
    // A group on both sides of the first row with a record stays whole.
    let sql = "SELECT early.seq FROM audit_chain AS early WHERE early.seq < $1 AND EXISTS \
               (SELECT 1 FROM audit_chain AS later WHERE later.expired = early.expired \
               AND later.seq > $1) ORDER BY early.seq LIMIT 1";
    let split = conn.first(sql, args![first]).await?;
    let end: i64 = split.map_or(Ok(first), |row| row.cols().next())?;
    let sql = "SELECT seq, digest FROM audit_chain WHERE seq < $1 ORDER BY seq DESC LIMIT 1";
    if let Some(row) = conn.first(sql, args![end]).await? {
        let mut cols = row.cols();
        let (seq, digest): (i64, Vec<u8>) = (cols.next()?, cols.next()?);
        let sql = "UPDATE audit_head SET anchor_seq = $1, anchor_digest = $2 WHERE id = 1";
        conn.execute(sql, args![seq, digest]).await?;
        conn.execute("DELETE FROM audit_chain WHERE seq <= $1", args![seq]).await?;
    }
    let sql = "SELECT seq, digest, anchor_seq, anchor_digest FROM audit_head WHERE id = 1";
    let row = conn.first(sql, args![]).await?;
    let row = row.ok_or_else(|| StoreError::corrupt("audit_head", "row is missing"))?;
    Ok(read_ends(&mut row.cols())?.1)
}
