//! How the laboratory starts a control plane in its own process: as `gpuaas serve` does.

use std::net::SocketAddr;

use async_trait::async_trait;
use gpuaas_api::ApiSettings;
use gpuaas_client::failure::Failure;
use gpuaas_engine::ClockChoice;
use gpuaas_lab::control_plane::{ControlPlaneLauncher, ControlPlanePlan, RunningControlPlane};
use gpuaas_store::Store;

use crate::serve::{self, NodeListenerOptions, ServeHandle, ServeOptions};

/// Starts control planes with [`serve::start`].
#[derive(Debug, Clone, Copy)]
pub struct ServeLauncher;

fn options(plan: &ControlPlanePlan) -> ServeOptions {
    let hurry = plan.sweeps && matches!(plan.clock, ClockChoice::Real);
    ServeOptions {
        nodes: plan.node_listen.map_or(NodeListenerOptions::StandIns, NodeListenerOptions::tls),
        database: plan.database.clone(),
        clock: plan.clock.clock(),
        // The laboratory's regions are on this host.
        settings: ApiSettings { loopback_targets: true, ..ApiSettings::default() },
        tune: if hurry { |config| config.sweep_seconds = 1.0 } else { |_| {} },
        ..ServeOptions::new(plan.listen, plan.data.clone())
    }
}

#[async_trait(?Send)]
impl ControlPlaneLauncher for ServeLauncher {
    async fn launch(
        &self,
        plan: &ControlPlanePlan,
    ) -> Result<Box<dyn RunningControlPlane>, Failure> {
        Ok(Box::new(serve::start(options(plan)).await?))
    }
}

#[async_trait]
impl RunningControlPlane for ServeHandle {
    fn address(&self) -> SocketAddr {
        self.addr
    }

    fn store(&self) -> &Store {
        &self.store
    }

    async fn stop_engine(&self) {
        self.engine.stop().await;
    }

    async fn shutdown(self: Box<Self>) {
        ServeHandle::shutdown(*self).await;
    }
}
