//! A simulated operator: reads a node and carries out one of the commands of `gpuaas node` and
//! `gpuaas run`, sensible or not. What the rules forbid has to be refused.

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_core::record::RunRecord;
use gpuaas_engine::Clock as _;
use gpuaas_store::{ListedNode, NodeFilter, OperatorCommand};
use gpuaas_types::{NodeState, RunKind, RunStatus};

use crate::chaos::ChaosRun;
use crate::operator::RefusalCode;
use crate::simulation::Simulation;

/// For how long an operator answers for a check, in seconds.
const SKIP_SECONDS: f64 = 86_400.0;

impl ChaosRun {
    /// Does something about one host.
    pub(crate) async fn act_as_operator(
        &mut self,
        simulation: &mut Simulation,
        name: &str,
    ) -> Result<(), Failure> {
        let listed =
            simulation.store.list_nodes(NodeFilter::default()).await.map_err(store_failure)?;
        // The newest record of the host: earlier ones left.
        let Some(node) = listed.into_iter().rfind(|listed| listed.node.hostname == name) else {
            return Ok(());
        };
        match node.run.as_ref().filter(|run| run.status.is_open()) {
            Some(run) => {
                let run = simulation.store.run(run.id).await.map_err(store_failure)?;
                self.send_command(simulation, name, &run).await
            }
            None => self.begin(simulation, &node).await,
        }
    }

    async fn send_command(
        &mut self,
        simulation: &mut Simulation,
        name: &str,
        run: &RunRecord,
    ) -> Result<(), Failure> {
        let parked = run.status == RunStatus::Parked;
        let failing = run.state.checks.values().find(|check| !check.passed);
        let order = match (self.rng.stream.below(10), failing) {
            (0..=2, _) => OperatorCommand::Resume,
            (3..=5, _) => OperatorCommand::Retry,
            (6 | 7, Some(check)) => OperatorCommand::SkipCheck {
                check: check.name.clone(),
                until: simulation.clock.now().plus_seconds(SKIP_SECONDS),
            },
            (9, _) => OperatorCommand::Cancel { leave_machine: true },
            _ => OperatorCommand::Cancel { leave_machine: false },
        };
        let needs_park = matches!(order, OperatorCommand::Resume | OperatorCommand::Retry);
        let text =
            format!("an operator: {order:?} for the {} run of {name} in {}", run.kind, run.step);
        let answer = simulation.apply_operator_command(run.id, order).await?;
        self.record_answer(simulation, text, &answer, parked || !needs_park);
        if !self.rng.random_bool(0.1) {
            return Ok(());
        }
        // A node has one open run.
        let kind = self.rng.run_kind();
        let answer = simulation.begin_run(run.node_id, kind).await?;
        let text = format!("an operator: {kind} for {name}, which has an open run");
        self.record_answer(simulation, text, &answer.map(drop), false);
        Ok(())
    }

    async fn begin(
        &mut self,
        simulation: &mut Simulation,
        listed: &ListedNode,
    ) -> Result<(), Failure> {
        let (node, name) = (&listed.node, &listed.node.hostname);
        let left =
            matches!(node.state, NodeState::Retired | NodeState::Detached | NodeState::Deleted);
        if left && self.rng.random_bool(0.5) {
            let Some(host) = self.hosts.iter().find(|host| host.name == *name).cloned() else {
                return Ok(());
            };
            let answer = simulation.onboard(&host).await?;
            self.record_answer(
                simulation,
                format!("an operator: onboard {name} again"),
                &answer.map(drop),
                true,
            );
            return Ok(());
        }
        let kind = match node.state {
            NodeState::Retired | NodeState::Detached => RunKind::Remove,
            NodeState::Registered => self.rng.choose(&[RunKind::Decommission, RunKind::Detach]),
            _ => self.rng.run_kind(),
        };
        let allowed = kind.row().begins_in.contains(&node.state);
        let text = format!("an operator: {kind} for {name}, which is {}", node.state);
        let answer = simulation.begin_run(node.id, kind).await?;
        // Or tenants are in it.
        let may_not = ["machine_handed_off", "node_has_claims"];
        let refused = answer.as_ref().is_err_and(|code| may_not.contains(&code.as_str()));
        self.record_answer(simulation, text, &answer.map(drop), allowed && !refused);
        Ok(())
    }

    /// Tells what came of a request, and whether that is what should have.
    fn record_answer(
        &mut self,
        simulation: &Simulation,
        text: String,
        answer: &Result<(), RefusalCode>,
        allowed: bool,
    ) {
        let came = answer.as_ref().map_or_else(|code| code.as_str(), |()| "done");
        self.record_event(simulation, &format!("{text}: {came}"));
        if answer.is_ok() && !allowed {
            self.record_violations(
                simulation,
                vec![format!("{text}: accepted, but should have been refused")],
            );
        }
        if answer.is_err() && allowed {
            self.record_violations(simulation, vec![format!("{text}: refused with {came}")]);
        }
    }
}
