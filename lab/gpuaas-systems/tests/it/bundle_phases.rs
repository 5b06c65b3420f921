//! The phases of the bundles on folders that stand for hosts (`bundles/test.sh`): some thousand small
//! programs, one after the other.

use std::process::Command;

use gpuaas_systems::bundles;
use test_report::SystemTest;

/// The bundles and their suite, and what the agent gives to phases.
const COVERS: [&str; 3] = [
    "bundles",
    "crates/gpuaas-node-agent/src/bundle",
    "lab/gpuaas-systems/tests/it/bundle_phases.rs",
];

#[test]
fn phases_leave_their_effects_and_change_nothing_the_second_time() {
    let Some(test) = SystemTest::begin(&COVERS) else { return };
    let output = Command::new("bash").arg(bundles().join("test.sh")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    for line in said.lines().filter(|line| line.trim_start().starts_with("skip")) {
        test_report::skip("tool", line.trim());
    }
    test.passed();
}
