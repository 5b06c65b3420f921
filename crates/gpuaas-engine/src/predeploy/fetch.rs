//! Fetching our own URLs, as a node will: the checks before a deployment do.

use std::time::Duration;

use async_trait::async_trait;

use crate::node::trust::NodeTrust;

/// Wall seconds that one fetch may take.
const FETCH_SECONDS: u64 = 20;

/// An HTTP client for our own URLs.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// The body that a GET brings to a node with this trust, with a bearer credential where one is given.
    ///
    /// # Errors
    /// One sentence that names the URL.
    async fn get(
        &self,
        url: &str,
        trust: &NodeTrust,
        bearer: Option<&str>,
    ) -> Result<Vec<u8>, String>;
}

/// The body that a GET of `client` brings, with a bearer credential where one is given.
///
/// # Errors
/// One sentence that names the URL.
pub async fn fetch(
    client: &reqwest::Client,
    url: &str,
    bearer: Option<&str>,
) -> Result<Vec<u8>, String> {
    let mut request = client.get(url).timeout(Duration::from_secs(FETCH_SECONDS));
    if let Some(bearer) = bearer {
        request = request.bearer_auth(bearer);
    }
    let response = request.send().await.map_err(|e| format!("{url}: {}", with_causes(&e)))?;
    if !response.status().is_success() {
        return Err(format!("{url} answered {}", response.status()));
    }
    response.bytes().await.map(|b| b.to_vec()).map_err(|e| format!("{url}: {e}"))
}

/// An error with the errors that caused it: which certificate was refused is among them.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
