//! Sites and their sealed API keys.

use async_recursion::async_recursion as boxed;
use gpuaas_types::api::{SiteResource, SiteStatus};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{SiteId, Timestamp};
use secrecy::SecretString;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::list_filter::with_filter;
use crate::database::{Val, args};
use crate::error::StoreError;
use crate::identity::secret::rows::{delete_secret, put_secret};
use crate::site::region::{RegionName, claim_region};
use crate::site::rows::{edit_status, read_site, site_select, sites_named};
use crate::store::Store;

const API_KEY: &str = "maas_api_key";

impl Store {
    /// Adds a site and seals its API key, unless the specification says where that is kept. Its region is known by `status.region`, where that is
    /// known, and by its address.
    ///
    /// # Errors
    /// `site_name_taken`; `region_taken`, which names the site of that region;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn create_site(
        &self,
        now: Timestamp,
        id: SiteId,
        spec: SiteSpec,
        status: SiteStatus,
        api_key: &SecretString,
        audit: NewAuditEntry,
    ) -> Result<SiteResource, StoreError> {
        let is_sealed = spec.api_key_ref.is_none();
        let sealed = is_sealed.then(|| self.seal(id.0, API_KEY, api_key)).transpose()?;
        let (name, values) = (spec.name.clone(), (Val::json(&spec)?, Val::json(&status)?));
        let region = RegionName::new(&spec, &status.region);
        self.write(move |conn| {
            Box::pin(async move {
                let made = conn
                    .execute(
                        "INSERT INTO site (id, name, spec, status, revision, created_at, \
                         updated_at) VALUES ($1, $2, $3, $4, 1, $5, $5) ON CONFLICT DO NOTHING",
                        vec![id.0.into(), (&name).into(), values.0, values.1, now.into()],
                    )
                    .await?;
                if made == 0 {
                    let detail = format!("a site named {name} already exists");
                    return Err(StoreError::conflict(ProblemCode::SiteNameTaken, detail));
                }
                claim_region(conn, id, &region).await?;
                conn.execute(
                    "INSERT INTO site_watch (site_id, holder, lease_token, lease_until) \
                     VALUES ($1, '', 0, 0)",
                    args![id.0],
                )
                .await?;
                if let Some(sealed) = sealed {
                    put_secret(conn, id.0, API_KEY, sealed).await?;
                }
                audit::append(conn, now, &audit).await
            })
        })
        .await?;
        Ok(SiteResource { id, spec, status, revision: 1, created_at: now, updated_at: now })
    }

    /// A site by identifier.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn site(&self, id: SiteId) -> Result<SiteResource, StoreError> {
        let row = self.reader().await?.first(site_select!("WHERE id = $1"), args![id.0]).await?;
        let row = row.ok_or_else(|| StoreError::not_found("site", id))?;
        read_site(&mut row.cols())
    }

    /// A site by name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn site_by_name(&self, name: &str) -> Result<SiteResource, StoreError> {
        let found = match self.shared_reads() {
            Some((reads, _guard)) => reads.sites.get(name.to_owned()).await?,
            None => sites_named(&mut self.reader().await?, [name.to_owned()]).await?.remove(name),
        };
        found.ok_or_else(|| StoreError::not_found("site", name))
    }

    /// All sites, by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn sites(&self) -> Result<Vec<SiteResource>, StoreError> {
        self.list_sites(None).await
    }

    /// The sites that a filter lets pass, by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn list_sites(
        &self,
        filter: Option<&ListFilter>,
    ) -> Result<Vec<SiteResource>, StoreError> {
        const SQL: &str = site_select!("WHERE removed_at IS NULL {FILTER} ORDER BY name");
        let mut values = args![];
        let sql = with_filter(SQL, FilterList::Sites, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| read_site(&mut row.cols())).collect()
    }

    /// Writes what an operator changed, where the site's revision is still `seen` if one is given: the
    /// specification, what MAAS said to it, and another API
    /// key where one is given; of a site whose key is kept elsewhere none is kept here. The name stays, and so does the count of missed work, which sweeps
    /// write meanwhile; the revision grows in any case, so that whoever
    /// holds a connection to the site makes a new one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `region_taken`, when it would be of another site's region;
    /// `revision_changed`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn update_site(
        &self,
        now: Timestamp,
        (id, seen): (SiteId, Option<i64>),
        spec: SiteSpec,
        status: SiteStatus,
        api_key: Option<&SecretString>,
        audit: NewAuditEntry,
    ) -> Result<SiteResource, StoreError> {
        let is_sealed = spec.api_key_ref.is_none();
        let given = api_key.filter(|_| is_sealed);
        let sealed = given.map(|key| self.seal(id.0, API_KEY, key)).transpose()?;
        let region = RegionName::new(&spec, &status.region);
        let spec = Val::json(&spec)?;
        self.write(move |conn| {
            Box::pin(async move {
                edit_status(conn, now, id, |known| {
                    *known = SiteStatus {
                        missed_work: known.missed_work,
                        past: known.past.take(),
                        control: known.control.take(),
                        ..status
                    };
                })
                .await?;
                claim_region(conn, id, &region).await?;
                let sql = "UPDATE site SET spec = $2, revision = revision + 1 WHERE id = $1 \
                           RETURNING revision";
                let row = conn.first(sql, vec![id.0.into(), spec]).await?;
                let row = row.ok_or_else(|| StoreError::not_found("site", id))?;
                StoreError::check_revision(seen, row.cols().next::<i64>()? - 1)?;
                match sealed {
                    Some(sealed) => put_secret(conn, id.0, API_KEY, sealed).await?,
                    None if is_sealed => {}
                    None => drop(delete_secret(conn, id.0, API_KEY).await?),
                }
                audit::append(conn, now, &audit).await
            })
        })
        .await?;
        self.site(id).await
    }

    /// The site's MAAS API key, where it is kept here.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Corrupt`]; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn site_api_key(&self, id: SiteId) -> Result<SecretString, StoreError> {
        self.secret(id.0, API_KEY)
            .await?
            .ok_or_else(|| StoreError::not_found("API key of site", id))
    }
}
