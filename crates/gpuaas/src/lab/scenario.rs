//! What goes wrong in a lab, as data: one row per scenario.
//!
//! A scenario changes what surrounds the operator's path (faults of the region, what someone did in
//! MAAS before, crashes of the control plane), never the path itself.

use crate::args::MachineClass;
use crate::failure::Failure;

/// What someone did at the MAAS side before the machines were named to GPUaaS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing: every machine is racked and unknown to MAAS.
    Nothing,
    /// MAAS knows the first machine under an old name, and another machine has its hostname.
    TwinOfFirst,
    /// The first machine was enlisted, commissioned and deployed by hand.
    FirstDeployed,
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
    pub before: Before,
    /// Whether hosts get fabric addresses.
    pub roce: bool,
    /// How often the control plane is killed; above 0 it runs in a process of its own.
    pub kills: u32,
}

const PLAIN: Scenario = Scenario {
    name: "plain",
    about: "nothing goes wrong",
    faults: "[]",
    before: Before::Nothing,
    roce: false,
    kills: 0,
};

/// Every scenario.
pub const SCENARIOS: &[Scenario] = &[
    PLAIN,
    Scenario {
        name: "two-candidates",
        about: "two machines in MAAS could be the first node: its run parks and names both",
        before: Before::TwinOfFirst,
        ..PLAIN
    },
    Scenario {
        name: "datasource-retry",
        about: "the first node's deployed system does not find its datasource; deployed again",
        faults: r#"[{"kind": "datasource_failure", "machine": "{first}", "count": 1,
                    "seconds": {patience}}]"#,
        ..PLAIN
    },
    Scenario {
        name: "accepted-then-504",
        about: "MAAS does what it is asked, then answers 504, for a third of all changes",
        faults: ACCEPTED_THEN_504,
        ..PLAIN
    },
    Scenario {
        name: "roce",
        about: "fabric interfaces get their addresses before the deployment",
        roce: true,
        ..PLAIN
    },
    Scenario {
        name: "adopt-deployed",
        about: "the first machine was deployed by someone else: released, then onboarded",
        before: Before::FirstDeployed,
        ..PLAIN
    },
    Scenario {
        name: "kill-9",
        about: "the control plane is killed at ten random moments and started again",
        kills: 10,
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

impl Scenario {
    /// The scenario of a name.
    ///
    /// # Errors
    /// `unknown_scenario`, which lists them.
    pub fn named(name: &str) -> Result<&'static Self, Failure> {
        SCENARIOS.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
            let rows = SCENARIOS.iter().map(|s| format!("\n  {:<20}{}", s.name, s.about));
            Failure::usage(
                "unknown_scenario",
                "There is no such scenario",
                format!("{name:?} is none of{}", rows.collect::<String>()),
            )
            .hint("gpuaas lab --scenario NAME")
        })
    }

    /// The fault file for a lab whose first machine is `first` and whose machines are of `class`:
    /// where hardware takes no time, the region is not patient either.
    #[must_use]
    pub fn fault_file(&self, first: &str, class: MachineClass) -> String {
        let patience = if class == MachineClass::Zero { "2" } else { "1500" };
        self.faults.replace("{first}", first).replace("{patience}", patience)
    }
}

/// A fabric address that a lab assigns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fabric {
    /// Interface name.
    pub interface: String,
    /// Subnet.
    pub subnet_cidr: String,
    /// Address in it.
    pub ip_address: String,
}

/// Addresses of the fabric ports of machine `index` (from 0). The simulated site has one /16 per
/// port, `10.101.0.0` to `10.108.0.0`.
#[must_use]
pub fn fabric_of(class: MachineClass, index: usize) -> Vec<Fabric> {
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
        let failure = Scenario::named("nosuch").unwrap_err();
        insta::assert_snapshot!(failure.to_string());
    }

    #[test]
    fn fault_files_are_what_the_simulator_reads() {
        for scenario in SCENARIOS {
            let text = scenario.fault_file("j22u11", MachineClass::Zero);
            let faults: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
            let known = maas_sim::parse_faults(&text).unwrap();
            assert_eq!(known.len(), faults.len(), "{}", scenario.name);
            assert!(!text.contains("{first}") && !text.contains("{patience}"), "{}", scenario.name);
        }
    }

    #[test]
    fn fabric_addresses_differ_by_machine() {
        let first = fabric_of(MachineClass::H200, 0);
        assert_eq!(first.len(), 8);
        assert_eq!(first[7].interface, "ens115np0");
        assert_eq!(first[7].ip_address, "10.108.1.1");
        let all: std::collections::BTreeSet<String> = (0..1000)
            .map(|index| fabric_of(MachineClass::Zero, index)[0].ip_address.clone())
            .collect();
        assert_eq!(all.len(), 1000);
    }
}
