//! A request for each change of the admin API that is made as often as it is asked for.

use futures::future::BoxFuture;
use gpuaas_store::RunWrite;
use gpuaas_types::api::CheckResult;
use gpuaas_types::{RunStatus, Timestamp};
use serde_json::{Value, json};

use crate::bundles::{archive, publish};
use crate::hang_up_single_cases::UNCHANGING;
use crate::rig::{Rig, site};

/// Path and body of a request.
pub(crate) type Asked = (String, Value);

/// A change of the admin API that succeeds.
pub(crate) struct Case {
    pub(crate) method: &'static str,
    /// Path of the table of operations.
    pub(crate) path: &'static str,
    /// Makes what the requests are sent to.
    pub(crate) rig: fn() -> BoxFuture<'static, Rig>,
    /// Whether each request is sent to a rig of its own: the change can be made only once.
    pub(crate) each: bool,
    /// Makes what the request with this number is about. Returns the request.
    pub(crate) request: for<'a> fn(&'a Rig, u32) -> BoxFuture<'a, Asked>,
}

impl Case {
    /// Whether there is nothing that changes.
    pub(crate) fn is_unchanging(&self) -> bool {
        UNCHANGING.iter().any(|one| (one.method, one.path) == (self.method, self.path))
    }
}

macro_rules! cases {
    ($($method:ident $path:literal |$rig:ident, $n:ident| $request:block)+) => {
        /// Changes by one request each.
        pub(crate) const CASES: &[Case] = &[$(Case {
            method: stringify!($method),
            path: $path,
            rig: || Box::pin(with_node()),
            each: false,
            request: |$rig, $n| Box::pin(async move { $request }),
        }),+];
    };
}

/// A rig with the site `lab`, the profile `h200` and the node `j22u11`.
pub(crate) async fn with_node() -> Rig {
    let rig = Rig::with_site().await;
    rig.onboard("j22u11").await;
    rig
}

pub(crate) fn because() -> Value {
    json!({ "actor": "ann", "reason": "for the test" })
}

pub(crate) fn with(mut body: Value, more: &Value) -> Value {
    for (field, value) in more.as_object().unwrap() {
        body[field] = value.clone();
    }
    body
}

fn roce(n: u32) -> Value {
    json!({
        "site": "lab", "hostname": format!("h{n}"), "interface": "ens9",
        "subnet_cidr": "10.101.0.0/16", "ip_address": format!("10.101.{}.{}", n / 200, n % 200 + 1),
    })
}

fn batch(n: u32) -> Value {
    let machines = json!([{ "hostname": format!("m{n}") }]);
    json!({ "spec": { "name": format!("b{n}"), "site": "lab", "profile": "h200", "machines": machines } })
}

async fn parked(rig: &Rig, n: u32) -> String {
    let run = rig.onboard(&format!("n{n}")).await.run_id;
    rig.put_run(run, RunStatus::Parked).await;
    run.to_string()
}

/// A run that made a check.
async fn checked(rig: &Rig, n: u32) -> String {
    let id = rig.onboard(&format!("n{n}")).await.run_id;
    let now = rig.now();
    for mut run in rig
        .store
        .claim(now, now.plus_seconds(30.0), 10)
        .await
        .unwrap()
        .into_iter()
        .map(|one| one.run)
    {
        let (name, evidence) = ("ca_bundle_valid".to_owned(), "not there".to_owned());
        let check =
            CheckResult { name: name.clone(), passed: false, verified: true, evidence, at: now };
        run.state.checks.insert(name, check);
        (run.status, run.due_at) = (RunStatus::Parked, Timestamp::NEVER);
        rig.store.commit(now, RunWrite::new(run).releasing()).await.unwrap();
    }
    id.to_string()
}

/// A node whose agent was heard, in service.
async fn in_service(rig: &Rig, n: u32) -> String {
    let hostname = format!("n{n}");
    rig.hear(&hostname).await;
    staged_key(rig).await;
    crate::node_claims::end_runs(rig, false).await;
    hostname
}

/// The key that waits to sign tasks. The first key of all is made by whoever asks first.
async fn staged_key(rig: &Rig) -> Option<String> {
    let keys = rig.get("/api/v1/task-keys").await.ok();
    let staged = keys["keys"].as_array().unwrap().iter().find(|key| key["state"] == "staged");
    staged.map(|key| key["public_key"].as_str().unwrap().to_owned())
}

async fn drop_staged_key(rig: &Rig) {
    if let Some(key) = staged_key(rig).await {
        rig.post("/api/v1/task-keys/retire", json!({ "public_key": key })).await.ok();
    }
}

async fn vault(rig: &Rig) {
    let inputs = json!({ "inputs": {
        "token": { "type": "path", "about": "x", "environment": "TOKEN", "secret": true } } });
    publish(rig, &archive("vault", &inputs), None).await.ok();
}

/// A bundle that nobody has approved.
async fn bundle(rig: &Rig, n: u32) -> String {
    publish(rig, &archive(&format!("x{n}"), &json!({})), None).await.ok();
    format!("x{n}@1.0.0")
}

pub(crate) fn image(n: u32) -> (String, String) {
    (format!("h200-20261001-{n:012x}"), format!("{n:064x}"))
}

pub(crate) fn image_record(n: u32, state: &str) -> Value {
    let (name, sha256) = image(n);
    json!({ "name": name, "site": "lab", "state": state, "sha256": sha256, "actor": "builder" })
}

/// A request that waits for a second person, at a site of its own.
async fn waiting(rig: &Rig, n: u32) -> String {
    let name = format!("w{n}");
    rig.post("/api/v1/sites", site(&name)).await.ok();
    let grants = json!([{ "role": "operator", "sites": [name] }]);
    let token = json!({ "name": name, "person": name, "grants": grants, "reason": "for the test" });
    let token = rig.post("/api/v1/tokens", token).await.ok()["token"].clone();
    let policy = json!({ "second_person": { "erasing_above": 0 } });
    rig.patch(&format!("/api/v1/sites/{name}"), policy).await.ok();
    let node = json!({ "hostname": name, "site": name, "profile": "h200" });
    let held = rig.call("POST", "/api/v1/nodes", token.as_str(), Some(node)).await;
    assert_eq!(held.code(), "second_person_needed");
    let open = rig.get(&format!("/api/v1/approvals?open=true&site={name}")).await.ok();
    open["items"][0]["id"].as_str().unwrap().to_owned()
}

cases! {
    POST "/api/v1/bundle-keys" |_rig, n| {
        let key = gpuaas_bundle::SigningKey::generate().unwrap().public();
        let body = json!({ "name": format!("k{n}"), "key": key.to_string() });
        ("/api/v1/bundle-keys".to_owned(), body)
    }
    POST "/api/v1/sites" |_rig, n| { ("/api/v1/sites".to_owned(), site(&format!("s{n}"))) }
    PATCH "/api/v1/sites/{name}" |_rig, n| {
        ("/api/v1/sites/lab".to_owned(), json!({ "batch_max_parallel": n + 1 }))
    }
    POST "/api/v1/sites/{name}/remove" |rig, n| {
        rig.post("/api/v1/sites", site(&format!("s{n}"))).await.ok();
        (format!("/api/v1/sites/s{n}/remove"), because())
    }
    PUT "/api/v1/sites/{name}/secrets/{bundle}/{input}" |rig, n| {
        vault(rig).await;
        let body = json!({ "value": format!("/run/{n}"), "actor": "ann" });
        ("/api/v1/sites/lab/secrets/vault/token".to_owned(), body)
    }
    DELETE "/api/v1/sites/{name}/secrets/{bundle}/{input}" |rig, n| {
        vault(rig).await;
        let path = "/api/v1/sites/lab/secrets/vault/token";
        let body = json!({ "value": format!("/run/{n}"), "actor": "ann" });
        rig.call("PUT", path, Some(&rig.admin), Some(body)).await.ok();
        (format!("{path}?actor=ann"), Value::Null)
    }
    PUT "/api/v1/profiles/{name}/secrets/{bundle}/{input}" |rig, n| {
        vault(rig).await;
        let body = json!({ "value": format!("/run/{n}"), "actor": "ann" });
        ("/api/v1/profiles/h200/secrets/vault/token".to_owned(), body)
    }
    DELETE "/api/v1/profiles/{name}/secrets/{bundle}/{input}" |rig, n| {
        vault(rig).await;
        let path = "/api/v1/profiles/h200/secrets/vault/token";
        let body = json!({ "value": format!("/run/{n}"), "actor": "ann" });
        rig.call("PUT", path, Some(&rig.admin), Some(body)).await.ok();
        (format!("{path}?actor=ann"), Value::Null)
    }
    POST "/api/v1/profiles" |_rig, n| {
        ("/api/v1/profiles".to_owned(), json!({ "name": format!("p{n}"), "spec": {} }))
    }
    PATCH "/api/v1/profiles/{name}" |_rig, n| {
        ("/api/v1/profiles/h200".to_owned(), json!({ "max_deploy_retry_attempts": n % 5 + 1 }))
    }
    PATCH "/api/v1/admin/maas-sites/{site}/profiles/{profile}" |_rig, n| {
        let path = "/api/v1/admin/maas-sites/lab/profiles/h200";
        (path.to_owned(), json!({ "max_deploy_retry_attempts": n % 5 + 1 }))
    }
    POST "/api/v1/profiles/{name}/remove" |rig, n| {
        rig.post("/api/v1/profiles", json!({ "name": format!("p{n}"), "spec": {} })).await.ok();
        (format!("/api/v1/profiles/p{n}/remove"), because())
    }
    POST "/api/v1/roce-assignments" |_rig, n| { ("/api/v1/roce-assignments".to_owned(), roce(n)) }
    POST "/api/v1/roce-assignments/change" |rig, n| {
        rig.post("/api/v1/roce-assignments", roce(n)).await.ok();
        let body = json!({
            "site": "lab", "hostname": format!("h{n}"), "interface": "ens9", "to_interface": "ens10",
        });
        ("/api/v1/roce-assignments/change".to_owned(), body)
    }
    POST "/api/v1/roce-assignments/remove" |rig, n| {
        rig.post("/api/v1/roce-assignments", roce(n)).await.ok();
        let body = json!({ "site": "lab", "hostname": format!("h{n}"), "interface": "ens9" });
        ("/api/v1/roce-assignments/remove".to_owned(), body)
    }
    POST "/api/v1/tokens" |_rig, n| {
        let grants = json!([{ "role": "viewer" }]);
        let body = json!({ "name": format!("t{n}"), "grants": grants, "reason": "for the test" });
        ("/api/v1/tokens".to_owned(), body)
    }
    POST "/api/v1/tokens/{token}/revoke" |rig, n| {
        let grants = json!([{ "role": "viewer" }]);
        let body = json!({ "name": format!("t{n}"), "grants": grants, "reason": "for the test" });
        rig.post("/api/v1/tokens", body).await.ok();
        (format!("/api/v1/tokens/t{n}/revoke"), json!({ "reason": "for the test" }))
    }
    POST "/api/v1/webhooks" |_rig, n| {
        let url = "https://hook.example/";
        let body = json!({ "name": format!("w{n}"), "url": url, "reason": "for the test" });
        ("/api/v1/webhooks".to_owned(), body)
    }
    POST "/api/v1/event-sinks/{sink}/remove" |rig, n| {
        let url = "https://hook.example/";
        let body = json!({ "name": format!("w{n}"), "url": url, "reason": "for the test" });
        rig.post("/api/v1/webhooks", body).await.ok();
        (format!("/api/v1/event-sinks/w{n}/remove"), json!({ "reason": "for the test" }))
    }
    POST "/api/v1/approvals/{approval}/approve" |rig, n| {
        let id = waiting(rig, n).await;
        (format!("/api/v1/approvals/{id}/approve"), because())
    }
    POST "/api/v1/approvals/{approval}/deny" |rig, n| {
        let id = waiting(rig, n).await;
        (format!("/api/v1/approvals/{id}/deny"), because())
    }
    POST "/api/v1/bundles" |_rig, n| {
        use base64::Engine as _;
        let bytes = archive(&format!("x{n}"), &json!({}));
        let archive = base64::engine::general_purpose::STANDARD.encode(bytes);
        ("/api/v1/bundles".to_owned(), json!({ "archive": archive, "actor": "ann" }))
    }
    POST "/api/v1/bundles/{bundle}/approve" |rig, n| {
        let name = bundle(rig, n).await;
        (format!("/api/v1/bundles/{name}/approve"), with(because(), &json!({ "site": "lab" })))
    }
    POST "/api/v1/bundles/{bundle}/withdraw" |rig, n| {
        let (name, order) = (bundle(rig, n).await, with(because(), &json!({ "site": "lab" })));
        rig.post(&format!("/api/v1/bundles/{name}/approve"), order.clone()).await.ok();
        (format!("/api/v1/bundles/{name}/withdraw"), order)
    }
    POST "/api/v1/images" |_rig, n| { ("/api/v1/images".to_owned(), image_record(n, "built")) }
    POST "/api/v1/images/{image}/transition" |rig, n| {
        rig.maas.images.lock().unwrap().insert(u64::from(n), image(n));
        for state in ["built", "verified", "uploaded"] {
            rig.post("/api/v1/images", image_record(n, state)).await.ok();
        }
        let body = json!({ "site": "lab", "to": "approved", "lint_waiver": "a rig" });
        (format!("/api/v1/images/{}/transition", image(n).0), with(because(), &body))
    }
    POST "/api/v1/image-verdicts" |_rig, n| {
        let body = json!({ "site": "lab", "sha256": image(n).1, "errors": 0 });
        ("/api/v1/image-verdicts".to_owned(), body)
    }
    POST "/api/v1/experiments/import" |_rig, n| {
        let conditions = json!({ "class": "h200", "profile": "h200", "maas_version": "3.7.3" });
        let runs = json!([{ "host": "h1", "time_to_active": 9.0 }]);
        let arm = json!({ "image": "noble", "conditions": conditions, "runs": runs });
        let body = json!({ "name": format!("e{n}"), "site": "lab", "arms": [arm, arm] });
        ("/api/v1/experiments/import".to_owned(), with(body, &because()))
    }
    POST "/api/v1/nodes" |_rig, n| {
        let body = json!({ "hostname": format!("n{n}"), "site": "lab", "profile": "h200" });
        ("/api/v1/nodes".to_owned(), body)
    }
    PATCH "/api/v1/nodes/{node}" |rig, n| {
        parked(rig, n).await;
        (format!("/api/v1/nodes/n{n}"), with(because(), &json!({ "architecture": "arm64/generic" })))
    }
    POST "/api/v1/nodes/{node}/runs" |rig, n| {
        let node = in_service(rig, n).await;
        (format!("/api/v1/nodes/{node}/runs"), with(because(), &json!({ "kind": "reimage" })))
    }
    POST "/api/v1/nodes/{node}/tasks" |rig, n| {
        let node = in_service(rig, n).await;
        let unit = "nginx.service";
        let operation = json!({ "kind": "service", "action": "restart", "unit": unit });
        let body = with(because(), &json!({ "operation": operation }));
        (format!("/api/v1/nodes/{node}/tasks"), body)
    }
    POST "/api/v1/admin/nodes/{node}/slice-topology/discovery" |rig, n| {
        let node = in_service(rig, n).await;
        (format!("/api/v1/admin/nodes/{node}/slice-topology/discovery"), because())
    }
    POST "/api/v1/admin/node-claims" |rig, n| {
        in_service(rig, n).await;
        let body = with(because(), &json!({ "site": "lab", "owner": format!("tenant-{n}") }));
        ("/api/v1/admin/node-claims".to_owned(), body)
    }
    POST "/api/v1/runs/{run}/resume" |rig, n| {
        let run = parked(rig, n).await;
        (format!("/api/v1/runs/{run}/resume"), because())
    }
    POST "/api/v1/runs/{run}/retry" |rig, n| {
        let run = parked(rig, n).await;
        (format!("/api/v1/runs/{run}/retry"), because())
    }
    POST "/api/v1/runs/{run}/cancel" |rig, n| {
        let run = parked(rig, n).await;
        (format!("/api/v1/runs/{run}/cancel"), because())
    }
    POST "/api/v1/runs/{run}/skip-check" |rig, n| {
        let run = checked(rig, n).await;
        let check = json!({ "check": "ca_bundle_valid", "seconds": 60 });
        (format!("/api/v1/runs/{run}/skip-check"), with(because(), &check))
    }
    POST "/api/v1/task-keys" |rig, _n| {
        drop_staged_key(rig).await;
        ("/api/v1/task-keys".to_owned(), json!({}))
    }
    POST "/api/v1/task-keys/activate" |rig, _n| {
        drop_staged_key(rig).await;
        rig.post("/api/v1/task-keys", json!({})).await.ok();
        ("/api/v1/task-keys/activate".to_owned(), json!({ "grace_seconds": 60 }))
    }
    POST "/api/v1/task-keys/retire" |rig, _n| {
        drop_staged_key(rig).await;
        rig.post("/api/v1/task-keys", json!({})).await.ok();
        let body = json!({ "public_key": staged_key(rig).await });
        ("/api/v1/task-keys/retire".to_owned(), body)
    }
    POST "/api/v1/batches" |_rig, n| { ("/api/v1/batches".to_owned(), batch(n)) }
    POST "/api/v1/batches/{batch}/stop" |rig, n| {
        rig.post("/api/v1/batches", batch(n)).await.ok();
        (format!("/api/v1/batches/b{n}/stop"), because())
    }
    POST "/api/v1/batches/{batch}/resume" |rig, n| {
        rig.post("/api/v1/batches", batch(n)).await.ok();
        rig.post(&format!("/api/v1/batches/b{n}/stop"), because()).await.ok();
        (format!("/api/v1/batches/b{n}/resume"), because())
    }
}
