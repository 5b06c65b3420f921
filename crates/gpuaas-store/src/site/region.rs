//! Which region a site is of. A machine belongs to a region, and the sites of one region share its
//! machines: what is unique within a region is looked for across them.
//!
//! A region is known by the identity in the mark that is kept in it. Where that is not known yet,
//! its address stands for it.

use async_recursion::async_recursion as boxed;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{SiteId, Timestamp};

use crate::database::schema::meta::one_at_a_time;
use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::site::rows::edit_status;
use crate::store::Store;

/// Lock under which it is decided which site is of which region.
const REGIONS: &str = "regions";

/// What a region is known by.
#[derive(Debug, Clone)]
pub(crate) struct RegionName {
    /// Identity in its mark; empty: not known.
    identity: String,
    /// Its address, in one spelling.
    url: String,
    /// Resource pool whose machines are the site's; none: every machine.
    pool: Option<String>,
}

impl RegionName {
    pub(crate) fn new(spec: &SiteSpec, identity: &str) -> Self {
        let pool = spec.pool.clone();
        Self { identity: identity.to_owned(), url: spec.region_url(), pool }
    }

    /// What stands in `site.region`.
    fn key(&self) -> &str {
        if self.identity.is_empty() { &self.url } else { &self.identity }
    }
}

/// Name of another site that has machines of this region which this one would have.
async fn site_of_region(
    conn: &mut Conn,
    site_id: SiteId,
    region: &RegionName,
) -> Result<Option<String>, StoreError> {
    let rows = conn
        .all(
            "SELECT spec FROM site WHERE id <> $1 AND removed_at IS NULL \
             AND (region = $2 OR region_url = $3) ORDER BY created_at",
            args![site_id.0, region.key(), &region.url],
        )
        .await?;
    for row in rows {
        let other: SiteSpec = row.cols().json()?;
        let apart = region.pool.is_some() && other.pool.is_some() && region.pool != other.pool;
        if !apart {
            return Ok(Some(other.name));
        }
    }
    Ok(None)
}

/// Writes the region of a site, and with it that of its nodes' machines. A machine that a node of
/// another site holds stays with that one.
async fn put_region(
    conn: &mut Conn,
    site_id: SiteId,
    region: &RegionName,
) -> Result<(), StoreError> {
    conn.execute(
        "UPDATE site SET region = $2, region_url = $3 WHERE id = $1",
        args![site_id.0, region.key(), &region.url],
    )
    .await?;
    conn.execute(
        "UPDATE node SET region = $2 WHERE site_id = $1 AND system_id IS NOT NULL \
         AND (region IS NULL OR region <> $2) AND NOT EXISTS (SELECT 1 FROM node AS holder \
         WHERE holder.region = $2 AND holder.system_id = node.system_id AND holder.id <> node.id \
         AND holder.state NOT IN ('retired', 'detached', 'deleted'))",
        args![site_id.0, region.key()],
    )
    .await
    .map(drop)
}

/// Makes a site one of this region, unless another site is.
pub(crate) async fn claim_region(
    conn: &mut Conn,
    site_id: SiteId,
    region: &RegionName,
) -> Result<(), StoreError> {
    one_at_a_time(conn, REGIONS).await?;
    if let Some(other) = site_of_region(conn, site_id, region).await? {
        let detail = match &region.pool {
            None => format!("site {other} already uses machines of the region at {}", region.url),
            Some(pool) => {
                format!("site {other} already uses pool {pool} of the region at {}", region.url)
            }
        };
        return Err(StoreError::conflict(ProblemCode::RegionTaken, detail));
    }
    put_region(conn, site_id, region).await
}

impl Store {
    /// Writes the identity that the mark in a site's region says. Answers the name of another site
    /// that turns out to be of the same region: their nodes cannot hold the same machine from then
    /// on.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn set_site_region(
        &self,
        now: Timestamp,
        site_id: SiteId,
        identity: &str,
    ) -> Result<Option<String>, StoreError> {
        let identity = identity.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                edit_status(conn, now, site_id, |status| status.region.clone_from(&identity))
                    .await?;
                one_at_a_time(conn, REGIONS).await?;
                let row = conn.first("SELECT spec FROM site WHERE id = $1", args![site_id.0]);
                let row = row.await?.ok_or_else(|| StoreError::not_found("site", site_id))?;
                let spec: SiteSpec = row.cols().json()?;
                let region = RegionName::new(&spec, &identity);
                let other = site_of_region(conn, site_id, &region).await?;
                put_region(conn, site_id, &region).await?;
                Ok(other)
            })
        })
        .await
    }

    /// Names the regions of sites that were made before regions had names.
    pub(crate) async fn name_regions(&self) -> Result<(), StoreError> {
        const UNNAMED: &str = "SELECT id, spec FROM site WHERE region_url IS NULL AND removed_at IS NULL \
             ORDER BY created_at";
        if self.reader().await?.first(UNNAMED, args![]).await?.is_none() {
            return Ok(());
        }
        self.write(|conn| {
            Box::pin(async move {
                one_at_a_time(conn, REGIONS).await?;
                for row in conn.all(UNNAMED, args![]).await? {
                    let mut cols = row.cols();
                    let (site_id, spec): (_, SiteSpec) = (cols.id(SiteId)?, cols.json()?);
                    put_region(conn, site_id, &RegionName::new(&spec, "")).await?;
                }
                Ok(())
            })
        })
        .await
    }
}
