//! Sealed values, by owner and name.

use secrecy::SecretString;
use uuid::Uuid;

use crate::error::StoreError;
use crate::identity::secret::rows::secrets_of_owners;
use crate::identity::secret::sealed_columns::secret_owner;
use crate::store::Store;

impl Store {
    /// Seals `secret` so that it opens for this owner and name only.
    pub(crate) fn seal(
        &self,
        owner: Uuid,
        name: &str,
        secret: &SecretString,
    ) -> Result<Vec<u8>, StoreError> {
        self.key().seal(&secret_owner(owner, name), secret)
    }

    /// The secret that is kept for an owner under a name.
    pub(crate) async fn secret(
        &self,
        owner: Uuid,
        name: &str,
    ) -> Result<Option<SecretString>, StoreError> {
        let key = (owner, name.to_owned());
        let sealed = match self.shared_reads() {
            Some((reads, _guard)) => reads.secrets.get(key).await?,
            None => secrets_of_owners(&mut self.reader().await?, [owner]).await?.remove(&key),
        };
        sealed.map(|sealed| self.open_sealed(owner, name, &sealed)).transpose()
    }

    /// `content` as a text that only control planes of this database can make and open, hexadecimal.
    ///
    /// # Errors
    /// `random_unavailable`, or [`StoreError::Corrupt`] where it is too long.
    pub fn sealed_text(&self, purpose: &str, content: &str) -> Result<String, StoreError> {
        Ok(hex::encode(self.key().seal(purpose, &SecretString::from(content.to_owned()))?))
    }

    /// The content of what [`Self::sealed_text`] made for the same purpose; none: it did not make it.
    #[must_use]
    pub fn open_text(&self, purpose: &str, text: &str) -> Option<SecretString> {
        self.key().open(purpose, &hex::decode(text).ok()?).ok()
    }

    /// Opens what [`Self::seal`] made for the same owner and name.
    pub(crate) fn open_sealed(
        &self,
        owner: Uuid,
        name: &str,
        sealed: &[u8],
    ) -> Result<SecretString, StoreError> {
        self.key().open(&secret_owner(owner, name), sealed)
    }
}
