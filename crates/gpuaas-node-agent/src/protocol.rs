//! Client of the agent protocol (`gpuaas_types::agent`).
//!
//! Every call has a timeout and fails in one of three ways, by what the caller does next:
//! [`ControlPlaneError::Refused`]: asking again will not help; [`ControlPlaneError::Unavailable`] and
//! [`ControlPlaneError::Malformed`]: ask again later. A 4xx without a problem body comes from something
//! that is not the control plane, such as a proxy, and is malformed, except 401 and 403.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gpuaas_bundle::Envelope;
use gpuaas_types::agent::{
    BootstrapProgress, BundlePhase, EnrollRequest, EnrollResponse, Gates,
    HEARTBEAT_INTERVAL_SECONDS, HeartbeatRequest, HeartbeatResponse, NodeCertificate, RenewRequest,
    TaskBatch, TaskResult,
};
use gpuaas_types::{Problem, RunId, SecretText, TaskId};
use reqwest::{Certificate, Client, RequestBuilder, Response};
use serde::de::DeserializeOwned;

use crate::identity::AgentCredential;

/// Longest time of connecting, in seconds.
const CONNECT_SECONDS: u64 = 5;
/// Longest time of a call, in seconds.
const CALL_SECONDS: u64 = 20;
/// Longest time of a download, in seconds: a bundle of many megabytes over a slow link.
const FETCH_SECONDS: u64 = 900;
/// Connections that an agent keeps between two calls: polls and heartbeats take turns on one. While a
/// poll has it, what a report opened beside it is the one that is kept.
const IDLE_CONNECTIONS: usize = 1;
/// Seconds for which such a connection is kept beyond the time from one heartbeat to the next.
const IDLE_EXTRA_SECONDS: u64 = 5;
/// Largest response that is read, in bytes; downloads apart.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Why a call has no usable response.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ControlPlaneError {
    /// The control plane refused; the same call is refused again.
    #[error("the control plane refused the request: {0}")]
    Refused(Problem),
    /// The control plane could not be reached, timed out, or answered 408, 425, 429 or 5xx.
    #[error("the control plane is unavailable: {0}")]
    Unavailable(String),
    /// The response is not one of the protocol: it comes from a proxy or another server.
    #[error("invalid response from the control plane: {0}")]
    Malformed(String),
}

/// An HTTP client cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the HTTP client: {0}")]
pub struct SetupError(String);

/// A control plane, reached over a connection pool. Cheap to clone.
#[derive(Clone)]
pub struct ControlPlane {
    base: Arc<str>,
    http: Client,
    /// Trusted authorities, PEM.
    ca_pem: Option<Arc<[u8]>>,
    /// Whether the system's authorities are trusted too.
    system_roots: bool,
    /// Address of this host that connections come from; none: the system chooses.
    local_address: Option<IpAddr>,
    /// Bearer credential of a simulated host.
    bearer: Option<Arc<str>>,
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlane").field("base", &self.base).finish_non_exhaustive()
    }
}

/// An HTTP client that any number of [`ControlPlane`]s may share. It trusts `ca_pem`, and with
/// `system_roots` the system's authorities too.
///
/// # Errors
/// `ca_pem` holds no certificate, or the system has none where they are wanted.
pub fn http_client(ca_pem: Option<&[u8]>, system_roots: bool) -> Result<Client, SetupError> {
    build(ca_pem, system_roots, None, None, usize::MAX)
}

fn build(
    ca_pem: Option<&[u8]>,
    system_roots: bool,
    identity: Option<reqwest::Identity>,
    local_address: Option<IpAddr>,
    idle_connections: usize,
) -> Result<Client, SetupError> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Losing the race against another thread that installs one is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    let setup = |error: reqwest::Error| SetupError(with_causes(&error));
    let certificates = match ca_pem {
        Some(pem) => Certificate::from_pem_bundle(pem).map_err(setup)?,
        None => Vec::new(),
    };
    let idle_seconds = u64::from(HEARTBEAT_INTERVAL_SECONDS) + IDLE_EXTRA_SECONDS;
    let builder = Client::builder()
        .connect_timeout(Duration::from_secs(CONNECT_SECONDS))
        .redirect(reqwest::redirect::Policy::none())
        .local_address(local_address)
        .pool_max_idle_per_host(idle_connections)
        .pool_idle_timeout(Duration::from_secs(idle_seconds))
        .user_agent(concat!("gpuaas-node-agent/", env!("CARGO_PKG_VERSION")));
    let builder = if system_roots {
        builder.tls_certs_merge(certificates)
    } else {
        builder.tls_certs_only(certificates)
    };
    let builder = match identity {
        Some(identity) => builder.identity(identity),
        None => builder,
    };
    builder.build().map_err(setup)
}

impl ControlPlane {
    /// The control plane at `url`, over connections of its own. Its certificate has to be one of
    /// `anchor_pem`'s: any authority that the system trusts could certify another server, which
    /// would be given the enrollment token.
    ///
    /// # Errors
    /// See [`http_client`].
    pub fn new(url: &str, anchor_pem: Option<&[u8]>) -> Result<Self, SetupError> {
        Self::trusting(url, anchor_pem, false, None)
    }

    /// The control plane at `url`, whose certificate may be of any authority that the system or
    /// `ca_pem` names: where it has one of a public authority, and so no anchor of its own.
    ///
    /// # Errors
    /// See [`http_client`].
    pub fn with_system_roots(url: &str, ca_pem: Option<&[u8]>) -> Result<Self, SetupError> {
        Self::trusting(url, ca_pem, true, None)
    }

    /// As [`ControlPlane::new`], with connections that come from `local_address`: for simulated hosts,
    /// each of which has an address of its own, as hosts have.
    ///
    /// # Errors
    /// See [`http_client`].
    pub fn from_address(
        url: &str,
        anchor_pem: &[u8],
        local_address: IpAddr,
    ) -> Result<Self, SetupError> {
        Self::trusting(url, Some(anchor_pem), false, Some(local_address))
    }

    fn trusting(
        url: &str,
        ca_pem: Option<&[u8]>,
        system: bool,
        local_address: Option<IpAddr>,
    ) -> Result<Self, SetupError> {
        let system_roots = system && url.starts_with("https:");
        let client = build(ca_pem, system_roots, None, local_address, IDLE_CONNECTIONS)?;
        let plane = Self::with_client(url, client);
        Ok(Self { ca_pem: ca_pem.map(Arc::from), system_roots, local_address, ..plane })
    }

    /// The control plane at `url`, over connections shared with others.
    #[must_use]
    pub fn with_client(url: &str, http: Client) -> Self {
        let base = url.trim_end_matches('/').into();
        Self { base, http, ca_pem: None, system_roots: false, local_address: None, bearer: None }
    }

    /// The same control plane for whoever trusts `ca_pem` in the place of what was trusted before.
    ///
    /// # Errors
    /// See [`http_client`].
    pub fn trusting_instead(&self, ca_pem: &[u8]) -> Result<Self, SetupError> {
        let http =
            build(Some(ca_pem), self.system_roots, None, self.local_address, IDLE_CONNECTIONS)?;
        Ok(Self { http, ca_pem: Some(ca_pem.into()), bearer: None, ..self.clone() })
    }

    /// Whether it is reached over TLS, and so asks for certificates.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.base.starts_with("https:")
    }

    /// The same control plane for an agent that authenticates; with a certificate, over
    /// connections of its own.
    ///
    /// # Errors
    /// When the key or the certificate cannot be used.
    pub fn with_credential(&self, credential: &AgentCredential) -> Result<Self, SetupError> {
        let certificate = match credential {
            AgentCredential::Bearer(credential) => {
                return Ok(Self { bearer: Some(credential.expose().into()), ..self.clone() });
            }
            AgentCredential::Certificate { key_pem, certificate } => {
                SecretText::from(format!("{}{}", key_pem.expose(), certificate.chain_pem))
            }
        };
        let identity = reqwest::Identity::from_pem(certificate.expose().as_bytes())
            .map_err(|error| SetupError(with_causes(&error)))?;
        let (ca_pem, identity) = (self.ca_pem.as_deref(), Some(identity));
        let http =
            build(ca_pem, self.system_roots, identity, self.local_address, IDLE_CONNECTIONS)?;
        Ok(Self { http, bearer: None, ..self.clone() })
    }

    /// Adds the bearer credential, if the agent has one.
    fn authenticated(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.bearer {
            Some(credential) => request.bearer_auth(credential),
            None => request,
        }
    }

    /// Reports bootstrap progress.
    ///
    /// # Errors
    /// See [`ControlPlaneError`].
    pub async fn progress(
        &self,
        run: RunId,
        bootstrap_token: &str,
        progress: &BootstrapProgress,
    ) -> Result<(), ControlPlaneError> {
        let url = format!("{}/bootstrap/v1/runs/{run}/progress", self.base);
        call_without_body(self.http.post(url).bearer_auth(bootstrap_token).json(progress)).await
    }

    /// Reports that a phase of a bundle has ended.
    ///
    /// # Errors
    /// See [`ControlPlaneError`].
    pub async fn phase(
        &self,
        run: RunId,
        bootstrap_token: &str,
        phase: &BundlePhase,
    ) -> Result<(), ControlPlaneError> {
        let url = format!("{}/bootstrap/v1/runs/{run}/phases", self.base);
        call_without_body(self.http.post(url).bearer_auth(bootstrap_token).json(phase)).await
    }

    /// Downloads at most `max_bytes` from `url`: absolute, or a path of the control plane, which alone gets
    /// the credential.
    ///
    /// # Errors
    /// See [`ControlPlaneError`].
    pub async fn fetch(&self, url: &str, max_bytes: u64) -> Result<Vec<u8>, ControlPlaneError> {
        let request = match url.starts_with('/') {
            true => self.authenticated(self.http.get(format!("{}{url}", self.base))),
            false => self.http.get(url),
        };
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        send(request, FETCH_SECONDS, max_bytes).await
    }

    /// Reports the gates of the host.
    ///
    /// # Errors
    /// See [`ControlPlaneError`].
    pub async fn gates(&self, gates: &Gates) -> Result<(), ControlPlaneError> {
        let url = format!("{}/agent/v1/gates", self.base);
        call_without_body(self.authenticated(self.http.post(url)).json(gates)).await
    }

    /// Enrolls: exchanges the enrollment token for an identity.
    ///
    /// # Errors
    /// See [`ControlPlaneError`]; refused means that the token is spent, expired or of another run.
    pub async fn enroll(
        &self,
        enrollment_token: &str,
        request: &EnrollRequest,
    ) -> Result<EnrollResponse, ControlPlaneError> {
        let url = format!("{}/agent/v1/enroll", self.base);
        call(self.http.post(url).bearer_auth(enrollment_token).json(request), CALL_SECONDS).await
    }

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// See [`ControlPlaneError`]; refused means that the certificate is not valid any more.
    pub async fn heartbeat(
        &self,
        heartbeat: &HeartbeatRequest,
    ) -> Result<HeartbeatResponse<Envelope>, ControlPlaneError> {
        let url = format!("{}/agent/v1/heartbeat", self.base);
        call(self.authenticated(self.http.post(url)).json(heartbeat), CALL_SECONDS).await
    }

    /// Renews the certificate of this connection.
    ///
    /// # Errors
    /// See [`ControlPlaneError`].
    pub async fn renew(
        &self,
        request: &RenewRequest,
    ) -> Result<NodeCertificate, ControlPlaneError> {
        let url = format!("{}/agent/v1/certificate", self.base);
        call(self.authenticated(self.http.post(url)).json(request), CALL_SECONDS).await
    }

    /// Polls for tasks; the control plane may hold the request for `wait_seconds`. With the digest of the
    /// last heartbeat it stands for another one that says the same.
    ///
    /// # Errors
    /// See [`ControlPlaneError`].
    pub async fn poll_tasks(
        &self,
        wait_seconds: u32,
        heartbeat_digest: Option<&str>,
    ) -> Result<TaskBatch<Envelope>, ControlPlaneError> {
        let mut url = format!("{}/agent/v1/tasks?wait_seconds={wait_seconds}", self.base);
        if let Some(digest) = heartbeat_digest {
            url = format!("{url}&heartbeat_digest={digest}");
        }
        let timeout_seconds = u64::from(wait_seconds) + CALL_SECONDS;
        call(self.authenticated(self.http.get(url)), timeout_seconds).await
    }

    /// Submits the result of a task.
    ///
    /// # Errors
    /// See [`ControlPlaneError`].
    pub async fn task_result(
        &self,
        task: TaskId,
        result: &TaskResult,
    ) -> Result<(), ControlPlaneError> {
        let url = format!("{}/agent/v1/tasks/{task}/result", self.base);
        call_without_body(self.authenticated(self.http.post(url)).json(result)).await
    }
}

async fn call_without_body(request: RequestBuilder) -> Result<(), ControlPlaneError> {
    send(request, CALL_SECONDS, MAX_RESPONSE_BYTES).await.map(drop)
}

async fn call<T: DeserializeOwned>(
    request: RequestBuilder,
    timeout_seconds: u64,
) -> Result<T, ControlPlaneError> {
    let body = send(request, timeout_seconds, MAX_RESPONSE_BYTES).await?;
    serde_json::from_slice(&body).map_err(|error| ControlPlaneError::Malformed(error.to_string()))
}

async fn send(
    request: RequestBuilder,
    timeout_seconds: u64,
    max_bytes: usize,
) -> Result<Vec<u8>, ControlPlaneError> {
    let unavailable =
        |error: reqwest::Error| ControlPlaneError::Unavailable(with_causes(&error.without_url()));
    let response =
        request.timeout(Duration::from_secs(timeout_seconds)).send().await.map_err(unavailable)?;
    let status = response.status().as_u16();
    let body = read(response, max_bytes).await?;
    match status {
        200..=299 => Ok(body),
        408 | 425 | 429 | 500.. => Err(ControlPlaneError::Unavailable(format!("HTTP {status}"))),
        _ => Err(refusal(status, &body)),
    }
}

async fn read(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, ControlPlaneError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= max_bytes => {
                body.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => {
                return Err(ControlPlaneError::Malformed(format!("larger than {max_bytes} bytes")));
            }
            Ok(None) => return Ok(body),
            Err(error) => {
                return Err(ControlPlaneError::Unavailable(with_causes(&error.without_url())));
            }
        }
    }
}

fn refusal(status: u16, body: &[u8]) -> ControlPlaneError {
    match (serde_json::from_slice::<Problem>(body), status) {
        (Ok(problem), _) => ControlPlaneError::Refused(problem),
        (Err(_), 401 | 403) => {
            ControlPlaneError::Refused(Problem::new(status, "credential_refused", "not authorised"))
        }
        (Err(_), _) => {
            ControlPlaneError::Malformed(format!("HTTP {status} without a problem body"))
        }
    }
}

/// An error and its causes on one line; reqwest's own text names neither host nor reason.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
