//! Credentials: whose the client's is, those of programs, and the keys that sign tasks.

use gpuaas_types::access::{AccessView, MintedToken, TokenRequest, TokenRevocation, TokenView};
use gpuaas_types::agent::TaskKeys;
use gpuaas_types::api::{ActivateTaskKey, List, RetireTaskKey};
use reqwest::Method;

use super::ApiClient;
use crate::failure::Failure;

impl ApiClient {
    /// `GET /api/v1/access`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn access(&self) -> Result<AccessView, Failure> {
        self.get(&["access"]).await
    }

    /// `GET /api/v1/tokens`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn tokens(&self) -> Result<List<TokenView>, Failure> {
        self.get(&["tokens"]).await
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
