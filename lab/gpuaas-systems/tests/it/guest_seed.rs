//! A tenant's real Debian, booted by QEMU: its cloud-init reads the agent's seed, runs its user-data and
//! calls the agent, and nothing of it is left afterwards (`gpuaas bench slices --guest FILE`).

use std::process::Command;

use gpuaas_systems::{made_system, missing_tool};
use gpuaas_testkit::processes::executable;
use serde_json::Value;
use test_report::SystemTest;

const TOOLS: [&str; 3] = ["qemu-system-x86_64", "mkfs.vfat", "mcopy"];
/// What renders the domain and the seed, and what the agent does with a guest.
const COVERS: [&str; 6] = [
    "bundles/vm",
    "crates/gpuaas-core/src/domain",
    "lab/gpuaas-lab/src/slice_host",
    "crates/gpuaas-node-agent/src/slice",
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/guest_seed.rs",
];

#[test]
fn a_real_guest_reads_its_seed_calls_its_host_and_leaves_nothing() {
    let Some(test) = SystemTest::begin(&COVERS) else { return };
    if let Some(tool) = missing_tool(&TOOLS) {
        return test_report::skip(tool, "not installed");
    }
    let image = match made_system("vm-guest") {
        Ok(folder) => folder.join("guest.raw"),
        Err(why) => return test_report::skip("system", why),
    };
    let mut bench = Command::new(executable("gpuaas"));
    bench.args(["bench", "slices", "--hosts", "1", "--json", "--guest"]).arg(image);
    let output = bench.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, count) in [("launches", 1), ("ready", 1), ("cleanup_blocked", 0)] {
        assert_eq!(report[name], count, "{name}: {report}");
    }
    let simulated = report["simulated"].as_array().unwrap();
    assert!(!simulated.iter().any(|one| one == "guests"), "{report}");
    assert!(report["bytes_checked"].as_u64() > Some(1 << 20), "{report}");
    assert_eq!(report["residue_bytes"], 0, "{report}");
    println!("a Debian called {} s after its start", report["launch_parts_seconds"]["guest_ready"]);
    test.passed();
}
