//! Bundles that were published, who approved them where, and whose signatures count.
//!
//! Of a row, only the signature ever changes, when a control plane has another key. Of several bundles with one name and version, which only those that
//! come with the control plane may have, the newest has the name.

use async_recursion::async_recursion as boxed;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{SiteId, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use uuid::Uuid;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Cols, Conn, Val, args};
use crate::error::StoreError;
use crate::identity::secret::rows::{insert_secret, put_secret};
use crate::identity::secret::sealed_columns::secret_owner;
use crate::store::Store;

const SIGNING_KEY: &str = "bundle_signing_key";
const NODE_AUTHORITY: &str = "node_authority";

/// A bundle to keep.
#[derive(Debug, Clone, PartialEq)]
pub struct NewBundle {
    /// SHA-256 of the archive, 64 hexadecimal digits.
    pub digest: String,
    /// Name and version: `name@version`.
    pub reference: String,
    /// Whether it came with the control plane.
    pub built_in: bool,
    /// Bytes of the archive.
    pub archive: Vec<u8>,
    /// Signed envelope.
    pub envelope: Value,
    /// Actor who published it.
    pub published_by: String,
}

/// A bundle that is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredBundle {
    /// Grows with every bundle.
    pub id: i64,
    /// The bundle as it was published.
    pub bundle: NewBundle,
    /// Moment of the publication.
    pub published_at: Timestamp,
}

/// Approval of a bundle for a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleApproval {
    /// Name of the site.
    pub site: String,
    /// SHA-256 of the archive, 64 hexadecimal digits.
    pub digest: String,
    /// Actor who approved it.
    pub approved_by: String,
    /// Moment of the approval.
    pub approved_at: Timestamp,
}

/// A key whose signatures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleKey {
    /// Name of the key, unique.
    pub name: String,
    /// The key, in base64.
    pub public_key: String,
    /// From when on it does not count any more; none: it counts.
    pub until: Option<Timestamp>,
}

/// What was published may not take the name and version of another bundle; what comes with a
/// control plane may.
const INSERT_BUNDLE: &str = "INSERT INTO bundle (digest, reference, built_in, archive, envelope, \
     published_by, published_at) \
     SELECT $1, $2, $3, $4, $5, $6, $7 WHERE $3 \
     OR NOT EXISTS (SELECT 1 FROM bundle AS other WHERE other.reference = $2) \
     ON CONFLICT DO NOTHING";

fn bundle(mut cols: Cols<'_>) -> Result<StoredBundle, StoreError> {
    Ok(StoredBundle {
        id: cols.next()?,
        bundle: NewBundle {
            digest: cols.next()?,
            reference: cols.next()?,
            built_in: cols.next()?,
            archive: cols.next()?,
            envelope: cols.json()?,
            published_by: cols.next()?,
        },
        published_at: cols.at()?,
    })
}

async fn put_key(conn: &mut Conn, key: &BundleKey) -> Result<(), StoreError> {
    let sql = "INSERT INTO bundle_key (name, public_key, until) VALUES ($1, $2, $3) \
               ON CONFLICT (name) DO UPDATE SET public_key = excluded.public_key, \
               until = excluded.until";
    conn.execute(sql, args![&key.name, &key.public_key, key.until]).await.map(drop)
}

impl Store {
    /// Stores a bundle; without an audit entry only those that come with the executable. Returns `false`, and changes nothing, when these bytes are kept already.
    ///
    /// # Errors
    /// `bundle_version_taken` when other bytes have its name and version;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn add_bundle(
        &self,
        now: Timestamp,
        new: NewBundle,
        audit: Option<NewAuditEntry>,
    ) -> Result<bool, StoreError> {
        let envelope = Val::json(&new.envelope)?;
        self.write(move |conn| {
            Box::pin(async move {
                let values = vec![
                    (&new.digest).into(),
                    (&new.reference).into(),
                    new.built_in.into(),
                    new.archive.into(),
                    envelope,
                    (&new.published_by).into(),
                    now.into(),
                ];
                if conn.execute(INSERT_BUNDLE, values).await? == 1 {
                    if let Some(audit) = audit {
                        audit::append(conn, now, &audit).await?;
                    }
                    return Ok(true);
                }
                let holder = conn
                    .first(
                        "SELECT digest FROM bundle WHERE digest = $1 OR reference = $2 \
                         ORDER BY CASE WHEN digest = $1 THEN 0 ELSE 1 END, id DESC LIMIT 1",
                        args![&new.digest, &new.reference],
                    )
                    .await?;
                let holder =
                    holder.ok_or_else(|| StoreError::corrupt("bundle", "row is missing"))?;
                let digest: String = holder.cols().next()?;
                if digest == new.digest {
                    return Ok(false);
                }
                let detail = format!("{} is already published with digest {digest}", new.reference);
                Err(StoreError::conflict(ProblemCode::BundleVersionTaken, detail))
            })
        })
        .await
    }

    /// Bundles that were kept after the one numbered `after`, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn bundles_after(&self, after: i64) -> Result<Vec<StoredBundle>, StoreError> {
        let rows = self
            .reader()
            .await?
            .all(
                "SELECT id, digest, reference, built_in, archive, envelope, published_by, \
                 published_at FROM bundle WHERE id > $1 ORDER BY id",
                args![after],
            )
            .await?;
        rows.iter().map(|row| bundle(row.cols())).collect()
    }

    /// Approves bundles for a site, all of them or none. One that is approved stays as it is.
    ///
    /// # Errors
    /// `refers_to_nothing`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn approve_bundles(
        &self,
        now: Timestamp,
        site_id: SiteId,
        bundles: Vec<(String, NewAuditEntry)>,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                for (digest, audit) in &bundles {
                    conn.execute(
                        "INSERT INTO bundle_approval (site_id, digest, approved_by, approved_at) \
                         VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
                        args![site_id.0, digest, &audit.actor, now],
                    )
                    .await?;
                    audit::append(conn, now, audit).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Withdraws the approval of a bundle for a site. Returns whether it was approved.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn withdraw_bundle(
        &self,
        now: Timestamp,
        site_id: SiteId,
        digest: &str,
        audit: NewAuditEntry,
    ) -> Result<bool, StoreError> {
        let digest = digest.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "DELETE FROM bundle_approval WHERE site_id = $1 AND digest = $2";
                let withdrawn = conn.execute(sql, args![site_id.0, &digest]).await? == 1;
                audit::append(conn, now, &audit).await?;
                Ok(withdrawn)
            })
        })
        .await
    }

    /// Everything that was approved, by site and time.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn bundle_approvals(&self) -> Result<Vec<BundleApproval>, StoreError> {
        let rows = self
            .reader()
            .await?
            .all(
                "SELECT site.name, digest, approved_by, approved_at FROM bundle_approval \
                 JOIN site ON site.id = bundle_approval.site_id \
                 ORDER BY site.name, approved_at, digest",
                args![],
            )
            .await?;
        let approval = |mut cols: Cols<'_>| {
            Ok(BundleApproval {
                site: cols.next()?,
                digest: cols.next()?,
                approved_by: cols.next()?,
                approved_at: cols.at()?,
            })
        };
        rows.iter().map(|row| approval(row.cols())).collect()
    }

    /// Has the signatures of a key count until `until`; a key of the same name is replaced.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn trust_bundle_key(
        &self,
        now: Timestamp,
        key: BundleKey,
        audit: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                put_key(conn, &key).await?;
                audit::append(conn, now, &audit).await
            })
        })
        .await
    }

    /// Keys whose signatures count, or counted, by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn bundle_keys(&self) -> Result<Vec<BundleKey>, StoreError> {
        let sql = "SELECT name, public_key, until FROM bundle_key ORDER BY name";
        let rows = self.reader().await?.all(sql, args![]).await?;
        let key = |mut cols: Cols<'_>| {
            Ok(BundleKey { name: cols.next()?, public_key: cols.next()?, until: cols.opt_at()? })
        };
        rows.iter().map(|row| key(row.cols())).collect()
    }

    /// The key with which the control planes of this database sign: the one that is kept, or
    /// `proposed`, which is kept then.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn ensure_signing_key(
        &self,
        proposed: &SecretString,
    ) -> Result<SecretString, StoreError> {
        self.ensure_secret(SIGNING_KEY, proposed).await
    }

    /// Puts another signing key in the place of `from`, and notes which keys count and how long. Answers
    /// whether it did: not where another key than `from` is kept by now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn rotate_signing_key(
        &self,
        now: Timestamp,
        from: &SecretString,
        to: &SecretString,
        keys: Vec<BundleKey>,
        entry: NewAuditEntry,
    ) -> Result<bool, StoreError> {
        let owner = secret_owner(Uuid::nil(), SIGNING_KEY);
        let sealed = self.seal(Uuid::nil(), SIGNING_KEY, to)?;
        let (ring, from) = (self.key().clone(), from.clone());
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "SELECT sealed FROM secret WHERE owner = $1 AND name = $2 {LOCK}";
                let row = conn.first(sql, args![Uuid::nil(), SIGNING_KEY]).await?;
                let row = row.ok_or_else(|| StoreError::not_found("secret", SIGNING_KEY))?;
                let present = ring.open(&owner, &row.cols().next::<Vec<u8>>()?)?;
                if present.expose_secret() != from.expose_secret() {
                    return Ok(false);
                }
                put_secret(conn, Uuid::nil(), SIGNING_KEY, sealed).await?;
                for key in &keys {
                    put_key(conn, key).await?;
                }
                audit::append(conn, now, &entry).await?;
                Ok(true)
            })
        })
        .await
    }

    /// Puts another signature of a bundle in the place of the one that is kept.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn sign_bundle_anew(&self, digest: &str, envelope: &Value) -> Result<(), StoreError> {
        let (digest, envelope) = (digest.to_owned(), Val::json(envelope)?);
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "UPDATE bundle SET envelope = $1 WHERE digest = $2";
                match conn.execute(sql, vec![envelope, (&digest).into()]).await? {
                    0 => Err(StoreError::not_found("bundle", &digest)),
                    _ => Ok(()),
                }
            })
        })
        .await
    }

    /// The authority that signs nodes' certificates, key and certificate: the one that is kept, or
    /// `proposed`, which is kept then.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn ensure_node_authority(
        &self,
        proposed: &SecretString,
    ) -> Result<SecretString, StoreError> {
        self.ensure_secret(NODE_AUTHORITY, proposed).await
    }

    async fn ensure_secret(
        &self,
        name: &'static str,
        proposed: &SecretString,
    ) -> Result<SecretString, StoreError> {
        let sealed = self.seal(Uuid::nil(), name, proposed)?;
        self.write(move |conn| {
            Box::pin(async move { insert_secret(conn, Uuid::nil(), name, sealed).await })
        })
        .await?;
        let kept = self.secret(Uuid::nil(), name).await?;
        kept.ok_or_else(|| StoreError::not_found("secret", name))
    }
}
