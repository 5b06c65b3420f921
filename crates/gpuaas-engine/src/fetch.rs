//! Fetching our own URLs, as a node will: the checks before a deployment do.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{CONTENT_LENGTH, ETAG};

/// Wall seconds that one fetch may take.
const FETCH_SECONDS: u64 = 20;

/// What an HTTP server says of a resource without sending it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceHead {
    /// `Content-Length`; none: not said.
    pub size_bytes: Option<u64>,
    /// `ETag` without its quotes; none: not said.
    pub etag: Option<String>,
}

/// An HTTP client for our own URLs.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// The body that a GET brings.
    ///
    /// # Errors
    /// One sentence that names the URL.
    async fn get(&self, url: &str) -> Result<Vec<u8>, String>;

    /// What a HEAD says.
    ///
    /// # Errors
    /// One sentence that names the URL.
    async fn head(&self, url: &str) -> Result<ResourceHead, String>;
}

#[async_trait]
impl Fetch for reqwest::Client {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let response = send(Self::get(self, url), url).await?;
        response.bytes().await.map(|b| b.to_vec()).map_err(|e| format!("{url}: {e}"))
    }

    async fn head(&self, url: &str) -> Result<ResourceHead, String> {
        let response = send(Self::head(self, url), url).await?;
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        Ok(ResourceHead {
            size_bytes: text(CONTENT_LENGTH).and_then(|size| size.parse().ok()),
            etag: text(ETAG).map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned()),
        })
    }
}

async fn send(request: reqwest::RequestBuilder, url: &str) -> Result<reqwest::Response, String> {
    let request = request.timeout(Duration::from_secs(FETCH_SECONDS));
    let response = request.send().await.map_err(|e| format!("{url}: {e}"))?;
    if response.status().is_success() {
        return Ok(response);
    }
    Err(format!("{url} answered {}", response.status()))
}
