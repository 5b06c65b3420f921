//! A stand-in for Vault, for tests alone: AppRole, KV version 2 and Transit as their documents say, in
//! memory. It is no Vault: it keeps nothing secret, its Transit does not encrypt, and what it was not
//! taught it answers with 404. Where a server with a method of its own is to be had, tests ask that one
//! (`tests/real_server.rs`).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What the role of the stand-in is called.
pub const ROLE_ID: &str = "stand-in-role";

/// What it holds and was asked.
#[derive(Debug, Default)]
pub struct StandInState {
    /// What proves the role.
    pub secret_id: String,
    /// Seconds that a token counts.
    pub lease_seconds: u64,
    /// Secrets of KV version 2 by `MOUNT/PATH`: their fields.
    pub secrets: BTreeMap<String, Value>,
    /// Newest version of each key of Transit, by `MOUNT/NAME`.
    pub transit_keys: BTreeMap<String, u32>,
    /// Tokens that count.
    pub tokens: Vec<String>,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Method and path of every request.
    pub asked: Vec<String>,
}

/// A running stand-in.
pub struct VaultStandIn {
    /// Its base URL.
    pub url: String,
    state: Arc<Mutex<StandInState>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for VaultStandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl VaultStandIn {
    /// Starts one on loopback whose role is proved by `secret_id`.
    ///
    /// # Errors
    /// No port is to be had.
    pub async fn start(secret_id: &str) -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = StandInState {
            secret_id: secret_id.to_owned(),
            lease_seconds: 3_600,
            ..StandInState::default()
        };
        let state = Arc::new(Mutex::new(state));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.ok();
        });
        Ok(Self { url, state, task })
    }

    /// Looks at what it holds, or changes it.
    pub fn with<T>(&self, look: impl FnOnce(&mut StandInState) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type Shared = Arc<Mutex<StandInState>>;

fn errors(status: StatusCode, texts: &[&str]) -> Response {
    (status, axum::Json(json!({ "errors": texts }))).into_response()
}

fn denied() -> Response {
    errors(StatusCode::FORBIDDEN, &["permission denied"])
}

async fn answer(
    State(state): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let path = uri.path().trim_start_matches("/v1/").to_owned();
    state.asked.push(format!("{method} {path}"));
    if state.sealed {
        return errors(StatusCode::SERVICE_UNAVAILABLE, &["Vault is sealed"]);
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    if path == "auth/approle/login" {
        if text("role_id") != ROLE_ID || text("secret_id") != state.secret_id {
            return errors(StatusCode::BAD_REQUEST, &["invalid role or secret ID"]);
        }
        let token = format!("hvs.stand-in-{}", state.asked.len());
        state.tokens.push(token.clone());
        return signed_in(&token, state.lease_seconds);
    }
    let token = headers.get("x-vault-token").and_then(|value| value.to_str().ok());
    let Some(token) = token.filter(|token| state.tokens.iter().any(|one| one == token)) else {
        return denied();
    };
    if path == "auth/token/renew-self" {
        return signed_in(token, state.lease_seconds);
    }
    let parts: Vec<&str> = path.splitn(3, '/').collect();
    match (method, parts.as_slice()) {
        (Method::GET, [mount, "data", secret]) => {
            match state.secrets.get(&format!("{mount}/{secret}")) {
                Some(data) => {
                    let metadata = json!({ "version": 1, "destroyed": false });
                    axum::Json(json!({ "data": { "data": data, "metadata": metadata } }))
                        .into_response()
                }
                None => errors(StatusCode::NOT_FOUND, &[]),
            }
        }
        (Method::POST, [mount, verb @ ("encrypt" | "decrypt" | "rewrap"), key]) => {
            let newest = state.transit_keys.get(&format!("{mount}/{key}")).copied();
            transit(verb, newest, &text("plaintext"), &text("ciphertext"))
        }
        _ => errors(StatusCode::NOT_FOUND, &[]),
    }
}

fn signed_in(token: &str, lease_seconds: u64) -> Response {
    let auth = json!({
        "client_token": token, "lease_duration": lease_seconds, "renewable": true,
        "policies": ["default"],
    });
    axum::Json(json!({ "auth": auth })).into_response()
}

/// Its ciphertext is the plaintext turned round in base64: enough to see that it was asked.
fn transit(verb: &str, newest: Option<u32>, plain: &str, sealed: &str) -> Response {
    let Some(newest) = newest else {
        return errors(StatusCode::BAD_REQUEST, &["encryption key not found"]);
    };
    let seal = |plain: &str| {
        let turned: String = plain.chars().rev().collect();
        format!("vault:v{newest}:{}", STANDARD.encode(turned))
    };
    let open = || -> Option<String> {
        let (version, text) = sealed.strip_prefix("vault:v")?.split_once(':')?;
        let known = version.parse::<u32>().is_ok_and(|version| (1..=newest).contains(&version));
        let turned = String::from_utf8(STANDARD.decode(text).ok()?).ok()?;
        known.then(|| turned.chars().rev().collect())
    };
    let data = match verb {
        "encrypt" => json!({ "ciphertext": seal(plain), "key_version": newest }),
        _ => match (open(), verb) {
            (None, _) => {
                return errors(StatusCode::BAD_REQUEST, &["invalid ciphertext: no prefix"]);
            }
            (Some(plain), "decrypt") => json!({ "plaintext": plain }),
            (Some(plain), _) => json!({ "ciphertext": seal(&plain), "key_version": newest }),
        },
    };
    axum::Json(json!({ "data": data })).into_response()
}
