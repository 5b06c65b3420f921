//! What the lint found in image files, by digest and site.

use async_recursion::async_recursion as boxed;
use gpuaas_types::SiteId;
use gpuaas_types::image::ImageVerdict;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Val, args};
use crate::error::StoreError;
use crate::store::Store;

impl Store {
    /// The verdict on a digest that a site was told last; none: it was told none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn image_verdict(
        &self,
        site_id: SiteId,
        sha256: &str,
    ) -> Result<Option<ImageVerdict>, StoreError> {
        let sql = "SELECT body FROM image_verdict WHERE site_id = $1 AND sha256 = $2";
        let row = self.reader().await?.first(sql, args![site_id.0, sha256]).await?;
        row.map(|row| row.cols().json()).transpose()
    }

    /// Keeps a verdict, in the place of the one before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn put_image_verdict(
        &self,
        site_id: SiteId,
        verdict: &ImageVerdict,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let verdict = verdict.clone();
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "INSERT INTO image_verdict (site_id, sha256, body, at) \
                           VALUES ($1, $2, $3, $4) ON CONFLICT (site_id, sha256) \
                           DO UPDATE SET body = excluded.body, at = excluded.at";
                let body = Val::json(&verdict)?;
                let values =
                    vec![site_id.0.into(), (&verdict.sha256).into(), body, verdict.at.into()];
                conn.execute(sql, values).await?;
                audit::append(conn, verdict.at, &entry).await
            })
        })
        .await
    }
}
