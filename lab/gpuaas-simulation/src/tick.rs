//! One step of a simulation: runs every task that is ready, or moves the clock to the next event.

use std::sync::Arc;

use gpuaas_artifact::{BootstrapInputs, parse_user_data};
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::Clock as _;
use gpuaas_types::{NodeId, Timestamp};
use maas_sim::{FirstBoot, HostRef, Notice, SimRng};

use crate::deployed_system::DeployedSystem;
use crate::executor::TaskOwner;
use crate::failpoint::TriggerAction;
use crate::node;
use crate::plan::AGENT_WATCH_SECONDS;
use crate::simulation::Simulation;

/// What one tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// A task ran, or a message arrived, at this instant.
    Ran,
    /// No task could run; the clock advanced.
    Waited,
    /// The failpoint triggered for this control plane.
    Triggered(u32, TriggerAction),
    /// This control plane began to compare the site with MAAS.
    SweepStarted(u32),
    /// No event is scheduled any more.
    Idle,
}

impl Simulation {
    /// Runs everything that can run at this instant, or advances the clock to the next event, at
    /// most to `until`.
    ///
    /// # Errors
    /// The store's.
    pub async fn tick(&mut self, until: Timestamp) -> Result<Tick, Failure> {
        let ran = self.executor.run_until_stalled(&self.store, &self.failpoint).await;
        if let Some((replica, end)) = self.failpoint.triggered() {
            return Ok(Tick::Triggered(replica, end));
        }
        let now = self.clock.now();
        let came = self.network.deliver(now);
        for notice in self.region.with(|region| region.advance(now.as_micros())) {
            self.apply_notice(notice);
        }
        self.wake_agents().await?;
        if ran || self.next_due == Some(Timestamp::EPOCH) {
            self.refresh_due_runs().await.map_err(store_failure)?;
        }
        if let Some(replica) = self.start_sweep_if_due(now) {
            return Ok(Tick::SweepStarted(replica));
        }
        self.start_agent_watch_if_due(now);
        self.start_slice_looks_if_due(now).await.map_err(store_failure)?;
        self.claim_due_runs(now).await.map_err(store_failure)?;
        if came || self.executor.is_ready() {
            return Ok(Tick::Ran);
        }
        let region = self.region.with(|region| region.next_event_at());
        let mut moments = vec![self.clock.next(), region.map(Timestamp::from_micros)];
        moments.push(self.network.next());
        moments.push(self.sends_heartbeats().then_some(self.next_agent_watch));
        moments.push(self.next_slice_look);
        let due = self.next_claim();
        moments.extend(self.replicas.iter().map(|replica| replica.claims_at(due)));
        let Some(next) = moments.into_iter().flatten().min() else { return Ok(Tick::Idle) };
        self.clock.advance_to(next.min(until));
        Ok(Tick::Waited)
    }

    /// When there is something to claim.
    pub(crate) fn next_claim(&self) -> Option<Timestamp> {
        self.next_due.into_iter().chain(self.next_recheck).min()
    }

    /// From now on the clock goes on for the rechecks of parked runs, too.
    pub fn follow_rechecks(&mut self) {
        self.rechecks = true;
        self.next_due = Some(Timestamp::EPOCH);
    }

    /// Whether a run is due now or later. A parked run that looks again by itself is not.
    #[must_use]
    pub fn has_due_run(&self) -> bool {
        self.next_due.is_some()
    }

    /// Sweeps only between other events: sweeps alone would keep a simulation running for ever.
    fn start_sweep_if_due(&mut self, now: Timestamp) -> Option<u32> {
        let every_seconds = self.parts.plan.sweep_seconds;
        if every_seconds <= 0.0 || now < self.next_sweep {
            return None;
        }
        self.next_sweep = now.plus_seconds(every_seconds);
        self.start_sweep()
    }

    fn sends_heartbeats(&self) -> bool {
        self.parts.plan.heartbeat_seconds > 0.0
    }

    fn start_agent_watch_if_due(&mut self, now: Timestamp) {
        if self.sends_heartbeats() && now >= self.next_agent_watch {
            self.next_agent_watch = now.plus_seconds(AGENT_WATCH_SECONDS);
            self.start_agent_watch();
        }
    }

    /// Kills the agent of a node, whose host stays on. Answers whether there was one.
    pub fn kill_agent(&mut self, node_id: NodeId) -> bool {
        let system = self.systems.values().find(|system| system.node_id() == Some(node_id));
        let task_id = system.map(|system| system.task_id);
        if let Some(task_id) = task_id {
            self.executor.cancel(task_id);
        }
        task_id.is_some()
    }

    /// Starts the agent of a node again, where it does not run.
    pub fn start_agent(&mut self, node_id: NodeId) {
        let systems = self.systems.values_mut();
        for system in systems.filter(|system| system.node_id() == Some(node_id)) {
            system.restart_agent(&mut self.executor, &self.shared);
        }
    }

    /// Restarts the agents of nodes for which a task was created.
    async fn wake_agents(&mut self) -> Result<(), Failure> {
        while let Ok(node_id) = self.tasks.try_recv() {
            let node = self.store.node(node_id).await.map_err(store_failure)?;
            let system = node.system_id.and_then(|id| self.systems.get_mut(&id));
            let system = system.filter(|s| s.on && s.node_id() == Some(node_id));
            if let Some(system) = system {
                system.restart_agent(&mut self.executor, &self.shared);
            }
        }
        Ok(())
    }

    fn apply_notice(&mut self, notice: Notice) {
        let host: HostRef = notice.host().clone();
        let known = self.systems.get(&host.system_id).map(|system| system.deployment);
        if known.is_some_and(|deployment| deployment > host.deployment) {
            return;
        }
        match notice {
            Notice::FirstBoot(boot) => self.first_boot(*boot),
            Notice::PoweredOn(host) => {
                let Some(system) = self.systems.get_mut(&host.system_id) else { return };
                system.on = true;
                system.restart_agent(&mut self.executor, &self.shared);
            }
            Notice::PoweredOff(host) => {
                if let Some(system) = self.systems.get_mut(&host.system_id) {
                    system.on = false;
                    self.executor.cancel(system.task_id);
                }
            }
            Notice::Released(host) => {
                if let Some(system) = self.systems.remove(&host.system_id) {
                    self.executor.cancel(system.task_id);
                    self.shared.drop_slice_host(system.node_id());
                }
            }
            // These hosts have no disks.
            Notice::Erased(_) => {}
        }
    }

    fn first_boot(&mut self, boot: FirstBoot) {
        if let Some(old) = self.systems.remove(&boot.host.system_id) {
            self.executor.cancel(old.task_id);
            self.shared.drop_slice_host(old.node_id());
        }
        let Ok(data) = parse_user_data(&boot.user_data) else { return };
        let id = boot.host.system_id.clone();
        self.kernel_options.insert(id.clone(), boot.metadata.kernel_options);
        self.images.insert(id, boot.metadata.distro_series);
        self.boot(boot.host.system_id, boot.host.deployment, data.inputs);
    }

    /// Has the bootstrap of a deployed system run from its beginning.
    fn boot(&mut self, system_id: String, deployment: u64, inputs: BootstrapInputs) {
        let enrolled = Arc::default();
        let name = format!("boot/{}/{deployment}", inputs.hostname);
        let image = self.images.get(&system_id);
        let left = image.and_then(|image| self.parts.plan.baked_images.get(image));
        let node = node::BootingNode {
            shared: Arc::clone(&self.shared),
            inputs: inputs.clone(),
            times: self.parts.times.with_site_part(left.copied().unwrap_or(1.0)),
            rng: SimRng::for_name(self.parts.plan.seed, &name),
            lost_callbacks: self.parts.plan.lost_callbacks,
            enrolled: Arc::clone(&enrolled),
        };
        let task_id = self.executor.spawn(TaskOwner::Environment, node.run());
        let system = DeployedSystem { deployment, task_id, on: true, enrolled, inputs };
        self.systems.insert(system_id, system);
    }

    /// Somebody runs the boot scripts of every deployed host again.
    pub fn run_boot_scripts(&mut self) {
        for (system_id, system) in std::mem::take(&mut self.systems) {
            self.executor.cancel(system.task_id);
            self.boot(system_id, system.deployment, system.inputs);
        }
    }
}

#[cfg(test)]
mod tests;
