//! The credential of a command: a token as it stands, or a sign-in that is renewed when it is near its
//! end.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Mutex;

use crate::contexts::{ContextLogin, SignInRecord};
use crate::failure::Failure;
use crate::provider::{Provider, Tokens};

/// Seconds before its end at which a token is renewed: a request and two clocks fit in.
const NEAR_END_SECONDS: i64 = 30;

/// Who asks a control plane.
#[derive(Clone)]
pub(crate) enum Credential {
    /// A token that does not change.
    Token(String),
    /// Somebody who signed in.
    SignIn(SignInSession),
}

impl Credential {
    /// The token for the next request.
    ///
    /// # Errors
    /// See [`SignInSession::token`].
    pub(crate) async fn token(&self) -> Result<String, Failure> {
        match self {
            Self::Token(token) => Ok(token.clone()),
            Self::SignIn(session) => session.token().await,
        }
    }
}

/// A sign-in in use. Its clones share what is renewed.
#[derive(Clone)]
pub(crate) struct SignInSession(Arc<Mutex<ContextLogin>>);

impl From<ContextLogin> for SignInSession {
    fn from(kept: ContextLogin) -> Self {
        Self(Arc::new(Mutex::new(kept)))
    }
}

impl SignInSession {
    /// The token for the next request; another one where it is near its end.
    ///
    /// # Errors
    /// `sign_in_ended`, `provider_unreachable` and `context_file_unusable`, unless the token still
    /// counts.
    async fn token(&self) -> Result<String, Failure> {
        let mut kept = self.0.lock().await;
        if !is_near_end(&kept.login, now()) || kept.login.refresh.is_none() {
            return Ok(kept.login.bearer.clone());
        }
        match renew(&kept).await {
            Ok(login) => kept.login = login,
            Err(failure) if kept.login.expires_at <= now() => return Err(failure),
            Err(failure) => tracing::debug!(%failure, "cannot renew the sign-in yet"),
        }
        Ok(kept.login.bearer.clone())
    }
}

/// Renews a sign-in where it is kept. A provider may give each token for renewal once, so commands
/// that run at once take turns, and take what another one got.
async fn renew(kept: &ContextLogin) -> Result<SignInRecord, Failure> {
    let ContextLogin { file, context, login } = kept;
    let _lock = file.lock().await?;
    let mut contexts = file.load()?;
    let there = contexts.find(context)?.login.clone();
    let login = there.unwrap_or_else(|| login.clone());
    let Some(refresh) = login.refresh.as_deref().filter(|_| is_near_end(&login, now())) else {
        return Ok(login);
    };
    let provider = Provider::discover(&login.issuer, login.ca_file.as_deref()).await?;
    let tokens = provider.refresh(&login.client_id, refresh).await?;
    let renewed = with_tokens(login.clone(), tokens);
    if let Some(context) = contexts.contexts.get_mut(context) {
        context.login = Some(renewed.clone());
        file.save(&contexts)?;
    }
    Ok(renewed)
}

/// A sign-in with what a provider gave now.
#[must_use]
pub fn with_tokens(login: SignInRecord, tokens: Tokens) -> SignInRecord {
    let Tokens { bearer, refresh, seconds } = tokens;
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    SignInRecord { bearer, refresh, expires_at: now().saturating_add(seconds), ..login }
}

fn is_near_end(login: &SignInRecord, now: i64) -> bool {
    login.expires_at.saturating_sub(now) <= NEAR_END_SECONDS
}

/// Seconds since the Unix epoch: a provider and a command share no other clock.
#[expect(clippy::disallowed_methods, reason = "what a provider says counts by the wall")]
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
