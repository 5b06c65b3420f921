//! An operator in a fleet's life: looks at a node and does one of the things that the commands of
//! `gpuaas node` and `gpuaas run` do, sensible or not. What the rules forbid has to be refused.

use gpuaas_client::failure::Failure;
use gpuaas_core::record::RunRecord;
use gpuaas_engine::Clock as _;
use gpuaas_lab::of_store;
use gpuaas_store::{ListedNode, NodeFilter, OperatorCommand};
use gpuaas_types::{NodeState, RunKind, RunStatus};

use crate::chaos::Chaos;
use crate::operator::Refusal;
use crate::simulation::World;

/// For how long an operator answers for a check, in seconds.
const SKIP_SECONDS: f64 = 86_400.0;

impl Chaos {
    /// Does something about one host.
    pub(crate) async fn operate(&mut self, world: &mut World, name: &str) -> Result<(), Failure> {
        let listed = world.store.list_nodes(NodeFilter::default()).await.map_err(of_store)?;
        // The newest record of the host: earlier ones left.
        let Some(node) = listed.into_iter().rfind(|listed| listed.node.hostname == name) else {
            return Ok(());
        };
        match node.run.as_ref().filter(|run| run.status.is_open()) {
            Some(run) => {
                let run = world.store.run(run.id).await.map_err(of_store)?;
                self.talk(world, name, &run).await
            }
            None => self.begin(world, &node).await,
        }
    }

    async fn talk(
        &mut self,
        world: &mut World,
        name: &str,
        run: &RunRecord,
    ) -> Result<(), Failure> {
        let parked = run.status == RunStatus::Parked;
        let failing = run.state.checks.values().find(|check| !check.passed);
        let order = match (self.draw.chance.below(10), failing) {
            (0..=2, _) => OperatorCommand::Resume,
            (3..=5, _) => OperatorCommand::Retry,
            (6 | 7, Some(check)) => OperatorCommand::SkipCheck {
                check: check.name.clone(),
                until: world.clock.now().plus_seconds(SKIP_SECONDS),
            },
            (9, _) => OperatorCommand::Cancel { leave_machine: true },
            _ => OperatorCommand::Cancel { leave_machine: false },
        };
        let needs_park = matches!(order, OperatorCommand::Resume | OperatorCommand::Retry);
        let text = format!("an operator: {order:?} of the {} of {name} in {}", run.kind, run.step);
        let answer = world.tell(run.id, order).await?;
        self.answered(world, text, &answer, parked || !needs_park);
        if !self.draw.luck(0.1) {
            return Ok(());
        }
        // A node has one open run.
        let kind = self.draw.kind();
        let answer = world.begin(run.node_id, kind).await?;
        let text = format!("an operator: {kind} of {name}, which has an open run");
        self.answered(world, text, &answer.map(drop), false);
        Ok(())
    }

    async fn begin(&mut self, world: &mut World, listed: &ListedNode) -> Result<(), Failure> {
        let (node, name) = (&listed.node, &listed.node.hostname);
        let left =
            matches!(node.state, NodeState::Retired | NodeState::Detached | NodeState::Deleted);
        if left && self.draw.luck(0.5) {
            let Some(host) = self.hosts.iter().find(|host| host.name == *name).cloned() else {
                return Ok(());
            };
            let answer = world.name(&host).await?;
            self.answered(
                world,
                format!("an operator: onboard {name} again"),
                &answer.map(drop),
                true,
            );
            return Ok(());
        }
        let kind = match node.state {
            NodeState::Retired | NodeState::Detached => RunKind::Remove,
            NodeState::Registered => self.draw.one_of(&[RunKind::Decommission, RunKind::Detach]),
            _ => self.draw.kind(),
        };
        let allowed = kind.row().begins_in.contains(&node.state);
        let text = format!("an operator: {kind} of {name}, which is {}", node.state);
        let answer = world.begin(node.id, kind).await?;
        let handed = answer.as_ref().is_err_and(|code| code == "machine_handed_off");
        self.answered(world, text, &answer.map(drop), allowed && !handed);
        Ok(())
    }

    /// Tells what came of a request, and whether that is what should have.
    fn answered(
        &mut self,
        world: &World,
        text: String,
        answer: &Result<(), Refusal>,
        allowed: bool,
    ) {
        let came = answer.as_ref().map_or_else(|code| code.as_str(), |()| "done");
        self.tell(world, &format!("{text}: {came}"));
        if answer.is_ok() && !allowed {
            self.note(world, vec![format!("{text}: this had to be refused")]);
        }
        if answer.is_err() && allowed {
            self.note(world, vec![format!("{text}: refused with {came}")]);
        }
    }
}
