//! `gpuaas lab` with a machine whose host is a whole system: its own cloud-init, systemd and daemons.

use std::process::Command;

use gpuaas_testkit::processes::executable;
use serde_json::Value;
use test_report::SystemTest;

/// The bundles, what installs and runs them, what renders them, and the laboratory's hosts.
const COVERS: [&str; 9] = [
    "bundles",
    "crates/gpuaas-artifact/src",
    "crates/gpuaas-bundle/src",
    "lab/gpuaas-lab/src/hosts",
    "crates/gpuaas-node-agent/src",
    "!crates/gpuaas-node-agent/src/main.rs",
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/lab_real_host.rs",
    "crates/host-facts/src",
];

#[test]
fn a_real_host_becomes_active_by_its_own_cloud_init() {
    let Some(test) = SystemTest::begin(&COVERS) else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("lab");
    let mut lab = Command::new(executable("gpuaas"));
    lab.args(["lab", "--nodes", "1", "--real-hosts", "1", "--speed", "30", "--json", "--data"]);
    let output = lab.arg(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("error real_host_") {
        assert!(said.contains("\nhint: ") && !folder.join("simulator.log").exists(), "{said}");
        return test_report::skip("system", said.lines().next().unwrap_or_default());
    }
    assert!(output.status.success(), "{said}");
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["active"], &object["nodes"]), (&Value::from(1), &Value::from(1)), "{said}");
    let run = &object["runs"][0];
    let buckets = run["buckets"].as_object().unwrap();
    let sum: f64 = buckets.values().filter_map(Value::as_f64).sum();
    let wall = run["wall_seconds"].as_f64().unwrap();
    assert!(buckets.len() == 12 && (sum - wall).abs() < 1e-3, "{run}");
    assert_eq!(object["slices"]["ready"], 1, "its own daemons are what the bundle asks: {said}");
    // The bootstrap is fetched by a system that boots, not at once.
    assert!(run["buckets"]["bootstrap_fetch"].as_f64().unwrap() > 20.0, "{run}");
    test.passed();
}
