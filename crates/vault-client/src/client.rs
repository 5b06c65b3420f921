//! The client: one token, and the requests that it is sent with.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::VaultError;
use crate::path::{FieldPath, TransitKey};
use crate::token::{Token, TokenStep};

/// Longest time for one answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are read.
const LONGEST_ANSWER: usize = 1 << 20;

/// Where a Vault is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultAddress {
    /// Its base URL, such as `https://vault.example:8200`.
    pub url: String,
    /// What it is trusted by, PEM; none: the authorities of this system.
    pub ca_pem: Option<String>,
    /// Namespace, where it has such; none: the root one.
    pub namespace: Option<String>,
}

/// How a program signs in.
#[derive(Clone)]
pub struct AppRole {
    /// Where the method is mounted, usually `approle`.
    pub mount: String,
    /// Identifier of the role.
    pub role_id: String,
    /// What proves it.
    pub secret_id: SecretString,
}

impl fmt::Debug for AppRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppRole({}/{})", self.mount, self.role_id)
    }
}

/// A client of one Vault in one role.
pub struct VaultClient {
    http: reqwest::Client,
    address: VaultAddress,
    role: AppRole,
    token: Mutex<Option<(Token, Instant)>>,
}

impl fmt::Debug for VaultClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VaultClient({}, {:?})", self.address.url, self.role)
    }
}

#[derive(Deserialize)]
struct SignedIn {
    auth: Auth,
}

#[derive(Deserialize)]
struct Auth {
    client_token: String,
    #[serde(default)]
    lease_duration: u64,
    #[serde(default)]
    renewable: bool,
}

impl From<Auth> for Token {
    fn from(auth: Auth) -> Self {
        Self {
            secret: auth.client_token.into(),
            lease: Duration::from_secs(auth.lease_duration),
            is_renewable: auth.renewable,
        }
    }
}

impl VaultClient {
    /// A client. Nothing is asked before the first request.
    ///
    /// # Errors
    /// [`VaultError::Unreachable`] where the address or what it is trusted by cannot be used.
    pub fn new(address: VaultAddress, role: AppRole) -> Result<Self, VaultError> {
        let unusable = |error: reqwest::Error| VaultError::Unreachable {
            address: address.url.clone(),
            why: error.without_url().to_string(),
        };
        let mut builder =
            reqwest::Client::builder().timeout(LIMIT).redirect(reqwest::redirect::Policy::none());
        if let Some(pem) = &address.ca_pem {
            let anchors = reqwest::Certificate::from_pem_bundle(pem.as_bytes());
            builder = builder.tls_certs_only(anchors.map_err(unusable)?);
        } else if address.url.starts_with("http:") {
            builder = builder.no_proxy().tls_certs_only([]);
        }
        let http = builder.build().map_err(unusable)?;
        Ok(Self { http, address, role, token: Mutex::new(None) })
    }

    /// A field of a secret of KV version 2, in its newest version.
    ///
    /// # Errors
    /// [`VaultError`]; `NotFound` where there is no such secret or field, or it was deleted.
    pub async fn read_field(&self, at: &FieldPath) -> Result<SecretString, VaultError> {
        let path = format!("{}/data/{}", at.mount, at.path);
        let what = at.to_string();
        let answer = self.ask(Method::GET, &path, None, &what).await?;
        match answer.pointer("/data/data").and_then(|data| data.get(&at.field)) {
            Some(Value::String(text)) => Ok(text.clone().into()),
            Some(_) => Err(VaultError::Malformed { what, why: "the field is not text".to_owned() }),
            None if answer.pointer("/data/data").is_some_and(Value::is_object) => {
                let what = format!("field {} in {}/{}", at.field, at.mount, at.path);
                Err(VaultError::NotFound { what })
            }
            None => Err(VaultError::NotFound { what }),
        }
    }

    /// Has Transit encrypt some bytes. Answers its text, `vault:v1:...`.
    ///
    /// # Errors
    /// [`VaultError`].
    pub async fn encrypt(&self, key: &TransitKey, plain: &[u8]) -> Result<String, VaultError> {
        let body = json!({ "plaintext": STANDARD.encode(plain) });
        let path = format!("{}/encrypt/{}", key.mount, key.name);
        text_of(&self.ask(Method::POST, &path, Some(body), &key.to_string()).await?, "ciphertext")
    }

    /// Has Transit decrypt what it encrypted with any version of the key that it still has.
    ///
    /// # Errors
    /// [`VaultError`]; `Refused` where it is not its own, or of a version that is archived.
    pub async fn decrypt(
        &self,
        key: &TransitKey,
        sealed: &str,
    ) -> Result<secrecy::SecretSlice<u8>, VaultError> {
        let body = json!({ "ciphertext": sealed });
        let path = format!("{}/decrypt/{}", key.mount, key.name);
        let what = key.to_string();
        let answer = self.ask(Method::POST, &path, Some(body), &what).await?;
        let plain = SecretString::from(text_of(&answer, "plaintext")?);
        let bytes = STANDARD.decode(plain.expose_secret());
        let why = "plaintext is not base64".to_owned();
        bytes.map(Into::into).map_err(|_| VaultError::Malformed { what, why })
    }

    /// Has Transit move what it encrypted to the newest version of the key.
    ///
    /// # Errors
    /// [`VaultError`], as [`Self::decrypt`].
    pub async fn rewrap(&self, key: &TransitKey, sealed: &str) -> Result<String, VaultError> {
        let body = json!({ "ciphertext": sealed });
        let path = format!("{}/rewrap/{}", key.mount, key.name);
        text_of(&self.ask(Method::POST, &path, Some(body), &key.to_string()).await?, "ciphertext")
    }

    /// Asks with the token; once more with another one where that is refused.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        what: &str,
    ) -> Result<Value, VaultError> {
        let token = self.current_token().await?;
        let first = self.send(method.clone(), path, body.as_ref(), Some(&token), what).await;
        if !matches!(first, Err(VaultError::Refused { .. })) {
            return first;
        }
        // It may have been revoked, or the role may not do this: only another token tells.
        let mut held = self.token.lock().await;
        let is_same = held
            .as_ref()
            .is_some_and(|(one, _)| one.secret.expose_secret() == token.expose_secret());
        if is_same {
            *held = None;
        }
        drop(held);
        let token = self.current_token().await?;
        self.send(method, path, body.as_ref(), Some(&token), what).await
    }

    /// A token that counts, for one caller at a time: others wait and get the same.
    async fn current_token(&self) -> Result<SecretString, VaultError> {
        let mut held = self.token.lock().await;
        let step = held.as_ref().map_or(TokenStep::SignIn, |(one, at)| one.step(at.elapsed()));
        if let (TokenStep::Use | TokenStep::Renew, Some((one, _))) = (step, &*held) {
            let secret = one.secret.clone();
            if step == TokenStep::Use {
                return Ok(secret);
            }
            let renewed = self
                .send(Method::POST, "auth/token/renew-self", Some(&json!({})), Some(&secret), RENEW)
                .await;
            match renewed {
                Ok(answer) => return Self::note_token(&mut held, answer, RENEW),
                // It still counts for a third of its time: the next request tries again.
                Err(VaultError::Unreachable { .. } | VaultError::Unavailable { .. }) => {
                    return Ok(secret);
                }
                Err(_) => {}
            }
        }
        let AppRole { mount, role_id, secret_id } = &self.role;
        let body = json!({ "role_id": role_id, "secret_id": secret_id.expose_secret() });
        let path = format!("auth/{mount}/login");
        let answer = self.send(Method::POST, &path, Some(&body), None, SIGN_IN).await?;
        Self::note_token(&mut held, answer, SIGN_IN)
    }

    fn note_token(
        held: &mut Option<(Token, Instant)>,
        answer: Value,
        what: &str,
    ) -> Result<SecretString, VaultError> {
        let read = serde_json::from_value::<SignedIn>(answer);
        // The parser's words may quote the answer, and that has a token.
        let why = "it contains no token".to_owned();
        let signed_in = read.map_err(|_| VaultError::Malformed { what: what.to_owned(), why })?;
        let token = Token::from(signed_in.auth);
        let secret = token.secret.clone();
        *held = Some((token, Instant::now()));
        Ok(secret)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        token: Option<&SecretString>,
        what: &str,
    ) -> Result<Value, VaultError> {
        let url = format!("{}/v1/{path}", self.address.url.trim_end_matches('/'));
        let mut request = self.http.request(method, url).header("X-Vault-Request", "true");
        if let Some(token) = token {
            let mut value = reqwest::header::HeaderValue::from_str(token.expose_secret())
                .map_err(|_| malformed(what, "its token is not a valid header value"))?;
            value.set_sensitive(true);
            request = request.header("X-Vault-Token", value);
        }
        if let Some(namespace) = &self.address.namespace {
            request = request.header("X-Vault-Namespace", namespace);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let unreachable = |error: reqwest::Error| VaultError::Unreachable {
            address: self.address.url.clone(),
            why: error.without_url().to_string(),
        };
        let mut answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LONGEST_ANSWER {
                return Err(malformed(what, "it is too long"));
            }
        }
        if !status.is_success() {
            return Err(refusal(status, &bytes, what));
        }
        serde_json::from_slice(&bytes).map_err(|_| malformed(what, "it is not JSON"))
    }
}

const SIGN_IN: &str = "the sign-in";
const RENEW: &str = "the renewal of its token";

fn malformed(what: &str, why: &str) -> VaultError {
    VaultError::Malformed { what: what.to_owned(), why: why.to_owned() }
}

fn text_of(answer: &Value, field: &str) -> Result<String, VaultError> {
    let found = answer.get("data").and_then(|data| data.get(field)).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| malformed("Transit", &format!("it has no {field}")))
}

/// What a status other than success says. Vault writes `{"errors": [...]}`.
fn refusal(status: StatusCode, body: &[u8], what: &str) -> VaultError {
    #[derive(Deserialize, Default)]
    struct Errors {
        #[serde(default)]
        errors: Vec<String>,
    }
    let said: Errors = serde_json::from_slice(body).unwrap_or_default();
    let why = if said.errors.is_empty() {
        status.to_string()
    } else {
        said.errors.join("; ").chars().filter(|c| !c.is_control()).take(300).collect()
    };
    match status.as_u16() {
        400 | 401 | 403 => VaultError::Refused { what: what.to_owned(), why },
        404 => VaultError::NotFound { what: what.to_owned() },
        status => VaultError::Unavailable { status, why },
    }
}
