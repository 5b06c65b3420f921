//! Rows of `site_watch`.

use std::collections::HashMap;

use gpuaas_types::{SiteId, Timestamp};

use crate::database::{Conn, Val, padded, with_list};
use crate::error::StoreError;

/// When the lease of each site's watcher ends, where that has a cursor of the event feed.
pub(crate) async fn watched_until(
    conn: &mut Conn,
    site_ids: impl IntoIterator<Item = SiteId>,
) -> Result<HashMap<SiteId, Timestamp>, StoreError> {
    let mut found = HashMap::new();
    for ids in padded(site_ids.into_iter().map(|id| id.0)) {
        let text = "SELECT site_id, lease_until FROM site_watch WHERE site_id IN ({LIST}) \
                    AND event_cursor IS NOT NULL";
        let sql = with_list(text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            found.insert(cols.id(SiteId)?, cols.at()?);
        }
    }
    Ok(found)
}
