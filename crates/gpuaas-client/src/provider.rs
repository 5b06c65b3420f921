//! An identity provider, asked by the command line: sign-in by device code (RFC 8628), further tokens
//! (RFC 6749 section 6), and their end (RFC 7009).
//!
//! The person signs in in a browser of any machine, so no password comes near this program, and none
//! of its own servers has to listen for an answer.

use std::path::Path;
use std::time::Duration;

use gpuaas_types::codes::CommandCode;
use gpuaas_types::issuer::IssuerUrl;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Certificate, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::{Exit, Failure};
use crate::http::{chain, install_cryptography};

/// Longest time for one answer of the provider.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer of the provider, in bytes.
const MOST_BYTES: usize = 256 << 10;
/// Seconds between two questions whether somebody has signed in, where the provider names none.
const POLL_SECONDS: u64 = 5;
/// Seconds that a token counts, where the provider does not say so.
const TOKEN_SECONDS: u64 = 300;
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const ENDED: &str = "sign in again with `gpuaas login`";

/// A provider, and where it is asked for what.
#[derive(Debug)]
pub struct Provider {
    http: reqwest::Client,
    endpoints: Endpoints,
}

/// What is read of a provider's description (RFC 8414 section 2).
#[derive(Debug, Clone, Deserialize)]
struct Endpoints {
    issuer: String,
    token_endpoint: String,
    #[serde(default)]
    device_authorization_endpoint: Option<String>,
    #[serde(default)]
    revocation_endpoint: Option<String>,
}

/// What somebody has to do to sign in (RFC 8628 section 3.2).
#[derive(Debug, Clone, Deserialize)]
pub struct DeviceCode {
    device_code: String,
    /// What to enter.
    pub user_code: String,
    /// Page that it is entered on.
    pub verification_uri: String,
    /// The same with the code in it.
    #[serde(default)]
    pub verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default)]
    interval: Option<u64>,
}

/// Tokens as a provider gives them (RFC 6749 section 5.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    #[serde(default)]
    id_token: Option<String>,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
}

/// What a sign-in gave.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    /// What control planes are shown.
    pub bearer: String,
    /// What another one is got with; none: there is none.
    pub refresh: Option<String>,
    /// Seconds for which the first counts.
    pub seconds: u64,
}

impl From<TokenResponse> for Tokens {
    fn from(given: TokenResponse) -> Self {
        let is_signed = |token: &str| token.starts_with("eyJ") && token.split('.').count() == 3;
        // Some providers give access tokens that only they can read; then who signed in is said by the
        // other one.
        let bearer = match given.id_token {
            Some(id_token) if !is_signed(&given.access_token) => id_token,
            _ => given.access_token,
        };
        let seconds = given.expires_in.unwrap_or(TOKEN_SECONDS);
        Self { bearer, refresh: given.refresh_token, seconds }
    }
}

/// What a provider says where it gives nothing (RFC 6749 section 5.2).
#[derive(Debug, Default, Deserialize)]
struct Denial {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

impl Denial {
    fn text(&self) -> String {
        let text = self.error_description.as_deref().unwrap_or_default();
        let text = format!("{} {text}", self.error);
        text.chars()
            .filter(|c| !gpuaas_types::text::is_invisible(*c))
            .take(200)
            .collect::<String>()
            .trim()
            .to_owned()
    }
}

/// An answer: what was asked for, or why not.
type Answer<T> = Result<T, Denial>;

impl Provider {
    /// Asks a provider what it has. `ca_file`: what is trusted for it beside this system's authorities.
    ///
    /// # Errors
    /// `ca_file_unusable`, `http_unavailable`, `provider_unreachable`.
    pub async fn discover(issuer: &str, ca_file: Option<&Path>) -> Result<Self, Failure> {
        let url: IssuerUrl =
            issuer.parse().map_err(|why: String| unreachable(format!("{issuer}: {why}")))?;
        let http = client(&url, ca_file)?;
        let (status, body) = send(http.get(url.discovery()), &url.discovery()).await?;
        let endpoints: Endpoints = read(status, &body)
            .map_err(|why| unreachable(format!("{}: {why}", url.discovery())))?;
        if endpoints.issuer != issuer {
            let detail = format!("{} names another issuer: {}", url.discovery(), endpoints.issuer);
            return Err(unreachable(detail));
        }
        let named = [
            Some(&endpoints.token_endpoint),
            endpoints.device_authorization_endpoint.as_ref(),
            endpoints.revocation_endpoint.as_ref(),
        ];
        if let Some(unsafe_one) = named.into_iter().flatten().find(|url| !IssuerUrl::is_safe(url)) {
            return Err(unreachable(format!("its endpoint {unsafe_one} is not https")));
        }
        Ok(Self { http, endpoints })
    }

    /// Begins a sign-in: what somebody has to do for it.
    ///
    /// # Errors
    /// `sign_in_failed` where the provider refuses; `provider_unreachable`.
    pub async fn begin(&self, client_id: &str, scope: &str) -> Result<DeviceCode, Failure> {
        let Some(url) = &self.endpoints.device_authorization_endpoint else {
            return Err(unreachable("it does not support the device flow".to_owned()));
        };
        let form = [("client_id", client_id), ("scope", scope)];
        self.post::<DeviceCode>(url, &form).await?.map_err(|no| failed(&no.text()))
    }

    /// Waits until somebody has signed in, or will not any more.
    ///
    /// # Errors
    /// `sign_in_failed`; `provider_unreachable` where the provider goes silent.
    #[expect(clippy::disallowed_methods, reason = "a command waits on the wall, as it is told to")]
    pub async fn wait(&self, client_id: &str, code: &DeviceCode) -> Result<Tokens, Failure> {
        let mut interval = code.interval.unwrap_or(POLL_SECONDS);
        let mut left = code.expires_in;
        let form = [
            ("grant_type", DEVICE_GRANT),
            ("client_id", client_id),
            ("device_code", code.device_code.as_str()),
        ];
        loop {
            tokio::time::sleep(Duration::from_secs(interval)).await;
            match self.post::<TokenResponse>(&self.endpoints.token_endpoint, &form).await? {
                Ok(given) => return Ok(given.into()),
                Err(no) if no.error == "authorization_pending" => {}
                Err(no) if no.error == "slow_down" => interval += POLL_SECONDS,
                Err(no) => return Err(failed(&no.text())),
            }
            // A provider that names no pause must not be asked for ever, either.
            left = match left.checked_sub(interval.max(1)) {
                Some(left) => left,
                None => return Err(failed("the code was not entered in time")),
            };
        }
    }

    /// Another token for a sign-in.
    ///
    /// # Errors
    /// `sign_in_ended` where the provider gives none; `provider_unreachable`.
    pub async fn refresh(&self, client_id: &str, refresh: &str) -> Result<Tokens, Failure> {
        let form =
            [("grant_type", "refresh_token"), ("client_id", client_id), ("refresh_token", refresh)];
        match self.post::<TokenResponse>(&self.endpoints.token_endpoint, &form).await? {
            Ok(given) => {
                let mut tokens = Tokens::from(given);
                // Where the provider names no other one, the same counts on.
                tokens.refresh = tokens.refresh.or_else(|| Some(refresh.to_owned()));
                Ok(tokens)
            }
            Err(no) => {
                Err(Failure::new(Exit::Refused, CommandCode::SignInEnded, no.text()).hint(ENDED))
            }
        }
    }

    /// Tells the provider that a sign-in is over; false: it takes no such word.
    ///
    /// # Errors
    /// `provider_unreachable`.
    pub async fn revoke(&self, client_id: &str, refresh: &str) -> Result<bool, Failure> {
        let Some(url) = &self.endpoints.revocation_endpoint else { return Ok(false) };
        let form =
            [("client_id", client_id), ("token", refresh), ("token_type_hint", "refresh_token")];
        let (status, _) = send(self.request(url, &form)?, url).await?;
        Ok(status.is_success())
    }

    fn request(
        &self,
        url: &str,
        form: &[(&str, &str)],
    ) -> Result<reqwest::RequestBuilder, Failure> {
        let body = serde_urlencoded::to_string(form)
            .map_err(|error| Failure::local(CommandCode::HttpUnavailable, error.to_string()))?;
        let request = self.http.post(url).header(ACCEPT, "application/json");
        Ok(request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body))
    }

    async fn post<T: DeserializeOwned>(
        &self,
        url: &str,
        form: &[(&str, &str)],
    ) -> Result<Answer<T>, Failure> {
        let (status, body) = send(self.request(url, form)?, url).await?;
        if status.is_client_error()
            && let Ok(no) = serde_json::from_slice::<Denial>(&body)
            && !no.error.is_empty()
        {
            return Ok(Err(no));
        }
        read(status, &body).map(Ok).map_err(|why| unreachable(format!("{url}: {why}")))
    }
}

fn client(issuer: &IssuerUrl, ca_file: Option<&Path>) -> Result<reqwest::Client, Failure> {
    install_cryptography();
    let builder = reqwest::Client::builder()
        .connect_timeout(PATIENCE)
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("gpuaas/", env!("CARGO_PKG_VERSION")));
    let builder = match ca_file {
        None if issuer.as_str().starts_with("http://") => builder.no_proxy().tls_certs_only([]),
        None => builder,
        Some(file) => {
            let unusable = |why: String| {
                let detail = format!("{}: {why}", file.display());
                Failure::usage(CommandCode::CaFileUnusable, detail)
                    .hint("pass a PEM file with certificates: `gpuaas login --issuer-ca-file FILE`")
            };
            let pem = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
            let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
            if certificates.is_empty() {
                return Err(unusable("it contains no certificate".to_owned()));
            }
            builder.tls_certs_merge(certificates)
        }
    };
    builder.build().map_err(|error| Failure::local(CommandCode::HttpUnavailable, chain(&error)))
}

/// Status and body, of bounded length.
async fn send(
    request: reqwest::RequestBuilder,
    url: &str,
) -> Result<(StatusCode, Vec<u8>), Failure> {
    let silent =
        |error: reqwest::Error| unreachable(format!("{url}: {}", chain(&error.without_url())));
    let mut response = request.send().await.map_err(silent)?;
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(silent)? {
        if body.len() + part.len() > MOST_BYTES {
            return Err(unreachable(format!("{url} returned more than {MOST_BYTES} bytes")));
        }
        body.extend_from_slice(&part);
    }
    Ok((response.status(), body))
}

fn read<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, String> {
    if !status.is_success() {
        return Err(format!("HTTP {status}"));
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn failed(why: &str) -> Failure {
    Failure::new(Exit::Refused, CommandCode::SignInFailed, why.to_owned()).hint(
        "sign in again with `gpuaas login`; the provider's administrator can see why the \
             provider refused",
    )
}

fn unreachable(detail: String) -> Failure {
    Failure::new(Exit::Unreachable, CommandCode::ProviderUnreachable, detail).hint(
        "check that this host can reach the identity provider, or use a token meanwhile: `gpuaas \
         context add NAME --server URL --token-file FILE`",
    )
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
