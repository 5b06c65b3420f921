//! One step of a simulation: everything that can happen at this moment, or the way to the next.

use std::sync::Arc;

use gpuaas_artifact::parse_user_data;
use gpuaas_client::failure::Failure;
use gpuaas_engine::Clock as _;
use gpuaas_lab::of_store;
use gpuaas_types::Timestamp;
use maas_sim::{FirstBoot, HostRef, Notice, SimRng};

use crate::deployed_system::System;
use crate::executor::Group;
use crate::failpoint::End;
use crate::node;
use crate::simulation::World;

/// What moved time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Something ran at this moment.
    Ran,
    /// Nothing could run; the clock moved on.
    Waited,
    /// A control plane came to the end of its fuse.
    Burnt(u32, End),
    /// A control plane began to compare the site with MAAS.
    Swept(u32),
    /// Nothing will ever happen by itself again.
    Still,
}

impl World {
    /// Does everything that can be done at this moment, or moves on to the next one, which is not
    /// after `until`.
    ///
    /// # Errors
    /// The store's.
    pub async fn turn(&mut self, until: Timestamp) -> Result<Turn, Failure> {
        let ran = self.crew.settle(&self.store, &self.fuse).await;
        if let Some((replica, end)) = self.fuse.burnt() {
            return Ok(Turn::Burnt(replica, end));
        }
        let now = self.clock.now();
        let came = self.network.deliver(now);
        for notice in self.region.with(|region| region.advance(now.as_micros())) {
            self.act(notice);
        }
        self.wake_agents().await?;
        if ran || self.next_due == Some(Timestamp::EPOCH) {
            self.look().await.map_err(of_store)?;
        }
        if let Some(replica) = self.sweep_if_due(now) {
            return Ok(Turn::Swept(replica));
        }
        self.claim(now).await.map_err(of_store)?;
        if came || self.crew.is_ready() {
            return Ok(Turn::Ran);
        }
        let region = self.region.with(|region| region.next_event_at());
        let mut moments = vec![self.clock.next(), region.map(Timestamp::from_micros)];
        moments.push(self.network.next());
        moments.extend(self.replicas.iter().map(|replica| replica.looks_at(self.next_due)));
        let Some(next) = moments.into_iter().flatten().min() else { return Ok(Turn::Still) };
        self.clock.advance_to(next.min(until));
        Ok(Turn::Waited)
    }

    /// Whether a run moves.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.next_due.is_some()
    }

    /// Sweeps while something else moves: by itself it would never come to an end.
    fn sweep_if_due(&mut self, now: Timestamp) -> Option<u32> {
        let every_seconds = self.parts.plan.sweep_seconds;
        if every_seconds <= 0.0 || now < self.next_sweep {
            return None;
        }
        self.next_sweep = now.plus_seconds(every_seconds);
        self.sweep()
    }

    /// An agent that has long been silent still hears of a task.
    async fn wake_agents(&mut self) -> Result<(), Failure> {
        while let Ok(node_id) = self.tasks.try_recv() {
            let node = self.store.node(node_id).await.map_err(of_store)?;
            let system = node.system_id.and_then(|id| self.systems.get_mut(&id));
            let system = system.filter(|s| s.on && s.node_id() == Some(node_id));
            if let Some(system) = system {
                system.revive(&mut self.crew, &self.plane);
            }
        }
        Ok(())
    }

    fn act(&mut self, notice: Notice) {
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
                system.revive(&mut self.crew, &self.plane);
            }
            Notice::PoweredOff(host) => {
                if let Some(system) = self.systems.get_mut(&host.system_id) {
                    system.on = false;
                    self.crew.end(system.life);
                }
            }
            Notice::Released(host) => {
                if let Some(system) = self.systems.remove(&host.system_id) {
                    self.crew.end(system.life);
                }
            }
        }
    }

    fn first_boot(&mut self, boot: FirstBoot) {
        if let Some(old) = self.systems.remove(&boot.host.system_id) {
            self.crew.end(old.life);
        }
        let Ok(data) = parse_user_data(&boot.user_data) else { return };
        let enrolled = Arc::default();
        let name = format!("boot/{}/{}", boot.host.hostname, boot.host.deployment);
        let newborn = node::Newborn {
            plane: Arc::clone(&self.plane),
            inputs: data.inputs,
            times: self.parts.times,
            chance: SimRng::for_name(self.parts.plan.seed, &name),
            lost_callbacks: self.parts.plan.lost_callbacks,
            enrolled: Arc::clone(&enrolled),
        };
        let life = self.crew.add(Group::World, newborn.live());
        let system = System { deployment: boot.host.deployment, life, on: true, enrolled };
        self.systems.insert(boot.host.system_id, system);
    }
}
