//! Changes of what is there.

use gpuaas_types::api::{List, NodeView, RoceResource, SiteResource};
use gpuaas_types::change::{
    ControlPlan, ControlRequest, HardwareCorrection, RemovalPlan, RemovalRequest, RoceChange,
    RoceRemoval,
};
use gpuaas_types::plan::{OnboardPlan, TakeOverPlan, TakeOverRequest};
use gpuaas_types::spec::OnboardRequest;
use reqwest::Method;
use serde_json::{Map, Value};

use super::ApiClient;
use crate::failure::Failure;

impl ApiClient {
    /// `PATCH /api/v1/nodes/KEY`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn change_node(
        &self,
        key: &str,
        body: &HardwareCorrection,
    ) -> Result<NodeView, Failure> {
        self.send(Method::PATCH, &["nodes", key], Some(body)).await
    }

    /// `POST /api/v1/onboarding-plans`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn plan_onboarding(&self, body: &OnboardRequest) -> Result<OnboardPlan, Failure> {
        self.send(Method::POST, &["onboarding-plans"], Some(body)).await
    }

    /// `POST /api/v1/runs/RUN/take-over`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn take_over(
        &self,
        run: &str,
        body: &TakeOverRequest,
    ) -> Result<TakeOverPlan, Failure> {
        self.send(Method::POST, &["runs", run, "take-over"], Some(body)).await
    }

    /// `PATCH /api/v1/sites/NAME`: changes the fields in `patch` only.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn set_site(
        &self,
        name: &str,
        patch: Map<String, Value>,
    ) -> Result<SiteResource, Failure> {
        self.send(Method::PATCH, &["sites", name], Some(&patch)).await
    }

    /// `POST /api/v1/COLLECTION/NAME/remove`, where the collection is `sites` or `profiles`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn remove(
        &self,
        collection: &str,
        name: &str,
        body: &RemovalRequest,
    ) -> Result<RemovalPlan, Failure> {
        self.send(Method::POST, &[collection, name, "remove"], Some(body)).await
    }

    /// `POST /api/v1/sites/NAME/take-control`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn take_control(
        &self,
        name: &str,
        body: &ControlRequest,
    ) -> Result<ControlPlan, Failure> {
        self.send(Method::POST, &["sites", name, "take-control"], Some(body)).await
    }

    /// `POST /api/v1/roce-assignments/change`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn change_roce(&self, body: &RoceChange) -> Result<RoceResource, Failure> {
        self.send(Method::POST, &["roce-assignments", "change"], Some(body)).await
    }

    /// `POST /api/v1/roce-assignments/remove`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn remove_roce(&self, body: &RoceRemoval) -> Result<List<RoceResource>, Failure> {
        self.send(Method::POST, &["roce-assignments", "remove"], Some(body)).await
    }
}
