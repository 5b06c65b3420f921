//! Rows of `site`.

use gpuaas_types::api::{Resource, SiteResource, SiteStatus};
use gpuaas_types::{SiteId, Timestamp};

use crate::database::{Cols, Conn, Val, args};
use crate::error::StoreError;

pub(crate) fn read_site(cols: &mut Cols<'_>) -> Result<SiteResource, StoreError> {
    Ok(Resource {
        id: cols.id(SiteId)?,
        spec: cols.json()?,
        status: cols.json()?,
        revision: cols.next()?,
        created_at: cols.at()?,
        updated_at: cols.at()?,
    })
}

/// Changes what is known of a site, inside a transaction.
pub(crate) async fn edit_status(
    conn: &mut Conn,
    now: Timestamp,
    site_id: SiteId,
    edit: impl FnOnce(&mut SiteStatus) + Send,
) -> Result<(), StoreError> {
    let row = conn.first("SELECT status FROM site WHERE id = $1 {LOCK}", args![site_id.0]).await?;
    let row = row.ok_or_else(|| StoreError::not_found("site", site_id))?;
    let mut status: SiteStatus = row.cols().json()?;
    edit(&mut status);
    let values = vec![site_id.0.into(), Val::json(&status)?, now.into()];
    conn.execute("UPDATE site SET status = $2, updated_at = $3 WHERE id = $1", values)
        .await
        .map(drop)
}
