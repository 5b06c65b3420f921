//! The command line's side of the admin API.

pub(crate) mod access;
mod approvals;
mod bundles;
mod changes;
pub(crate) mod events;
mod experiments;
mod images;
mod pages;
mod patience;
pub(crate) mod secrets;
mod slices;
mod tasks;
mod trust;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuaas_types::Problem;
use gpuaas_types::api::{
    List, NodeCertificates, NodeView, OnboardAccepted, ProfilePreset, ProfileResource,
    RevokeCertificate, RoceResource, RunPlan, RunRequest, RunView, SiteCreate, SiteResource,
};
use gpuaas_types::batch::{BatchAccepted, BatchActionRequest, BatchCreate, BatchResource};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::explain::Explanation;
use gpuaas_types::spec::{OnboardRequest, RoceAssignmentSpec};
use reqwest::{Method, RequestBuilder, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::arguments::{ApiArgs, ConnectionArgs};
use crate::contexts;
use crate::failure::{Exit, Failure};
use crate::http::{chain, direct_to_loopback, install_cryptography};
use crate::sign_in::Credential;

pub use self::trust::Trust;

const CONNECT_SECONDS: u64 = 5;
/// Adding a site asks MAAS several things, and a region may take its time.
const CALL_SECONDS: u64 = 120;
/// How long a connection is kept between two requests: less than the `idle-seconds` after which a control
/// plane closes it (docs/reference/limits.md).
const IDLE_SECONDS: u64 = 60;
/// Where `gpuaas serve` listens for operators when nothing else is said.
const DEFAULT_PORT: u16 = 8080;
const DEFAULT_TOKEN_FILE: &str = "gpuaas-data/admin-token";

/// A control plane and the right to ask it.
#[derive(Clone)]
pub struct ApiClient {
    base: Url,
    credential: Credential,
    http: reqwest::Client,
}

/// An address without a scheme, `HOST`, `HOST:PORT` or an IPv6 address with or without brackets, as
/// a URL; the port is that of `gpuaas serve` where none is named.
fn with_scheme(server: &str) -> String {
    let server = server.trim();
    if server.contains("://") || server.is_empty() {
        return server.to_owned();
    }
    if let Ok(address) = server.parse::<std::net::Ipv6Addr>() {
        return format!("http://[{address}]:{DEFAULT_PORT}");
    }
    let (host, rest) = server.split_once('/').unwrap_or((server, ""));
    let after_brackets = host.rsplit(']').next().unwrap_or(host);
    let port =
        if after_brackets.contains(':') { String::new() } else { format!(":{DEFAULT_PORT}") };
    format!("http://{host}{port}/{rest}")
}

/// Answer of `POST /console/login-addresses`.
#[derive(serde::Deserialize)]
struct ConsoleAddress {
    path: String,
    expires_in_seconds: f64,
}

impl ApiClient {
    /// The control plane at `server`, asked with `token`.
    ///
    /// # Errors
    /// `server_url_invalid` when `server` is no http or https URL; `http_unavailable` when no HTTP
    /// client can be made.
    pub fn new(server: &str, token: &str) -> Result<Self, Failure> {
        Self::with_trust(server, token, &Trust::System)
    }

    /// The same, where something else is trusted than this system's authorities.
    ///
    /// # Errors
    /// `ca_file_unusable`, besides those of [`ApiClient::new`].
    pub fn with_trust(server: &str, token: &str, trust: &Trust) -> Result<Self, Failure> {
        Self::with_credential(server, Credential::Token(token.to_owned()), trust)
    }

    fn with_credential(
        server: &str,
        credential: Credential,
        trust: &Trust,
    ) -> Result<Self, Failure> {
        install_cryptography();
        let base = Url::parse(&with_scheme(server))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                Failure::usage(
                    CommandCode::ServerUrlInvalid,
                    format!("{server:?} is not an http or https URL"),
                )
                .hint("write it as http://127.0.0.1:8080 in --server or GPUAAS_SERVER")
            })?;
        let builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(CONNECT_SECONDS))
            .timeout(Duration::from_secs(CALL_SECONDS))
            .pool_idle_timeout(Duration::from_secs(IDLE_SECONDS))
            .user_agent(concat!("gpuaas/", env!("CARGO_PKG_VERSION")));
        let builder = direct_to_loopback(builder, &base);
        // A plain http server needs no certificate authorities, and a bare host may have none.
        let builder = match base.scheme() {
            "http" => builder.tls_certs_only([]),
            _ => trust.apply(builder)?,
        };
        let http = builder
            .build()
            .map_err(|error| Failure::local(CommandCode::HttpUnavailable, chain(&error)))?;
        Ok(Self { base, credential, http })
    }

    /// As the command line and the environment say.
    ///
    /// # Errors
    /// `token_missing` or `token_unreadable`, besides those of [`ApiClient::new`].
    pub fn from_args(args: &ApiArgs) -> Result<Self, Failure> {
        Self::connect(&args.connection)
    }

    /// The same, for a command that prints nothing of the answer.
    ///
    /// # Errors
    /// See [`ApiClient::from_args`].
    pub fn connect(args: &ConnectionArgs) -> Result<Self, Failure> {
        let target = contexts::target(args)?;
        let credential = match (&args.token, &args.token_file, &target.login, &target.token_file) {
            (Some(token), ..) => Credential::Token(token.trim().to_owned()),
            (None, Some(path), ..) => Credential::Token(read_token(path)?),
            (None, None, Some(login), _) => Credential::SignIn(login.clone().into()),
            (None, None, None, Some(path)) => Credential::Token(read_token(path)?),
            // The token that lies here is of this machine's own control plane.
            (None, None, None, None) => match &target.context {
                Some(name) => return Err(contexts::without_token(name)),
                None => Credential::Token(default_token()?),
            },
        };
        let ca_file = args.server_ca_file.as_ref().or(target.ca_file.as_ref());
        let trust = Trust::of_file(ca_file.map(PathBuf::as_path), &target.server)?;
        Self::with_credential(&target.server, credential, &trust)
    }

    /// The same control plane, asked by nobody.
    ///
    /// # Errors
    /// See [`ApiClient::from_args`].
    pub fn anonymous(args: &ConnectionArgs) -> Result<Self, Failure> {
        let target = contexts::target(args)?;
        let trust = Trust::of_file(target.ca_file.as_deref(), &target.server)?;
        Self::with_trust(&target.server, "", &trust)
    }

    /// `POST /api/v1/sites`.
    ///
    /// # Errors
    /// As every call: [`Exit::Refused`] with the server's problem, [`Exit::Unreachable`] when it
    /// gave no answer.
    pub async fn add_site(&self, body: &SiteCreate) -> Result<SiteResource, Failure> {
        self.send(Method::POST, &["sites"], Some(body)).await
    }

    /// `GET /api/v1/sites`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn sites(&self) -> Result<List<SiteResource>, Failure> {
        self.get(&["sites"]).await
    }

    /// `GET /api/v1/sites/NAME`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn site(&self, name: &str) -> Result<SiteResource, Failure> {
        self.get(&["sites", name]).await
    }

    /// `POST /api/v1/profiles`. The fields travel as they were written: the server knows which
    /// exist.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn add_profile(
        &self,
        name: &str,
        spec: Map<String, Value>,
    ) -> Result<ProfileResource, Failure> {
        self.send(Method::POST, &["profiles"], Some(&json!({"name": name, "spec": spec}))).await
    }

    /// `GET /api/v1/profile-presets`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn profile_presets(&self) -> Result<List<ProfilePreset>, Failure> {
        self.get(&["profile-presets"]).await
    }

    /// `PATCH /api/v1/profiles/NAME`: changes the fields in `spec` only.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn set_profile(
        &self,
        name: &str,
        spec: Map<String, Value>,
    ) -> Result<ProfileResource, Failure> {
        self.send(Method::PATCH, &["profiles", name], Some(&spec)).await
    }

    /// `GET /api/v1/profiles`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn profiles(&self) -> Result<List<ProfileResource>, Failure> {
        self.get(&["profiles"]).await
    }

    /// `GET /api/v1/profiles/NAME`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn profile(&self, name: &str) -> Result<ProfileResource, Failure> {
        self.get(&["profiles", name]).await
    }

    /// `POST /api/v1/roce-assignments`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn add_roce(&self, body: &RoceAssignmentSpec) -> Result<RoceResource, Failure> {
        self.send(Method::POST, &["roce-assignments"], Some(body)).await
    }

    /// `GET /api/v1/nodes/NODE/certificates`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn certificates(&self, node: &str) -> Result<NodeCertificates, Failure> {
        self.get(&["nodes", node, "certificates"]).await
    }

    /// `POST /api/v1/nodes/NODE/revoke-certificate`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn revoke_certificate(
        &self,
        node: &str,
        body: &RevokeCertificate,
    ) -> Result<NodeCertificates, Failure> {
        self.send(Method::POST, &["nodes", node, "revoke-certificate"], Some(body)).await
    }

    /// `POST /api/v1/nodes`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn onboard(&self, body: &OnboardRequest) -> Result<OnboardAccepted, Failure> {
        self.send(Method::POST, &["nodes"], Some(body)).await
    }

    /// `GET /api/v1/nodes`, filtered.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn nodes(
        &self,
        site: Option<&str>,
        state: Option<&str>,
    ) -> Result<List<NodeView>, Failure> {
        self.get_all(&["nodes"], &[("site", site), ("state", state)]).await
    }

    /// `GET /api/v1/nodes/KEY`, by id, hostname, MAAS system id or MAC.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn node(&self, key: &str) -> Result<NodeView, Failure> {
        self.get(&["nodes", key]).await
    }

    /// `GET /api/v1/nodes/KEY/explain`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn explain(&self, key: &str) -> Result<Explanation, Failure> {
        self.get(&["nodes", key, "explain"]).await
    }

    /// `GET /api/v1/runs/ID`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn run(&self, id: &str) -> Result<RunView, Failure> {
        self.get(&["runs", id]).await
    }

    /// `POST /api/v1/runs/ID/resume`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn resume(&self, id: &str, actor: &str, reason: &str) -> Result<RunView, Failure> {
        let body = json!({"actor": actor, "reason": reason});
        self.send(Method::POST, &["runs", id, "resume"], Some(&body)).await
    }

    /// `POST /api/v1/runs/ID/ORDER`, where the order is `retry`, `cancel` or `skip-check`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn order(&self, id: &str, order: &str, body: &Value) -> Result<RunView, Failure> {
        self.send(Method::POST, &["runs", id, order], Some(body)).await
    }

    /// `POST /api/v1/nodes/NODE/runs`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn begin(&self, key: &str, body: &RunRequest) -> Result<RunPlan, Failure> {
        self.send(Method::POST, &["nodes", key, "runs"], Some(body)).await
    }

    /// `POST /api/v1/batches`; `key` lets the request be repeated.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn start_batch(
        &self,
        body: &BatchCreate,
        key: Option<&str>,
    ) -> Result<BatchAccepted, Failure> {
        let mut request = self.http.post(self.url(&["batches"])?).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.answer(request).await
    }

    /// `GET /api/v1/batches?site=&filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn batches(
        &self,
        site: Option<&str>,
        filter: Option<&str>,
    ) -> Result<List<BatchResource>, Failure> {
        self.get_all(&["batches"], &[("site", site), ("filter", filter)]).await
    }

    /// `GET /api/v1/batches/KEY`, by name or id.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn batch(&self, key: &str) -> Result<BatchResource, Failure> {
        self.get(&["batches", key]).await
    }

    /// `POST /api/v1/batches/KEY/ORDER`, where the order is `resume` or `stop`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn order_batch(
        &self,
        key: &str,
        order: &str,
        body: &BatchActionRequest,
    ) -> Result<BatchResource, Failure> {
        self.send(Method::POST, &["batches", key, order], Some(body)).await
    }

    /// `POST /console/login-addresses`: the address of the console, which signs in once within a
    /// minute, and the seconds for which it does.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn console_address(&self) -> Result<(String, f64), Failure> {
        let mut url = self.base.clone();
        url.set_path("/console/login-addresses");
        let answer: ConsoleAddress = self.answer(self.http.post(url.clone())).await?;
        url.set_path(&answer.path);
        Ok((url.to_string(), answer.expires_in_seconds))
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Failure> {
        self.answer(self.http.get(self.url(path)?)).await
    }

    async fn send<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&B>,
    ) -> Result<T, Failure> {
        let mut request = self.http.request(method, self.url(path)?);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    fn url(&self, path: &[&str]) -> Result<Url, Failure> {
        let mut url = self.base.clone();
        let segments = url.path_segments_mut().map(|mut segments| {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        });
        segments.map(|()| url).map_err(|()| Failure::usage(CommandCode::ServerUrlInvalid, ""))
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Failure> {
        let token = self.credential.token().await?;
        let sent = patience::send(request.bearer_auth(token)).await;
        let (status, body) = sent.map_err(|error| self.silence(error))?;
        if !status.is_success() {
            return Err(Failure::refused(refusal(status.as_u16(), &body)));
        }
        serde_json::from_slice(&body).map_err(|error| {
            Failure::new(
                Exit::Unreachable,
                CommandCode::UnexpectedAnswer,
                format!("HTTP {status} from {}: {error}", self.base),
            )
            .hint(
                "check --server, and that the control plane and this command have the same version",
            )
        })
    }

    fn silence(&self, error: reqwest::Error) -> Failure {
        let code = if error.is_connect() || error.is_builder() {
            CommandCode::ServerUnreachable
        } else {
            CommandCode::ServerSilent
        };
        let hint = "start the control plane with `gpuaas serve`, or set --server, --context or \
             GPUAAS_SERVER";
        let cause = chain(&error.without_url());
        let (code, hint) = trust::hint(&self.base, &cause).unwrap_or((code, hint));
        Failure::new(Exit::Unreachable, code, format!("{}: {cause}", self.base)).hint(hint)
    }
}

fn refusal(status: u16, body: &[u8]) -> Problem {
    let mut problem = serde_json::from_slice::<Problem>(body).unwrap_or_else(|_| {
        let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Problem::new(status, "unexpected_answer", "The response is not from a control plane")
            .with_detail(format!("HTTP {status}: {}", text.trim()))
            .with_hint(
                "check that --server names a GPUaaS control plane, not a proxy in front of it",
            )
    });
    // What is wrong with a sign-in, the control plane says itself.
    if status == 401 && !problem.code.starts_with("sign_in_") {
        "pass the admin token, DATA/admin-token of the control plane, with --token-file, --token \
         or GPUAAS_TOKEN; if it is lost, create another on its host with `gpuaas token reset \
         --data DIR --reason TEXT`"
            .clone_into(&mut problem.hint);
    }
    problem
}

fn read_token(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(|error| {
        Failure::usage(CommandCode::TokenUnreadable, format!("{}: {error}", path.display()))
        .hint("use DATA/admin-token, which `gpuaas serve` writes for its own user only; if it is lost, create another on its host with `gpuaas token reset --data DIR --reason TEXT`")
    })
}

fn default_token() -> Result<String, Failure> {
    let path = PathBuf::from(DEFAULT_TOKEN_FILE);
    if path.exists() {
        return read_token(&path);
    }
    Err(Failure::usage(
        CommandCode::TokenMissing,
        format!("{DEFAULT_TOKEN_FILE} does not exist in this folder"),
    )
    .hint("pass --token-file DATA/admin-token, or set GPUAAS_TOKEN_FILE or GPUAAS_TOKEN"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;

    async fn serve(router: Router) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        format!("http://{address}/")
    }

    #[tokio::test]
    async fn answers_map_to_exits_and_keep_codes() {
        let problem = serde_json::to_string(
            &Problem::new(404, "node_not_found", "Node not found").with_hint("look"),
        )
        .unwrap();
        let router = Router::new()
            .route("/api/v1/nodes/x", get(move || async move { (StatusCode::NOT_FOUND, problem) }))
            .route("/api/v1/nodes/y", get(|| async { (StatusCode::BAD_GATEWAY, "<html>") }))
            .route("/api/v1/nodes/z", get(|| async { "{}" }))
            .route("/api/v1/runs/r", get(|| async { (StatusCode::UNAUTHORIZED, "") }));
        let client = ApiClient::new(&serve(router).await, "t").unwrap();
        let failure = client.node("x").await.unwrap_err();
        assert_eq!((failure.exit, failure.code()), (Exit::Refused, "node_not_found"));
        assert_eq!(failure.problem.hint, "look");
        let failure = client.node("y").await.unwrap_err();
        assert_eq!((failure.exit, failure.code()), (Exit::Refused, "unexpected_answer"));
        assert!(failure.problem.detail.contains("502"), "{failure}");
        let failure = client.node("z").await.unwrap_err();
        assert_eq!((failure.exit, failure.code()), (Exit::Unreachable, "unexpected_answer"));
        let failure = client.run("r").await.unwrap_err();
        assert!(failure.problem.hint.contains("admin-token"), "{failure}");
    }

    #[tokio::test]
    async fn requests_carry_token_path_and_query() {
        use axum::extract::Request;
        let echo = |request: Request| async move {
            let auth = request.headers()["authorization"].to_str().unwrap().to_owned();
            let detail = format!("{} {auth}", request.uri());
            let problem = Problem::new(418, "echo", "echo").with_detail(detail);
            (StatusCode::IM_A_TEAPOT, serde_json::to_string(&problem).unwrap())
        };
        let client = ApiClient::new(&serve(Router::new().fallback(echo)).await, "tok").unwrap();
        let said = |failure: Failure| failure.problem.detail;
        assert_eq!(
            said(client.nodes(Some("a&b"), None).await.unwrap_err()),
            "/api/v1/nodes?site=a%26b Bearer tok"
        );
        assert_eq!(
            said(client.node("../x y").await.unwrap_err()),
            "/api/v1/nodes/..%2Fx%20y Bearer tok"
        );
    }

    #[test]
    fn servers_as_people_write_them() {
        for (written, meant) in [
            ("localhost:8080", "http://localhost:8080/"),
            ("gpuaas.example", "http://gpuaas.example:8080/"),
            ("::1", "http://[::1]:8080/"),
            ("[::1]", "http://[::1]:8080/"),
            ("[::1]:9000", "http://[::1]:9000/"),
            ("https://gpuaas.example", "https://gpuaas.example/"),
        ] {
            let client = ApiClient::new(written, "t").unwrap();
            assert_eq!(client.base.as_str(), meant, "{written}");
        }
    }

    #[tokio::test]
    async fn nobody_there() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let failure = ApiClient::new(&url, "t").unwrap().sites().await.unwrap_err();
        assert_eq!((failure.exit, failure.code()), (Exit::Unreachable, "server_unreachable"));
        for bad in ["", "ftp://x", "http://", "a b", "localhost:port"] {
            let failure = ApiClient::new(bad, "t").map(drop).unwrap_err();
            assert_eq!(
                (failure.exit, failure.code()),
                (Exit::Usage, "server_url_invalid"),
                "{bad}"
            );
        }
    }
}
