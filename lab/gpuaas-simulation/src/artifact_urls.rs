//! The control plane's own URLs, read from the artifact store that would serve them.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_artifact::ArtifactStore;
use gpuaas_engine::{Fetch, NodeTrust};

/// Our own URLs, read from the artifact store that would serve them.
pub(crate) struct ArtifactUrls(pub(crate) Arc<ArtifactStore>);

#[async_trait]
impl Fetch for ArtifactUrls {
    async fn get(
        &self,
        url: &str,
        _trust: &NodeTrust,
        _bearer: Option<&str>,
    ) -> Result<Vec<u8>, String> {
        let Some((_, digest)) = url.rsplit_once("/sha256/") else { return Ok(Vec::new()) };
        let digest = digest
            .parse()
            .map_err(|_| format!("invalid URL {url}: expected it to end with a digest"))?;
        std::fs::read(self.0.path(&digest)).map_err(|error| format!("{url}: {error}"))
    }
}
