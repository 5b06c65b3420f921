//! Tasks of nodes, and their telemetry.

use gpuaas_types::api::List;
use gpuaas_types::task::{TaskRequest, TaskView};
use gpuaas_types::telemetry::TelemetryReport;

use super::ApiClient;
use crate::failure::Failure;

impl ApiClient {
    /// `POST /api/v1/nodes/KEY/tasks`; `key` lets the request be repeated.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn give_task(
        &self,
        node: &str,
        body: &TaskRequest,
        key: Option<&str>,
    ) -> Result<TaskView, Failure> {
        let mut request = self.http.post(self.url(&["nodes", node, "tasks"])?).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.answer(request).await
    }

    /// `GET /api/v1/nodes/KEY/tasks?filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn tasks(&self, node: &str, filter: Option<&str>) -> Result<List<TaskView>, Failure> {
        self.get_all(&["nodes", node, "tasks"], &[("filter", filter)]).await
    }

    /// `GET /api/v1/nodes/KEY/telemetry`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn telemetry(&self, node: &str) -> Result<TelemetryReport, Failure> {
        self.get(&["nodes", node, "telemetry"]).await
    }

    /// `GET /api/v1/tasks/ID`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn task(&self, id: &str) -> Result<TaskView, Failure> {
        self.get(&["tasks", id]).await
    }
}
