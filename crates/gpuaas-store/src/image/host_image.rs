//! Host images of sites: how far each has come, what happened to it, and what names it.
//!
//! A row is changed by whoever has seen it as it is: of two approvers one wins, and the other is told
//! to look again. A deleted image keeps its row, so that a name never stands for two images.

use async_recursion::async_recursion as boxed;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::image::{ImageEvent, ImageState};
use gpuaas_types::{RunId, SiteId, Timestamp};

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Cols, Conn, Val, args, with_list};
use crate::error::StoreError;
use crate::store::Store;

/// An image at a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImage {
    /// Identifier of the site.
    pub site_id: SiteId,
    /// Name of the site.
    pub site: String,
    /// Name in MAAS, without `custom/`.
    pub name: String,
    /// SHA-256 of its file, hex in lower case.
    pub sha256: String,
    /// Length of its file in bytes; 0: unknown.
    pub size_bytes: i64,
    /// MAAS' identifier; none: the region does not have it yet.
    pub resource_id: Option<i64>,
    /// SHA-256 of what it was built on.
    pub parents: Vec<String>,
    /// State that was written last.
    pub state: ImageState,
    /// Nodes that may have it while it is a canary.
    pub canary_nodes: Option<i64>,
    /// When what lets it be deployed ends.
    pub expires_at: Option<Timestamp>,
    /// Who said last what its state is.
    pub changed_by: String,
    /// Moment of that.
    pub changed_at: Timestamp,
    /// Reason of that; empty: none.
    pub reason: String,
    /// Grows with every change; 0: it is not stored yet.
    pub revision: i64,
}

/// What names an image of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageUses {
    /// Hostnames of nodes in care whose latest deployment was of it.
    pub nodes: Vec<String>,
    /// Hostnames of nodes with an open run that deploys it.
    pub runs: Vec<String>,
    /// Batches that are not over and deploy it.
    pub batches: Vec<String>,
    /// Profiles whose newest revision names it.
    pub profiles: Vec<String>,
}

impl ImageUses {
    /// Whether nothing names it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT host_image.site_id, site.name, host_image.name, host_image.sha256, \
             host_image.size_bytes, host_image.resource_id, host_image.parents, \
             host_image.state, host_image.canary_nodes, host_image.expires_at, \
             host_image.changed_by, host_image.changed_at, host_image.reason, \
             host_image.revision FROM host_image JOIN site ON site.id = host_image.site_id ",
            $rest
        )
    };
}

fn read(mut cols: Cols<'_>) -> Result<StoredImage, StoreError> {
    Ok(StoredImage {
        site_id: cols.id(SiteId)?,
        site: cols.next()?,
        name: cols.next()?,
        sha256: cols.next()?,
        size_bytes: cols.next()?,
        resource_id: cols.next()?,
        parents: cols.json()?,
        state: cols.enum_str()?,
        canary_nodes: cols.next()?,
        expires_at: cols.opt_at()?,
        changed_by: cols.next()?,
        changed_at: cols.at()?,
        reason: cols.next()?,
        revision: cols.next()?,
    })
}

/// The names by which a profile may name an uploaded image.
fn spellings(name: &str) -> [String; 2] {
    [name.to_owned(), format!("custom/{name}")]
}

async fn texts(
    conn: &mut Conn,
    sql: &'static str,
    values: Vec<Val>,
) -> Result<Vec<String>, StoreError> {
    let rows = conn.all(sql, values).await?;
    rows.iter().map(|row| row.cols().next()).collect()
}

async fn find_uses(conn: &mut Conn, site_id: SiteId, name: &str) -> Result<ImageUses, StoreError> {
    let [bare, custom] = spellings(name);
    let at_site = || args![site_id.0, &bare, &custom];
    Ok(ImageUses {
        nodes: texts(
            conn,
            "SELECT DISTINCT node.hostname FROM node JOIN run ON run.node_id = node.id \
             JOIN profile_revision ON profile_revision.profile_id = run.profile_id \
             AND profile_revision.revision = run.profile_revision \
             WHERE node.site_id = $1 AND node.state NOT IN ('retired', 'detached', 'deleted') \
             AND run.kind IN ('onboard', 'reimage') \
             AND profile_revision.spec ->> 'distro_series' IN ($2, $3) \
             AND NOT EXISTS (SELECT 1 FROM run AS later WHERE later.node_id = node.id \
             AND later.kind IN ('onboard', 'reimage') AND later.status = 'succeeded' \
             AND later.created_at > run.created_at) ORDER BY node.hostname",
            at_site(),
        )
        .await?,
        runs: texts(
            conn,
            "SELECT node.hostname FROM run JOIN node ON node.id = run.node_id \
             JOIN profile_revision ON profile_revision.profile_id = run.profile_id \
             AND profile_revision.revision = run.profile_revision \
             WHERE run.site_id = $1 AND run.status IN ('running', 'waiting', 'parked') \
             AND run.kind IN ('onboard', 'reimage') \
             AND profile_revision.spec ->> 'distro_series' IN ($2, $3) ORDER BY node.hostname",
            at_site(),
        )
        .await?,
        batches: texts(
            conn,
            "SELECT batch.name FROM batch \
             JOIN profile_revision ON profile_revision.profile_id = batch.profile_id \
             AND profile_revision.revision = batch.profile_revision \
             WHERE batch.site_id = $1 AND batch.ended_at IS NULL \
             AND profile_revision.spec ->> 'distro_series' IN ($2, $3) ORDER BY batch.name",
            at_site(),
        )
        .await?,
        profiles: texts(
            conn,
            "SELECT profile.name FROM profile \
             JOIN profile_revision ON profile_revision.profile_id = profile.id \
             AND profile_revision.revision = profile.revision \
             WHERE profile.removed_at IS NULL \
             AND profile_revision.spec ->> 'distro_series' IN ($1, $2) ORDER BY profile.name",
            args![&bare, &custom],
        )
        .await?,
    })
}

/// Writes an image as it is now, where it is stored as it was seen. Answers whether it was.
async fn write_image(conn: &mut Conn, image: &StoredImage) -> Result<bool, StoreError> {
    let parents = Val::json(&image.parents)?;
    let state = image.state.as_str();
    let written = if image.revision == 0 {
        let values = vec![
            image.site_id.0.into(),
            (&image.name).into(),
            (&image.sha256).into(),
            image.size_bytes.into(),
            image.resource_id.into(),
            parents,
            state.into(),
            image.canary_nodes.into(),
            image.expires_at.into(),
            (&image.changed_by).into(),
            image.changed_at.into(),
            (&image.reason).into(),
        ];
        let sql = "INSERT INTO host_image (site_id, name, sha256, size_bytes, resource_id, parents, \
                   state, canary_nodes, expires_at, changed_by, changed_at, reason, revision) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 1) \
                   ON CONFLICT DO NOTHING";
        conn.execute(sql, values).await?
    } else {
        let values = vec![
            image.site_id.0.into(),
            (&image.name).into(),
            image.revision.into(),
            image.size_bytes.into(),
            image.resource_id.into(),
            parents,
            state.into(),
            image.canary_nodes.into(),
            image.expires_at.into(),
            (&image.changed_by).into(),
            image.changed_at.into(),
            (&image.reason).into(),
        ];
        let sql = "UPDATE host_image SET size_bytes = $4, resource_id = $5, parents = $6, \
                   state = $7, canary_nodes = $8, expires_at = $9, changed_by = $10, \
                   changed_at = $11, reason = $12, revision = revision + 1 \
                   WHERE site_id = $1 AND name = $2 AND revision = $3 AND deleted_at IS NULL";
        conn.execute(sql, values).await?
    };
    Ok(written == 1)
}

/// Adds a line to the history of an image.
pub(crate) async fn add_event(
    conn: &mut Conn,
    site_id: SiteId,
    name: &str,
    event: &ImageEvent,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO host_image_event (site_id, name, body, at) VALUES ($1, $2, $3, $4)";
    let values = vec![site_id.0.into(), name.into(), Val::json(event)?, event.at.into()];
    conn.execute(sql, values).await.map(drop)
}

fn changed_meanwhile(image: &StoredImage) -> StoreError {
    let detail = format!(
        "custom/{} of site {} was changed, deleted or recorded by someone else in the meantime",
        image.name, image.site
    );
    StoreError::conflict(ProblemCode::RevisionChanged, detail)
}

impl Store {
    /// Images of a site, or of all sites, by site and name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn images(&self, site_id: Option<SiteId>) -> Result<Vec<StoredImage>, StoreError> {
        let conn = &mut self.reader().await?;
        let rows = match site_id {
            Some(id) => {
                let sql = select!(
                    "WHERE host_image.deleted_at IS NULL AND host_image.site_id = $1 \
                     ORDER BY host_image.name"
                );
                conn.all(sql, args![id.0]).await?
            }
            None => {
                let sql = select!(
                    "WHERE host_image.deleted_at IS NULL ORDER BY site.name, host_image.name"
                );
                conn.all(sql, args![]).await?
            }
        };
        rows.iter().map(|row| read(row.cols())).collect()
    }

    /// An image of a site, by its name in MAAS without `custom/`; none: the site has no record of it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn image(
        &self,
        site_id: SiteId,
        name: &str,
    ) -> Result<Option<StoredImage>, StoreError> {
        let sql = select!(
            "WHERE host_image.deleted_at IS NULL AND host_image.site_id = $1 \
             AND host_image.name = $2"
        );
        let row = self.reader().await?.first(sql, args![site_id.0, name]).await?;
        row.map(|row| read(row.cols())).transpose()
    }

    /// An image of a site that was deleted; none: there was none of this name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn deleted_image(
        &self,
        site_id: SiteId,
        name: &str,
    ) -> Result<Option<StoredImage>, StoreError> {
        let sql = select!(
            "WHERE host_image.deleted_at IS NOT NULL AND host_image.site_id = $1 \
             AND host_image.name = $2"
        );
        let row = self.reader().await?.first(sql, args![site_id.0, name]).await?;
        row.map(|row| read(row.cols())).transpose()
    }

    /// What happened to an image at a site, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn image_events(
        &self,
        site_id: SiteId,
        name: &str,
    ) -> Result<Vec<ImageEvent>, StoreError> {
        let sql = "SELECT body FROM host_image_event WHERE site_id = $1 AND name = $2 ORDER BY id";
        let rows = self.reader().await?.all(sql, args![site_id.0, name]).await?;
        rows.iter().map(|row| row.cols().json()).collect()
    }

    /// Of these digests the first one of an image that was revoked somewhere.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn revoked_digest(&self, digests: &[String]) -> Result<Option<String>, StoreError> {
        if digests.is_empty() {
            return Ok(None);
        }
        let sql = with_list(
            "SELECT sha256 FROM host_image WHERE state = 'revoked' AND sha256 IN ({LIST}) \
             ORDER BY sha256 LIMIT 1",
            1,
            digests.len(),
        );
        let values: Vec<Val> = digests.iter().map(Val::from).collect();
        let row = self.reader().await?.first(sql, values).await?;
        row.map(|row| row.cols().next()).transpose()
    }

    /// Nodes that have an image, or whose open run began to wait for it before this one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn nodes_with_image_before(
        &self,
        site_id: SiteId,
        name: &str,
        run_id: RunId,
    ) -> Result<i64, StoreError> {
        let [bare, custom] = spellings(name);
        let sql = "SELECT COUNT(DISTINCT node.id) FROM node JOIN run ON run.node_id = node.id \
             JOIN profile_revision ON profile_revision.profile_id = run.profile_id \
             AND profile_revision.revision = run.profile_revision \
             WHERE node.site_id = $1 AND node.state NOT IN ('retired', 'detached', 'deleted') \
             AND run.kind IN ('onboard', 'reimage') \
             AND profile_revision.spec ->> 'distro_series' IN ($2, $3) \
             AND node.id <> (SELECT node_id FROM run AS own WHERE own.id = $4) \
             AND ((run.status IN ('running', 'waiting', 'parked') AND run.id < $4) \
             OR (run.status = 'succeeded' AND NOT EXISTS (SELECT 1 FROM run AS later \
             WHERE later.node_id = node.id AND later.kind IN ('onboard', 'reimage') \
             AND later.status = 'succeeded' AND later.created_at > run.created_at)))";
        let values = args![site_id.0, &bare, &custom, run_id.0];
        let row = self.reader().await?.first(sql, values).await?;
        row.map_or(Ok(0), |row| row.cols().next())
    }

    /// What names an image of a site.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn image_uses(&self, site_id: SiteId, name: &str) -> Result<ImageUses, StoreError> {
        find_uses(&mut self.reader().await?, site_id, name).await
    }

    /// Keeps an image as it is now, where it is stored as it was seen (its `revision`; 0: not at all).
    ///
    /// # Errors
    /// `revision_changed`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn put_image(
        &self,
        image: &StoredImage,
        event: &ImageEvent,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let (image, event) = (image.clone(), event.clone());
        self.write(move |conn| {
            Box::pin(async move {
                if !write_image(conn, &image).await? {
                    return Err(changed_meanwhile(&image));
                }
                add_event(conn, image.site_id, &image.name, &event).await?;
                audit::append(conn, event.at, &entry).await
            })
        })
        .await
    }

    /// Revokes an image and forgets it, where nothing names it. From then on no run deploys it.
    ///
    /// # Errors
    /// `image_in_use`, with the names; `revision_changed`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn delete_image(
        &self,
        image: &StoredImage,
        event: &ImageEvent,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let (image, event) = (image.clone(), event.clone());
        self.write(move |conn| {
            Box::pin(async move {
                let uses = find_uses(conn, image.site_id, &image.name).await?;
                if !uses.is_empty() {
                    let detail = format!("custom/{}: {}", image.name, uses_as_text(&uses));
                    return Err(StoreError::conflict(ProblemCode::ImageInUse, detail));
                }
                if !write_image(conn, &image).await? {
                    return Err(changed_meanwhile(&image));
                }
                let sql = "UPDATE host_image SET deleted_at = $3 WHERE site_id = $1 AND name = $2";
                conn.execute(sql, args![image.site_id.0, &image.name, event.at]).await?;
                add_event(conn, image.site_id, &image.name, &event).await?;
                audit::append(conn, event.at, &entry).await
            })
        })
        .await
    }

    /// Names and digests of the images that a profile's revisions named, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn images_of_profile(
        &self,
        profile: &str,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let sql = "SELECT profile_revision.spec ->> 'distro_series', \
             COALESCE(profile_revision.spec ->> 'image_sha256', '') FROM profile_revision \
             JOIN profile ON profile.id = profile_revision.profile_id \
             WHERE profile.name = $1 ORDER BY profile_revision.revision DESC LIMIT 1000";
        let rows = self.reader().await?.all(sql, args![profile]).await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                Ok((cols.next()?, cols.next()?))
            })
            .collect()
    }

    /// Hostnames of a site's nodes whose run is parked and deploys an image.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn parked_with_image(
        &self,
        site_id: SiteId,
        distro_series: &str,
    ) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT node.hostname FROM run JOIN node ON node.id = run.node_id \
             JOIN profile_revision ON profile_revision.profile_id = run.profile_id \
             AND profile_revision.revision = run.profile_revision \
             WHERE run.site_id = $1 AND run.status = 'parked' \
             AND profile_revision.spec ->> 'distro_series' = $2 ORDER BY node.hostname";
        texts(&mut self.reader().await?, sql, args![site_id.0, distro_series]).await
    }
}

/// The names, for people.
fn uses_as_text(uses: &ImageUses) -> String {
    let kinds = [
        ("nodes deployed with it", &uses.nodes),
        ("nodes with an open run", &uses.runs),
        ("batches", &uses.batches),
        ("profiles", &uses.profiles),
    ];
    let named = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let named: Vec<String> =
        named.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
    named.join("; ")
}
