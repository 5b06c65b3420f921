//! Rows of `site`.

use std::collections::HashMap;

use gpuaas_types::api::{Resource, SiteResource, SiteStatus};
use gpuaas_types::{SiteId, Timestamp};

use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;

macro_rules! site_select {
    ($rest:literal) => {
        concat!("SELECT id, spec, status, revision, created_at, updated_at FROM site ", $rest)
    };
}

pub(crate) use site_select;

/// The sites with these names, by name.
pub(crate) async fn sites_named(
    conn: &mut Conn,
    names: impl IntoIterator<Item = String>,
) -> Result<HashMap<String, SiteResource>, StoreError> {
    let names: Vec<String> = names.into_iter().collect();
    let mut found = HashMap::new();
    for names in padded(names.iter().map(String::as_str)) {
        let sql = with_list(site_select!("WHERE name IN ({LIST})"), 1, names.len());
        for row in conn.all(sql, names.into_iter().map(Val::from).collect()).await? {
            let site = read_site(&mut row.cols())?;
            found.insert(site.spec.name.clone(), site);
        }
    }
    Ok(found)
}

/// Identifiers of the sites whose region is that of site `$1`, itself included.
macro_rules! sites_of_region {
    () => {
        "(SELECT other.id FROM site AS mine JOIN site AS other \
         ON other.id = mine.id OR other.region = mine.region WHERE mine.id = $1)"
    };
}
pub(crate) use sites_of_region;

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
