//! Experiments between host images.

use gpuaas_types::api::List;
use gpuaas_types::experiment::{ExperimentImport, ExperimentStart, ExperimentStop, ExperimentView};
use reqwest::Method;

use super::ApiClient;
use crate::failure::Failure;

impl ApiClient {
    /// `GET /api/v1/experiments`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn experiments(&self, site: Option<&str>) -> Result<List<ExperimentView>, Failure> {
        self.get_all(&["experiments"], &[("site", site)]).await
    }

    /// `GET /api/v1/experiments/EXPERIMENT`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn experiment(&self, name: &str) -> Result<ExperimentView, Failure> {
        self.get(&["experiments", name]).await
    }

    /// `POST /api/v1/experiments`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn start_experiment(
        &self,
        body: &ExperimentStart,
    ) -> Result<ExperimentView, Failure> {
        self.send(Method::POST, &["experiments"], Some(body)).await
    }

    /// `POST /api/v1/experiments/import`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn import_experiment(
        &self,
        body: &ExperimentImport,
    ) -> Result<ExperimentView, Failure> {
        self.send(Method::POST, &["experiments", "import"], Some(body)).await
    }

    /// `POST /api/v1/experiments/EXPERIMENT/next` and `.../stop`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn order_experiment(
        &self,
        name: &str,
        order: &str,
        body: &ExperimentStop,
    ) -> Result<ExperimentView, Failure> {
        self.send(Method::POST, &["experiments", name, order], Some(body)).await
    }
}
