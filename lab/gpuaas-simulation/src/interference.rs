//! People who interfere: at any time of any kind of run they allocate, deploy, release, lock, rename,
//! commission or delete its machine in MAAS.
//!
//! Drawn from a stream of its own, so that a seed's faults and operators are the same without them.

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::Clock as _;
use gpuaas_store::NodeFilter;
use maas_sim::{HumanAction, SimRng};

use crate::chaos::ChaosRun;
use crate::disruption::Disruption;
use crate::simulation::Simulation;

/// Virtual seconds in which people interfere: operators begin runs in as many.
const MEDDLED_SECONDS: f64 = 8.0 * 3600.0;
/// Virtual seconds after which somebody whom MAAS refused tries again, at most.
const AGAIN_SECONDS: f64 = 240.0;
/// How often somebody tries whom MAAS refuses.
const TRIES: u32 = 12;

/// What somebody wants to do to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meddling {
    /// Another user allocates it.
    Allocate,
    /// Another user deploys it.
    DeployAsOther,
    /// A user of our own account deploys it.
    Deploy,
    /// It is released.
    Release,
    /// It is locked.
    Lock,
    /// It is unlocked.
    Unlock,
    /// It gets another name.
    Rename,
    /// It gets the name of its host again.
    RenameBack,
    /// It is commissioned.
    Commission,
    /// It is deleted.
    Delete,
}

/// Each as often as it is drawn.
const DRAWN: [Meddling; 16] = [
    Meddling::Allocate,
    Meddling::Allocate,
    Meddling::Allocate,
    Meddling::Allocate,
    Meddling::DeployAsOther,
    Meddling::DeployAsOther,
    Meddling::Deploy,
    Meddling::Release,
    Meddling::Release,
    Meddling::Lock,
    Meddling::Lock,
    Meddling::Unlock,
    Meddling::Rename,
    Meddling::RenameBack,
    Meddling::Commission,
    Meddling::Delete,
];

impl Meddling {
    /// What is done in MAAS to the machine of the host `name`, which has the identifier `id` there.
    fn action(self, name: &str, id: &str) -> HumanAction {
        let machine = id.to_owned();
        let user = "ann".to_owned();
        match self {
            Self::Allocate => HumanAction::AllocateAs { machine, user },
            Self::DeployAsOther => HumanAction::DeployAs { machine, user },
            Self::Deploy => HumanAction::Deploy { machine },
            Self::Release => HumanAction::Release { machine },
            Self::Lock => HumanAction::Lock { machine },
            Self::Unlock => HumanAction::Unlock { machine },
            Self::Rename => HumanAction::Rename { machine, to: format!("{name}-y") },
            Self::RenameBack => HumanAction::Rename { machine, to: name.to_owned() },
            Self::Commission => HumanAction::Commission { machine },
            Self::Delete => HumanAction::Delete { machine },
        }
    }
}

/// Draws when who does what.
#[derive(Debug)]
pub(crate) struct Interference {
    rng: SimRng,
}

impl Interference {
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self { rng: SimRng::for_name(seed, "interference") }
    }

    /// What comes to a fleet of so many nodes, with the second at which it comes.
    pub(crate) fn disruptions(&mut self, nodes: usize) -> Vec<(f64, Disruption)> {
        let count = nodes + self.rng.below(2 * nodes.max(1));
        let mut drawn = Vec::new();
        for _ in 0..count {
            let meddling = DRAWN[self.rng.below(DRAWN.len())];
            let seconds = MEDDLED_SECONDS * self.rng.uniform();
            drawn.push((seconds, Disruption::Interference { meddling, host: None, tries: TRIES }));
        }
        drawn
    }

    fn again_seconds(&mut self) -> f64 {
        1.0 + AGAIN_SECONDS * self.rng.uniform()
    }
}

impl ChaosRun {
    /// Somebody does something to the machine of `host`, or of a node that has an open run. Whom MAAS
    /// refuses comes again: most of what people do is possible in few statuses.
    pub(crate) async fn interfere(
        &mut self,
        simulation: &Simulation,
        meddling: Meddling,
        host: Option<String>,
        tries: u32,
    ) -> Result<(), Failure> {
        let host = match host {
            Some(host) => Some(host),
            None => self.host_with_a_run(simulation).await?,
        };
        let hosts = simulation.region.with(|region| region.hosts());
        let found = hosts.into_iter().find(|one| Some(&one.name) == host.as_ref());
        let Some((name, id)) = found.and_then(|one| Some((one.name, one.system_id?))) else {
            return Ok(());
        };
        let now = simulation.clock.now();
        let action = meddling.action(&name, &id);
        let done =
            simulation.region.with(|region| region.apply_human_action(now.as_micros(), &action));
        match done {
            Ok(()) => {
                self.checker.record_human_action(&name, now);
                self.record_event(simulation, &format!("a person: {action:?} on {name}: done"));
            }
            Err(_) if tries > 1 => {
                let seconds = self.interference.as_mut().map_or(0.0, Interference::again_seconds);
                let again = Disruption::Interference { meddling, host, tries: tries - 1 };
                self.schedule(simulation, seconds, again);
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// A host whose node has an open run, of whatever kind; else any host.
    async fn host_with_a_run(
        &mut self,
        simulation: &Simulation,
    ) -> Result<Option<String>, Failure> {
        let listed =
            simulation.store.list_nodes(NodeFilter::default()).await.map_err(store_failure)?;
        let open = listed.iter().filter(|one| one.run.as_ref().is_some_and(|r| r.status.is_open()));
        let mut names: Vec<String> = open.map(|one| one.node.hostname.clone()).collect();
        if names.is_empty() {
            names = self.hosts.iter().map(|host| host.name.clone()).collect();
        }
        let Some(people) = self.interference.as_mut().filter(|_| !names.is_empty()) else {
            return Ok(None);
        };
        Ok(Some(names.swap_remove(people.rng.below(names.len()))))
    }
}
