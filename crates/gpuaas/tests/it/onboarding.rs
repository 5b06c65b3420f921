//! The operator's path: `gpuaas serve` and `gpuaas maas-sim` as separate processes, driven by the
//! real executable only.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail it by panicking")]

use serde_json::Value;

use gpuaas_testkit::processes::{Rig, agent};

#[test]
fn a_machine_is_onboarded_by_the_five_commands() {
    let mut rig = Rig::start();
    rig.add_site();
    rig.good("profile add h200 --set site_bootstrap_bundle_ref=site-base@1.0.0");
    let (mac, bmc) = rig.machine("j22u11");
    let pass = rig.path("bmc.pass");
    let node = rig.json(&format!(
        "node onboard j22u11 --site lab --profile h200 --bmc-address {bmc} --bmc-user admin \
         --bmc-pass-file {pass} --mac {mac} --wait --timeout 120 -o json"
    ));
    assert_eq!(node["state"], "active");

    let node = rig.json("node show j22u11 -o json");
    assert_eq!(node["state"], "active");
    assert_eq!(node["run"]["status"], "succeeded");
    assert_eq!(node["run"]["step"], "confirmation");
    assert_eq!(node["waiting_for"], Value::Null);
    assert_eq!(node["maas"]["status_name"], "Deployed");
    assert!(node["maas"]["system_id"].is_string());
    assert!(node["maas"]["observed_seconds_ago"].is_number());
    let timeline = node["timeline"].as_array().unwrap();
    for source in ["control_plane", "maas", "bootstrap", "agent"] {
        assert!(timeline.iter().any(|event| event["source"] == source), "nothing from {source}");
    }

    let id = node["run"]["id"].as_str().unwrap();
    let run = rig.json(&format!("run show {id} -o json"));
    let buckets = run["buckets"].as_object().unwrap();
    assert_eq!(buckets.len(), 12);
    let sum: f64 = buckets.values().filter_map(Value::as_f64).sum();
    let wall = run["wall_seconds"].as_f64().unwrap();
    assert!((sum - wall).abs() < 1e-3, "buckets sum to {sum}, the run took {wall}");
    assert!(rig.good(&format!("run show {id}")).contains("site_bootstrap"));
    assert!(rig.good("explain j22u11").contains("MAAS: Deployed"));
    assert!(rig.good("node list --state active").contains("j22u11"));
    rig.bad("node onboard j22u11 --site lab --profile h200", 3, "node_exists");
    its_agent_does_what_it_is_told(&rig);

    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    assert!(rig.sim.stop().success(), "{}", rig.sim.log());
}

/// Tasks, from the command line to a real agent on a host and back.
fn its_agent_does_what_it_is_told(rig: &Rig) {
    let trust = "node task j22u11 refresh-trust --registry registry.example:5000 \
                 --mirror https://mirror.example --reason test --actor ada -o json";
    let dry = rig.json(&format!("{trust} --dry-run --wait --timeout 60"));
    assert_eq!((&dry["state"], &dry["dry_run"]), (&Value::from("done"), &Value::from(true)));
    assert_eq!(dry["result"]["changes"].as_array().unwrap().len(), 1, "{dry}");
    let done = rig.json(&format!("{trust} --key once --wait --timeout 60"));
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(done["result"]["changes"], dry["result"]["changes"]);
    let same = rig.json(&format!("{trust} --key once --wait --timeout 60"));
    assert_eq!(same["id"], done["id"]);
    let again = rig.json(&format!("{trust} --wait --timeout 60"));
    assert_eq!(again["result"]["changes"], Value::Null, "a second run changes nothing: {again}");

    // The agent that the control plane has is the one that is there.
    let same = rig.good("node task j22u11 agent-update --wait --timeout 60");
    assert!(same.contains("already"), "{same}");
    rig.bad("node task j22u11 service restart ssh.service", 3, "invalid_field");
    let unit = rig.run("node task j22u11 service restart chrony.service --wait --timeout 60");
    assert_eq!(unit.status.code(), Some(5), "{}", String::from_utf8_lossy(&unit.stderr));
    let listed = rig.good("node tasks j22u11");
    assert!(listed.contains("(dry") && listed.contains("failed"), "{listed}");
}

#[test]
fn a_published_bundle_is_shown_and_compared_by_its_name() {
    let rig = Rig::start();
    let folder = rig.path("site-net");
    rig.good(&format!("bundle new {folder}"));
    rig.good(&format!("bundle publish {folder}"));
    let shown = rig.json("bundle show site-net@0.1.0 -o json");
    assert_eq!(shown["signed_by"], "this control plane");
    let digest = shown["digest"].as_str().unwrap();
    let same = rig.good(&format!("bundle diff sha256:{digest} {folder}"));
    assert!(same.ends_with("no difference\n"), "{same}");
    let path = format!("{folder}/bundle.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("version: 0.1.0", "version: 0.2.0")).unwrap();
    let differs = rig.good(&format!("bundle diff site-net@0.1.0 {folder}"));
    assert!(differs.contains("~ version: \"0.1.0\" -> \"0.2.0\""), "{differs}");
    rig.bad("bundle show site-net@0.2.0", 3, "bundle_not_found");
    rig.bad("bundle show no-such-folder", 1, "file_unreadable");
    assert!(
        rig.good(concat!("bundle render ", gpuaas_types::built_in_bundle!("h200-slice-vm")))
            .contains("GPUAAS_SLICE_")
    );
}

#[test]
fn bad_input_is_refused_with_a_code_and_creates_nothing() {
    let rig = Rig::start();
    let (url, good, bad) = (rig.sim.value("listening"), rig.path("maas.key"), rig.path("bad.key"));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    rig.bad(
        &format!("site add x --url http://{nobody}/MAAS --api-key-file {good}"),
        3,
        "maas_unreachable",
    );
    rig.bad(&format!("site add x --url {url} --api-key-file {bad}"), 3, "maas_key_refused");
    rig.bad("site add x --url http://m --api-key-file /no/such/file", 2, "file_unreadable");
    assert_eq!(rig.json("site list -o json")["items"], Value::Array(Vec::new()));

    let stderr = rig.bad("profile add p --set distro_serie=noble", 3, "unknown_field");
    assert!(stderr.contains("distro_series"), "the error names what was meant: {stderr}");
    rig.bad("profile add p --set site_bootstrap_bundle_ref=site-base@9.9.9", 3, "bundle_not_found");
    rig.bad("profile add p --set max_deploy_retry_attempts=many", 3, "invalid_field");
    assert_eq!(rig.json("profile list -o json")["items"], Value::Array(Vec::new()));

    rig.add_site();
    rig.bad("node onboard j22u11 --site lab --profile p", 3, "profile_not_found");
    rig.good("profile add p");
    rig.bad("node onboard j22u11 --site elsewhere --profile p", 3, "site_not_found");
    rig.bad("node onboard bad_name --site lab --profile p", 3, "invalid_field");
    rig.bad("node show j22u11", 3, "node_not_found");
    assert_eq!(rig.json("node list -o json")["items"], Value::Array(Vec::new()));
    rig.bad("node list --token wrong", 3, "token_unknown");
}

#[test]
fn a_second_control_plane_keeps_off_the_store() {
    let rig = Rig::start();
    let (data, agent) = (rig.path("data"), agent());
    let agent = agent.display();
    let line =
        |listen: &str| format!("serve --listen {listen} --data {data} --agent-binary {agent}");
    rig.bad(&line("127.0.0.1:0"), 1, "data_in_use");
    let taken = rig.control_plane.value("listening").trim_start_matches("http://").to_owned();
    let other = rig.path("other");
    rig.bad(
        &format!("serve --listen {taken} --data {other} --agent-binary {agent}"),
        1,
        "address_in_use",
    );
    rig.bad(
        &format!("serve --listen 127.0.0.1:0 --data {other} --agent-binary /no/agent"),
        1,
        "agent_missing",
    );
    let stderr = rig.bad(
        &format!(
            "serve --listen 127.0.0.1:0 --data {other} --agent-binary {agent} \
             --database postgres://gpuaas:topsecret@127.0.0.1:1/gpuaas"
        ),
        1,
        "database_unreachable",
    );
    assert!(!stderr.contains("topsecret"), "{stderr}");
}

#[test]
fn a_control_plane_keeps_its_token_over_a_restart() {
    let mut rig = Rig::start();
    rig.add_site();
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(rig.path(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("data"), mode("data/admin-token")), (0o700, 0o600));
    let text = std::fs::read_to_string(rig.path("data/admin-token")).unwrap();
    rig.restart(&agent());
    assert!(rig.good(&format!("site list --token {}", text.trim())).contains("lab"));
    assert!(rig.good("site show lab -o yaml").contains("name: lab"));
}
