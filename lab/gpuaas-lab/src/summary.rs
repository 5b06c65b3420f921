//! The summary of a lab: the object that `--json` prints, and whether every node ended as intended.
//!
//! Every number is computed at the end from two independent sources: the control plane's API
//! (nodes and runs) and the simulator's own records (machines in MAAS, deployments).

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::waterfall::BucketRow;
use gpuaas_types::agent::{Gate, GateClass};
use gpuaas_types::api::{NodeView, RunView};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{NodeState, RunStatus};
use serde::Serialize;

use crate::leases::LeaseRow;
use crate::record::{MachineInventory, RegionRecord};
use crate::scenario::Scenario;

/// A node and its latest run.
#[derive(Debug, Clone)]
pub struct EndedNode {
    /// The node.
    pub node: NodeView,
    /// Its run.
    pub run: RunView,
}

/// What came of a lab.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabSummary {
    /// Nodes asked for.
    pub nodes: usize,
    /// Nodes that are active.
    pub active: usize,
    /// Nodes whose run parked.
    pub parked: usize,
    /// Nodes whose run failed, was cancelled, or had not ended when the lab did. A node that left
    /// as it was meant to is in none of the three; `states` has it.
    pub failed: usize,
    /// Machines in MAAS that no node holds and that were not there before.
    pub orphans: usize,
    /// Deployments on top of a deployment that nobody had released.
    pub double_deploys: u32,
    /// Nodes by their state.
    pub states: BTreeMap<String, usize>,
    /// The nodes' machines by MAAS' status and whether they are on.
    pub machines: BTreeMap<String, usize>,
    /// Active nodes by whether slices may be handed out: `ready`, or whose matter it is that not;
    /// `not_evaluated` of a stand-in, which has no host.
    pub slices: BTreeMap<String, usize>,
    /// What MAAS was asked to change after a machine was first deployed: by endpoint, how many
    /// machines so many times.
    pub changes: BTreeMap<String, BTreeMap<u32, usize>>,
    /// Slices that were leased, where the scenario leases any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseRow>,
    /// Seconds of the wall clock from the first request to the end.
    pub wall_seconds: f64,
    /// One row per node, in the run's own seconds.
    pub runs: Vec<BucketRow>,
}

impl LabSummary {
    /// Counts. `before` are the identifiers of machines that were in MAAS before the lab began.
    #[must_use]
    pub fn summarize(
        ended: &[EndedNode],
        inventory: &[MachineInventory],
        before: &[String],
        record: &RegionRecord,
        wall_seconds: f64,
    ) -> Self {
        let active = ended.iter().filter(|e| e.node.state == NodeState::Active).count();
        let parked = ended
            .iter()
            .filter(|e| e.node.state != NodeState::Active && e.run.status == RunStatus::Parked)
            .count();
        let failed = ended
            .iter()
            .filter(|e| e.node.state != NodeState::Active)
            .filter(|e| !matches!(e.run.status, RunStatus::Parked | RunStatus::Succeeded))
            .count();
        Self {
            nodes: ended.len(),
            active,
            parked,
            failed,
            orphans: orphans(ended, inventory, before).len(),
            double_deploys: record.double_deploys(),
            states: count_by_name(ended.iter().map(|e| e.node.state.to_string())),
            machines: count_by_name(
                ended.iter().filter_map(|e| machine_of(e, inventory)).map(describe_machine),
            ),
            slices: count_by_name(ended.iter().filter_map(slices)),
            changes: changes(record),
            leases: Vec::new(),
            wall_seconds,
            runs: ended.iter().map(|e| BucketRow::of_run(&e.run, e.node.state)).collect(),
        }
    }

    /// The failure of a lab in which a node, or its machine in MAAS, is not as the scenario ends, or
    /// in which MAAS holds what no node owns. The first `evaluated` machines of the rack have an agent that
    /// evaluates gates, so theirs have to be evaluated; stand-ins have no host to look at.
    ///
    /// # Errors
    /// `nodes_not_active`, `scenario_not_met` or `stray_deployments`.
    pub fn verdict(
        &self,
        ended: &[EndedNode],
        inventory: &[MachineInventory],
        scenario: &Scenario,
        evaluated: usize,
    ) -> Result<(), Failure> {
        let is_bad = |e: &&EndedNode| !ended_as_expected(e, inventory, scenario, evaluated);
        let bad: Vec<&EndedNode> = ended.iter().filter(is_bad).collect();
        if !bad.is_empty() {
            let inactive = bad.iter().any(|e| e.node.state != NodeState::Active);
            let lines: String = bad.iter().map(|e| describe_end(e)).collect();
            let (active, nodes) = (self.active, self.nodes);
            let (code, detail) = if scenario.actions.is_empty() && inactive {
                let detail = format!("{active} of {nodes} nodes are active{lines}");
                (CommandCode::NodesNotActive, detail)
            } else {
                let detail =
                    format!("{} of {nodes} nodes did not end as expected{lines}", bad.len());
                (CommandCode::ScenarioNotMet, detail)
            };
            return Err(Failure::new(Exit::Parked, code, detail));
        }
        if self.double_deploys > 0 || self.orphans > 0 {
            let detail = format!(
                "the simulator counted {} double deployments and {} orphaned machines",
                self.double_deploys, self.orphans
            );
            return Err(Failure::local(CommandCode::StrayDeployments, detail));
        }
        Ok(())
    }
}

fn count_by_name(of: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in of {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn machine_of<'a>(
    ended: &EndedNode,
    inventory: &'a [MachineInventory],
) -> Option<&'a MachineInventory> {
    inventory.iter().find(|machine| machine.name == ended.node.hostname)
}

/// Slices may be handed out.
const READY: &str = "ready";
/// Nobody looked at a host.
const NOT_EVALUATED: &str = "not_evaluated";

/// Whether slices may be handed out on an active node, where anything asks that.
fn slices(ended: &EndedNode) -> Option<String> {
    let node = &ended.node;
    let gate = node.gates.iter().find(|gate| gate.gate == Gate::SliceReady)?;
    let class = gate.class.map_or(NOT_EVALUATED, GateClass::as_str);
    let readiness = if gate.open { READY } else { class };
    (node.state == NodeState::Active).then(|| readiness.to_owned())
}

fn describe_machine(machine: &MachineInventory) -> String {
    let status = machine.status.as_deref().unwrap_or("missing in MAAS");
    format!("{status} ({})", if machine.on { "on" } else { "off" })
}

fn changes(record: &RegionRecord) -> BTreeMap<String, BTreeMap<u32, usize>> {
    let mut changes: BTreeMap<String, BTreeMap<u32, usize>> = BTreeMap::new();
    for machine in record.machines.values() {
        for (endpoint, times) in machine.changes() {
            let row = changes.entry(endpoint.to_owned()).or_default();
            *row.entry(times).or_default() += 1;
        }
    }
    changes
}

/// Whether a node and its machine are as the scenario ends.
fn ended_as_expected(
    ended: &EndedNode,
    inventory: &[MachineInventory],
    scenario: &Scenario,
    evaluated: usize,
) -> bool {
    let node = &ended.node;
    let index = inventory.iter().position(|machine| machine.name == node.hostname);
    let end = scenario.expected_end(index.unwrap_or(usize::MAX));
    let status = index.and_then(|index| inventory[index].status.as_deref());
    let parked = node.park.as_ref().map(|park| park.code.as_str());
    let is_stand_in = index.is_none_or(|index| index >= evaluated);
    let is_blamed = |readiness: &String| match readiness.as_str() {
        READY => false,
        NOT_EVALUATED => !is_stand_in,
        _ => true,
    };
    let slices = slices(ended).filter(is_blamed);
    node.state == end.state
        && parked == end.parked
        && status == Some(end.maas)
        && slices.as_deref() == end.slices.map(GateClass::as_str)
}

fn describe_end(ended: &EndedNode) -> String {
    let node = &ended.node;
    match &node.park {
        Some(park) => format!(
            "\n  {} parked ({}): {}\n    next: {}",
            node.hostname, park.code, park.text, park.next_action
        ),
        None => {
            let waits = node.waiting_for.as_deref().unwrap_or("nothing");
            let maas = node.maas.status_name.as_deref().unwrap_or("unknown");
            let step = ended.run.step;
            let gates: String = node.gates.iter().map(|gate| format!("; {}", gate.text)).collect();
            format!(
                "\n  {} is {} at {step}, waiting for {waits}; status in MAAS: {maas}{gates}",
                node.hostname, node.state
            )
        }
    }
}

/// Identifiers of machines in MAAS that no node holds and that were not there before.
fn orphans(ended: &[EndedNode], inventory: &[MachineInventory], before: &[String]) -> Vec<String> {
    let held: BTreeSet<&str> =
        ended.iter().filter_map(|e| e.node.maas.system_id.as_deref()).collect();
    inventory
        .iter()
        .filter_map(|machine| machine.system_id.clone())
        .filter(|id| !held.contains(id.as_str()) && !before.contains(id))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_testkit::views;

    fn machine_inventory(name: &str, system_id: &str) -> MachineInventory {
        MachineInventory {
            name: name.to_owned(),
            mac_address: "02:00:00:00:00:01".to_owned(),
            bmc_address: "198.18.0.1".to_owned(),
            system_id: Some(system_id.to_owned()),
            hostname: Some(name.to_owned()),
            status: Some("Deployed".to_owned()),
            on: true,
        }
    }

    fn ended() -> Vec<EndedNode> {
        let mut active =
            EndedNode { node: views::commissioning_node(), run: views::finished_run() };
        active.node.state = NodeState::Active;
        let mut parked = EndedNode { node: views::parked_node(), run: views::finished_run() };
        parked.run.status = RunStatus::Parked;
        let mut open = EndedNode { node: views::commissioning_node(), run: views::finished_run() };
        open.node.hostname = "j27u15".to_owned();
        open.node.maas.system_id = None;
        open.run.status = RunStatus::Waiting;
        vec![active, parked, open]
    }

    #[test]
    fn a_node_that_left_as_it_was_meant_to_has_not_failed() {
        let mut retired =
            EndedNode { node: views::commissioning_node(), run: views::finished_run() };
        retired.node.state = NodeState::Retired;
        retired.run.status = RunStatus::Succeeded;
        let summary = LabSummary::summarize(&[retired], &[], &[], &RegionRecord::default(), 1.0);
        assert_eq!((summary.nodes, summary.active, summary.failed), (1, 0, 0));
        assert_eq!(summary.states["retired"], 1);
    }

    #[test]
    fn every_node_is_counted_once() {
        let inventory = [
            machine_inventory("j22u11", "abc123"),
            machine_inventory("x", "abc777"),
            machine_inventory("y", "abc888"),
        ];
        let before = ["abc888".to_owned()];
        let summary =
            LabSummary::summarize(&ended(), &inventory, &before, &RegionRecord::default(), 12.5);
        assert_eq!((summary.nodes, summary.active, summary.parked, summary.failed), (3, 1, 1, 1));
        assert_eq!(summary.orphans, 1);
        let plain = Scenario::by_name("plain").unwrap();
        let failure = summary.verdict(&ended(), &inventory, plain, 0).unwrap_err();
        insta::assert_snapshot!(failure.to_string());
    }

    #[test]
    fn the_object_has_the_promised_fields() {
        let mut ended = ended();
        ended.truncate(1);
        let inventory = [machine_inventory("j22u11", "abc123")];
        let summary =
            LabSummary::summarize(&ended, &inventory, &[], &RegionRecord::default(), 12.5);
        let plain = Scenario::by_name("plain").unwrap();
        assert!(summary.verdict(&ended, &inventory, plain, 0).is_ok());
        let retired = Scenario::by_name("decommission").unwrap();
        let failure = summary.verdict(&ended, &inventory, retired, 0).unwrap_err();
        assert_eq!(failure.code(), "scenario_not_met");
        insta::assert_snapshot!(serde_json::to_string_pretty(&summary).unwrap());
        let row = &summary.runs[0];
        assert!((row.buckets.values().sum::<f64>() - row.wall_seconds).abs() < 1e-6);
    }

    /// A host of its own that nobody looked at is no ready host.
    #[test]
    fn gate_that_was_not_evaluated_is_expected_of_stand_ins_alone() {
        let mut ended = ended();
        ended.truncate(1);
        let gate = |open: bool| {
            let gate = serde_json::json!({"gate": "slice_ready", "open": open, "text": ""});
            vec![serde_json::from_value(gate).unwrap()]
        };
        let inventory = [machine_inventory("j22u11", "abc123")];
        let plain = Scenario::by_name("plain").unwrap();
        for (open, evaluated, passes) in
            [(true, 1, true), (false, 1, false), (false, 0, true), (true, 0, true)]
        {
            ended[0].node.gates = gate(open);
            let record = RegionRecord::default();
            let summary = LabSummary::summarize(&ended, &inventory, &[], &record, 1.0);
            let verdict = summary.verdict(&ended, &inventory, plain, evaluated);
            assert_eq!(verdict.is_ok(), passes, "open: {open}, evaluated: {evaluated}");
            if let Err(failure) = verdict {
                assert_eq!(failure.code(), "scenario_not_met");
            }
        }
    }

    #[test]
    fn a_stray_deployment_is_a_failure() {
        let mut ended = ended();
        ended.truncate(1);
        let record: RegionRecord =
            serde_json::from_str(r#"{"endpoints": {}, "machines": {"a": {"double_deploys": 2}}}"#)
                .unwrap();
        let inventory = [machine_inventory("j22u11", "abc123")];
        let summary = LabSummary::summarize(&ended, &inventory, &[], &record, 1.0);
        assert_eq!(summary.double_deploys, 2);
        let plain = Scenario::by_name("plain").unwrap();
        let failure = summary.verdict(&ended, &inventory, plain, 0);
        assert_eq!(failure.unwrap_err().code(), "stray_deployments");
    }
}
