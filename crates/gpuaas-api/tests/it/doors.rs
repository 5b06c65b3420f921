//! Attacks on real sockets: each is refused with its own code, and written to the audit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_bundle::tpm_quote::enrollment_nonce;
use gpuaas_bundle::{AGENT_FILE, Archive, Digest, Entry, Envelope, SigningKey, Statement, order};
use gpuaas_core::record::ReportKind;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{RunWrite, TokenPurpose, sha256};
use gpuaas_types::agent::{Operation, TaskKeys, TaskResult, TaskSpec};
use gpuaas_types::machine::{MachineView, Observation};
use gpuaas_types::{RunId, RunStatus};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use crate::tls::{Enrolled, Key, Tls, answer, beat, enrollment};

const HEARTBEAT: &str = "/agent/v1/heartbeat";

/// A bundle with an agent of this version.
fn agent_bundle(version: &str) -> Vec<u8> {
    let manifest = json!({
        "name": "gpuaas-node-agent", "version": version, "kind": "node_agent", "about": "a test",
    });
    let entry = Entry { bytes: format!("agent {version}").into_bytes(), executable: false };
    let manifest = serde_json::from_value(manifest).unwrap();
    Archive { manifest, files: [(AGENT_FILE.to_owned(), entry)].into() }.write().unwrap()
}

fn signed(key: &SigningKey, version: &str, bytes: &[u8]) -> Value {
    let statement = Statement {
        bundle: format!("gpuaas-node-agent@{version}"),
        digest: Digest::sha256(bytes),
        signed_at: RealClock.now().plus_seconds(-20.0 * 86_400.0),
        expires_at: None,
    };
    serde_json::to_value(key.sign(&statement).unwrap()).unwrap()
}

impl Tls {
    /// A request of an operator, on the operators' listener.
    async fn operator(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client(None).post(format!("{}{path}", self.operators)).json(body);
        answer(request, Some(&self.rig.admin)).await
    }

    async fn publish(&self, version: &str, key: Option<&SigningKey>) {
        let bytes = agent_bundle(version);
        let mut body = json!({ "archive": BASE64.encode(&bytes), "actor": "ann" });
        if let Some(key) = key {
            body["envelope"] = signed(key, version, &bytes);
        }
        let (status, body) = self.operator("/api/v1/bundles", &body).await;
        assert_eq!(status, 201, "{body}");
    }

    async fn approve(&self, version: &str) {
        let path = format!("/api/v1/bundles/gpuaas-node-agent@{version}/approve");
        let body = json!({ "site": "lab", "actor": "ann", "reason": "tried on a rack" });
        let (status, body) = self.operator(&path, &body).await;
        assert_eq!(status, 200, "{body}");
    }

    /// The details of the audit's entries of this action.
    pub(crate) async fn audited(&self, action: &str) -> Vec<Value> {
        let entries = self.rig.store.audit_entries(0, 200).await.unwrap();
        let of_action = entries.into_iter().filter(|entry| entry.entry.action == action);
        of_action.map(|entry| entry.entry.detail).collect()
    }

    async fn live(&self, hostname: &str) -> (Enrolled, reqwest::Client) {
        let agent = self.enrolled(hostname).await;
        let client = agent.client(self);
        assert_eq!(self.post(&client, HEARTBEAT, None, &beat(&agent.node)).await.0, 200);
        (agent, client)
    }
}

#[tokio::test]
async fn an_agent_is_replaced_only_by_one_that_was_published_signed_and_approved() {
    let tls = Tls::new().await;
    let (agent, client) = tls.live("j22u11").await;
    let ask = async |operation: Value| {
        let mut operation = operation;
        operation["kind"] = json!("agent_update");
        let body = json!({ "operation": operation, "actor": "mallory", "reason": "r" });
        tls.operator("/api/v1/nodes/j22u11/tasks", &body).await
    };
    let retired = SigningKey::generate().unwrap();
    let trust = |until: Value| json!({ "name": "old", "key": retired.public().to_string(), "until": until });
    assert_eq!(tls.operator("/api/v1/bundle-keys", &trust(Value::Null)).await.0, 201);
    tls.publish("0.3.0", Some(&retired)).await;
    tls.approve("0.3.0").await;
    let past = json!("2020-01-01T00:00:00Z");
    assert_eq!(tls.operator("/api/v1/bundle-keys", &trust(past)).await.0, 201);
    tls.publish("0.0.9", None).await;
    tls.approve("0.0.9").await;
    tls.publish("0.2.0", None).await;
    let site = crate::bundles::archive("site-net", &json!({}));
    let site = json!({ "archive": BASE64.encode(site), "actor": "ann" });
    assert_eq!(tls.operator("/api/v1/bundles", &site).await.0, 201);

    let digest = "b".repeat(64);
    let named = |version: &str| json!({ "bundle": format!("gpuaas-node-agent@{version}") });
    let rows = [
        (json!({ "url": "https://evil.example/agent" }), 422, "agent_source_foreign"),
        (
            json!({ "version": "9", "digest": digest, "size_bytes": 5,
                "url": format!("/bootstrap/v1/artifacts/sha256/{digest}") }),
            422,
            "agent_source_foreign",
        ),
        (
            json!({ "bundle": "gpuaas-node-agent@0.2.0", "floor": "0.0.1" }),
            422,
            "agent_source_foreign",
        ),
        (named("0.0.9"), 409, "agent_downgrade"),
        (named("0.2.0"), 409, "bundle_not_approved"),
        (named("0.3.0"), 422, "signature_key_retired"),
    ];
    let before = tls.rows().await;
    let mut wanted = Vec::new();
    for (operation, status, code) in rows {
        let (seen, body) = ask(operation).await;
        assert_eq!((seen, body["code"].as_str()), (status, Some(code)), "{body}");
        assert_eq!(tls.rows().await, before, "{code} had an effect");
        wanted.push(code.to_owned());
    }
    // No kind of bundle but an agent's.
    assert_eq!(ask(json!({ "bundle": "site-net@1.0.0" })).await.1["code"], "bundle_not_found");
    let audited = tls.audited("node.task_refused").await;
    let entries = tls.rig.store.audit_entries(0, 1000).await.unwrap();
    let actors = entries.iter().filter(|one| one.entry.action == "node.task_refused");
    assert!(actors.map(|one| &one.entry.actor).all(|actor| actor == "admin (mallory)"));
    let codes: Vec<&str> = audited.iter().map(|one| one["code"].as_str().unwrap()).collect();
    assert_eq!(codes, wanted);
    assert!(audited.iter().all(|one| one["hostname"] == "j22u11"));

    tls.approve("0.2.0").await;
    let (status, task) = ask(named("0.2.0")).await;
    assert_eq!(status, 202, "{task}");
    let polled = answer(client.get(format!("{}/agent/v1/tasks", tls.nodes)), None).await.1;
    let keys = answer(
        tls.client(None).get(format!("{}/api/v1/task-keys", tls.operators)),
        Some(&tls.rig.admin),
    );
    let keys: TaskKeys = serde_json::from_value(keys.await.1).unwrap();
    let envelope: Envelope = serde_json::from_value(polled["tasks"][0]["order"].clone()).unwrap();
    let admitted = order::admit(&envelope, &keys, agent.node.node_id, tls.rig.now()).unwrap();
    let TaskSpec::Operate { operation, .. } = admitted.spec else { panic!("{admitted:?}") };
    assert_eq!(operation.check(), Ok(()));
    let Operation::AgentUpdate { version, floor, url, size_bytes, .. } = operation else {
        panic!("{operation:?}")
    };
    assert_eq!((version.as_str(), floor.as_str()), ("0.2.0", "0.1.0"));
    let fetched = client.get(format!("{}{url}", tls.nodes)).send().await.unwrap();
    let fetched = fetched.bytes().await.unwrap();
    assert_eq!((&*fetched, fetched.len() as u64), (&b"agent 0.2.0"[..], size_bytes));
}

/// The agent itself refuses it (`gpuaas-node-agent/tests/it/hardy.rs`); what it says of that is kept although
/// the task has its result by then.
#[tokio::test]
async fn an_order_that_was_carried_out_and_comes_again_is_in_the_audit() {
    let tls = Tls::new().await;
    let (agent, client) = tls.live("j22u11").await;
    let task =
        json!({ "operation": { "kind": "collect_diagnostics" }, "actor": "ann", "reason": "r" });
    let (status, task) = tls.operator("/api/v1/nodes/j22u11/tasks", &task).await;
    assert_eq!(status, 202, "{task}");
    let task = task["id"].as_str().unwrap().to_owned();
    let path = format!("/agent/v1/tasks/{task}/result");
    let say = async |result: TaskResult| {
        tls.post(&client, &path, None, &serde_json::to_value(result).unwrap()).await
    };
    let done = TaskResult { succeeded: true, ..TaskResult::default() };
    assert_eq!(say(done).await, (200, json!({ "new": true })));
    assert!(tls.audited("agent.task_refused").await.is_empty());
    for (code, detail) in
        [("task_replayed", "carried out before"), ("signature_forged", "not ours")]
    {
        for _ in 0..2 {
            let (code, message) = (code.to_owned(), detail.to_owned());
            let refused = TaskResult { code, message, ..TaskResult::default() };
            assert_eq!(say(refused).await, (200, json!({ "new": false })), "its result stays");
        }
    }
    let audited = tls.audited("agent.task_refused").await;
    let row = |code: &str, detail: &str| json!({ "code": code, "detail": detail, "task": task, "repeated": 0, "listener": "nodes" });
    let rows = [row("task_replayed", "carried out before"), row("signature_forged", "not ours")];
    assert_eq!(audited, rows, "each once, of {}", agent.node.node_id);
}

/// Returns once a statement with these words was sent since its texts are counted.
async fn until_read(tls: &Tls, words: &str) {
    let sent = async {
        while !tls.rig.store.statement_texts().keys().any(|text| text.contains(words)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(test_report::patience(30.0), sent).await.unwrap();
}

#[tokio::test]
async fn a_poll_that_was_open_when_its_certificate_was_revoked_gets_no_task() {
    let tls = Tls::new().await;
    let (_agent, client) = tls.live("j22u11").await;
    let url = format!("{}/agent/v1/tasks?wait_seconds=30", tls.nodes);
    tls.rig.store.count_statement_texts();
    let poll = tokio::spawn(async move { answer(client.get(url), None).await });
    until_read(&tls, "FROM node_task").await;
    let revoke = json!({ "reason": "the key leaked", "actor": "ann" });
    let path = "/api/v1/nodes/j22u11/revoke-certificate";
    assert_eq!(tls.operator(path, &revoke).await.0, 200);
    let task =
        json!({ "operation": { "kind": "collect_diagnostics" }, "actor": "ann", "reason": "r" });
    let (status, task) = tls.operator("/api/v1/nodes/j22u11/tasks", &task).await;
    assert_eq!(status, 202, "{task}");
    let (status, body) = poll.await.unwrap();
    assert_eq!((status, &body["code"]), (401, &json!("certificate_revoked")), "{body}");
    assert_eq!(tls.refusals().await, ["certificate_revoked"]);
    // It waits for an agent that may have it.
    let task = tls.rig.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.ok();
    assert_eq!(task["state"], "queued");
}

#[tokio::test]
async fn callbacks_of_a_parked_run_do_not_keep_its_tokens_good_for_ever() {
    let tls = Tls::new().await;
    let node = tls.rig.onboard("j22u11").await;
    let token = tls.rig.token(TokenPurpose::Bootstrap, node.node_id, node.run_id, Some(3600)).await;
    tls.rig.put_run(node.run_id, RunStatus::Parked).await;
    let path = format!("/bootstrap/v1/runs/{}/progress", node.run_id);
    let progress = json!({ "phase": "site_bootstrap", "status": "started" });
    let client = tls.client(None);
    let call = async || {
        let (status, body) = tls.post(&client, &path, Some(&token), &progress).await;
        (status, body["code"].as_str().unwrap_or_default().to_owned())
    };
    let mut good_seconds = 0;
    // Whoever has the token calls back every half an hour, for a day.
    while call().await.0 == 200 {
        tls.rig.advance(1800);
        good_seconds += 1800;
        assert!(good_seconds < 86_400, "callbacks prolong it for ever");
    }
    assert_eq!(good_seconds, 6 * 3600);
    assert_eq!(call().await, (401, "token_expired".to_owned()));
    assert_eq!(tls.refusals().await, ["token_expired"]);
}

/// Whoever copies a token and comes first has the machine's identity until the node itself comes;
/// whoever comes second ends it. Nobody can tell which is which, so both have nothing then.
#[tokio::test]
async fn a_second_key_with_one_token_revokes_and_alerts_whoever_came_first() {
    for heard in [false, true] {
        let tls = Tls::new().await;
        let first = tls.enrolled("j22u11").await;
        let client = first.client(&tls);
        let beats = async || tls.post(&client, HEARTBEAT, None, &beat(&first.node)).await;
        if heard {
            assert_eq!(beats().await.0, 200);
        }
        let asked = enrollment(&first.node, Some(&Key::new().csr));
        let enroll = async || {
            tls.post(&tls.client(None), "/agent/v1/enroll", Some(&first.token), &asked).await
        };
        let (status, body) = enroll().await;
        assert_eq!((status, &body["code"]), (401, &json!("token_contested")), "{body}");
        assert_eq!(beats().await.1["code"], "certificate_revoked");
        assert_eq!(enroll().await.1["code"], "token_revoked", "it is said once");
        let reports = tls.rig.store.reports(first.node.run_id).await.unwrap();
        let contested = reports.into_iter().find_map(|report| match report.kind {
            ReportKind::EnrollmentContested { address } => Some(address),
            _ => None,
        });
        assert_eq!(contested.as_deref(), Some("127.0.0.1"), "the run is woken, and parks");
        let lines = tls.rig.store.timeline_of_node(first.node.node_id, 0, 100).await.unwrap();
        let alert = lines.iter().find(|row| row.event.code == "enrollment_contested").unwrap();
        assert!(alert.event.text.contains("from 127.0.0.1"), "{}", alert.event.text);
        assert_eq!(
            tls.refusals().await,
            ["token_contested", "certificate_revoked", "token_revoked"]
        );
    }
}

/// A machine as MAAS shows it, with one interface.
fn machine(mac: &str, uuid: &str) -> MachineView {
    let machine = json!({
        "system_id": "abc123", "hostname": "j22u11", "status": 6, "owner": "gpuaas",
        "power_state": "on", "power_type": "ipmi", "architecture": "amd64/generic",
        "osystem": "ubuntu", "distro_series": "noble", "locked": false, "netboot": false,
        "error_description": "", "status_message": null, "enable_hw_sync": false,
        "sync_interval_seconds": null, "boot_interface_id": 1, "boot_disk_id": null, "disks": [],
        "complex_storage": 0, "tags": [], "hardware": "Dell XE9680",
        "has_installation_result": true, "hardware_uuid": uuid,
        "nics": [{ "id": 1, "name": "eno1", "mac_address": mac, "kind": "physical", "vid": null,
            "vlan_id": null, "fabric": null, "dhcp_on": true, "link_connected": true,
            "links": [] }],
    });
    serde_json::from_value(machine).unwrap()
}

/// Writes the machine of a run down, as a worker that has read it would.
async fn observe(tls: &Tls, run: RunId, machine: MachineView) {
    let now = tls.rig.now();
    let claimed = tls.rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
    let record = claimed.into_iter().map(|one| one.run).find(|one| one.id == run).unwrap();
    let mut write = RunWrite::new(record).releasing();
    write.observation = Some(Observation {
        status: machine.status,
        status_at: now,
        event_id: 1,
        machine: Some(machine),
        read_at: now,
        vanished: false,
        rebooted_at: None,
        alarm: None,
    });
    tls.rig.store.commit(now, write).await.unwrap();
}

#[tokio::test]
async fn a_token_enrolls_on_its_own_machine_only() {
    let tls = Tls::new().await;
    let node = tls.rig.onboard("j22u11").await;
    let purpose = TokenPurpose::Enrollment;
    let token = tls.rig.token(purpose, node.node_id, node.run_id, None).await;
    let mac = "52:54:00:00:00:01";
    let uuid = "4c4c4544-0042-3510-8052-b4c04f4d4d32";
    observe(&tls, node.run_id, machine(mac, uuid)).await;

    let enroll = async |facts: Value| {
        let mut asked = enrollment(&node, Some(&Key::new().csr));
        asked["facts"] = facts;
        tls.post(&tls.client(None), "/agent/v1/enroll", Some(&token), &asked).await
    };
    let links = |mac: &str| json!([{ "name": "eno1", "mac_address": mac }]);
    let before = tls.rows().await;
    for facts in [
        json!({}),
        json!({ "links": links("02:00:00:00:00:99") }),
        json!({ "links": links(mac), "system_uuid": uuid.replace("4d32", "4d33") }),
    ] {
        let (status, body) = enroll(facts).await;
        assert_eq!((status, &body["code"]), (403, &json!("token_other_machine")), "{body}");
        assert_eq!(tls.rows().await, before, "the token is as good as before");
    }
    assert_eq!(tls.refusals().await, ["token_other_machine"]);
    let own = json!({ "links": links(mac), "system_uuid": uuid.to_uppercase() });
    let (status, body) = enroll(own).await;
    assert_eq!(status, 200, "{body}");
    let lines = tls.rig.store.timeline_of_node(node.node_id, 0, 100).await.unwrap();
    let line = lines.iter().find(|row| row.event.code == "enrollment_started").unwrap();
    let text = &line.event.text;
    assert!(text.contains("asked to enroll from 127.0.0.1") && text.contains(mac), "{text}");
}

/// What a TPM with this key signs (`TPMS_ATTEST`); swtpm itself is asked in `gpuaas-node-agent/src/tpm.rs`.
fn tpm_quote(key: &KeyPair, nonce: &Digest) -> Value {
    let mut message = vec![0xff, 0x54, 0x43, 0x47, 0x80, 0x18, 0, 2, 1, 2, 0, 32];
    message.extend_from_slice(nonce.as_bytes());
    message.extend_from_slice(&[0; 60]);
    let signature = key.sign(&message).unwrap();
    json!({ "key_pem": key.public_key_pem(), "message": BASE64.encode(&message),
            "signature": BASE64.encode(signature) })
}

/// A thief has the token, knows the machine's addresses, and has not its hardware.
#[tokio::test]
async fn a_node_that_has_shown_a_tpm_enrolls_with_that_tpm_only() {
    let tls = Tls::new().await;
    let node = tls.rig.onboard("j22u11").await;
    let (tpm, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let enroll = async |token: &str, quote: &dyn Fn(&str) -> Value| {
        let key = Key::new();
        let mut asked = enrollment(&node, Some(&key.csr));
        asked["tpm_quote"] = quote(&key.csr);
        tls.post(&tls.client(None), "/agent/v1/enroll", Some(token), &asked).await
    };
    let token =
        async || tls.rig.token(TokenPurpose::Enrollment, node.node_id, node.run_id, None).await;
    let nonce = |token: &str, csr: &str| enrollment_nonce(&sha256(token), csr);

    let first = token().await;
    // A quote of another enrollment is as good as none, and worse.
    let (status, body) = enroll(&first, &|csr| tpm_quote(&tpm, &nonce("another", csr))).await;
    assert_eq!((status, &body["code"]), (403, &json!("token_other_machine")), "{body}");
    assert_eq!(tls.rig.store.node_tpm_key(node.node_id).await.unwrap(), None);
    let (status, body) = enroll(&first, &|csr| tpm_quote(&tpm, &nonce(&first, csr))).await;
    assert_eq!(status, 200, "{body}");
    let known = tls.rig.store.node_tpm_key(node.node_id).await.unwrap().unwrap();

    // The next system of the machine.
    let second = token().await;
    let before = tls.rows().await;
    let stolen: [&dyn Fn(&str) -> Value; 3] =
        [&|csr| tpm_quote(&other, &nonce(&second, csr)), &|_| Value::Null, &|csr| {
            json!({ "key_pem": tpm.public_key_pem(),
                       "message": tpm_quote(&tpm, &nonce(&second, csr))["message"],
                       "signature": tpm_quote(&other, &nonce(&second, csr))["signature"] })
        }];
    for quote in stolen {
        let (status, body) = enroll(&second, quote).await;
        assert_eq!((status, &body["code"]), (403, &json!("token_other_machine")), "{body}");
        assert!(
            body["hint"].as_str().unwrap().contains("gpuaas node revoke-certificate"),
            "{body}"
        );
        assert_eq!(tls.rows().await, before, "the token is as good as before");
    }
    assert_eq!(tls.refusals().await, ["token_other_machine"; 2], "each token's, once in a while");
    let (status, body) = enroll(&second, &|csr| tpm_quote(&tpm, &nonce(&second, csr))).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(tls.rig.store.node_tpm_key(node.node_id).await.unwrap(), Some(known));
}
