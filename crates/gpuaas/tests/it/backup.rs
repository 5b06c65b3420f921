//! A control plane that is lost amid its runs, and its backup on another folder: the runs go on, and
//! MAAS has never seen a machine deployed twice.

use std::fs;
use std::net::UdpSocket;

use serde_json::Value;

use gpuaas_testkit::processes::{Rig, Server};
use gpuaas_testkit::wait::wait_at_most;

pub(crate) const NAMES: [&str; 3] = ["j22u11", "j22u15", "j27u15"];
/// Longest time for three runs, whose hosts are processes of this machine.
pub(crate) const PATIENCE_SECONDS: f64 = 240.0;

/// What the region counted.
pub(crate) fn record(rig: &Rig) -> Value {
    stats(&rig.sim)
}

/// The same, of a region without a rig.
pub(crate) fn stats(region: &Server) -> Value {
    let (url, _) = region.value("listening").split_once("/MAAS").unwrap();
    get_json(&format!("{url}/sim/v1/stats"))
}

/// What a server answers to a question without a credential.
pub(crate) fn get_json(url: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let answer = reqwest::get(url).await.unwrap();
        answer.json().await.unwrap()
    })
}

/// How often each machine was deployed.
pub(crate) fn deploys(record: &Value) -> Vec<u64> {
    let machines = record["machines"].as_object().unwrap().values();
    machines.map(|machine| machine["deploys"].as_u64().unwrap_or_default()).collect()
}

pub(crate) fn begin_runs(rig: &Rig, names: &[&str]) {
    gpuaas_client::install_cryptography();
    rig.add_site();
    rig.good("profile add h200 --set site_bootstrap_bundle_ref=site-base@1.0.0");
    for name in names {
        let (mac, bmc) = rig.machine(name);
        let pass = rig.path("bmc.pass");
        rig.good(&format!(
            "node onboard {name} --site lab --profile h200 --bmc-address {bmc} --bmc-user admin \
             --bmc-pass-file {pass} --mac {mac}"
        ));
    }
}

fn back_up(rig: &Rig, name: &str) {
    let (data, to, key) = (rig.path("data"), rig.path(name), rig.path("backup.key"));
    rig.good(&format!("backup --data {data} --to {to} --key-file {key}"));
}

fn restore(rig: &mut Rig, name: &str) {
    let (backup, data, key) = (rig.path(name), rig.path("other/data"), rig.path("backup.key"));
    fs::create_dir(rig.path("other")).unwrap();
    rig.good(&format!(
        "restore {backup} --data {data} --key-file {key} --original-is-gone --reason lost"
    ));
    rig.replace("other");
}

/// Nodes with this value of a field, of those that the restored control plane lists.
pub(crate) fn nodes_with(rig: &Rig, of: impl Fn(&Value) -> bool) -> usize {
    let list = rig.json("node list -o json");
    list["items"].as_array().unwrap().iter().filter(|node| of(node)).count()
}

#[test]
fn runs_in_flight_go_on_from_a_backup_and_nothing_is_deployed_twice() {
    let mut rig = Rig::start();
    begin_runs(&rig, &NAMES);
    wait_at_most(PATIENCE_SECONDS, "one machine is deployed", || {
        deploys(&record(&rig)).iter().any(|n| *n > 0)
    });
    // Stands still amid its work, and is never seen again.
    rig.control_plane.signal("STOP");
    back_up(&rig, "backup");
    restore(&mut rig, "backup");
    wait_at_most(PATIENCE_SECONDS, "all are active", || {
        nodes_with(&rig, |node| node["state"] == "active") == 3
    });
    let record = record(&rig);
    assert_eq!(record["double_deploys"], 0, "{record}");
    assert_eq!(deploys(&record), [1, 1, 1]);

    let verdict = rig.json("audit verify -o json");
    assert_eq!(verdict["intact"], true, "{verdict}");
    let actions = rig.good("audit list");
    assert!(actions.contains("backup.restore") && actions.contains("node.onboard"), "{actions}");
    the_log_is_exported(&rig, &verdict);
}

/// As JSON lines that are verified without a control plane, and as messages to a receiver.
fn the_log_is_exported(rig: &Rig, verdict: &Value) {
    let file = rig.path("audit.jsonl");
    rig.good(&format!("audit export --to {file}"));
    let of_file = rig.json(&format!("audit verify --file {file} -o json"));
    assert_eq!((&of_file["intact"], &of_file["rows"]), (&Value::from(true), &verdict["rows"]));
    let head = &verdict["head"];
    let expected = format!("{}:{}", head["seq"], head["digest"].as_str().unwrap());
    rig.good(&format!("audit verify --expect {expected}"));
    rig.good(&format!("audit verify --file {file} --expect {expected}"));

    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(test_report::patience(60.0))).unwrap();
    let address = receiver.local_addr().unwrap();
    rig.good(&format!("audit export --form syslog --to udp://{address} --hostname plane-1"));
    let mut bytes = [0; 8192];
    let length = receiver.recv(&mut bytes).unwrap();
    let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
    assert!(message.starts_with("<109>1 ") && message.contains(" plane-1 gpuaas - "), "{message}");

    let text = fs::read_to_string(&file).unwrap();
    let tampered = text.replacen("\"actor\":\"admin", "\"actor\":\"eve", 1);
    assert_ne!(text, tampered);
    fs::write(&file, tampered).unwrap();
    let output = rig.run(&format!("audit verify --file {file} -o json"));
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["intact"], &said["fault"]["kind"]), (&false.into(), &"changed".into()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("error audit_tampered"));
}

#[test]
fn what_was_deployed_after_the_backup_is_left_to_a_person() {
    let mut rig = Rig::start();
    begin_runs(&rig, &NAMES[..1]);
    rig.control_plane.signal("STOP");
    assert_eq!(deploys(&record(&rig)).iter().sum::<u64>(), 0, "the run is not that far");
    back_up(&rig, "backup");
    rig.control_plane.signal("CONT");
    wait_at_most(PATIENCE_SECONDS, "it is active", || {
        nodes_with(&rig, |node| node["state"] == "active") == 1
    });
    let before = deploys(&record(&rig));
    restore(&mut rig, "backup");
    let rests = |node: &Value| node["run"]["status"] == "parked";
    wait_at_most(PATIENCE_SECONDS, "the run is parked", || nodes_with(&rig, rests) == 1);
    let record = record(&rig);
    assert_eq!(record["double_deploys"], 0, "{record}");
    assert_eq!(deploys(&record), before);
    assert_eq!(before.iter().sum::<u64>(), 1);
}
