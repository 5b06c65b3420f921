//! Bundles of a control plane, and whose signatures count there.

use gpuaas_types::api::List;
use gpuaas_types::bundle::{
    BundleApprove, BundleArchive, BundleKeyView, BundlePublish, BundleView,
};
use reqwest::Method;

use super::ApiClient;
use crate::failure::Failure;

impl ApiClient {
    /// `POST /api/v1/bundles`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn publish_bundle(&self, body: &BundlePublish) -> Result<BundleView, Failure> {
        self.send(Method::POST, &["bundles"], Some(body)).await
    }

    /// `GET /api/v1/bundles`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn bundles(&self) -> Result<List<BundleView>, Failure> {
        self.get(&["bundles"]).await
    }

    /// `GET /api/v1/bundles/BUNDLE/archive`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn bundle_archive(&self, bundle: &str) -> Result<BundleArchive, Failure> {
        self.get(&["bundles", bundle, "archive"]).await
    }

    /// `POST /api/v1/bundles/BUNDLE/approve`, `.../withdraw`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn order_bundle(
        &self,
        bundle: &str,
        order: &str,
        body: &BundleApprove,
    ) -> Result<List<BundleView>, Failure> {
        self.send(Method::POST, &["bundles", bundle, order], Some(body)).await
    }

    /// `POST /api/v1/bundle-keys`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn trust_key(&self, body: &BundleKeyView) -> Result<BundleKeyView, Failure> {
        self.send(Method::POST, &["bundle-keys"], Some(body)).await
    }

    /// `GET /api/v1/bundle-keys`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn bundle_keys(&self) -> Result<List<BundleKeyView>, Failure> {
        self.get(&["bundle-keys"]).await
    }
}
