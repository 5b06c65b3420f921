//! Values of bundles' secret inputs, kept for a site or a profile. Who set one and when is in the
//! clear, so it can be listed; the value is sealed like every other secret, and is only ever read
//! to be handed to a node.

use async_recursion::async_recursion as boxed;
use gpuaas_types::bundle::InputSecretView;
use gpuaas_types::{ProfileId, SiteId, Timestamp};
use secrecy::SecretString;
use uuid::Uuid;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Cols, args};
use crate::error::StoreError;
use crate::identity::secret::rows::put_secret;
use crate::store::Store;

/// Owner of secret inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretOwner {
    /// Of every node of a site.
    Site(SiteId),
    /// Of every node with a profile.
    Profile(ProfileId),
}

impl SecretOwner {
    const fn id(self) -> Uuid {
        match self {
            Self::Site(SiteId(id)) | Self::Profile(ProfileId(id)) => id,
        }
    }
}

/// Neither a bundle's nor an input's name has a slash.
fn sealed_name(bundle: &str, input: &str) -> String {
    format!("bundle_input/{bundle}/{input}")
}

fn view(mut cols: Cols<'_>) -> Result<InputSecretView, StoreError> {
    Ok(InputSecretView {
        bundle: cols.next()?,
        input: cols.next()?,
        set_by: cols.next()?,
        set_at: cols.at()?,
    })
}

impl Store {
    /// Seals a value for an input of a bundle, in the place of an earlier one. It is set by the actor of the
    /// audit entry.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn set_input_secret(
        &self,
        now: Timestamp,
        owner: SecretOwner,
        bundle: &str,
        input: &str,
        value: &SecretString,
        audit: NewAuditEntry,
    ) -> Result<InputSecretView, StoreError> {
        let (id, name) = (owner.id(), sealed_name(bundle, input));
        let sealed = self.seal(id, &name, value)?;
        let view = InputSecretView {
            bundle: bundle.to_owned(),
            input: input.to_owned(),
            set_by: audit.actor.clone(),
            set_at: now,
        };
        let row = view.clone();
        self.write(move |conn| {
            Box::pin(async move {
                conn.execute(
                    "INSERT INTO input_secret (owner, bundle, input, set_by, set_at) \
                     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (owner, bundle, input) \
                     DO UPDATE SET set_by = excluded.set_by, set_at = excluded.set_at",
                    args![id, &row.bundle, &row.input, &row.set_by, now],
                )
                .await?;
                put_secret(conn, id, &name, sealed).await?;
                audit::append(conn, now, &audit).await
            })
        })
        .await?;
        Ok(view)
    }

    /// Which inputs have a value, by bundle and input.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn input_secrets(
        &self,
        owner: SecretOwner,
    ) -> Result<Vec<InputSecretView>, StoreError> {
        let sql = "SELECT bundle, input, set_by, set_at FROM input_secret WHERE owner = $1 \
                   ORDER BY bundle, input";
        let rows = self.reader().await?.all(sql, args![owner.id()]).await?;
        rows.iter().map(|row| view(row.cols())).collect()
    }

    /// The values for a bundle's inputs, by input.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn input_secret_values(
        &self,
        owner: SecretOwner,
        bundle: &str,
    ) -> Result<Vec<(String, SecretString)>, StoreError> {
        let id = owner.id();
        let sql = "SELECT input_secret.input, secret.sealed FROM input_secret \
                   JOIN secret ON secret.owner = input_secret.owner \
                   AND secret.name = 'bundle_input/' || input_secret.bundle || '/' \
                   || input_secret.input WHERE input_secret.owner = $1 \
                   AND input_secret.bundle = $2 ORDER BY input_secret.input";
        let rows = self.reader().await?.all(sql, args![id, bundle]).await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                let (input, sealed): (String, Vec<u8>) = (cols.next()?, cols.next()?);
                let value = self.open_sealed(id, &sealed_name(bundle, &input), &sealed)?;
                Ok((input, value))
            })
            .collect()
    }

    /// Forgets a value. Answers whether there was one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn delete_input_secret(
        &self,
        now: Timestamp,
        owner: SecretOwner,
        bundle: &str,
        input: &str,
        audit: NewAuditEntry,
    ) -> Result<bool, StoreError> {
        let (id, name) = (owner.id(), sealed_name(bundle, input));
        let (bundle, input) = (bundle.to_owned(), input.to_owned());
        self.write(move |conn| {
            Box::pin(async move {
                conn.execute("DELETE FROM secret WHERE owner = $1 AND name = $2", args![id, &name])
                    .await?;
                let sql =
                    "DELETE FROM input_secret WHERE owner = $1 AND bundle = $2 AND input = $3";
                let deleted = conn.execute(sql, args![id, &bundle, &input]).await? == 1;
                if deleted {
                    audit::append(conn, now, &audit).await?;
                }
                Ok(deleted)
            })
        })
        .await
    }
}
