//! Fetching our own URLs, as a node will: the checks before a deployment do.

use std::time::Duration;

use async_trait::async_trait;

/// Wall seconds that one fetch may take.
const FETCH_SECONDS: u64 = 20;

/// Fetches a URL.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// The body of a good answer.
    ///
    /// # Errors
    /// One sentence that names the URL.
    async fn get(&self, url: &str) -> Result<Vec<u8>, String>;
}

#[async_trait]
impl Fetch for reqwest::Client {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let request = Self::get(self, url).timeout(Duration::from_secs(FETCH_SECONDS));
        let response = request.send().await.map_err(|e| format!("{url}: {e}"))?;
        if !response.status().is_success() {
            return Err(format!("{url} answered {}", response.status()));
        }
        response.bytes().await.map(|b| b.to_vec()).map_err(|e| format!("{url}: {e}"))
    }
}
