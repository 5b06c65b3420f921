//! Random requests in random order: the region answers, follows its own rules, and repeats
//! itself from the same seed.

use crate::common::{TestRegion, zero};
use maas_sim::{Fault, FaultKind, LogEntry, MachineSpec, RegionConfig, Status};
use proptest::prelude::*;

const OPS: &[&str] = &[
    "op=commission",
    "op=commission&testing_scripts=none&skip_networking=1",
    "op=test",
    "op=override_failed_testing",
    "op=abort",
    "op=deploy",
    "op=deploy&distro_series=noble&enable_hw_sync=true",
    "op=release",
    "op=release&erase=true",
    "op=lock",
    "op=unlock",
    "op=mark_broken&comment=x",
    "op=mark_fixed",
    "op=rescue_mode",
    "op=exit_rescue_mode",
    "op=power_on",
    "op=power_off",
    "op=set_storage_layout&storage_layout=lvm",
    "op=set_storage_layout&storage_layout=flat",
    "op=restore_default_configuration",
];

const FAULTS: &[FaultKind] = &[
    FaultKind::DeployFailed,
    FaultKind::DatasourceFailure,
    FaultKind::StuckDeploying,
    FaultKind::CommissioningFailed,
    FaultKind::TestingFailed,
    FaultKind::BmcError,
    FaultKind::HungPower,
    FaultKind::StuckReleasing,
    FaultKind::WrongPxeNic,
    FaultKind::Vanished,
    FaultKind::EventsGap,
    FaultKind::FlappingPower,
];

#[derive(Debug, Clone)]
enum Step {
    Op(usize, usize),
    Pass(i64),
    Fault(usize, usize),
    Delete(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize, 0..OPS.len()).prop_map(|(m, op)| Step::Op(m, op)),
        3 => (0..4000_i64).prop_map(Step::Pass),
        1 => (0..3_usize, 0..FAULTS.len()).prop_map(|(m, f)| Step::Fault(m, f)),
        1 => (0..30_usize).prop_map(Step::Delete),
    ]
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn play(config: RegionConfig, steps: &[Step]) -> TestRegion {
    let mut sim = TestRegion::new(config);
    for name in NAMES {
        sim.region.add_machine(MachineSpec::new(name, Status::New));
    }
    for step in steps {
        match step {
            Step::Op(machine, op) => {
                if let Some(id) = sim.region.system_id_of(NAMES[*machine]) {
                    let response = sim.post(&format!("machines/{id}/"), OPS[*op]);
                    assert!(response.status < 600);
                }
            }
            Step::Pass(seconds) => {
                sim.advance_seconds(*seconds);
            }
            Step::Fault(machine, kind) => {
                sim.region.inject(Fault::new(FAULTS[*kind]).on(NAMES[*machine]).times(2));
            }
            Step::Delete(machine) => {
                if let Some(id) = NAMES.get(*machine).and_then(|n| sim.region.system_id_of(n)) {
                    sim.send("DELETE", &format!("machines/{id}/"), "");
                }
            }
        }
    }
    sim.advance_seconds(0);
    sim
}

/// Every change that a machine's log shows is one that MAAS's table allows.
fn check_log(log: &[LogEntry]) {
    let mut last: Option<Status> = None;
    for entry in log {
        let LogEntry::Status { name, .. } = entry else {
            continue;
        };
        let next = Status::from_label(name);
        if let (Some(from), Some(to)) = (last, next) {
            assert!(to == Status::New || from.may_become(to), "{from:?} -> {to:?}");
        }
        last = next;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_calls_breaks_the_region(steps in prop::collection::vec(step(), 1..60), hardware in any::<bool>()) {
        let config = || if hardware { RegionConfig { scale: 1.0, ..zero() } } else { zero() };
        let mut sim = play(config(), &steps);
        for machine in sim.region.stats().machines.values() {
            check_log(&machine.log);
        }
        let listed = sim.get("machines/");
        prop_assert_eq!(listed.as_array().map(Vec::len), Some(NAMES.iter().filter(|n| sim.region.system_id_of(n).is_some()).count()));
        let again = play(config(), &steps);
        prop_assert_eq!(&again.region.stats().machines, &sim.region.stats().machines);
    }
}
