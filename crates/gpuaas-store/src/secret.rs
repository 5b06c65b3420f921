//! Sealed values, by owner and name.

use uuid::Uuid;

use crate::database::args;
use crate::error::StoreError;
use crate::seal::Secret;
use crate::store::Store;

impl Store {
    /// Seals `secret` so that it opens for this owner and name only.
    pub(crate) fn seal(
        &self,
        owner: Uuid,
        name: &str,
        secret: &Secret,
    ) -> Result<Vec<u8>, StoreError> {
        self.key().seal(&format!("{owner}/{name}"), secret)
    }

    /// The secret that is kept for an owner under a name.
    pub(crate) async fn secret(
        &self,
        owner: Uuid,
        name: &str,
    ) -> Result<Option<Secret>, StoreError> {
        let row = self
            .reader()
            .await?
            .first("SELECT sealed FROM secret WHERE owner = $1 AND name = $2", args![owner, name])
            .await?;
        let Some(row) = row else { return Ok(None) };
        let sealed: Vec<u8> = row.cols().next()?;
        self.open_sealed(owner, name, &sealed).map(Some)
    }

    /// Opens what [`Self::seal`] made for the same owner and name.
    pub(crate) fn open_sealed(
        &self,
        owner: Uuid,
        name: &str,
        sealed: &[u8],
    ) -> Result<Secret, StoreError> {
        self.key().open(&format!("{owner}/{name}"), sealed)
    }
}
