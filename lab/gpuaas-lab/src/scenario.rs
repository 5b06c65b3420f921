//! The scenarios of a lab, as data: one row each.
//!
//! A scenario is what surrounds the operator's path (faults of the region, what someone did in MAAS
//! before or does meanwhile, crashes of the control plane) and what the operator does once the nodes
//! are in service. It also says how every node is to end, so that a lab knows whether it went well.

use gpuaas_client::failure::Failure;
use gpuaas_types::agent::GateClass;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{DriftKind, NodeState, RunKind};
use serde_json::{Map, Value};

use crate::hosts::options::{Loss, PROCESS_HOSTS};
use crate::machine_class::MachineClass;

/// What someone did at the MAAS side before the machines were named to GPUaaS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialRegion {
    /// Nothing: every machine is racked and unknown to MAAS.
    Nothing,
    /// MAAS knows the first machine under an old name, and another machine has its hostname.
    TwinOfFirst,
    /// The first machine was enlisted, commissioned and deployed by hand.
    FirstDeployed,
}

/// Nodes of a lab, in rack order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineSelector {
    /// The first.
    First,
    /// The second.
    Second,
    /// Every one.
    All,
}

impl MachineSelector {
    /// Whether the machine at `index` of the rack is meant.
    #[must_use]
    pub const fn includes(self, index: usize) -> bool {
        match self {
            Self::First => index == 0,
            Self::Second => index == 1,
            Self::All => true,
        }
    }
}

/// One thing that a person does. What an operator does goes through the API that everybody uses,
/// and the next act begins when nothing moves by itself any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScenarioAction {
    /// While the nodes are onboarded, someone does this in MAAS' own pages as soon as MAAS says
    /// `when`. Only as the first act.
    Meanwhile {
        /// `release`, `abort`, ...
        action: &'static str,
        /// MAAS' label of a status.
        when: &'static str,
        /// To whose machines.
        on: MachineSelector,
    },
    /// Someone does this in MAAS' own pages, unless MAAS says something else than `when`.
    InMaas {
        /// `release`, `abort`, ...
        action: &'static str,
        /// MAAS' label of a status.
        when: &'static str,
        /// To whose machines.
        on: MachineSelector,
    },
    /// GPUaaS finds out by itself and reports it.
    Reported(DriftKind, MachineSelector),
    /// GPUaaS finds out by itself that it is over.
    Resolved(DriftKind, MachineSelector),
    /// An operator begins a run.
    Begin(RunKind, MachineSelector),
    /// An operator lets parked runs go on.
    Resume(MachineSelector),
    /// Operators and tenants lease a slice of each host, and give it back.
    Lease(MachineSelector),
}

/// How nodes are to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedEnd {
    /// Which nodes.
    pub on: MachineSelector,
    /// Their state.
    pub state: NodeState,
    /// Why their run parked; none: it must not have.
    pub parked: Option<&'static str>,
    /// MAAS' label of the status of their machines.
    pub maas: &'static str,
    /// Why slices may not be handed out; none: they may, where the nodes are active.
    pub slices: Option<GateClass>,
}

/// One scenario.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for the list of scenarios.
    pub about: &'static str,
    /// Faults of the region, in the simulator's fault file format.
    pub faults: &'static str,
    /// What is found in MAAS.
    pub before: InitialRegion,
    /// Shipped preset that the profile begins with; empty: the defaults, with a slice host's bundle.
    pub preset: &'static str,
    /// Fields of the profile that differ from that, as a JSON object.
    pub profile: &'static str,
    /// What whose hosts lose before their agents are installed.
    pub loses: Option<(Loss, MachineSelector)>,
    /// Whether hosts get fabric addresses.
    pub roce: bool,
    /// How often the control plane is killed; above 0 it runs in a process of its own.
    pub kills: u32,
    /// What people do.
    pub actions: &'static [ScenarioAction],
    /// How the nodes end; the first row that holds a node counts.
    pub ends: &'static [ExpectedEnd],
}

/// The scenario of an experiment between two images. It has no region and no hosts of its own processes:
/// forty machines are deployed twice on a virtual clock.
pub const IMAGE_EXPERIMENT: &str = "image-experiment";
/// Whether this executable has the simulation that runs it.
pub const HAS_SIMULATION: bool = cfg!(feature = "simulation");

/// Names of the scenarios, each with a line about it; [`IMAGE_EXPERIMENT`] only `with_simulation`.
pub fn listed_scenarios(
    with_simulation: bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let about = "compares a stock image with a baked one in simulation and prints verdicts";
    let simulated = with_simulation.then_some((IMAGE_EXPERIMENT, about));
    SCENARIOS.iter().map(|scenario| (scenario.name, scenario.about)).chain(simulated)
}

fn unknown_scenario(name: &str, with_simulation: bool) -> Failure {
    let rows = listed_scenarios(with_simulation);
    let rows = rows.map(|(name, about)| format!("\n  {name:<20}{about}"));
    Failure::usage(
        CommandCode::UnknownScenario,
        format!("{name:?}: expected one of{}", rows.collect::<String>()),
    )
    .hint("choose one with `gpuaas lab --scenario NAME`")
}

/// The preset of slice hosts, as it is shipped.
const SLICE_PRESET: &str = "h200-slices";
/// What makes the hosts of a lab slice hosts.
const BUNDLE: &str = gpuaas_types::built_in_bundle!("h200-slice-vm");

const ACTIVE: ExpectedEnd = ExpectedEnd {
    on: MachineSelector::All,
    state: NodeState::Active,
    parked: None,
    maas: "Deployed",
    slices: None,
};

/// The one in which nothing happens.
pub const PLAIN: Scenario = Scenario {
    name: "plain",
    about: "nothing goes wrong",
    faults: "[]",
    before: InitialRegion::Nothing,
    preset: "",
    profile: "{}",
    loses: None,
    roce: false,
    kills: 0,
    actions: &[],
    ends: &[ACTIVE],
};

/// Every scenario.
pub const SCENARIOS: &[Scenario] = &[
    PLAIN,
    Scenario {
        name: "two-candidates",
        about: "two machines in MAAS match the first node: its run parks and names both",
        before: InitialRegion::TwinOfFirst,
        ends: &[
            ExpectedEnd {
                on: MachineSelector::First,
                state: NodeState::Registered,
                parked: Some("two_candidates"),
                maas: "New",
                slices: None,
            },
            ACTIVE,
        ],
        ..PLAIN
    },
    Scenario {
        name: "datasource-retry",
        about: "the first node's system does not find its datasource and is deployed again",
        faults: r#"[{"kind": "datasource_failure", "machine": "{first}", "count": 1,
                    "seconds": {patience}}]"#,
        ..PLAIN
    },
    Scenario {
        name: "accepted-then-504",
        about: "MAAS carries out a third of all changes but answers 504",
        faults: ACCEPTED_THEN_504,
        ..PLAIN
    },
    Scenario {
        name: "roce",
        about: "fabric interfaces get their addresses before deployment",
        profile: r#"{"enable_phase2_roce": true}"#,
        roce: true,
        ..PLAIN
    },
    Scenario {
        name: "adopt-deployed",
        about: "someone else deployed the first machine: it is released, then onboarded",
        before: InitialRegion::FirstDeployed,
        ..PLAIN
    },
    Scenario {
        name: "fabric-lost",
        about: "the first host loses its fabric: it is active but not ready for slices",
        preset: SLICE_PRESET,
        loses: Some((Loss::Fabric, MachineSelector::First)),
        ends: &[
            ExpectedEnd {
                on: MachineSelector::First,
                slices: Some(GateClass::HostBaselineIncomplete),
                ..ACTIVE
            },
            ACTIVE,
        ],
        ..PLAIN
    },
    Scenario {
        name: "kernel-options-lost",
        about: "the first host is deployed without kernel options: its run reboots it, and it becomes ready",
        loses: Some((Loss::KernelOptions, MachineSelector::First)),
        ..PLAIN
    },
    Scenario {
        name: "bare-metal",
        about: "bare-metal hosts; the first one lost a GPU and does not become active",
        profile: concat!(
            r#"{"site_bootstrap_bundle_ref": ""#,
            gpuaas_types::built_in_bundle!("h200-ib"),
            r#"", "post_deploy_validation_bundle_ref": ""#,
            gpuaas_types::built_in_bundle!("validate-h200"),
            r#""}"#
        ),
        loses: Some((Loss::Gpu, MachineSelector::First)),
        ends: &[
            ExpectedEnd {
                on: MachineSelector::First,
                state: NodeState::Enrolling,
                parked: Some("prerequisite_missing"),
                ..ACTIVE
            },
            ACTIVE,
        ],
        ..PLAIN
    },
    Scenario {
        name: "slices",
        about: "a slice of each host is leased, launched and released; its slots are verified clean",
        preset: SLICE_PRESET,
        actions: &[ScenarioAction::Lease(MachineSelector::All)],
        ..PLAIN
    },
    Scenario {
        name: "kill-9",
        about: "the control plane is killed and restarted at ten random times",
        kills: 10,
        ..PLAIN
    },
    Scenario {
        name: "reimage",
        about: "every active node is released, deployed again and checked by the same gates",
        actions: &[ScenarioAction::Begin(RunKind::Reimage, MachineSelector::All)],
        ..PLAIN
    },
    Scenario {
        name: "decommission",
        about: "every node is decommissioned: its machine is released and powered off",
        actions: &[ScenarioAction::Begin(RunKind::Decommission, MachineSelector::All)],
        ends: &[ExpectedEnd { state: NodeState::Retired, maas: "Ready", ..ACTIVE }],
        ..PLAIN
    },
    Scenario {
        name: "detach",
        about: "every node is detached; MAAS gets no request and the machines keep running",
        actions: &[ScenarioAction::Begin(RunKind::Detach, MachineSelector::All)],
        ends: &[ExpectedEnd { state: NodeState::Detached, ..ACTIVE }],
        ..PLAIN
    },
    Scenario {
        name: "handoff",
        about: "the profile hands machines over: MAAS gets no change after onboarding",
        profile: r#"{"release_mode": "handoff"}"#,
        actions: &[ScenarioAction::Begin(RunKind::Decommission, MachineSelector::All)],
        ends: &[ExpectedEnd { state: NodeState::Retired, ..ACTIVE }],
        ..PLAIN
    },
    Scenario {
        name: "stuck-releasing",
        about: "machines hang in Releasing: the release is retried, then they are marked broken and fixed",
        // A release that erases is never ended by marking the machine fixed.
        profile: r#"{"release_erase": false}"#,
        faults: r#"[{"kind": "stuck_releasing", "machine": "{first}", "count": 2, "seconds": {held}},
                    {"kind": "stuck_releasing", "machine": "{second}", "count": 1, "seconds": {held}}]"#,
        actions: &[ScenarioAction::Begin(RunKind::Decommission, MachineSelector::All)],
        ends: &[ExpectedEnd { state: NodeState::Retired, maas: "Ready", ..ACTIVE }],
        ..PLAIN
    },
    Scenario {
        name: "human-release",
        about: "someone releases two machines in MAAS, one active and one being deployed",
        faults: r#"[{"kind": "stuck_deploying", "machine": "{second}", "count": 1}]"#,
        actions: &[
            ScenarioAction::Meanwhile {
                action: "release",
                when: "Deploying",
                on: MachineSelector::Second,
            },
            ScenarioAction::InMaas {
                action: "release",
                when: "Deployed",
                on: MachineSelector::First,
            },
            ScenarioAction::Reported(DriftKind::ReleasedByHand, MachineSelector::First),
            ScenarioAction::Begin(RunKind::Reimage, MachineSelector::First),
            ScenarioAction::Resume(MachineSelector::Second),
            ScenarioAction::Resolved(DriftKind::ReleasedByHand, MachineSelector::First),
        ],
        ..PLAIN
    },
];

/// Only changes: a 504 to a read is merely a failed read.
const ACCEPTED_THEN_504: &str = r#"[
  {"kind": "accepted504", "endpoint": "machines.create", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "machine.commission", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "machine.update", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "blockdevice.set_boot_disk", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "machine.set_storage_layout", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "interface.update", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "interface.link_subnet", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "machines.allocate", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "machine.deploy", "probability": 0.33},
  {"kind": "accepted504", "endpoint": "machine.release", "probability": 0.33}
]"#;

impl ScenarioAction {
    /// Whose turn it is.
    #[must_use]
    pub const fn on(&self) -> MachineSelector {
        match self {
            Self::Meanwhile { on, .. } | Self::InMaas { on, .. } => *on,
            Self::Reported(_, on)
            | Self::Resolved(_, on)
            | Self::Begin(_, on)
            | Self::Resume(on)
            | Self::Lease(on) => *on,
        }
    }
}

impl Scenario {
    /// The scenario of a name.
    ///
    /// # Errors
    /// `unknown_scenario`, which lists them.
    pub fn by_name(name: &str) -> Result<&'static Self, Failure> {
        let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
        found.ok_or_else(|| unknown_scenario(name, HAS_SIMULATION))
    }

    /// The fault file for a lab whose first machines are `names` and whose machines are of `class`:
    /// where hardware takes no time, the region is not patient either.
    #[must_use]
    pub fn fault_file(&self, names: [&str; 2], class: MachineClass) -> String {
        let (patience, held) = match class {
            MachineClass::Zero => ("2", "0.5"),
            _ => ("1500", "300"),
        };
        let [first, second] = names;
        self.faults
            .replace("{first}", first)
            .replace("{second}", second)
            .replace("{patience}", patience)
            .replace("{held}", held)
    }

    /// Fields of the profile beside those of the preset: of the scenario, and the bundle that makes slice
    /// hosts where there is no preset.
    ///
    /// # Errors
    /// `scenario_unset` when the row is not a JSON object, which a test excludes.
    pub fn profile_fields(&self) -> Result<Map<String, Value>, Failure> {
        let own: Map<String, Value> = serde_json::from_str(self.profile)
            .map_err(|error| Failure::local(CommandCode::ScenarioUnset, error.to_string()))?;
        let mut fields = Map::new();
        if self.preset.is_empty() {
            fields.insert("site_bootstrap_bundle_ref".to_owned(), Value::from(BUNDLE));
        }
        fields.extend(own);
        Ok(fields)
    }

    /// How the node of the machine at `index` of the rack is to end.
    #[must_use]
    pub fn expected_end(&self, index: usize) -> &'static ExpectedEnd {
        self.ends.iter().find(|end| end.on.includes(index)).unwrap_or(&ACTIVE)
    }

    /// Whether it can be played with so many machines.
    ///
    /// # Errors
    /// `scenario_needs_nodes`, `scenario_needs_hosts`.
    pub fn fits(&self, nodes: usize) -> Result<(), Failure> {
        if (self.loses.is_some() || self.has_leases()) && nodes > PROCESS_HOSTS {
            let detail = format!(
                "with more than {PROCESS_HOSTS} machines, the simulated hosts have no devices"
            );
            return Err(Failure::usage(CommandCode::ScenarioNeedsHosts, detail)
                .hint(format!("run `gpuaas lab --nodes 2 --scenario {}`", self.name)));
        }
        let second = self.actions.iter().any(|action| action.on() == MachineSelector::Second);
        let least = if second { 2 } else { 1 };
        if nodes >= least {
            return Ok(());
        }
        Err(Failure::usage(
            CommandCode::ScenarioNeedsNodes,
            format!("{} needs at least {least} machines", self.name),
        )
        .hint(format!("run `gpuaas lab --nodes {least} --scenario {}`", self.name)))
    }

    /// Whether slices of its hosts are leased.
    #[must_use]
    pub fn has_leases(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, ScenarioAction::Lease(_)))
    }

    /// Whether it waits for what the slow comparison with MAAS finds.
    #[must_use]
    pub fn needs_sweeps(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, ScenarioAction::Reported(..)))
    }
}

/// A fabric address that a lab assigns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fabric {
    /// Interface name.
    pub interface: String,
    /// The subnet as MAAS names it, in CIDR form.
    pub subnet_cidr: String,
    /// Address in it.
    pub ip_address: String,
}

/// Addresses of the fabric ports of machine `index` (from 0). The simulated site has one /16 per
/// port, `10.101.0.0` to `10.108.0.0`.
#[must_use]
pub fn fabric_addresses(class: MachineClass, index: usize) -> Vec<Fabric> {
    let ports = match class {
        MachineClass::H200 => 8,
        MachineClass::Zero => 1,
        MachineClass::Ethernet => 0,
    };
    let (high, low) = (1 + index / 250 % 250, 1 + index % 250);
    (1..=ports)
        .map(|port| Fabric {
            interface: format!("ens{}np0", 107 + port),
            subnet_cidr: format!("10.{}.0.0/16", 100 + port),
            ip_address: format!("10.{}.{high}.{low}", 100 + port),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scenario_lists_all() {
        insta::assert_snapshot!(unknown_scenario("nosuch", true).to_string());
    }

    /// What the help names runs in the executable that prints it.
    #[test]
    fn the_experiment_is_listed_only_where_the_simulation_is() {
        let listed = |with| listed_scenarios(with).any(|(name, _)| name == IMAGE_EXPERIMENT);
        assert!(listed(true) && !listed(false));
        for (name, _) in listed_scenarios(false) {
            Scenario::by_name(name).unwrap();
        }
    }

    #[test]
    fn fault_files_are_what_the_simulator_reads() {
        for scenario in SCENARIOS {
            let text = scenario.fault_file(["j22u11", "j22u15"], MachineClass::Zero);
            let faults: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
            let known = maas_sim::parse_faults(&text).unwrap();
            assert_eq!(known.len(), faults.len(), "{}", scenario.name);
            let left = ["{first}", "{second}", "{patience}", "{held}"]
                .iter()
                .any(|name| text.contains(name));
            assert!(!left, "{}: {text}", scenario.name);
            scenario.profile_fields().unwrap();
        }
    }

    #[test]
    fn a_meanwhile_is_the_first_act_and_every_node_has_an_end() {
        for scenario in SCENARIOS {
            let late = scenario.actions.iter().skip(1);
            assert!(
                !late.into_iter().any(|action| matches!(action, ScenarioAction::Meanwhile { .. }))
            );
            assert!(
                scenario.ends.iter().any(|end| end.on == MachineSelector::All),
                "{}",
                scenario.name
            );
        }
    }

    #[test]
    fn fabric_addresses_differ_by_machine() {
        let first = fabric_addresses(MachineClass::H200, 0);
        assert_eq!(first.len(), 8);
        assert_eq!(first[7].interface, "ens115np0");
        assert_eq!(first[7].ip_address, "10.108.1.1");
        let all: std::collections::BTreeSet<String> = (0..1000)
            .map(|index| fabric_addresses(MachineClass::Zero, index)[0].ip_address.clone())
            .collect();
        assert_eq!(all.len(), 1000);
    }
}
