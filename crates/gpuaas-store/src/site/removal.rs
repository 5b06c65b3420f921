//! Removing sites and profiles.
//!
//! The row stays, because the history of nodes refers to it; it gives its name up and is not listed
//! any more. What was sealed for it is deleted.

use async_recursion::async_recursion as boxed;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{ProfileId, SiteId, Timestamp};
use uuid::Uuid;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::store::Store;

/// What the two kinds of removal say differently.
struct Removal {
    /// Kind of the resource.
    what: &'static str,
    /// Reads the name where the resource is there.
    find: &'static str,
    /// Counts nodes in service, or with an open run, and names one.
    nodes: &'static str,
    /// Names a batch that is not over.
    batches: &'static str,
    /// What refuses while one of them is there.
    in_use: ProblemCode,
    /// Rows that go with it.
    deletions: &'static [&'static str],
    /// Gives the name up.
    rename: &'static str,
}

const SITE: Removal = Removal {
    what: "site",
    find: "SELECT name FROM site WHERE id = $1 AND removed_at IS NULL {LOCK_KEY}",
    nodes: "SELECT COUNT(*), MIN(node.hostname) FROM node LEFT JOIN run ON run.id = node.run_id \
         WHERE node.site_id = $1 AND (node.state NOT IN ('retired', 'detached', 'deleted') \
         OR run.status IN ('running', 'waiting', 'parked'))",
    batches: "SELECT name FROM batch WHERE site_id = $1 AND ended_at IS NULL LIMIT 1",
    in_use: ProblemCode::SiteInUse,
    deletions: &[
        "DELETE FROM roce_assignment WHERE site_id = $1",
        "DELETE FROM host_value WHERE site_id = $1",
        "DELETE FROM bundle_approval WHERE site_id = $1",
        "DELETE FROM host_image_event WHERE site_id = $1",
        "DELETE FROM host_image WHERE site_id = $1",
        "DELETE FROM image_verdict WHERE site_id = $1",
        "DELETE FROM input_secret WHERE owner = $1",
        "DELETE FROM secret WHERE owner = $1",
    ],
    rename: "UPDATE site SET name = name || '~' || $2, removed_at = $3, updated_at = $3, \
         revision = revision + 1 WHERE id = $1",
};

const PROFILE: Removal = Removal {
    what: "profile",
    find: "SELECT name FROM profile WHERE id = $1 AND removed_at IS NULL {LOCK_KEY}",
    nodes: "SELECT COUNT(*), MIN(node.hostname) FROM node LEFT JOIN run ON run.id = node.run_id \
         WHERE node.profile_id = $1 AND (node.state NOT IN ('retired', 'detached', 'deleted') \
         OR run.status IN ('running', 'waiting', 'parked'))",
    batches: "SELECT name FROM batch WHERE profile_id = $1 AND ended_at IS NULL LIMIT 1",
    in_use: ProblemCode::ProfileInUse,
    deletions: &[
        "DELETE FROM input_secret WHERE owner = $1",
        "DELETE FROM secret WHERE owner = $1",
    ],
    rename: "UPDATE profile SET name = name || '~' || $2, removed_at = $3, updated_at = $3 \
         WHERE id = $1",
};

async fn remove(
    conn: &mut Conn,
    now: Timestamp,
    removal: &Removal,
    id: Uuid,
    entry: &NewAuditEntry,
) -> Result<(), StoreError> {
    let row = conn.first(removal.find, args![id]).await?;
    let row = row.ok_or_else(|| StoreError::not_found(removal.what, id))?;
    let name: String = row.cols().next()?;
    if let Some(row) = conn.first(removal.nodes, args![id]).await? {
        let mut cols = row.cols();
        let (count, first): (i64, Option<String>) = (cols.next()?, cols.next()?);
        if let Some(first) = first {
            let detail =
                format!("{count} nodes of {} {name} are in service, such as {first}", removal.what);
            return Err(StoreError::conflict(removal.in_use, detail));
        }
    }
    if let Some(row) = conn.first(removal.batches, args![id]).await? {
        let batch: String = row.cols().next()?;
        let detail = format!("batch {batch} of {} {name} has not finished", removal.what);
        return Err(StoreError::conflict(removal.in_use, detail));
    }
    for sql in removal.deletions {
        conn.execute(*sql, args![id]).await?;
    }
    conn.execute(removal.rename, args![id, &id.to_string(), now]).await?;
    audit::append(conn, now, entry).await
}

impl Store {
    /// Removes a site that has no node in service, with its API key, its secrets, its fabric
    /// addresses and its approvals. The records of nodes that left it stay.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `site_in_use`, which names a node or a batch;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case nothing was changed.
    #[boxed]
    pub async fn remove_site(
        &self,
        now: Timestamp,
        id: SiteId,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move { remove(conn, now, &SITE, id.0, &entry).await })
        })
        .await
    }

    /// Removes a profile that no node in service has, with its secrets. Runs keep the revision
    /// that they pinned.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `profile_in_use`, which names a node or a batch;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case nothing was changed.
    #[boxed]
    pub async fn remove_profile(
        &self,
        now: Timestamp,
        id: ProfileId,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move { remove(conn, now, &PROFILE, id.0, &entry).await })
        })
        .await
    }
}
