//! No dead ends: nodes that are onboarded again or corrected, what is removed, runs by name.

use gpuaas_core::control_mark::{ControlRecord, ControlState};
use gpuaas_core::record::ReportKind;
use gpuaas_store::ExposeSecret as _;
use gpuaas_types::api::SiteControl;
use gpuaas_types::{RunId, RunStatus};
use serde_json::{Value, json};

use crate::rig::{KEY, Rig, reply};

fn node(hostname: &str, mac: &str, bmc: &str) -> Value {
    json!({
        "hostname": hostname, "site": "lab", "profile": "h200",
        "mac_addresses": [mac], "bmc_address": bmc, "bmc_user": "root",
        "bmc_password": "hunter2222",
    })
}

fn run_id(accepted: &Value) -> RunId {
    accepted["run_id"].as_str().unwrap().parse().unwrap()
}

fn because(reason: &str) -> Value {
    json!({ "actor": "ann", "reason": reason })
}

#[tokio::test]
async fn a_node_whose_bmc_has_another_nodes_name_is_not_taken_for_it() {
    let rig = Rig::with_site().await;
    let named = rig.post("/api/v1/nodes", node("j22u11", "3c:ec:ef:00:11:22", "10.0.0.7")).await;
    let named = named.ok();
    // Made later, it is found first.
    let other = rig.post("/api/v1/nodes", node("j22u12", "3c:ec:ef:00:11:23", "j22u11")).await.ok();
    for accepted in [&named, &other] {
        rig.put_run(run_id(accepted), RunStatus::Cancelled).await;
    }
    let plain = json!({ "hostname": "j22u11", "site": "lab", "profile": "h200" });
    let again = rig.post("/api/v1/nodes", plain.clone()).await.ok();
    assert_eq!(again["node_id"], named["node_id"]);
    let refused = rig.post("/api/v1/nodes", plain).await;
    assert_eq!(refused.code(), "node_exists");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(again["run_id"].as_str().unwrap()), "{detail}");
}

#[tokio::test]
async fn a_cancelled_node_is_onboarded_again() {
    let rig = Rig::with_site().await;
    let first = rig.post("/api/v1/nodes", node("j22u11", "3c:ec:ef:00:11:22", "10.0.0.7")).await;
    let first = first.ok();
    let plain = json!({ "hostname": "j22u11", "site": "lab", "profile": "h200" });
    let early = rig.post("/api/v1/nodes", plain.clone()).await;
    assert_eq!((early.status, early.code().as_str()), (409, "node_exists"));
    assert!(early.json()["hint"].as_str().unwrap().contains("`gpuaas explain j22u11`"));
    rig.put_run(run_id(&first), RunStatus::Cancelled).await;
    let said = rig.get("/api/v1/nodes/j22u11/explain").await.ok();
    assert_eq!(
        said["next_action"],
        "read the timeline, fix the cause, then run \
         `gpuaas node onboard j22u11 --site lab --profile h200`"
    );

    let again = rig.post("/api/v1/nodes", plain).await.ok();
    assert_eq!(again["node_id"], first["node_id"]);
    assert_ne!(again["run_id"], first["run_id"]);
    let view = rig.get("/api/v1/nodes/j22u11").await.ok();
    assert_eq!((&view["state"], &view["run"]["id"]), (&json!("registered"), &again["run_id"]));
    let codes: Vec<&str> = view["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["onboard_accepted", "onboarded_again"]);
    let id = first["node_id"].as_str().unwrap().parse().unwrap();
    let kept = rig.store.node(id).await.unwrap().hardware;
    assert_eq!(kept.mac_addresses, ["3c:ec:ef:00:11:22"], "what is known stays");
    assert_eq!(kept.power_type, "ipmi");
    assert!(rig.store.bmc_password(id).await.unwrap().is_some());

    // What the request says wins.
    rig.put_run(run_id(&again), RunStatus::Failed).await;
    let other = node("j22u11", "3c:ec:ef:00:11:33", "10.0.0.8");
    rig.post("/api/v1/nodes", other).await.ok();
    let kept = rig.store.node(id).await.unwrap().hardware;
    assert_eq!(kept.mac_addresses, ["3c:ec:ef:00:11:33"]);
    assert_eq!(kept.bmc_address.as_deref(), Some("10.0.0.8"));
}

#[tokio::test]
async fn a_parked_node_is_corrected_and_an_address_of_another_is_refused_at_once() {
    let rig = Rig::with_site().await;
    let first = rig.post("/api/v1/nodes", node("j22u11", "3c:ec:ef:00:11:22", "10.0.0.7")).await;
    let first = first.ok();
    let taken = rig.post("/api/v1/nodes", node("j22u12", "3C-EC-EF-00-11-22", "10.0.0.9")).await;
    assert_eq!((taken.status, taken.code().as_str()), (409, "mac_address_taken"));
    assert!(taken.json()["detail"].as_str().unwrap().contains("node j22u11"));
    assert_eq!(rig.get("/api/v1/nodes/j22u12").await.code(), "node_not_found");
    rig.post("/api/v1/nodes", node("j22u15", "3c:ec:ef:00:11:55", "10.0.0.15")).await.ok();

    let path = "/api/v1/nodes/j22u11";
    let change = |fields: Value| {
        let mut body = because("it was misread");
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let mac = change(json!({ "mac_addresses": ["3C-EC-EF-00-11-23"] }));
    assert_eq!(rig.patch(path, mac.clone()).await.code(), "node_has_open_run");
    rig.put_run(run_id(&first), RunStatus::Parked).await;
    rig.patch(path, mac).await.ok();
    for (fields, code) in [
        (json!({ "mac_addresses": ["3c:ec:ef:00:11:55"] }), "mac_address_taken"),
        (json!({ "bmc_address": "10.0.0.15" }), "bmc_address_taken"),
        (json!({ "bmc_address": "http://x" }), "invalid_field"),
        (json!({ "bmc_pass": "x" }), "unknown_field"),
        (json!({}), "invalid_field"),
    ] {
        assert_eq!(rig.patch(path, change(fields.clone())).await.code(), code, "{fields}");
    }
    let power = json!({ "bmc_address": "10.0.0.77", "power_type": "redfish",
        "bmc_password": "swordfish77" });
    let answer = rig.patch(path, change(power)).await;
    assert!(!String::from_utf8_lossy(&answer.bytes).contains("swordfish77"));
    answer.ok();
    let stored = rig.store.find_nodes("j22u11").await.unwrap().remove(0).node;
    assert_eq!(stored.hardware.mac_addresses, ["3c:ec:ef:00:11:23"]);
    assert_eq!(stored.hardware.power_type, "redfish");
    assert_eq!(stored.hardware.bmc_user.as_deref(), Some("root"), "left out, so it stays");
    let password = rig.store.bmc_password(stored.id).await.unwrap().unwrap();
    assert_eq!(password.expose_secret(), "swordfish77");
    let view = rig.get(path).await.ok();
    let line = view["timeline"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(line["code"], "hardware_corrected");
    assert_eq!(
        line["text"],
        "admin (ann) corrected bmc_address, bmc_password, power_type: it was misread"
    );
    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    assert!(!format!("{audit:?}").contains("swordfish77"));
}

#[tokio::test]
async fn a_node_without_a_machine_gets_another_site_and_other_identifiers() {
    let rig = Rig::with_site().await;
    let spec = json!({ "name": "south", "url": "http://south.example:5240/MAAS" });
    rig.post("/api/v1/sites", json!({ "spec": spec, "api_key": KEY })).await.ok();
    let asked = node("j22u11", "3c:ec:ef:00:11:22", "10.0.0.7");
    let mut with_serial = asked.clone();
    with_serial["serial"] = json!("S-1");
    let run = run_id(&rig.post("/api/v1/nodes", with_serial).await.ok());
    let path = "/api/v1/nodes/j22u11";
    let set = async |fields: Value| {
        let mut body = because("it stands there");
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        rig.patch(path, body).await
    };
    assert_eq!(set(json!({ "site": "south" })).await.code(), "node_has_open_run");
    rig.put_run(run, RunStatus::Parked).await;
    assert_eq!(set(json!({ "site": "east" })).await.code(), "site_not_found");
    let moved = set(json!({ "site": "south", "system_id": "abc123" })).await.ok();
    assert_eq!((&moved["site"], &moved["run"]["step"]), (&json!("south"), &json!("accept")));
    let south = rig.store.site_by_name("south").await.unwrap().id;
    assert_eq!(rig.store.run(run).await.unwrap().site_id, south);
    let named = async || match rig.store.reports(run).await.unwrap().pop().unwrap().kind {
        ReportKind::MachineNamed { system_id, serial } => (system_id, serial),
        other => panic!("{other:?}"),
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(named().await, (text("abc123"), text("S-1")), "what is left out stays");
    set(json!({ "serial": "" })).await.ok();
    assert_eq!(named().await, (text("abc123"), None));
    let view = rig.get(path).await.ok();
    let lines = view["timeline"].as_array().unwrap();
    assert_eq!(
        lines[lines.len() - 2]["text"],
        "admin (ann) corrected site, system_id: it stands there"
    );

    // Its name and its addresses are free where it was, and not where it is.
    rig.post("/api/v1/runs/j22u11/resume", because("it is there")).await.ok();
    rig.put_run(run, RunStatus::Cancelled).await;
    rig.post("/api/v1/nodes", asked).await.ok();
    let path = format!("/api/v1/nodes/{}", moved["id"].as_str().unwrap());
    for (field, value, code) in
        [("site", "lab", "hostname_taken"), ("serial", "S-2", "run_not_parked")]
    {
        let mut body = because("no");
        body[field] = json!(value);
        assert_eq!(rig.patch(&path, body).await.code(), code);
    }
}

#[tokio::test]
async fn a_pool_that_maas_does_not_have_is_refused_at_once() {
    let rig = Rig::with_site().await;
    let site = |pool: &str| {
        let url = "http://south.example:5240/MAAS";
        json!({ "spec": { "name": "south", "url": url, "pool": pool }, "api_key": KEY })
    };
    let refused = rig.post("/api/v1/sites", site("nroth")).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "pool_unknown"));
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "the region has no pool nroth; it has default, north");
    assert_eq!(rig.get("/api/v1/sites/south").await.code(), "site_not_found");
    rig.post("/api/v1/sites", site("north")).await.ok();
    let set = |pool: &str| rig.patch("/api/v1/sites/lab", json!({ "pool": pool }));
    assert_eq!(set("nroth").await.code(), "pool_unknown");
    set("default").await.ok();
    // Without another pool MAAS is not asked, and may be away.
    *rig.maas.pools.lock().unwrap() = reply(503, "text/plain", "away");
    assert_eq!(set("north").await.code(), "maas_unreachable");
    rig.patch("/api/v1/sites/lab", json!({ "pool": "default", "pxe_vlan": 5 })).await.ok();
    rig.patch("/api/v1/sites/lab", json!({ "pool": null })).await.ok();
}

#[tokio::test]
async fn a_run_is_named_by_its_host_and_listed() {
    let rig = Rig::with_site().await;
    let first = rig.onboard("j22u11").await;
    rig.advance(1);
    let second = rig.onboard("j22u15").await;
    let view = rig.get("/api/v1/runs/j22u11").await.ok();
    assert_eq!(view["id"], json!(first.run_id));
    assert_eq!(rig.get("/api/v1/runs/j99").await.code(), "run_not_found");
    rig.put_run(first.run_id, RunStatus::Parked).await;
    let resumed = rig.post("/api/v1/runs/j22u11/resume", because("mended")).await.ok();
    assert_eq!((&resumed["id"], &resumed["status"]), (&json!(first.run_id), &json!("running")));

    let ids = async |query: &str| -> Vec<Value> {
        let list = rig.get(&format!("/api/v1/runs{query}")).await.ok();
        list["items"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect()
    };
    let (a, b) = (json!(first.run_id), json!(second.run_id));
    assert_eq!(ids("").await, [b.clone(), a.clone()]);
    assert_eq!(ids("?site=lab&open=true&limit=1").await, std::slice::from_ref(&b));
    assert_eq!(ids(&format!("?after={}", second.run_id)).await, std::slice::from_ref(&a));
    assert_eq!(ids("?node=j22u15").await, [b]);
    assert_eq!(ids("?status=parked").await, [] as [Value; 0]);
    assert_eq!(rig.get("/api/v1/runs?status=asleep").await.code(), "invalid_query");
    assert_eq!(rig.get("/api/v1/runs?site=x").await.code(), "site_not_found");
}

#[tokio::test]
async fn sites_profiles_and_fabric_addresses_are_removed() {
    let rig = Rig::with_site().await;
    let accepted = rig.onboard("j22u11").await;
    let roce = json!({ "site": "lab", "hostname": "j22u11", "interface": "ens1",
        "subnet_cidr": "10.9.0.0/24", "ip_address": "10.9.0.7" });
    rig.post("/api/v1/roce-assignments", roce).await.ok();
    let remove = json!({ "site": "lab", "hostname": "J22u11", "interface": "ens1" });
    let left = rig.post("/api/v1/roce-assignments/remove", remove.clone()).await.ok();
    assert_eq!(left["items"], json!([]));
    let twice = rig.post("/api/v1/roce-assignments/remove", remove).await;
    assert_eq!((twice.status, twice.code().as_str()), (404, "roce_not_found"));

    for (path, code) in [("sites/lab", "site_in_use"), ("profiles/h200", "profile_in_use")] {
        let path = format!("/api/v1/{path}/remove");
        let refused = rig.post(&path, because("moved")).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, code));
        assert!(refused.json()["detail"].as_str().unwrap().contains("j22u11"));
        let dry = json!({ "actor": "ann", "reason": "moved", "dry_run": true });
        let plan = rig.post(&path, dry).await.ok();
        let used = plan["used_by"][0].as_str().unwrap();
        assert!(used.starts_with("node j22u11 is registered: run `gpuaas node "), "{used}");
    }
    rig.put_run(accepted.run_id, RunStatus::Cancelled).await;
    let detach = json!({ "kind": "detach", "actor": "ann", "reason": "moved" });
    let detach = rig.post("/api/v1/nodes/j22u11/runs", detach).await.ok();
    end_detach(&rig, run_id(&detach)).await;

    let dry = json!({ "actor": "ann", "reason": "moved", "dry_run": true });
    let plan = rig.post("/api/v1/sites/lab/remove", dry).await.ok();
    assert_eq!((&plan["removed"], plan.get("used_by")), (&json!(false), None));
    assert!(plan["destroys"][0].as_str().unwrap().contains("http://lab.example:5240/MAAS"));
    rig.get("/api/v1/sites/lab").await.ok();
    let done = rig.post("/api/v1/sites/lab/remove", because("moved")).await.ok();
    assert_eq!(done["removed"], true);
    assert_eq!(rig.get("/api/v1/sites/lab").await.code(), "site_not_found");
    rig.post("/api/v1/profiles/h200/remove", because("moved")).await.ok();
    assert_eq!(rig.get("/api/v1/profiles/h200").await.code(), "profile_not_found");
    // The history is there, and the names are free.
    rig.get(&format!("/api/v1/runs/{}", accepted.run_id)).await.ok();
    rig.add_site().await;
}

/// Ends the detach of a node as a worker would.
async fn end_detach(rig: &Rig, run: RunId) {
    use gpuaas_engine::Clock as _;
    use gpuaas_store::{NodeChange, RunWrite};
    let now = rig.clock.now();
    let mut record = rig.store.claim(now, now.plus_seconds(30.0), 1).await.unwrap().remove(0).run;
    assert_eq!(record.id, run);
    (record.status, record.ended_at) = (RunStatus::Succeeded, Some(now));
    let mut write = RunWrite::new(record).releasing();
    write.node =
        Some(NodeChange { state: Some(gpuaas_types::NodeState::Detached), system_id: None });
    rig.store.commit(now, write).await.unwrap();
}

#[tokio::test]
async fn control_of_a_region_is_taken_from_whoever_is_shown() {
    let rig = Rig::with_site().await;
    let comment = "Kept by GPUaaS; do not change or delete it. region=r plane=other writer=w \
                   term=3 count=9 since=1 at=2";
    let tag = json!({ "name": "gpuaas-control-plane", "comment": comment }).to_string();
    *rig.maas.tags.lock().unwrap() = reply(200, "application/json", &tag);
    let site = rig.store.site_by_name("lab").await.unwrap();
    let yielded = ControlRecord { state: ControlState::Yielded, ..ControlRecord::default() };
    let control = SiteControl {
        code: "site_controlled_elsewhere".to_owned(),
        text: "another one has it".to_owned(),
        since: rig.now(),
    };
    let known = ControlRecord::default();
    rig.store
        .set_site_control(rig.now(), site.id, known, yielded, Some(control), None)
        .await
        .unwrap();
    for shown in [
        rig.get("/api/v1/sites/lab").await.ok(),
        rig.get("/api/v1/sites").await.ok()["items"][0].clone(),
    ] {
        assert_eq!(shown["status"]["health"], "site_controlled_elsewhere");
        let detail = shown["status"]["health_detail"].as_str().unwrap();
        assert!(detail.contains("`gpuaas site take-control lab --reason WHY`"), "{detail}");
    }

    let path = "/api/v1/sites/lab/take-control";
    let mut asked = because("the old host is gone");
    asked["dry_run"] = json!(true);
    let plan = rig.post(path, asked).await.ok();
    assert_eq!(plan["taken"], false);
    assert!(plan["follows"][0].as_str().unwrap().contains("control plane other"), "{plan}");
    assert_eq!(rig.store.site_control(site.id).await.unwrap().state, ControlState::Yielded);
    let done = rig.post(path, because("the old host is gone")).await.ok();
    assert_eq!(done["taken"], true);
    let record = rig.store.site_control(site.id).await.unwrap();
    assert_eq!((record.state, record.term, record.count), (ControlState::Held, 4, 10));
    assert_eq!(rig.get("/api/v1/sites/lab").await.ok()["status"]["health"], "ok");

    rig.store.set_site_past(rig.now(), site.id, "it was restored").await.unwrap();
    let shown = rig.get("/api/v1/sites").await.ok()["items"][0].clone();
    assert_eq!(shown["status"]["health"], "region_rewound", "a list says it as well");
    rig.advance(90_000);
    assert_eq!(rig.get("/api/v1/sites/lab").await.ok()["status"]["health"], "ok");
}
