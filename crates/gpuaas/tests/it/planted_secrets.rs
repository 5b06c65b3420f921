//! Recognisable secrets at every entrance, and then a search of everything that comes out: the log at
//! its most talkative, traces, metrics, the answers to every question, errors, the database with what is
//! beside it, and a backup. Each is found where it belongs, sealed or hashed elsewhere, and nowhere in
//! clear.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpuaas_store::{ExposeSecret as _, MasterKey, SecretString, Store};
use gpuaas_types::secret_kinds::SecretKind;
use serde_json::Value;

use crate::secrets::{MANIFEST, SCRIPT};
use crate::traces::Collector;
use crate::vault::{SECRET_ID, Vault};
use gpuaas_testkit::processes::{Rig, Server, until};

/// Files of the data folder that are a secret, for their owner alone.
const SECRET_FILES: [&str; 2] = ["admin-token", "master.key"];
/// Most bytes of a file that is looked at.
const LARGEST: u64 = 16 << 20;
/// Longest time for an answer; a stream of events has no end.
const LIMIT: Duration = Duration::from_secs(2);

/// Every file below `folder`.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// What was planted, by what it is: as it is, in base64, and in hexadecimal as PostgreSQL shows bytes.
#[derive(Default)]
pub(crate) struct Planted(BTreeMap<&'static str, [String; 3]>);

impl Planted {
    pub(crate) fn add(&mut self, what: &'static str, secret: &str) {
        let secret = secret.trim();
        assert!(secret.len() >= 12, "{what} is too short to be recognised");
        let encoded = STANDARD.encode(secret);
        let encoded = encoded.trim_end_matches('=').to_owned();
        let hex = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.0.insert(what, [secret.to_owned(), encoded, hex]);
    }

    /// The secrets that a text has in clear.
    pub(crate) fn found_in(&self, text: &[u8]) -> Vec<&'static str> {
        let text = String::from_utf8_lossy(text);
        let found = self
            .0
            .iter()
            .filter(|(_, forms)| forms.iter().any(|form| text.contains(form.as_str())));
        found.map(|(what, _)| *what).collect()
    }

    /// The secrets that any of the texts has in clear, and where.
    pub(crate) fn found_among(&self, texts: &[(String, Vec<u8>)]) -> Vec<String> {
        let found = texts.iter().map(|(name, text)| (name, self.found_in(text)));
        found
            .flat_map(|(name, found)| {
                found.into_iter().map(move |what| format!("{what} in {name}"))
            })
            .collect()
    }
}

/// Goes in at every entrance that a person has, one of them the wrong way.
fn plant(rig: &Rig, planted: &mut Planted) {
    let write = |name: &str, text: &str| fs::write(rig.path(name), format!("{text}\n")).unwrap();
    let api_key = rig.sim.value("api-key").to_owned();
    planted.add("site key", api_key.rsplit(':').next().unwrap());
    rig.add_site();
    planted.add("refused site key", "hushed-wrong-site-key");
    write("wrong.key", "consumer:token:hushed-wrong-site-key");
    let (url, wrong) = (rig.sim.value("listening"), rig.path("wrong.key"));
    rig.bad(&format!("site add other --url {url} --api-key-file {wrong}"), 3, "maas_key_refused");

    let folder = rig.dir.path().join("vault");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("bundle.yaml"), MANIFEST).unwrap();
    fs::write(folder.join("keep.sh"), SCRIPT).unwrap();
    rig.good(&format!("bundle publish {}", folder.display()));
    rig.good("bundle approve vault@1.0.0 --site lab --reason test");
    rig.good("profile add vault --set site_bootstrap_bundle_ref=vault@1.0.0");
    for (of, name) in [("site", "lab"), ("profile", "vault")] {
        let secret = format!("hushed-input-of-{of}");
        write("input", &secret);
        let file = rig.path("input");
        rig.good(&format!("{of} secret set {name} vault token --file {file}"));
        planted.add(if of == "site" { "site input" } else { "profile input" }, &secret);
    }

    let token = rig.path("service.token");
    rig.good(&format!("token add builder --role operator --to {token} --reason test"));
    planted.add("service token", &fs::read_to_string(&token).unwrap());
    let secret = rig.path("webhook.secret");
    rig.good(&format!(
        "webhook add away --url http://127.0.0.1:9/hook --to {secret} --reason test"
    ));
    planted.add("webhook secret", &fs::read_to_string(&secret).unwrap());

    planted.add("BMC password", "hushed-bmc-password");
    write("bmc.pass", "hushed-bmc-password");
}

/// Gives the machine to the control plane, with its password; `more` says whether that is waited for.
fn onboard(rig: &Rig, more: &str) {
    let ((mac, bmc), pass) = (rig.machine("j22u11"), rig.path("bmc.pass"));
    rig.good(&format!(
        "node onboard j22u11 --site lab --profile vault --bmc-address {bmc} --bmc-user admin \
         --bmc-pass-file {pass} --mac {mac} {more}"
    ));
}

/// The key of the region goes to a Vault, from which it is read with what opens that.
fn plant_in_vault(rig: &Rig, vault: &Vault, planted: &mut Planted) {
    planted.add("secret id of the Vault's role", SECRET_ID);
    let reference = "--api-key-ref vault:secret/maas/lab#api_key";
    rig.bad(&format!("site set lab {reference}"), 3, "vault_secret_missing");
    vault.put(rig.sim.value("api-key"));
    rig.good(&format!("site set lab {reference}"));
    let token = vault.with(|state| state.tokens.last().cloned()).unwrap();
    planted.add("token of the Vault", &token);
}

/// What the host was given, from the one file that only its root reads.
fn plant_of_host(hosts: &Path, planted: &mut Planted) {
    let given = files(hosts).into_iter().find(|path| path.ends_with("bootstrap.json")).unwrap();
    let given: Value = serde_json::from_slice(&fs::read(given).unwrap()).unwrap();
    planted.add("bootstrap token", given["bootstrap_token"].as_str().unwrap());
    planted.add("enrollment token", given["enrollment_token"].as_str().unwrap());
}

/// A line in the midst of a key in PEM, which tells it from every other one.
pub(crate) fn middle_of_pem(pem: &str) -> String {
    let text = pem.replace("\\n", "\n");
    let begin = text.find("PRIVATE KEY").unwrap();
    let lines = text[begin..].lines().skip(1);
    lines.map(str::trim).find(|line| line.len() >= 40).unwrap().to_owned()
}

/// What is only made here: read as `gpuaas serve` reads it, from the database that it has left.
fn plant_of_database(rig: &Rig, planted: &mut Planted) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let key = MasterKey::load_or_create(Path::new(&rig.path("data/master.key"))).unwrap();
        let url = format!("sqlite:{}", rig.path("data/gpuaas.db"));
        let store = Store::open(&url, key).await.unwrap();
        let none = SecretString::from("proposed".to_owned());
        let signing = store.ensure_signing_key(&none).await.unwrap();
        planted.add("bundle signing key", &middle_of_pem(signing.expose_secret()));
        let authority = store.ensure_node_authority(&none).await.unwrap();
        planted.add("key of the authority", &middle_of_pem(authority.expose_secret()));
        for task_key in store.task_keys().await.unwrap().keys {
            let secret = store.task_key_secret(&task_key.public_key).await.unwrap();
            planted.add("task key", &middle_of_pem(secret.expose_secret()));
        }
        store.close().await;
    });
}

/// The value of a parameter in a path.
fn parameter(name: &str, run: &str) -> Option<String> {
    let value = match name {
        "site" => "lab",
        "profile" => "vault",
        "node" | "id" | "hostname" => "j22u11",
        "run" => run,
        "bundle" | "reference" => "vault@1.0.0",
        "name" => "vault",
        "version" => "1.0.0",
        _ => return None,
    };
    Some(value.to_owned())
}

/// The answers to every question of the API's document, whatever they are.
pub(crate) fn every_answer(
    server: &Server,
    (data, authority): (&Path, Option<&str>),
    run: &str,
) -> Vec<(String, Vec<u8>)> {
    gpuaas_client::install_cryptography();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = server.value("listening").to_owned();
    let token = fs::read_to_string(data.join("admin-token")).unwrap();
    let authority = authority.map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
    runtime.block_on(async {
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only(authority);
        let client = builder.build().unwrap();
        let get = async |path: &str| {
            let request = client.get(format!("{url}{path}")).bearer_auth(token.trim());
            let mut bytes = Vec::new();
            let read = async {
                let mut answer = request.send().await.unwrap();
                while let Some(chunk) = answer.chunk().await.unwrap() {
                    bytes.extend_from_slice(&chunk);
                }
            };
            let is_whole = tokio::time::timeout(LIMIT, read).await.is_ok();
            assert!(is_whole || path.contains("event"), "{path} does not end");
            bytes
        };
        let document = get("/api/v1/openapi.json").await;
        let document: Value = serde_json::from_slice(&document).unwrap();
        let mut answers = vec![("/metrics".to_owned(), get("/metrics").await)];
        for (path, operations) in document["paths"].as_object().unwrap() {
            if operations.get("get").is_none() {
                continue;
            }
            let parts = path.split('/').map(|part| {
                let name = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
                // Who knows no such name is answered with an error, which is looked at as well.
                let value = name.map(|name| parameter(name, run).unwrap_or("none".to_owned()));
                value.unwrap_or_else(|| part.to_owned())
            });
            let path = parts.collect::<Vec<_>>().join("/");
            let bytes = get(&path).await;
            answers.push((path, bytes));
        }
        answers
    })
}

#[test]
fn planted_secrets_are_found_sealed_and_nowhere_in_clear() {
    let hosts = tempfile::tempdir().unwrap();
    let collector = Collector::start();
    let vault = Vault::start();
    let options = vault.options(&["--log", "trace", "--otlp-endpoint", &collector.endpoint]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut rig = Rig::both(&["--hosts-dir", hosts.path().to_str().unwrap()], &options);
    let mut planted = Planted::default();
    plant(&rig, &mut planted);
    onboard(&rig, "--wait --timeout 120");
    plant_in_vault(&rig, &vault, &mut planted);
    plant_of_host(hosts.path(), &mut planted);
    planted.add("admin token", &fs::read_to_string(rig.path("data/admin-token")).unwrap());
    planted.add("master key", &fs::read_to_string(rig.path("data/master.key")).unwrap());

    let run = rig.json("node show j22u11 -o json")["run"]["id"].as_str().unwrap().to_owned();
    let data = rig.dir.path().join("data");
    let mut texts = every_answer(&rig.control_plane, (&data, None), &run);
    assert!(texts.len() > 30, "{} answers are not every one", texts.len());
    let well = texts.iter().filter(|(_, bytes)| !bytes.starts_with(b"{\"type\":")).count();
    assert!(well > 25, "{well} answers are no error");
    let (data, to, key) = (rig.path("data"), rig.path("backup"), rig.path("backup.key"));
    rig.good(&format!("backup --data {data} --to {to} --key-file {key}"));
    planted.add("key of backups", &fs::read_to_string(&key).unwrap());
    // The database as it is while it is used, its log included.
    let read = |folder: &str| {
        // Of the artifacts, the agent's executable is the one that is large.
        let is_looked_at =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() <= LARGEST);
        let named =
            |path: PathBuf| (path.display().to_string(), fs::read(&path).unwrap_or_default());
        files(Path::new(folder)).into_iter().filter(is_looked_at).map(named).collect::<Vec<_>>()
    };
    texts.extend(read(&data));
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    plant_of_database(&rig, &mut planted);
    texts.extend(read(&data));
    texts.extend(read(&to));
    let log = rig.control_plane.log();
    assert!(log.contains("TRACE"), "the log is not at its most talkative");
    texts.push(("the log".to_owned(), log.into_bytes()));
    texts.push(("the traces".to_owned(), collector.text().into_bytes()));

    let mut clear = Vec::new();
    for (name, text) in &texts {
        let is_secret = SECRET_FILES.iter().any(|file| Path::new(name).ends_with(file));
        match planted.found_in(text) {
            found if is_secret => assert_eq!(found.len(), 1, "{name}: the search finds nothing"),
            found => clear.extend(found.into_iter().map(|what| format!("{what} in {name}"))),
        }
    }
    assert_eq!(clear, Vec::<String>::new());
    assert!(planted.0.len() >= 15, "{:?}", planted.0.keys());
}

/// What MAAS keeps of a deployment, with every part of it decoded.
#[test]
fn user_data_has_the_secrets_that_the_table_names_and_no_other() {
    const IN_USER_DATA: &str = "the node's user-data";
    let hosts = tempfile::tempdir().unwrap();
    let folder = hosts.path().to_str().unwrap();
    let mut rig = Rig::with(&["--hosts", "none", "--hosts-dir", folder]);
    let mut planted = Planted::default();
    plant(&rig, &mut planted);
    onboard(&rig, "");
    let mut found = None;
    until("the machine fetches its user-data", || {
        found = files(hosts.path()).into_iter().find(|path| path.ends_with("user-data"));
        found.is_some()
    });
    let user_data = fs::read(found.unwrap()).unwrap();
    let parsed = gpuaas_artifact::parse_user_data(&user_data).unwrap();
    planted.add("bootstrap token", &parsed.inputs.bootstrap_token);
    planted.add("enrollment token", &parsed.inputs.enrollment_token);
    planted.add("admin token", &fs::read_to_string(rig.path("data/admin-token")).unwrap());
    planted.add("master key", &fs::read_to_string(rig.path("data/master.key")).unwrap());
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    plant_of_database(&rig, &mut planted);

    let mut texts = vec![("user-data".to_owned(), user_data)];
    texts.push(("inputs".to_owned(), serde_json::to_vec(&parsed.inputs).unwrap()));
    for (path, _, text) in parsed.files {
        texts.push((path, text.into_bytes()));
    }
    texts.extend(parsed.scripts);
    let found: BTreeSet<&str> = texts.iter().flat_map(|(_, text)| planted.found_in(text)).collect();
    // The input of the profile stands for that of the site.
    assert_eq!(found, BTreeSet::from(["bootstrap token", "enrollment token", "profile input"]));
    let named = SecretKind::ALL.iter().filter(|kind| kind.row().elsewhere.contains(IN_USER_DATA));
    let named: Vec<SecretKind> = named.copied().collect();
    let expected =
        [SecretKind::BundleInput, SecretKind::BootstrapToken, SecretKind::EnrollmentToken];
    assert_eq!(named, expected);
}
