//! `gpuaas events` and `gpuaas webhook` against a control plane that is started again.

use std::fs::File;
use std::process::Stdio;

use serde_json::Value;

use gpuaas_testkit::processes::{Rig, agent, gpuaas, until};

fn onboard(rig: &Rig, name: &str) {
    let (mac, bmc) = rig.machine(name);
    let pass = rig.path("bmc.pass");
    rig.good(&format!(
        "node onboard {name} --site lab --profile h200 --bmc-address {bmc} --bmc-user admin \
         --bmc-pass-file {pass} --mac {mac} --wait --timeout 120"
    ));
}

/// Whole lines of JSON.
fn read(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_follower_misses_nothing_over_a_restart() {
    let mut rig = Rig::start();
    rig.add_site();
    rig.good("profile add h200 --set site_bootstrap_bundle_ref=site-base@1.0.0");
    let out = rig.path("events.jsonl");
    let mut follower = gpuaas()
        .args(["events", "--after", "0-0", "-o", "json"])
        .env("GPUAAS_SERVER", rig.control_plane.value("listening"))
        .env("GPUAAS_TOKEN_FILE", rig.path("data/admin-token"))
        .stdout(File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let names = ["j22u11", "j22u15"];
    onboard(&rig, names[0]);
    let seen = |name: &str| read(&out).iter().any(|event| event["hostname"] == name);
    until("events of the first node", || seen(names[0]));
    rig.restart(&agent());
    onboard(&rig, names[1]);
    let active = || {
        let of = |event: &Value| event["hostname"] == names[1] && event["code"] == "node_active";
        read(&out).iter().any(of)
    };
    until("the end of the second node", active);
    follower.kill().unwrap();
    follower.wait().unwrap();
    let followed = read(&out);
    let count = followed.len();
    let all = rig.good(&format!("events follow --after 0-0 --count {count} -o json"));
    let all: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(followed, all, "each once, and in one order");
    let of_node = rig.good("events --after 0-0 --count 3 --node j22u15");
    assert!(of_node.lines().count() == 3 && of_node.contains("lab/j22u15"), "{of_node}");
    rig.bad("events --after 9-999999999", 3, "event_unknown");
    rig.bad("events --site none", 3, "site_not_found");
}

#[test]
fn a_webhook_is_added_and_removed() {
    let rig = Rig::start();
    let file = rig.path("secret");
    let add = format!("webhook add chat --url http://127.0.0.1:9/x --to {file} --reason test");
    rig.good(&add);
    let secret = std::fs::read_to_string(&file).unwrap();
    assert!(secret.starts_with("whsec_"), "{secret}");
    rig.bad(&add, 1, "token_file_unwritable");
    let listed = rig.good("webhook list");
    assert!(listed.contains("chat") && !listed.contains(secret.trim()), "{listed}");
    let other = rig.path("other");
    let bad = format!("webhook add mail --url http://hooks.example --to {other} --reason test");
    rig.bad(&bad, 3, "invalid_field");
    assert!(!std::path::Path::new(&other).exists(), "no file where there is no secret");
    assert!(rig.good("events sinks").contains("chat"));
    assert_eq!(rig.json("events dead-letters -o json")["items"], Value::Array(Vec::new()));
    let replayed = rig.json("events replay chat --reason test -o json");
    assert_eq!(replayed["letters"], 0);
    rig.bad("events replay mail --reason test", 3, "event_sink_not_found");
    rig.good("webhook remove chat --reason test");
    assert!(!rig.good("webhook list").contains("chat"));
}
