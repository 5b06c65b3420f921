//! What an operator does, straight into the functions of the store that the API's handlers call,
//! with the refusals that the handlers make.

use std::sync::Arc;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_core::record::{NodeHardware, ReportKind};
use gpuaas_engine::Clock as _;
use gpuaas_lab::scenario::Fabric;
use gpuaas_store::{
    NewNode, NewOnboarding, NewRun, NewRunOfNode, OperatorCommand, SecretString, StoreError,
};
use gpuaas_types::spec::{ReleaseMode, RoceAssignmentSpec};
use gpuaas_types::{
    IdSource, NodeId, ProfileId, RoceAssignmentId, RunId, RunKind, SiteId, Step, Timestamp,
};
use maas_sim::HostView;

use crate::executor::TaskOwner;
use crate::node;
use crate::plan::SITE;
use crate::simulation::Simulation;

const ACTOR: &str = "chaos";

/// Why an operator's request was refused: the code of the answer.
pub type RefusalCode = String;

fn refusal(error: StoreError) -> Result<RefusalCode, Failure> {
    match error {
        StoreError::Conflict { code, .. } => Ok(code.into()),
        other => Err(store_failure(other)),
    }
}

impl Simulation {
    /// Lets an operator name every racked machine, one after the other.
    pub fn onboard_all(&mut self) {
        let machines = self.region.with(|region| region.hosts());
        let shared = Arc::clone(&self.shared);
        let site_and_profile = (self.site_id, self.profile_id);
        let (apart, touched) = (self.parts.plan.apart_seconds, Arc::clone(&self.touched));
        self.executor.spawn(TaskOwner::Environment, async move {
            for machine in machines {
                shared.until_reachable().await;
                let now = shared.clock.now();
                let onboard = request(&*shared.ids, now, site_and_profile, &machine);
                let run_id = onboard.run.id;
                match shared.store.onboard(now, onboard).await {
                    Ok(_) => touched.add(run_id),
                    Err(error) => tracing::error!(%error, machine = machine.name, "a machine was not onboarded"),
                }
                shared.clock.sleep_until(now.plus_seconds(apart)).await;
            }
        });
    }

    /// Names one racked machine.
    ///
    /// # Errors
    /// The store's, but for a conflict.
    pub async fn onboard(
        &mut self,
        machine: &HostView,
    ) -> Result<Result<RunId, RefusalCode>, Failure> {
        let now = self.clock.now();
        let site_and_profile = (self.site_id, self.profile_id);
        let onboard = request(&*self.parts.ids, now, site_and_profile, machine);
        let run_id = onboard.run.id;
        self.touch(run_id);
        match self.store.onboard(now, onboard).await {
            Ok(_) => Ok(Ok(run_id)),
            Err(error) => refusal(error).map(Err),
        }
    }

    /// Names one racked machine and answers its run and node.
    ///
    /// # Errors
    /// The store's, but for a conflict.
    pub async fn onboard_host(
        &mut self,
        machine: &HostView,
    ) -> Result<Result<(RunId, NodeId), RefusalCode>, Failure> {
        self.onboard_saying(machine, Vec::new()).await
    }

    /// Names one racked machine, says `reports` to its run, and answers its run and node. An empty
    /// address is not given.
    ///
    /// # Errors
    /// The store's, but for a conflict.
    pub async fn onboard_saying(
        &mut self,
        machine: &HostView,
        reports: Vec<ReportKind>,
    ) -> Result<Result<(RunId, NodeId), RefusalCode>, Failure> {
        let now = self.clock.now();
        let mut onboard = request(&*self.parts.ids, now, (self.site_id, self.profile_id), machine);
        let hardware = &mut onboard.node.hardware;
        hardware.bmc_address.take_if(|address| address.is_empty());
        hardware.mac_addresses.retain(|address| !address.is_empty());
        onboard.reports = reports;
        let made = (onboard.run.id, onboard.node.id);
        self.touch(made.0);
        match self.store.onboard(now, onboard).await {
            Ok(_) => Ok(Ok(made)),
            Err(error) => refusal(error).map(Err),
        }
    }

    /// Something was said to a run: it may be due.
    pub fn operator_acted(&mut self) {
        self.next_due = Some(Timestamp::EPOCH);
    }

    /// Assigns fabric addresses to a host.
    ///
    /// # Errors
    /// The store's.
    pub async fn assign_roce(&self, hostname: &str, addresses: Vec<Fabric>) -> Result<(), Failure> {
        let now = self.clock.now();
        for Fabric { interface, subnet_cidr, ip_address } in addresses {
            let (site, hostname) = (SITE.to_owned(), hostname.to_owned());
            let spec = RoceAssignmentSpec { site, hostname, interface, subnet_cidr, ip_address };
            let id = RoceAssignmentId::new(&*self.parts.ids, now);
            self.store
                .add_roce_assignment(
                    now,
                    id,
                    self.site_id,
                    spec,
                    gpuaas_store::NewAuditEntry::in_test(),
                )
                .await
                .map_err(store_failure)?;
        }
        Ok(())
    }

    /// Somebody did something to a run: it may be due.
    fn touch(&mut self, run_id: RunId) {
        self.touched.add(run_id);
        self.next_due = Some(Timestamp::EPOCH);
    }

    /// Begins a run on a node that exists.
    ///
    /// # Errors
    /// The store's, but for a conflict.
    pub async fn begin_run(
        &mut self,
        node_id: NodeId,
        kind: RunKind,
    ) -> Result<Result<RunId, RefusalCode>, Failure> {
        let row = kind.row();
        let handoff = self.parts.plan.profile.release_mode == ReleaseMode::Handoff;
        if handoff && row.steps.contains(&Step::Deploy) {
            return Ok(Err("machine_handed_off".to_owned()));
        }
        let now = self.clock.now();
        let run = NewRun {
            id: RunId::new(&*self.parts.ids, now),
            kind,
            step: row.first(),
            profile_revision: 1,
            cause: format!("{ACTOR} requested {kind}"),
        };
        let run_id = run.id;
        let start = NewRunOfNode {
            node_id,
            run,
            profile_id: None,
            from: row.begins_in,
            history: Vec::new(),
            audit: None,
        };
        match self.store.start_run_from(now, start).await {
            Ok(()) => {
                self.touch(run_id);
                Ok(Ok(run_id))
            }
            Err(error) => refusal(error).map(Err),
        }
    }

    /// An agent of `node_id` that does what it is told until `run_id` is over.
    pub fn serve_tasks(&mut self, node_id: NodeId, run_id: RunId) {
        let enrolled = node::EnrolledAgent { node_id, run_id, seed: 0 };
        self.executor
            .spawn(TaskOwner::Environment, node::serve_tasks(Arc::clone(&self.shared), enrolled));
    }

    /// Tells a run what an operator wants.
    ///
    /// # Errors
    /// The store's, but for a conflict.
    pub async fn apply_operator_command(
        &mut self,
        run_id: RunId,
        order: OperatorCommand,
    ) -> Result<Result<(), RefusalCode>, Failure> {
        let now = self.clock.now();
        self.touch(run_id);
        match self.store.apply_operator_command(now, run_id, order, ACTOR, "chaos test").await {
            Ok(()) => Ok(Ok(())),
            Err(error) => refusal(error).map(Err),
        }
    }
}

fn request(
    ids: &dyn IdSource,
    now: Timestamp,
    (site_id, profile_id): (SiteId, ProfileId),
    machine: &HostView,
) -> NewOnboarding {
    let hardware = NodeHardware {
        bmc_address: Some(machine.bmc_address.clone()),
        bmc_user: Some("maas".to_owned()),
        power_type: "ipmi".to_owned(),
        mac_addresses: vec![machine.mac_address.clone()],
        architecture: "amd64/generic".to_owned(),
    };
    let node = NewNode {
        id: NodeId::new(ids, now),
        site_id,
        profile_id,
        hostname: machine.name.clone(),
        hardware,
        bmc_password: Some(SecretString::from("secret".to_owned())),
    };
    let run = NewRun::onboard(RunId::new(ids, now), 1, "onboarding requested".to_owned());
    NewOnboarding::new(node, run)
}
