//! People who sign in at a provider of OpenID Connect: fetches the provider's keys when
//! [`KeyCache`] says so, and makes a caller of a token that counts.
//!
//! One fetch is under way at a time. Who needs a key that is not there waits for it; who has keys that
//! are merely old goes on with them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpuaas_identity::oidc::{
    KeyCache, KeyPlan, KeySet, KeyTurnPlan, OidcSettings, SignInRejection, SignedIn, TokenHead,
    verify,
};
use gpuaas_types::access::RoleGrant;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::issuer::IssuerUrl;
use gpuaas_types::{Problem, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::http::problem::problem;

/// Longest time for one answer of the provider.
const PATIENCE: Duration = Duration::from_secs(5);
/// Why there are no keys, where nobody was asked just now.
const NO_ANSWER: &str = "the last request to the identity provider failed";
/// Longest answer of the provider, in bytes.
const MOST_BYTES: usize = 256 << 10;

/// Sign-in at one provider.
pub struct SignIn {
    settings: OidcSettings,
    http: reqwest::Client,
    cache: Mutex<KeyCache>,
    fetching: tokio::sync::Mutex<()>,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignIn").field("issuer", &self.settings.issuer).finish_non_exhaustive()
    }
}

/// What is read of the provider's description (OpenID Connect Discovery 1.0, section 3).
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl SignIn {
    /// Sign-in as the settings say. `anchors_pem`: what is trusted for the provider beside this system's
    /// authorities.
    ///
    /// # Errors
    /// A sentence, where that is no certificate or no client can be made.
    pub fn new(settings: OidcSettings, anchors_pem: Option<&[u8]>) -> Result<Self, String> {
        let builder = reqwest::Client::builder()
            .connect_timeout(PATIENCE)
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("gpuaas/", env!("CARGO_PKG_VERSION")));
        let builder = match anchors_pem {
            // A provider on this host needs no authorities, and a bare host may have none.
            None if settings.issuer.as_str().starts_with("http://") => {
                builder.no_proxy().tls_certs_only([])
            }
            None => builder,
            Some(pem) => {
                let certificates = reqwest::Certificate::from_pem_bundle(pem).unwrap_or_default();
                if certificates.is_empty() {
                    return Err("it contains no certificate".to_owned());
                }
                builder.tls_certs_merge(certificates)
            }
        };
        let http = builder.build().map_err(|error| error.to_string())?;
        let (cache, fetching) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { settings, http, cache, fetching })
    }

    /// What a request without a credential is told of signing in.
    #[must_use]
    pub fn challenge(&self) -> String {
        self.settings.challenge()
    }

    /// Whoever a token stands for, and what that one may do.
    ///
    /// # Errors
    /// `sign_in_invalid`, `sign_in_expired`, `sign_in_no_role`, `issuer_unreachable`.
    pub(crate) async fn judge(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<(SignedIn, Vec<RoleGrant>), Problem> {
        let head = TokenHead::read(token).map_err(|fault| refused(&fault))?;
        let keys = self.keys(&head, now).await?;
        let signed_in =
            verify(token, &keys, &self.settings, now).map_err(|fault| refused(&fault))?;
        let grants = self.settings.rules.grants(&signed_in.values);
        if grants.is_empty() {
            return Err(self.no_role(&signed_in));
        }
        Ok((signed_in, grants))
    }

    fn no_role(&self, signed_in: &SignedIn) -> Problem {
        let claim = &self.settings.roles_claim;
        let has = match signed_in.values.as_slice() {
            [] => format!("no {claim}"),
            values => format!("{claim} {}", values.join(", ")),
        };
        let has: String =
            has.chars().filter(|c| !gpuaas_types::text::is_invisible(*c)).take(300).collect();
        let detail = format!("{} has {has}; no role rule matches", signed_in.id);
        problem(ProblemCode::SignInNoRole).with_detail(detail)
    }

    /// The keys that judge a token with this head.
    async fn keys(&self, head: &TokenHead, now: Timestamp) -> Result<Arc<KeySet>, Problem> {
        let plan = self.cache.lock().plan(head, now);
        match plan {
            KeyPlan::Use(keys) => return Ok(keys),
            KeyPlan::Refresh(keys) => {
                let Ok(_turn) = self.fetching.try_lock() else { return Ok(keys) };
                return Ok(self.fetch(now).await.unwrap_or(keys));
            }
            KeyPlan::Unavailable => return Err(unreachable(NO_ANSWER)),
            KeyPlan::TakeTurn => {}
        }
        let _turn = self.fetching.lock().await;
        let plan = self.cache.lock().plan_in_turn(head, now);
        match plan {
            KeyTurnPlan::Use(keys) => Ok(keys),
            KeyTurnPlan::Fetch => self.fetch(now).await.map_err(|why| unreachable(&why)),
            KeyTurnPlan::Unknown => Err(refused(&SignInRejection::KeyUnknown)),
            KeyTurnPlan::Unavailable => Err(unreachable(NO_ANSWER)),
        }
    }

    /// Fetches the keys and notes how that went.
    async fn fetch(&self, now: Timestamp) -> Result<Arc<KeySet>, String> {
        match self.ask().await {
            Ok(keys) => Ok(self.cache.lock().fetched(keys, now)),
            Err(why) => {
                tracing::warn!(issuer = %self.settings.issuer, why, "cannot fetch the identity provider's keys");
                self.cache.lock().failed(now);
                Err(why)
            }
        }
    }

    async fn ask(&self) -> Result<KeySet, String> {
        let issuer = &self.settings.issuer;
        let said = self.read(&issuer.discovery()).await?;
        let said: Discovery = serde_json::from_slice(&said)
            .map_err(|error| format!("{}: {error}", issuer.discovery()))?;
        if said.issuer != issuer.as_str() {
            return Err(format!("{} names another issuer: {}", issuer.discovery(), said.issuer));
        }
        if !IssuerUrl::is_safe(&said.jwks_uri) {
            return Err(format!("the URL of its keys is not https: {}", said.jwks_uri));
        }
        let keys = self.read(&said.jwks_uri).await?;
        KeySet::parse(&keys).map_err(|fault| format!("{}: {fault}", said.jwks_uri))
    }

    /// The body of an answer, of bounded length.
    async fn read(&self, url: &str) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| format!("{url}: {}", causes(&error.without_url()));
        let mut response = self.http.get(url).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("{url} returned {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(failed)? {
            if body.len() + part.len() > MOST_BYTES {
                return Err(format!("{url} returned more than {MOST_BYTES} bytes"));
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn refused(fault: &SignInRejection) -> Problem {
    let code = match fault {
        SignInRejection::Expired { .. } => ProblemCode::SignInExpired,
        _ => ProblemCode::SignInInvalid,
    };
    problem(code).with_detail(fault.to_string())
}

fn unreachable(why: &str) -> Problem {
    problem(ProblemCode::IssuerUnreachable).with_detail(why)
}
