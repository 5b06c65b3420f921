//! The slice host's functions on a kernel that really has them.
//!
//! A machine of software (`bundles/vm`) is booted twice. In its first boot the kernel knows nothing
//! of an IOMMU; the bundle's phases place the units and write the kernel's arguments, and the second
//! boot gets what update-grub made of them. There the units have made virtual functions and bound
//! them before anybody asks. The agent's facts are compared with what the distribution's own tools
//! say, a further run of the bundle has to change nothing, and then one thing after the other is
//! taken from the kernel: exactly the right checks of the gate have to see it, and the units have to
//! mend it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that fails is a failed test")]
#![expect(clippy::print_stdout, reason = "the verdict, and why a test is skipped")]

mod compare;
mod machine;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use test_report::SystemTest;

use self::compare::Comparison;
use self::machine::{Machine, MachineOutput};

const GPUS: &str = "driver vfio-pci of 1234:any";
const FUNCTIONS: &str = "driver vfio-pci of virtual functions of 1b36";
const COUNTS: &str = "virtual functions of 1b36";
const ACS: &str = "acs above vfio-pci";
const GROUPS: &str = "iommu groups of vfio-pci";
const UNIT_FUNCTIONS: &str = "unit gpuaas-slice-fabric-vfs.service";
const UNIT_DEVICES: &str = "unit gpuaas-slice-vfio-devices.service";

/// The bundle, the scripts of the machine, and the agent's checks and facts.
const COVERS: [&str; 8] = [
    "bundles",
    "crates/gpuaas-artifact/src",
    "crates/gpuaas-bundle/src",
    "crates/gpuaas-node-agent/src",
    "!crates/gpuaas-node-agent/src/main.rs",
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/slice_units",
    "crates/host-facts/src",
];

/// Failed checks by name, with a part of what was seen.
type FailedChecks = &'static [(&'static str, &'static str)];

/// Before the kernel has its arguments nothing can be bound.
const BEFORE: FailedChecks = &[
    ("kernel argument intel_iommu=on", "started with intel_iommu=off"),
    ("kernel argument iommu=pt", "started without this argument"),
    (UNIT_DEVICES, "inactive"),
    (GPUS, "driver none"),
    (FUNCTIONS, "driver none"),
    (GROUPS, "nothing is bound"),
    (ACS, "nothing is bound"),
];

/// What each way of breaking it (`break_NAME` of guest.sh) turns red, and nothing else.
const BROKEN: &[(&str, FailedChecks)] = &[
    ("acs_off", &[(ACS, "0000:80:00.0 supports ACS 0x005f, but only 0x0000 is enabled")]),
    ("function_unbound", &[(FUNCTIONS, "0000:41:00.2: driver none")]),
    (
        "functions_none",
        &[(COUNTS, "numvfs 0, 0 present"), (FUNCTIONS, "found 0, expected at least 2")],
    ),
    (
        "functions_one",
        &[(COUNTS, "numvfs 1, 1 present"), (FUNCTIONS, "found 1, expected at least 2")],
    ),
    ("gpu_gone", &[(GPUS, "found 1, expected at least 2")]),
    ("gpu_overridden", &[(GPUS, "0000:81:00.0: driver pci-stub")]),
    ("gpu_unbound", &[(GPUS, "0000:42:00.0: driver none")]),
    ("unit_vfio", &[(UNIT_DEVICES, "inactive")]),
    // The one requires the other.
    ("unit_vfs", &[(UNIT_FUNCTIONS, "inactive"), (UNIT_DEVICES, "inactive")]),
];

/// Holds a gate's red checks against the wanted ones; what is wrong goes to `differences`.
fn compare_gate(
    output: &MachineOutput,
    gate: &str,
    wanted: FailedChecks,
    differences: &mut Vec<String>,
) -> Value {
    let red = output.failed_checks(gate);
    for (name, seen) in wanted {
        match red.get(*name) {
            None => differences.push(format!("{gate}: {name:?} stayed green")),
            Some(found) if !found.contains(seen) => {
                differences.push(format!("{gate}: {name:?} saw {found:?}, not {seen:?}"));
            }
            Some(_) => {}
        }
    }
    for (name, seen) in &red {
        if !wanted.iter().any(|(wanted, _)| wanted == name) {
            differences.push(format!("{gate}: {name:?} is red, too: {seen}"));
        }
    }
    json!({"gate": gate, "red": red})
}

/// Changes that a run of the bundle said it made.
fn changed(report: &Value) -> u64 {
    let phases = report["phases"].as_array().unwrap().iter();
    phases.map(|phase| phase["changed"].as_u64().unwrap()).sum()
}

#[test]
fn the_units_and_the_facts_hold_on_a_kernel_of_their_own() {
    let test = if machine::is_customized() {
        None
    } else {
        let Some(test) = SystemTest::begin(&COVERS) else { return };
        Some(test)
    };
    let machine = match Machine::new() {
        Ok(machine) => machine,
        Err(reason) => return test_report::skip("system", reason),
    };
    #[expect(clippy::disallowed_methods, reason = "how long it took is part of the verdict")]
    let began = std::time::Instant::now();
    // Debian's kernel switches an IOMMU on unasked; others, Ubuntu's among them, do not always.
    let before = machine.boot("before", "intel_iommu=off");
    let arguments = before.text("arguments");
    let after = machine.boot("after", arguments.trim());
    let seconds = began.elapsed().as_secs_f64();

    let mut comparison = Comparison::default();
    compare::compare_facts(&before, "before", &mut comparison);
    for name in ["boot", "one", "end"] {
        compare::compare_facts(&after, name, &mut comparison);
    }
    let Comparison { compared, agreed, mut differences } = comparison;
    let mut gates = vec![compare_gate(&before, "before", BEFORE, &mut differences)];
    for gate in ["boot", "again"] {
        gates.push(compare_gate(&after, gate, &[], &mut differences));
    }
    for (name, red) in BROKEN {
        gates.push(compare_gate(&after, &format!("broken-{name}"), red, &mut differences));
        gates.push(compare_gate(&after, &format!("mended-{name}"), &[], &mut differences));
    }
    let runs: BTreeMap<&str, u64> = [
        ("first", changed(&before.json("first.bundle"))),
        ("second", changed(&after.json("second.bundle"))),
    ]
    .into();
    let steady = after.text("state-before") == after.text("state-after");
    let verdict = json!({
        "compared": compared,
        "agreed": agreed,
        "differences": differences,
        "checks": gates,
        "broken": BROKEN.len(),
        "changed_by_run": runs,
        "state_unchanged_by_second_run": steady,
        "kernel_arguments": arguments.trim(),
        "units_at_boot": after.text("units").lines().collect::<Vec<_>>(),
        "wall_seconds": (seconds * 10.0).round() / 10.0,
    });
    let text = serde_json::to_string_pretty(&verdict).unwrap();
    if let Some(file) = machine::verdict_file() {
        std::fs::write(file, &text).unwrap();
    }
    assert!(differences.is_empty(), "{text}");
    assert!(arguments.contains("intel_iommu=on") && arguments.contains("iommu=pt"), "{text}");
    assert!(runs["first"] > 0 && runs["second"] == 0 && steady, "{text}");
    assert!(compared > 300 && compared == agreed, "{text}");
    machine.scrap();
    println!(
        "{agreed} of {compared} facts agree with lspci and the rest; {} ways to break it, each seen; \
         {seconds:.0} s",
        BROKEN.len()
    );
    if let Some(test) = test {
        test.passed();
    }
}
