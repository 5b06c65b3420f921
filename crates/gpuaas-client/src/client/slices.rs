//! Slots of nodes.

use gpuaas_types::slot::{
    DiscoveryRequest, SliceMapView, SlotApprovalRequest, SlotInventory, SlotMapDifference,
};
use gpuaas_types::task::TaskView;
use reqwest::Method;

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

    /// `GET /api/v1/admin/slots`; of one site, where it is named.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn slots(&self, site: Option<&str>) -> Result<SlotInventory, Failure> {
        let mut url = self.url(&["admin", "slots"])?;
        if let Some(site) = site {
            url.query_pairs_mut().append_pair("site", site);
        }
        self.answer(self.http.get(url)).await
    }
}
