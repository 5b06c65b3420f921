//! One secret of each kind, planted through the API, and where it is found afterwards: only where
//! `docs/reference/secrets.md` says.

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_store::{ExposeSecret as _, SecretString, TokenPurpose};
use gpuaas_types::access::OPERATIONS;
use gpuaas_types::agent::TaskKeys;
use gpuaas_types::secret_kinds::{SecretKind, Shown, Stored};
use serde_json::{Value, json};

use crate::authority_rollover;
use crate::bundles::{archive, publish};
use crate::rig::{Answer, KEY, Rig};
use crate::slice_claims::{CLAIMS, claim, slice_host_with_agent};
use crate::tls::beat;

/// A planted secret, and the requests whose response may hold it.
struct Planted {
    kind: SecretKind,
    text: String,
}

/// Kinds that are the private half of a key.
const PRIVATE_KEYS: [SecretKind; 4] =
    [SecretKind::NodeKey, SecretKind::TaskKey, SecretKind::AuthorityKey, SecretKind::BundleKey];

/// Kinds that a program reads from a file of its host, and gives to neither the API nor the store.
const OF_PROGRAMS: [SecretKind; 6] = [
    SecretKind::VaultSecretId,
    SecretKind::DatabasePassword,
    SecretKind::NatsCredentials,
    SecretKind::ListenerKey,
    SecretKind::BackupKey,
    SecretKind::SignInToken,
];

/// A change with an idempotency key.
async fn keyed(rig: &Rig, (method, path): (&str, &str), body: &Value) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {}", rig.admin))
        .header("idempotency-key", format!("{method} {path}"))
        .body(Body::from(body.to_string()));
    rig.send(request.unwrap()).await
}

/// Sends a change twice; answers the first response, which alone may hold what the change made, and what
/// the second one says.
async fn twice(rig: &Rig, route: (&str, &str), body: Value) -> (Value, String) {
    let first = keyed(rig, route, &body).await;
    assert!(first.status < 300, "{route:?}: {} {}", first.status, first.json());
    let again = keyed(rig, route, &body).await;
    assert_eq!(again.status, first.status, "{route:?} again");
    (first.json(), String::from_utf8_lossy(&again.bytes).into_owned())
}

/// Plants a secret of each kind that the API takes or makes. Answers them, and each response that is no
/// first one.
async fn plant(rig: &Rig, claim_id: &str) -> (Vec<Planted>, Vec<String>) {
    let (mut planted, mut replayed) = (Vec::new(), Vec::new());
    let mut add = |kind, text: &str| planted.push(Planted { kind, text: text.to_owned() });
    for kind in SecretKind::ALL {
        match kind {
            SecretKind::MaasApiKey => add(*kind, KEY.rsplit(':').next().unwrap()),
            SecretKind::AdminToken => add(*kind, &rig.admin),
            SecretKind::MasterKey => add(*kind, &"07".repeat(32)),
            SecretKind::BmcPassword => {
                let body = json!({ "hostname": "bmc", "site": "lab", "profile": "h200",
                    "bmc_address": "192.0.2.9", "power_type": "ipmi", "bmc_user": "root",
                    "bmc_password": "PLANTED-bmc" });
                let (first, again) = twice(rig, ("POST", "/api/v1/nodes"), body).await;
                replayed.extend([first.to_string(), again]);
                add(*kind, "PLANTED-bmc");
            }
            SecretKind::AccessToken => {
                let body =
                    json!({ "name": "ci", "grants": [{ "role": "viewer" }], "reason": "test" });
                let (first, again) = twice(rig, ("POST", "/api/v1/tokens"), body).await;
                replayed.push(again);
                add(*kind, first["token"].as_str().unwrap());
            }
            SecretKind::WebhookSecret => {
                let body = json!({ "name": "chat", "url": "https://hooks.example/gpuaas",
                    "reason": "chat" });
                let (first, again) = twice(rig, ("POST", "/api/v1/webhooks"), body).await;
                replayed.push(again);
                add(*kind, first["secret"].as_str().unwrap());
            }
            SecretKind::BundleInput => {
                let inputs = json!({ "inputs": { "token": { "type": "path", "about": "x",
                    "environment": "TOKEN", "secret": true } } });
                publish(rig, &archive("vault", &inputs), None).await.ok();
                let path = "/api/v1/sites/lab/secrets/vault/token";
                let body = json!({ "value": "/run/PLANTED-input", "actor": "ann" });
                let (first, again) = twice(rig, ("PUT", path), body).await;
                replayed.extend([first.to_string(), again]);
                add(*kind, "PLANTED-input");
            }
            SecretKind::BootstrapToken | SecretKind::EnrollmentToken => {
                let purpose = match kind {
                    SecretKind::BootstrapToken => TokenPurpose::Bootstrap,
                    _ => TokenPurpose::Enrollment,
                };
                let node = rig.onboard(&format!("token-{}", purpose.as_str())).await;
                add(*kind, &rig.token(purpose, node.node_id, node.run_id, None).await);
            }
            SecretKind::GuestUserData => {
                let body = json!({ "image": "debian-13.raw",
                    "user_data": "#cloud-config\npassword: PLANTED-guest\n",
                    "actor": "ada", "reason": "a lease" });
                let path = format!("{CLAIMS}/{claim_id}/launch");
                let (first, again) = twice(rig, ("POST", &path), body).await;
                replayed.extend([first.to_string(), again]);
                add(*kind, "PLANTED-guest");
            }
            kind if PRIVATE_KEYS.contains(kind) => {}
            kind => assert!(OF_PROGRAMS.contains(kind), "{kind} is planted nowhere"),
        }
    }
    (planted, replayed)
}

/// Every response to a GET of the admin API that concerns what was planted.
async fn responses(rig: &Rig, claim_id: &str) -> Vec<String> {
    let mut all = Vec::new();
    for row in OPERATIONS.iter().filter(|row| row.method == "GET") {
        if row.path == "/api/v1/events" {
            continue;
        }
        let path = row.path.replace("{name}", "lab").replace("{site}", "lab");
        let path = path.replace("{profile}", "h200").replace("{node}", "bmc");
        let path = path.replace("{claim}", claim_id).replace("{bundle}", "vault@1.0.0");
        all.push(String::from_utf8_lossy(&rig.get(&path).await.bytes).into_owned());
    }
    for path in ["/api/v1/nodes/j22u11", "/api/v1/nodes/j22u11/timeline", "/api/v1/profiles/h200"] {
        all.push(String::from_utf8_lossy(&rig.get(path).await.bytes).into_owned());
    }
    all
}

/// The bytes of the database's files and of a backup.
fn files(rig: &Rig) -> Vec<Vec<u8>> {
    let url = &rig.test_database.url;
    let copy = tempfile::tempdir().unwrap();
    let backup = copy.path().join("backup.db");
    gpuaas_store::copy_database_file(url.as_ref(), &backup).unwrap();
    let files = [url.into(), format!("{url}-wal").into(), backup];
    files.iter().filter_map(|file: &std::path::PathBuf| std::fs::read(file).ok()).collect()
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}

/// What a private key is known by in a text or in bytes: its lines in base64, as PEM has them, but for the
/// last ones, which are of the public half; its DER, and that in hexadecimal.
fn forms(pem: &str) -> Vec<Vec<u8>> {
    let block = pem.split("-----BEGIN ").find(|block| block.contains("PRIVATE KEY-----")).unwrap();
    let lines: Vec<&str> = block.lines().skip(1).take_while(|line| !line.contains("---")).collect();
    let der = BASE64.decode(lines.concat()).unwrap();
    let hex: String = der.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut forms: Vec<Vec<u8>> =
        lines.iter().take(2).map(|line| line.as_bytes().to_vec()).collect();
    forms.retain(|line| line.len() >= 40);
    forms.extend([der, hex.into_bytes()]);
    forms
}

#[tokio::test]
async fn secrets_are_found_only_where_the_table_says() {
    let (rig, ..) = slice_host_with_agent().await;
    if !std::path::Path::new(&rig.test_database.url).exists() {
        return test_report::skip("sqlite", "the files of the database are searched");
    }
    let made = rig.post(CLAIMS, claim(1)).await.ok();
    let claim_id = made["id"].as_str().unwrap();
    let (planted, replayed) = plant(&rig, claim_id).await;
    let (responses, files) = (responses(&rig, claim_id).await, files(&rig));
    assert!(responses.len() > 30 && files.len() >= 2, "{} {}", responses.len(), files.len());
    for Planted { kind, text } in &planted {
        let row = kind.row();
        assert!(text.len() >= 10, "{kind}: {text:?} is found by chance");
        for response in responses.iter().chain(&replayed) {
            assert!(!response.contains(text), "{kind} in a response: {response}");
        }
        let is_found = files.iter().any(|file| holds(file, text.as_bytes()));
        assert!(!is_found, "{kind} is in a file; the table says {}", row.stored);
        match row.stored {
            Stored::Sealed | Stored::Nowhere => {}
            Stored::Digest => {
                let digest = gpuaas_store::sha256(text);
                let is_there = files.iter().any(|file| holds(file, &digest));
                assert!(is_there, "{kind}: its SHA-256 is in no file");
            }
        }
    }
    let once: Vec<SecretKind> =
        SecretKind::ALL.iter().copied().filter(|kind| kind.row().shown == Shown::Once).collect();
    assert_eq!(once, [SecretKind::AccessToken, SecretKind::WebhookSecret]);
    // The search finds what is there: a name is stored and shown as it is.
    assert!(files.iter().any(|file| holds(file, b"token-bootstrap")));
    assert!(responses.iter().any(|response| response.contains("token-bootstrap")));
}

/// The private half of each key, planted as `gpuaas serve` and an agent make them, on real sockets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_keys_are_found_only_where_the_table_says() {
    let tls = authority_rollover::started().await;
    let rig = &tls.rig;
    if !std::path::Path::new(&rig.test_database.url).exists() {
        return test_report::skip("sqlite", "the files of the database are searched");
    }
    let agent = tls.enrolled("j22u11").await;
    let keys: TaskKeys = serde_json::from_value(rig.get("/api/v1/task-keys").await.ok()).unwrap();
    let bundle_key = SecretString::from(rig.bundle_key.to_pem());
    let mut planted = Vec::new();
    for kind in PRIVATE_KEYS {
        let pem = match kind {
            SecretKind::NodeKey => agent.key.pem.clone().into(),
            SecretKind::TaskKey => {
                rig.store.task_key_secret(&keys.keys[0].public_key).await.unwrap()
            }
            SecretKind::AuthorityKey => rig.store.authority_key(1).await.unwrap(),
            kind => {
                assert_eq!(kind, SecretKind::BundleKey);
                rig.store.ensure_signing_key(&bundle_key).await.unwrap()
            }
        };
        assert_eq!(kind.row().shown, Shown::Never);
        planted.push((kind, forms(pem.expose_secret())));
    }
    let client = agent.client(&tls);
    let heartbeat = tls.post(&client, "/agent/v1/heartbeat", None, &beat(&agent.node)).await;
    assert_eq!(heartbeat.0, 200, "{}", heartbeat.1);
    let tasks = client.get(format!("{}/agent/v1/tasks", tls.nodes)).send().await.unwrap();
    let mut responses = responses(rig, "none").await;
    responses.push(serde_json::to_string(&agent.certificate).unwrap());
    responses.extend([heartbeat.1.to_string(), tasks.text().await.unwrap()]);
    let files = files(rig);
    for (kind, forms) in &planted {
        assert!(forms.len() >= 3, "{kind}");
        for form in forms {
            let response = responses.iter().find(|response| holds(response.as_bytes(), form));
            assert_eq!(response, None, "{kind} is in a response");
            let is_found = files.iter().any(|file| holds(file, form));
            assert!(!is_found, "{kind} is in a file; the table says {}", kind.row().stored);
        }
    }
    // The search finds what is there: certificates of the same keys are stored and shown as they are.
    let anchor = tls.issuer.anchors_pem();
    let line = anchor.lines().nth(1).unwrap();
    assert!(files.iter().any(|file| holds(file, line.as_bytes())));
    let line = agent.certificate.chain_pem.lines().nth(1).unwrap();
    assert!(responses.iter().any(|response| holds(response.as_bytes(), line.as_bytes())));
}

#[test]
fn secrets_of_programs_are_neither_stored_nor_shown() {
    for kind in OF_PROGRAMS {
        assert_eq!(
            (kind.row().stored, kind.row().shown),
            (Stored::Nowhere, Shown::Never),
            "{kind}"
        );
    }
}
