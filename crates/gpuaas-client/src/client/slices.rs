//! Slots of nodes.

use gpuaas_types::api::List;
use gpuaas_types::claim::{ClaimReleaseQuery, ClaimRequest, ClaimView, NodeClaimRequest};
use gpuaas_types::slice::{SliceLaunchRequest, SlotRecoveryRequest};
use gpuaas_types::slot::{
    DiscoveryRequest, SliceMapView, SlotApprovalRequest, SlotInventory, SlotMapDifference,
};
use gpuaas_types::task::TaskView;
use reqwest::Method;
use serde::Serialize;

use super::ApiClient;
use crate::failure::Failure;

impl ApiClient {
    /// `POST /api/v1/admin/nodes/NODE/slice-topology/discovery`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn discover_slices(
        &self,
        node: &str,
        body: &DiscoveryRequest,
    ) -> Result<TaskView, Failure> {
        let path = ["admin", "nodes", node, "slice-topology", "discovery"];
        self.send(Method::POST, &path, Some(body)).await
    }

    /// `GET /api/v1/admin/nodes/NODE/slice-topology`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn slice_map(&self, node: &str) -> Result<SliceMapView, Failure> {
        self.get(&["admin", "nodes", node, "slice-topology"]).await
    }

    /// `GET /api/v1/admin/nodes/NODE/slice-topology/diff`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn slice_map_difference(&self, node: &str) -> Result<SlotMapDifference, Failure> {
        self.get(&["admin", "nodes", node, "slice-topology", "diff"]).await
    }

    /// `POST /api/v1/admin/nodes/NODE/slice-topology/approval`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn approve_slots(
        &self,
        node: &str,
        body: &SlotApprovalRequest,
    ) -> Result<SlotInventory, Failure> {
        let path = ["admin", "nodes", node, "slice-topology", "approval"];
        self.send(Method::POST, &path, Some(body)).await
    }

    /// `GET /api/v1/admin/slots`; of one site, where it is named, and what a filter lets pass.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn slots(
        &self,
        site: Option<&str>,
        filter: Option<&str>,
    ) -> Result<SlotInventory, Failure> {
        let mut url = self.url(&["admin", "slots"])?;
        for (name, value) in [("site", site), ("filter", filter)] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        self.answer(self.http.get(url)).await
    }

    /// `POST /api/v1/admin/slice-claims`; the same claim again under the same key.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn claim_slots(
        &self,
        body: &ClaimRequest,
        key: Option<&str>,
    ) -> Result<ClaimView, Failure> {
        self.claim("slice-claims", body, key).await
    }

    /// `POST /api/v1/admin/node-claims`; the same claim again under the same key.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn claim_node(
        &self,
        body: &NodeClaimRequest,
        key: Option<&str>,
    ) -> Result<ClaimView, Failure> {
        self.claim("node-claims", body, key).await
    }

    async fn claim(
        &self,
        of: &str,
        body: &(impl Serialize + Sync),
        key: Option<&str>,
    ) -> Result<ClaimView, Failure> {
        let mut request = self.http.post(self.url(&["admin", of])?).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.answer(request).await
    }

    /// `GET /api/v1/admin/slice-claims/CLAIM`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn slot_claim(&self, claim: &str) -> Result<ClaimView, Failure> {
        self.get(&["admin", "slice-claims", claim]).await
    }

    /// `GET /api/v1/admin/slice-claims`, all pages of it: of one site, where it is named, those that
    /// ended, where they are wanted, and what a filter lets pass.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn slot_claims(
        &self,
        site: Option<&str>,
        ended: bool,
        filter: Option<&str>,
    ) -> Result<List<ClaimView>, Failure> {
        let query = [("site", site), ("ended", ended.then_some("true")), ("filter", filter)];
        self.get_all(&["admin", "slice-claims"], &query).await
    }

    /// `DELETE /api/v1/admin/slice-claims/CLAIM`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn release_slot_claim(
        &self,
        claim: &str,
        query: &ClaimReleaseQuery,
    ) -> Result<ClaimView, Failure> {
        let mut url = self.url(&["admin", "slice-claims", claim])?;
        let ClaimReleaseQuery { actor, reason, fence } = query;
        url.query_pairs_mut().append_pair("actor", actor).append_pair("reason", reason);
        if let Some(fence) = fence {
            url.query_pairs_mut().append_pair("fence", &fence.to_string());
        }
        self.answer(self.http.delete(url)).await
    }

    /// `POST /api/v1/admin/slice-claims/CLAIM/launch`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn launch_slice(
        &self,
        claim: &str,
        body: &SliceLaunchRequest,
    ) -> Result<ClaimView, Failure> {
        let path = ["admin", "slice-claims", claim, "launch"];
        self.send(Method::POST, &path, Some(body)).await
    }

    /// `POST /api/v1/admin/nodes/NODE/slots/INDEX/recovery`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn recover_slot(
        &self,
        node: &str,
        index: &str,
        body: &SlotRecoveryRequest,
    ) -> Result<SlotInventory, Failure> {
        let path = ["admin", "nodes", node, "slots", index, "recovery"];
        self.send(Method::POST, &path, Some(body)).await
    }
}
