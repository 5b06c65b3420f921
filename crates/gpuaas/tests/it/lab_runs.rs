//! `gpuaas lab` and `gpuaas bench`, run as a first-time user runs them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of a test fail it by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const GPUAAS: &str = env!("CARGO_BIN_EXE_gpuaas");
const BUCKETS: [&str; 12] = [
    "accept",
    "discover",
    "commission",
    "ready_wait",
    "image_deploy",
    "first_boot",
    "bootstrap_fetch",
    "site_bootstrap",
    "node_bootstrap",
    "enrollment",
    "prereq_checks",
    "confirmation",
];

fn gpuaas(arguments: &[&str]) -> Command {
    let agent = Path::new(GPUAAS).with_file_name("gpuaas-node-agent");
    if !agent.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "gpuaas-node-agent"]);
        assert!(build.status().unwrap().success(), "the agent does not build");
    }
    let mut command = Command::new(GPUAAS);
    command.args(arguments).env_remove("GPUAAS_DATABASE").stdin(Stdio::null());
    command
}

fn lab(folder: &Path, arguments: &[&str]) -> Output {
    let data = folder.to_str().unwrap();
    gpuaas(&[&["lab", "--data", data], arguments].concat()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The object on stdout; the whole of stdout is that object.
fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{}", stderr(output)))
}

/// Every run has the twelve buckets, and they sum to its wall time.
fn assert_buckets(object: &Value) {
    for run in object["runs"].as_array().unwrap() {
        let buckets = run["buckets"].as_object().unwrap();
        assert_eq!(buckets.len(), BUCKETS.len());
        let seconds = |name: &&str| buckets[*name].as_f64().unwrap();
        let sum: f64 = BUCKETS.iter().map(seconds).sum();
        assert!((sum - run["wall_seconds"].as_f64().unwrap()).abs() < 1e-3, "{run}");
    }
}

#[test]
fn three_machines_become_active() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("lab");
    let output = lab(&folder, &["--speed", "max", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let object = object(&output);
    for (name, count) in [
        ("nodes", 3),
        ("active", 3),
        ("parked", 0),
        ("failed", 0),
        ("orphans", 0),
        ("double_deploys", 0),
    ] {
        assert_eq!(object[name], count, "{name}");
    }
    assert_eq!(object["slices"]["ready"], 3, "the bundles ran on every host: {object}");
    assert!(object["wall_seconds"].as_f64().unwrap() > 0.0);
    let names: Vec<&str> = object["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["node"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["j22u11", "j22u15", "j27u15"]);
    assert_buckets(&object);
    assert!(!folder.exists(), "a finished lab cleans up");
}

#[test]
fn two_candidates_park_one_machine() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("lab");
    let output =
        lab(&folder, &["--nodes", "2", "--speed", "max", "--scenario", "two-candidates", "--json"]);
    assert_eq!(output.status.code(), Some(0), "as the scenario ends: {}", stderr(&output));
    let object = object(&output);
    assert_eq!((&object["active"], &object["parked"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(object["orphans"], 0, "both candidates were there before");
    let text = stderr(&output);
    for part in ["two_candidates", "j22u11-old", "by mac_address", "by hostname", "next:"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn a_killed_lab_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("lab");
    let data = folder.to_str().unwrap();
    let mut first = gpuaas(&["lab", "--nodes", "4", "--speed", "max", "--data", data])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(first.stderr.take().unwrap()).lines().map_while(Result::ok);
    let seen = lines.into_iter().any(|line| line.contains("commission "));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(seen, "the first lab ended before its machines were commissioned");
    assert!(folder.join("lab.json").exists());

    let other = lab(&folder, &["--nodes", "5"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("lab_unfinished"), "{}", stderr(&other));

    let second = lab(&folder, &["--json"]);
    let text = stderr(&second);
    assert!(second.status.success(), "{text}");
    assert!(text.contains("resuming the lab with 4 machines"), "{text}");
    let object = object(&second);
    assert_eq!((&object["nodes"], &object["active"]), (&Value::from(4), &Value::from(4)));
    assert_eq!((&object["orphans"], &object["double_deploys"]), (&Value::from(0), &Value::from(0)));
    assert_buckets(&object);
    assert!(!folder.exists(), "a finished lab cleans up");
}

#[test]
fn ten_kills_of_the_control_plane_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A step gives up after an hour of the clock. At this speed that is 24 s of the wall, which a
    // loaded host needs for ten starts in a row.
    let arguments = ["--nodes", "10", "--speed", "150", "--scenario", "kill-9", "--json"];
    let output = lab(&dir.path().join("lab"), &arguments);
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("the control plane was killed 10 times"), "{text}");
    let object = object(&output);
    assert_eq!((&object["active"], &object["double_deploys"]), (&Value::from(10), &Value::from(0)));
    assert_eq!(object["orphans"], 0);
    assert_buckets(&object);
}

/// What a scenario tells of its end, which is the same every time but for identifiers, for the digest of
/// the script that names the control plane's address, for how long ago something was, and for who did it: at the highest speed a sweep may come before the look at
/// the feed that names the user.
fn scenario_report(output: &Output) -> String {
    const PREFIX: &str = "gpuaas-control-plane-";
    let text = stderr(output);
    let (_, told) = text.split_once("\nscenario ").unwrap_or_else(|| panic!("{text}"));
    let mut words: Vec<&str> = told.trim_end().split(' ').collect();
    for at in 1..words.len() {
        if words[at - 1] == "machine" && words[at].len() == 6 && words.get(at + 1) == Some(&"up") {
            words[at] = "ID";
        }
        if words.get(at + 1) == Some(&"s")
            && words.get(at + 2).is_some_and(|w| w.starts_with("ago"))
        {
            words[at] = "N";
        }
    }
    let text = words
        .join(" ")
        .replace(", changed by admin\n", "\n")
        .replace(gpuaas_types::built_in_bundle!("h200-ib"), "h200-ib@VERSION")
        .replace(gpuaas_types::built_in_bundle!("h200-slice-vm"), "h200-slice-vm@VERSION");
    let mut parts = text.split(PREFIX);
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, rest| {
        text + PREFIX + "DIGEST" + rest.trim_start_matches(|c: char| c.is_ascii_hexdigit())
    })
}

/// Plays a scenario that is to end well, and compares what it tells with what is checked in.
fn scenario(name: &str) -> Value {
    scenario_of("10", name)
}

fn scenario_of(nodes: &str, name: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--nodes", nodes, "--speed", "max", "--scenario", name, "--json"];
    let output = lab(&dir.path().join("lab"), &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(format!("lab-{name}"), scenario_report(&output));
    });
    let object = object(&output);
    assert_eq!((&object["orphans"], &object["double_deploys"]), (&Value::from(0), &Value::from(0)));
    object
}

#[test]
fn a_datasource_that_fails_once_is_deployed_again() {
    let object = scenario("datasource-retry");
    assert_eq!(object["active"], 10);
}

#[test]
fn every_node_is_reimaged() {
    let object = scenario("reimage");
    assert_eq!(object["changes"]["machine.deploy"]["1"], 10);
    assert_eq!(object["active"], 10);
}

/// What a tenant left is gone after a reimage with erase alone, and nothing says otherwise.
#[test]
fn a_reimage_alone_leaves_nothing_of_a_tenant() {
    let output = gpuaas(&["bench", "handover", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = object(&output);
    assert_eq!(report["lied"], 0, "{report}");
    let left = |mode: &str| report["bytes_left_by_mode"][mode].as_u64().unwrap();
    assert_eq!(left("reimage"), 0, "{report}");
    for mode in ["deployed_soft_reset", "deployed_storage_cleanup", "reimage_without_erase"] {
        let marked = report["bytes_marked"].as_u64().unwrap();
        assert!((1..marked).contains(&left(mode)), "{mode}: {report}");
    }
}

#[test]
fn every_node_is_decommissioned() {
    let object = scenario("decommission");
    assert_eq!(object["machines"]["Ready (off)"], 10);
    assert_eq!(object["states"]["retired"], 10);
}

#[test]
fn a_detach_leaves_maas_as_it_is() {
    let object = scenario("detach");
    assert_eq!(object["machines"]["Deployed (on)"], 10);
    assert_eq!(object["changes"], serde_json::json!({}));
}

#[test]
fn after_a_handoff_maas_is_asked_for_nothing() {
    let object = scenario("handoff");
    assert_eq!(object["states"]["retired"], 10);
    assert_eq!(object["changes"], serde_json::json!({}));
}

#[test]
fn a_machine_that_hangs_in_releasing_is_brought_to_an_end() {
    let object = scenario("stuck-releasing");
    assert_eq!(object["machines"]["Ready (off)"], 10);
    assert_eq!(object["changes"]["machine.mark_fixed"]["1"], 1);
}

#[test]
fn what_someone_releases_in_maas_is_reported_and_explained() {
    let object = scenario("human-release");
    assert_eq!(object["active"], 10);
}

/// The host of docs/hosts.md#incomplete-slice-host: agent, Netdata, VFIO and Open vSwitch there,
/// and no IPoIB.
#[test]
fn a_host_without_its_fabric_is_active_and_not_ready_for_slices() {
    let object = scenario_of("2", "fabric-lost");
    assert_eq!(object["active"], 2);
    let slices = serde_json::json!({ "host_baseline_incomplete": 1, "ready": 1 });
    assert_eq!(object["slices"], slices);
}

/// A stock image starts the kernel without the IOMMU's arguments. Where its deployment did not bring
/// them, the host says so and its run has it started again.
#[test]
fn a_host_without_its_kernel_options_is_started_again_by_its_run() {
    let object = scenario_of("2", "kernel-options-lost");
    assert_eq!(object["active"], 2);
    assert_eq!(object["slices"], serde_json::json!({ "ready": 2 }));
}

/// Nobody hands out slices of bare metal, so nothing is said of them.
#[test]
fn bare_metal_is_not_active_without_its_gpus() {
    let object = scenario_of("2", "bare-metal");
    assert_eq!((&object["active"], &object["parked"]), (&1.into(), &1.into()));
    assert_eq!(object["slices"], serde_json::json!({}));
}

/// From three racked machines to three leases and back, on emulated devices with the agent's own code.
#[test]
fn slices_are_leased_and_come_back_with_proof() {
    let object = scenario_of("3", "slices");
    assert_eq!((&object["active"], &object["slices"]["ready"]), (&3.into(), &3.into()));
    assert_buckets(&object);
    let leases = object["leases"].as_array().unwrap();
    assert_eq!(leases.len(), 3, "{object}");
    for lease in leases {
        assert_eq!(lease["state"], "released", "{lease}");
        assert_eq!(lease["free_slots"], lease["approved_slots"], "{lease}");
        let parts = |name: &str| lease[name].as_object().unwrap().len();
        assert_eq!((parts("launch_parts_seconds"), parts("release_parts_seconds")), (6, 5));
        assert!(lease["discovery_seconds"].as_f64().unwrap() > 0.0, "{lease}");
    }
}

#[test]
fn a_scenario_about_two_nodes_is_not_begun_with_one() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--nodes", "1", "--scenario", "human-release"];
    let output = lab(&dir.path().join("lab"), &arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("scenario_needs_nodes"), "{}", stderr(&output));
    assert!(!dir.path().join("lab").exists(), "nothing is begun");
}

#[test]
fn an_unknown_scenario_lists_all() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab(&dir.path().join("lab"), &["--scenario", "nosuch"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for name in ["plain", "two-candidates", "accepted-then-504", "kill-9"] {
        assert!(text.contains(name), "{text}");
    }
    assert!(!dir.path().join("lab").exists(), "nothing is begun");
}

#[test]
fn a_benchmark_prints_its_object() {
    let output = gpuaas(&["bench", "onboard", "--nodes", "12", "--hardware", "zero", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let object = object(&output);
    assert_eq!((&object["nodes"], &object["active"]), (&Value::from(12), &Value::from(12)));
    let positive = [
        "nodes_per_minute",
        "maas_calls_per_node",
        "maas_bytes_per_node",
        "cpu_seconds_per_node",
        "peak_rss_bytes",
        "simulator_peak_rss_bytes",
    ];
    for name in positive {
        assert!(object[name].as_f64().unwrap() > 0.0, "{name}: {object}");
    }
    let calls = object["maas_calls_by_endpoint"].as_object().unwrap();
    assert_eq!(calls["machine.deploy"], 12);
    let sum: u64 = calls.values().filter_map(Value::as_u64).sum();
    let per_node = object["maas_calls_per_node"].as_f64().unwrap();
    assert!((per_node * 12.0 - sum as f64).abs() < 1e-6, "{object}");
    // Created, commissioned, deployed, active: each machine gives all four.
    assert_eq!(object["added_seconds"]["count"], 48);
    assert_eq!(object["parked"], Value::Array(Vec::new()));
}
