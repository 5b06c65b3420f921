//! Starts that are refused, and what they leave behind.

use std::fs;
use std::path::Path;

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_store::{MasterKey, SecretString, Store};
use gpuaas_types::SiteId;
use gpuaas_types::spec::SiteSpec;

use super::{NodeListenerOptions, ServeHandle, ServeOptions, start};

fn options(dir: &Path) -> ServeOptions {
    let agent = dir.join("agent");
    fs::write(&agent, "#!/bin/sh\n").unwrap();
    let mut options = ServeOptions::new(([127, 0, 0, 1], 0).into(), dir.join("data"));
    options.agent_binary = Some(agent);
    options
}

async fn started(options: ServeOptions) -> ServeHandle {
    gpuaas_client::install_cryptography();
    start(options).await.unwrap()
}

async fn refused(options: ServeOptions, code: &str) -> Failure {
    gpuaas_client::install_cryptography();
    let failure = start(options).await.map(drop).unwrap_err();
    assert_eq!(failure.code(), code, "{failure}");
    assert!(!failure.problem.hint.is_empty(), "{failure}");
    failure
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_told_an_address_that_they_can_reach() {
    let dir = tempfile::tempdir().unwrap();
    let listen = |advertise: Option<&str>| {
        let mut options = options(dir.path());
        options.nodes = NodeListenerOptions::tls(([0, 0, 0, 0], 0).into());
        options.advertise = advertise.map(str::to_owned);
        options
    };
    let failure = refused(listen(None), "advertise_missing").await;
    assert_eq!(failure.exit, Exit::Usage);
    refused(listen(Some("https://[::]:8443")), "advertise_missing").await;
    assert!(!dir.path().join("data").exists(), "nothing was written");

    let handle = started(listen(Some("https://127.0.0.1:8443"))).await;
    let mut spec = SiteSpec::new("lab", "http://127.0.0.1:5240/MAAS");
    let (now, key) = (handle.engine.clock().now(), SecretString::from("a:b:c".to_owned()));
    let add = |spec: SiteSpec| {
        let id = SiteId(uuid::Uuid::new_v4());
        handle.store.create_site(
            now,
            id,
            spec,
            Default::default(),
            &key,
            gpuaas_store::NewAuditEntry::in_test(),
        )
    };
    add(spec.clone()).await.unwrap();
    spec.name = "north".to_owned();
    spec.url = "http://maas.example:5240/MAAS".to_owned();
    add(spec).await.unwrap();
    handle.shutdown().await;
    let loopback = || listen(Some("https://localhost:8443"));
    let failure = refused(loopback(), "advertise_loopback").await;
    assert!(failure.problem.detail.contains("site north"), "{failure}");
    started(listen(Some("https://gpuaas.example:8443"))).await.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_elsewhere_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let mut plain = options(dir.path());
    plain.database = Some("postgres://u@192.0.2.1/d?sslmode=require".to_owned());
    let failure = refused(plain, "database_insecure").await;
    assert!(failure.problem.detail.contains("192.0.2.1"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_master_key_is_named_and_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    started(options(dir.path())).await.shutdown().await;
    let key = dir.path().join("data/master.key");
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    refused(options(dir.path()), "master_key_missing").await;
    assert!(!key.exists(), "another key would hide the cause");
    // Another one opens nothing.
    MasterKey::load_or_create(&key).unwrap();
    refused(options(dir.path()), "master_key_wrong").await;
    fs::write(&key, "short").unwrap();
    refused(options(dir.path()), "master_key_unreadable").await;
    fs::write(&key, kept).unwrap();
    started(options(dir.path())).await.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_admin_token_is_replaced_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let handle = started(options(dir.path())).await;
    let first = handle.admin_token.clone().unwrap();
    handle.shutdown().await;
    let file = dir.path().join("data/admin-token");
    fs::write(&file, [0xff, 0xfe]).unwrap();
    refused(options(dir.path()), "admin_token_unreadable").await;
    fs::write(&file, "gpadmin_other\n").unwrap();
    let handle = started(options(dir.path())).await;
    assert_eq!(handle.admin_token, None);
    assert!(super::admin_token::unknown(&file).contains("is not in this database"));
    handle.shutdown().await;
    fs::remove_file(&file).unwrap();
    let handle = started(options(dir.path())).await;
    assert_eq!((handle.admin_token.as_deref(), file.exists()), (None, false));
    assert!(super::admin_token::unknown(&file).contains("`gpuaas token reset --data DIR"));
    handle.shutdown().await;

    let mut anew = options(dir.path());
    anew.new_admin_token = true;
    let handle = started(anew).await;
    let second = handle.admin_token.clone().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), second);
    let status = async |token: &str| {
        let client = reqwest::Client::new();
        let request = client.get(format!("{}/api/v1/sites", handle.url())).bearer_auth(token);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((status(&first).await, status(&second).await), (401, 200));
    handle.shutdown().await;
}

/// Break-glass: without the API, beside a control plane that runs and without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_reset_at_the_database_whether_a_control_plane_runs_or_not() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let now = gpuaas_types::Timestamp::from_micros(1_700_000_000_000_000);
    let keys = Default::default();
    let reset =
        async || super::admin_token::reset(&data, None, &keys, now, "ada", "it leaked").await;
    let failure = reset().await.unwrap_err();
    assert_eq!((failure.code(), data.exists()), ("nothing_to_reset", false), "{failure}");

    let handle = started(options(dir.path())).await;
    let client = reqwest::Client::new();
    let status = async |token: &str| {
        let request = client.get(format!("{}/api/v1/sites", handle.url())).bearer_auth(token);
        request.send().await.unwrap().status().as_u16()
    };
    let first = handle.admin_token.clone().unwrap();
    let file = reset().await.unwrap();
    let second = fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!((status(&first).await, status(&second).await), (401, 200));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // What cannot be kept does not count, and ends nothing.
    fs::rename(&file, data.join("away")).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(reset().await.unwrap_err().code(), "data_unwritable");
    assert_eq!(status(&second).await, 200);
    assert!(!data.join("admin-token.new").exists());
    fs::remove_dir(&file).unwrap();
    let audited = handle.store.audit_entries(0, 100).await.unwrap();
    let resets: Vec<_> = audited.iter().filter(|one| one.entry.action == "token.reset").collect();
    let [one] = resets[..] else { panic!("{resets:?}") };
    assert_eq!((one.entry.actor.as_str(), one.entry.subject.as_str()), ("host (ada)", "admin"));
    assert_eq!(one.entry.detail["reason"], "it leaked");
    handle.shutdown().await;

    reset().await.unwrap();
    let third = fs::read_to_string(&file).unwrap().trim().to_owned();
    let handle = started(options(dir.path())).await;
    assert_eq!(handle.admin_token.as_deref(), Some(third.as_str()));
    handle.shutdown().await;
    fs::remove_file(data.join("master.key")).unwrap();
    assert_eq!(reset().await.unwrap_err().code(), "nothing_to_reset");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_database_is_named_and_left_as_it_is() {
    // A folder of its own with another start's key: what SQLite still keeps of a file that was open
    // would heal it.
    let (made, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    started(options(made.path())).await.shutdown().await;
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::copy(made.path().join("data/master.key"), data.join("master.key")).unwrap();
    let file = data.join("gpuaas.db");
    let text = "no database at all, but long enough to be one. ".repeat(100);
    fs::write(&file, &text).unwrap();
    let failure = refused(options(dir.path()), "database_corrupt").await;
    assert!(failure.problem.detail.contains("gpuaas.db"), "{failure}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let store = Store::open("", MasterKey::from_bytes([1; 32])).await;
    assert_eq!(store.map(drop).unwrap_err().code(), "database_url_invalid");
}

/// Asks the API of a control plane with its admin token; the body of a good answer.
async fn ask(handle: &ServeHandle, verb: &str, body: serde_json::Value) -> serde_json::Value {
    let url = format!("{}/api/v1/authority{verb}", handle.url());
    let token = handle.admin_token.clone().unwrap();
    let request = reqwest::Client::new().post(url).bearer_auth(token).json(&body);
    let answer = request.send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    answer.json().await.unwrap()
}

/// Whether the listener of nodes shows a certificate that leads to this anchor.
async fn leads_to(handle: &ServeHandle, anchor: &str) -> bool {
    let anchors = reqwest::Certificate::from_pem_bundle(anchor.as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only(anchors).build().unwrap();
    client.get(format!("{}/bootstrap/v1/health", handle.node_url)).send().await.is_ok()
}

async fn until(what: &str, reached: impl AsyncFn() -> bool) {
    use gpuaas_engine::{Clock as _, RealClock};
    let deadline = RealClock.now().plus_seconds(test_report::patience_seconds(30.0));
    while !reached().await {
        assert!(RealClock.now() < deadline, "{what}: not reached in time");
        RealClock.sleep_until(RealClock.now().plus_seconds(0.05)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_authority_takes_over_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let trusted = || {
        let text = fs::read_to_string(dir.path().join("data/ca.pem")).unwrap_or_default();
        let end = "-----END CERTIFICATE-----\n";
        text.split_inclusive(end).map(str::to_owned).collect::<Vec<_>>()
    };
    let body = serde_json::json!({ "reason": "it ends", "actor": "ann" });
    let handle = started(options(dir.path())).await;
    let first = trusted();
    assert_eq!(first.len(), 1);
    ask(&handle, "", body.clone()).await;
    until("the staged one is handed out", async || trusted().len() == 2).await;
    let both = trusted();
    assert_eq!(both[0], first[0]);
    assert!(leads_to(&handle, &both[0]).await && !leads_to(&handle, &both[1]).await);
    handle.shutdown().await;

    let handle = started(options(dir.path())).await;
    assert_eq!(trusted(), both);
    ask(&handle, "/activate", body.clone()).await;
    until("the listener has another certificate", async || leads_to(&handle, &both[1]).await).await;
    assert!(leads_to(&handle, &both[0]).await, "for nodes that know the former one alone");
    handle.shutdown().await;

    let handle = started(options(dir.path())).await;
    assert!(leads_to(&handle, &both[0]).await && leads_to(&handle, &both[1]).await);
    ask(&handle, "/retire", body).await;
    until("one is trusted", async || trusted() == both[1..]).await;
    until("the former one leads nowhere", async || !leads_to(&handle, &both[0]).await).await;
    handle.shutdown().await;
    let handle = started(options(dir.path())).await;
    assert_eq!(trusted(), both[1..]);
    assert!(leads_to(&handle, &both[1]).await && !leads_to(&handle, &both[0]).await);
    handle.shutdown().await;
}
