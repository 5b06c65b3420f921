//! Values of bundles' secret inputs.

use gpuaas_types::api::List;
use gpuaas_types::bundle::{InputSecretSet, InputSecretView};
use reqwest::Method;

use super::ApiClient;
use crate::failure::Failure;

/// Whose secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretScope {
    /// Of a site.
    Site,
    /// Of a profile.
    Profile,
}

impl SecretScope {
    const fn collection(self) -> &'static str {
        match self {
            Self::Site => "sites",
            Self::Profile => "profiles",
        }
    }
}

impl ApiClient {
    /// `GET /api/v1/sites/NAME/secrets`, or of a profile.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn secrets(
        &self,
        of: SecretScope,
        name: &str,
    ) -> Result<List<InputSecretView>, Failure> {
        self.get(&[of.collection(), name, "secrets"]).await
    }

    /// `PUT /api/v1/sites/NAME/secrets/BUNDLE/INPUT`, or of a profile.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn set_secret(
        &self,
        of: SecretScope,
        name: &str,
        bundle: &str,
        input: &str,
        body: &InputSecretSet,
    ) -> Result<InputSecretView, Failure> {
        let path = [of.collection(), name, "secrets", bundle, input];
        self.send(Method::PUT, &path, Some(body)).await
    }

    /// `DELETE /api/v1/sites/NAME/secrets/BUNDLE/INPUT?actor=`, or of a profile.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn delete_secret(
        &self,
        of: SecretScope,
        name: &str,
        bundle: &str,
        input: &str,
        actor: &str,
    ) -> Result<List<InputSecretView>, Failure> {
        let mut url = self.url(&[of.collection(), name, "secrets", bundle, input])?;
        url.query_pairs_mut().append_pair("actor", actor);
        self.answer(self.http.delete(url)).await
    }
}
