//! Profiles. A change makes a new revision; a run pins one, and none is ever changed.

use async_recursion::async_recursion as boxed;
use std::collections::HashMap;

use gpuaas_types::api::{BundlePin, ProfileResource};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{ProfileId, Timestamp};

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::bundle::profile_rows::{profile_from, profile_select, profiles_named, read_profile};
use crate::database::list_filter::with_filter;
use crate::database::{Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::store::Store;

/// One immutable revision of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRevision {
    /// Identifier of the profile.
    pub profile_id: ProfileId,
    /// Name of the profile.
    pub name: String,
    /// Number of the revision, from 1.
    pub revision: i64,
    /// Specification of this revision.
    pub spec: ProfileSpec,
    /// The site bundle and what it requires, in the order to run them; empty without a bundle.
    pub bundle_pins: Vec<BundlePin>,
}

/// What the newest revision of a profile says of nodes in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileBrief {
    /// Seconds of silence after which an agent counts as gone.
    pub offline_after_seconds: u32,
    /// The site bundle and what it requires, in the order to run them; empty without a bundle.
    pub bundle_pins: Vec<BundlePin>,
}

async fn add_revision(
    conn: &mut Conn,
    now: Timestamp,
    id: ProfileId,
    revision: i64,
    spec: Val,
    pins: &[BundlePin],
) -> Result<(), StoreError> {
    let digest = pins.last().map_or("", |pin| pin.digest.as_str());
    let values =
        vec![id.0.into(), revision.into(), spec, digest.into(), Val::json(&pins)?, now.into()];
    conn.execute(
        "INSERT INTO profile_revision (profile_id, revision, spec, bundle_digest, bundle_pins, \
         created_at) VALUES ($1, $2, $3, $4, $5, $6)",
        values,
    )
    .await
    .map(drop)
}

impl Store {
    /// Adds a profile at revision 1. `pins`: what its bundle reference resolved to.
    ///
    /// # Errors
    /// `profile_name_taken`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn create_profile(
        &self,
        now: Timestamp,
        id: ProfileId,
        name: &str,
        spec: &ProfileSpec,
        pins: &[BundlePin],
        audit: NewAuditEntry,
    ) -> Result<ProfileResource, StoreError> {
        let (owned, pins) = (name.to_owned(), pins.to_vec());
        let value = Val::json(spec)?;
        self.write(move |conn| {
            Box::pin(async move {
                let made = conn
                    .execute(
                        "INSERT INTO profile (id, name, revision, created_at, updated_at) \
                         VALUES ($1, $2, 1, $3, $3) ON CONFLICT DO NOTHING",
                        args![id.0, &owned, now],
                    )
                    .await?;
                if made == 0 {
                    let detail = format!("a profile named {owned} already exists");
                    return Err(StoreError::conflict(ProblemCode::ProfileNameTaken, detail));
                }
                add_revision(conn, now, id, 1, value, &pins).await?;
                audit::append(conn, now, &audit).await
            })
        })
        .await?;
        self.profile_by_name(name).await
    }

    /// Makes `spec` the profile's newest revision, where that is still `seen` if one is given. Runs that
    /// pinned an older one keep it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `revision_changed`, when the newest one is not `seen`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn set_profile(
        &self,
        now: Timestamp,
        name: &str,
        seen: Option<i64>,
        spec: &ProfileSpec,
        pins: &[BundlePin],
        audit: NewAuditEntry,
    ) -> Result<ProfileResource, StoreError> {
        let (owned, pins) = (name.to_owned(), pins.to_vec());
        let value = Val::json(spec)?;
        self.write(move |conn| {
            Box::pin(async move {
                let row = conn
                    .first(
                        "UPDATE profile SET revision = revision + 1, updated_at = $2 \
                         WHERE name = $1 RETURNING id, revision",
                        args![&owned, now],
                    )
                    .await?;
                let row = row.ok_or_else(|| StoreError::not_found("profile", &owned))?;
                let mut cols = row.cols();
                let (id, revision): (_, i64) = (cols.id(ProfileId)?, cols.next()?);
                StoreError::check_revision(seen, revision - 1)?;
                add_revision(conn, now, id, revision, value, &pins).await?;
                audit::append(conn, now, &audit).await
            })
        })
        .await?;
        self.profile_by_name(name).await
    }

    /// A profile at its newest revision.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn profile(&self, id: ProfileId) -> Result<ProfileResource, StoreError> {
        let sql = profile_select!("WHERE profile.id = $1");
        let row = self.reader().await?.first(sql, args![id.0]).await?;
        read_profile(row.ok_or_else(|| StoreError::not_found("profile", id))?.cols())
    }

    /// A profile at its newest revision, by name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn profile_by_name(&self, name: &str) -> Result<ProfileResource, StoreError> {
        let found = match self.shared_reads() {
            Some((reads, _guard)) => reads.profiles.get(name.to_owned()).await?,
            None => {
                let conn = &mut self.reader().await?;
                profiles_named(conn, [name.to_owned()]).await?.remove(name)
            }
        };
        found.ok_or_else(|| StoreError::not_found("profile", name))
    }

    /// All profiles at their newest revisions, by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn profiles(&self) -> Result<Vec<ProfileResource>, StoreError> {
        self.list_profiles(None).await
    }

    /// The profiles that a filter lets pass, at their newest revisions, by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn list_profiles(
        &self,
        filter: Option<&ListFilter>,
    ) -> Result<Vec<ProfileResource>, StoreError> {
        const SQL: &str =
            profile_select!("WHERE profile.removed_at IS NULL {FILTER} ORDER BY profile.name");
        let mut values = args![];
        let sql = with_filter(SQL, FilterList::Profiles, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| read_profile(row.cols())).collect()
    }

    /// What these profiles say of nodes in service; those that were removed are left out.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn profile_briefs(
        &self,
        ids: impl IntoIterator<Item = ProfileId>,
    ) -> Result<HashMap<ProfileId, ProfileBrief>, StoreError> {
        const SQL: &str = concat!(
            "SELECT profile.id, \
             CAST(profile_revision.spec ->> 'offline_after_seconds' AS BIGINT), \
             profile_revision.bundle_pins FROM ",
            profile_from!(),
            " WHERE profile.removed_at IS NULL AND profile.id IN ({LIST})"
        );
        let mut found = HashMap::new();
        let mut conn = self.reader().await?;
        for ids in padded(ids.into_iter().map(|id| id.0)) {
            let sql = with_list(SQL, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let mut cols = row.cols();
                let (id, seconds) = (cols.id(ProfileId)?, cols.next::<Option<i64>>()?);
                let offline_after_seconds = seconds
                    .map_or(Ok(ProfileSpec::default().offline_after_seconds), u32::try_from)
                    .map_err(|error| StoreError::corrupt("offline_after_seconds", error))?;
                let bundle_pins = cols.json()?;
                found.insert(id, ProfileBrief { offline_after_seconds, bundle_pins });
            }
        }
        Ok(found)
    }

    /// One revision, as a run pins it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn profile_revision(
        &self,
        id: ProfileId,
        revision: i64,
    ) -> Result<ProfileRevision, StoreError> {
        let row = self
            .reader()
            .await?
            .first(
                "SELECT profile.name, profile_revision.spec, profile_revision.bundle_pins \
                 FROM profile_revision JOIN profile ON profile.id = profile_revision.profile_id \
                 WHERE profile_id = $1 AND profile_revision.revision = $2",
                args![id.0, revision],
            )
            .await?
            .ok_or_else(|| {
                StoreError::not_found("profile revision", format!("{id} revision {revision}"))
            })?;
        let mut cols = row.cols();
        Ok(ProfileRevision {
            profile_id: id,
            name: cols.next()?,
            revision,
            spec: cols.json()?,
            bundle_pins: cols.json()?,
        })
    }
}
