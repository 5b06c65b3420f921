//! Credentials: whose the client's is, those of programs, and the keys that sign tasks.

use gpuaas_types::access::{AccessView, MintedToken, TokenRequest, TokenRevocation, TokenView};
use gpuaas_types::agent::TaskKeys;
use gpuaas_types::api::{
    ActivateTaskKey, AuthorityReport, ChangeAuthority, List, RetireTaskKey, StageAuthority,
};
use gpuaas_types::codes::CommandCode;
use reqwest::Method;
use reqwest::header::WWW_AUTHENTICATE;

use super::ApiClient;
use crate::failure::{Exit, Failure};

/// Where people sign in for a control plane, as it says to whoever has no credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInOffer {
    /// The identity provider.
    pub issuer: String,
    /// The client that a command line is there.
    pub client_id: String,
    /// What it asks for.
    pub scope: String,
}

impl SignInOffer {
    /// Reads a challenge (RFC 9110 section 11.6.1); none: it names no provider.
    #[must_use]
    pub fn read(challenge: &str) -> Option<Self> {
        let parameters = challenge.strip_prefix("Bearer ")?;
        let value = |name: &str| {
            let (_, rest) = parameters.split_once(&format!("{name}=\""))?;
            rest.split('"').next().filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let scope = value("scope").unwrap_or_else(|| "openid".to_owned());
        Some(Self { issuer: value("issuer")?, client_id: value("client_id")?, scope })
    }
}

impl ApiClient {
    /// Where people sign in for this control plane, which is asked without a credential.
    ///
    /// # Errors
    /// `sign_in_not_offered`; [`Exit::Unreachable`](crate::failure::Exit::Unreachable) when it gave no
    /// answer.
    pub async fn sign_in_offer(&self) -> Result<SignInOffer, Failure> {
        let sent = self.http.get(self.url(&["access"])?).send().await;
        let response = sent.map_err(|error| self.silence(error))?;
        let mut said = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let offer = said.find_map(|value| SignInOffer::read(value.to_str().ok()?));
        offer.ok_or_else(|| {
            let detail = format!("{} has no identity provider", self.base);
            Failure::new(Exit::Refused, CommandCode::SignInNotOffered, detail).hint(
                "ask an administrator to start it with one, `gpuaas serve --oidc-issuer URL \
                 --oidc-client-id ID`; or use a token: `gpuaas context add NAME --server URL \
                 --token-file FILE`",
            )
        })
    }

    /// `GET /api/v1/access`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn access(&self) -> Result<AccessView, Failure> {
        self.get(&["access"]).await
    }

    /// `GET /api/v1/tokens?filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn tokens(&self, filter: Option<&str>) -> Result<List<TokenView>, Failure> {
        self.get_all(&["tokens"], &[("filter", filter)]).await
    }

    /// `POST /api/v1/tokens`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn add_token(&self, body: &TokenRequest) -> Result<MintedToken, Failure> {
        self.send(Method::POST, &["tokens"], Some(body)).await
    }

    /// `POST /api/v1/tokens/NAME/revoke`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn revoke_token(
        &self,
        name: &str,
        body: &TokenRevocation,
    ) -> Result<List<TokenView>, Failure> {
        self.send(Method::POST, &["tokens", name, "revoke"], Some(body)).await
    }

    /// `GET /api/v1/authority`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn authority(&self) -> Result<AuthorityReport, Failure> {
        self.get(&["authority"]).await
    }

    /// `POST /api/v1/authority`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn stage_authority(&self, body: &StageAuthority) -> Result<AuthorityReport, Failure> {
        self.send(Method::POST, &["authority"], Some(body)).await
    }

    /// `POST /api/v1/authority/VERB`, where that is `activate` or `retire`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn change_authority(
        &self,
        verb: &str,
        body: &ChangeAuthority,
    ) -> Result<AuthorityReport, Failure> {
        self.send(Method::POST, &["authority", verb], Some(body)).await
    }

    /// `GET /api/v1/task-keys`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn task_keys(&self) -> Result<TaskKeys, Failure> {
        self.get(&["task-keys"]).await
    }

    /// `POST /api/v1/task-keys`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn stage_task_key(&self) -> Result<TaskKeys, Failure> {
        self.send(Method::POST, &["task-keys"], None::<&()>).await
    }

    /// `POST /api/v1/task-keys/activate`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn activate_task_key(&self, body: &ActivateTaskKey) -> Result<TaskKeys, Failure> {
        self.send(Method::POST, &["task-keys", "activate"], Some(body)).await
    }

    /// `POST /api/v1/task-keys/retire`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn retire_task_key(&self, body: &RetireTaskKey) -> Result<TaskKeys, Failure> {
        self.send(Method::POST, &["task-keys", "retire"], Some(body)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_from_a_challenge() {
        let whole = "Bearer realm=\"gpuaas\", issuer=\"https://i.example\", client_id=\"cli\", \
                     scope=\"openid offline_access\"";
        let offer = SignInOffer::read(whole).unwrap();
        assert_eq!((offer.issuer.as_str(), offer.client_id.as_str()), ("https://i.example", "cli"));
        assert_eq!(offer.scope, "openid offline_access");
        for none in ["Bearer", "Basic realm=\"x\"", "Bearer issuer=\"https://i.example\""] {
            assert_eq!(SignInOffer::read(none), None, "{none}");
        }
    }
}
