//! What waits for another person.

use gpuaas_types::api::List;
use gpuaas_types::approval::{ApprovalDecision, ApprovalView};
use reqwest::Method;

use super::ApiClient;
use crate::failure::Failure;

impl ApiClient {
    /// `GET /api/v1/approvals`: of one site, where it is named, and those alone that may be decided,
    /// where that is asked.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn approvals(
        &self,
        site: Option<&str>,
        open: bool,
    ) -> Result<List<ApprovalView>, Failure> {
        self.get_all(&["approvals"], &[("site", site), ("open", open.then_some("true"))]).await
    }

    /// `GET /api/v1/approvals/ID`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn approval(&self, id: &str) -> Result<ApprovalView, Failure> {
        self.get(&["approvals", id]).await
    }

    /// `POST /api/v1/approvals/ID/VERDICT`, where the verdict is `approve` or `deny`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn decide_approval(
        &self,
        id: &str,
        verdict: &str,
        body: &ApprovalDecision,
    ) -> Result<ApprovalView, Failure> {
        self.send(Method::POST, &["approvals", id, verdict], Some(body)).await
    }
}
