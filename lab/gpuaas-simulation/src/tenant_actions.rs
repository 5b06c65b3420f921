//! Tenants amid the chaos: when somebody comes, when all leave, and what is checked.

use gpuaas_client::failure::{Failure, store_failure};

use crate::chaos::ChaosRun;
use crate::simulation::Simulation;

impl ChaosRun {
    /// Somebody does something about slices.
    pub(crate) async fn act_as_tenant(
        &mut self,
        simulation: &mut Simulation,
    ) -> Result<(), Failure> {
        let Some(mut tenants) = self.tenants.take() else { return Ok(()) };
        let done = tenants.act(simulation).await;
        self.tenants = Some(tenants);
        self.record_event(simulation, &done.map_err(store_failure)?);
        simulation.follow_slices();
        Ok(())
    }

    /// Hosts are mended, and every slice is given back.
    pub(crate) async fn let_tenants_leave(
        &mut self,
        simulation: &mut Simulation,
    ) -> Result<(), Failure> {
        let Some(tenants) = self.tenants.take() else { return Ok(()) };
        simulation.with_slice_hosts(|hosts| hosts.values().for_each(|host| host.set_faults([])));
        let mut lines = Vec::new();
        for id in &tenants.claims {
            lines.push(tenants.release(simulation, *id).await.map_err(store_failure)?);
        }
        self.tenants = Some(tenants);
        for line in lines {
            self.record_event(simulation, &line);
        }
        simulation.follow_slices();
        Ok(())
    }

    /// What must hold of slices at every moment.
    pub(crate) async fn check_slices(
        &self,
        simulation: &Simulation,
    ) -> Result<Vec<String>, Failure> {
        let Some(tenants) = &self.tenants else { return Ok(Vec::new()) };
        tenants.violations(simulation).await.map_err(store_failure)
    }
}
