//! How clients of regions are made, and how API keys are read that are kept elsewhere.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_store::{SecretString, Store, StoreError};
use gpuaas_types::api::SiteResource;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::key_reference::KeyReference;
use gpuaas_types::spec::SiteSpec;
use maas_client::{ApiKey, Client, Config, Error as MaasError};

use crate::clock::Clock;

/// Why an API key that is kept elsewhere is not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct KeyUnreadable {
    /// What an operator is told.
    pub code: ProblemCode,
    /// What was seen; no secret.
    pub text: String,
}

/// Why a site's API key is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum SiteKeyError {
    /// It is kept elsewhere.
    #[error(transparent)]
    Kept(#[from] KeyUnreadable),
    /// It is sealed in the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads API keys that are kept elsewhere.
#[async_trait]
pub trait ReadKey: Send + Sync {
    /// The key that `reference` names, as it is there now.
    ///
    /// # Errors
    /// `vault_...`, by what the reader does next.
    async fn read_key(&self, reference: &KeyReference) -> Result<SecretString, KeyUnreadable>;
}

/// Makes a client for a site. The default speaks HTTP; tests plug the simulator in directly.
#[async_trait]
pub trait Connect: Send + Sync {
    /// A client for the region at `site`, signed with `key`.
    ///
    /// # Errors
    /// When the URL or the certificate authority cannot be used.
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError>;

    /// The API key that `reference` names, as it is there now.
    ///
    /// # Errors
    /// `vault_not_named`, unless there is a reader of such keys; then what it says.
    async fn read_key(&self, reference: &KeyReference) -> Result<SecretString, KeyUnreadable> {
        Err(no_reader(reference))
    }
}

fn no_reader(reference: &KeyReference) -> KeyUnreadable {
    let text =
        format!("{reference} is in a Vault, but this control plane was started without a Vault");
    KeyUnreadable { code: ProblemCode::VaultNotNamed, text }
}

/// The API key of a site, from where it is kept.
///
/// # Errors
/// See [`SiteKeyError`].
pub async fn site_key(
    store: &Store,
    connect: &dyn Connect,
    site: &SiteResource,
) -> Result<SecretString, SiteKeyError> {
    match &site.spec.api_key_ref {
        Some(reference) => Ok(connect.read_key(reference).await?),
        None => Ok(store.site_api_key(site.id).await?),
    }
}

/// Clients that speak HTTP, signed by the engine's clock.
pub struct HttpConnect {
    clock: Arc<dyn Clock>,
    keys: Option<Arc<dyn ReadKey>>,
}

impl HttpConnect {
    /// Signs with the time of `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, keys: None }
    }

    /// The same, with a reader of keys that are kept elsewhere.
    #[must_use]
    pub fn with_keys(self, keys: Option<Arc<dyn ReadKey>>) -> Self {
        Self { keys, ..self }
    }
}

#[async_trait]
impl Connect for HttpConnect {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        let mut config = Config::new(site.url.clone(), key);
        config.extra_ca_pem = site.ca_pem.as_ref().map(|pem| pem.clone().into_bytes());
        let clock = Arc::clone(&self.clock);
        Client::new(&config, Arc::new(move || clock.now().as_seconds()))
    }

    async fn read_key(&self, reference: &KeyReference) -> Result<SecretString, KeyUnreadable> {
        match &self.keys {
            Some(keys) => keys.read_key(reference).await,
            None => Err(no_reader(reference)),
        }
    }
}
