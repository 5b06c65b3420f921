//! `gpuaas serve` with a Vault, which is the stand-in: a master key that its Transit decrypts, and API
//! keys of regions that its KV keeps.

use std::path::Path;

use gpuaas_testkit::vault_stand_in::{ROLE_ID, StandInState, VaultStandIn};
use serde_json::json;
use tokio::runtime::Runtime;

use gpuaas_testkit::processes::{Rig, agent, gpuaas, until};

/// What proves the role.
pub(crate) const SECRET_ID: &str = "hushed-secret-id";

/// A stand-in on a runtime of its own, and the file of its secret id.
pub(crate) struct Vault {
    stand_in: VaultStandIn,
    folder: tempfile::TempDir,
    _runtime: Runtime,
}

impl Vault {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let stand_in = runtime.block_on(VaultStandIn::start(SECRET_ID)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret-id"), SECRET_ID).unwrap();
        Self { stand_in, folder, _runtime: runtime }
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut StandInState) -> T) -> T {
        self.stand_in.with(look)
    }

    /// What a control plane is told of it, `more` included.
    pub(crate) fn options(&self, more: &[&str]) -> Vec<String> {
        let file = self.folder.path().join("secret-id").display().to_string();
        let named = ["--vault-url", &self.stand_in.url, "--vault-role-id", ROLE_ID];
        let named = [&named[..], &["--vault-secret-id-file", &file], more].concat();
        named.into_iter().map(str::to_owned).collect()
    }

    /// Keeps a region's key at `secret/maas/lab#api_key`.
    pub(crate) fn put(&self, key: &str) {
        let fields = json!({ "api_key": key });
        self.with(|state| state.secrets.insert("secret/maas/lab".to_owned(), fields));
    }
}

fn words(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

/// Starts a control plane on the data folder of `rig` that is to end with `exit`. Answers its words.
fn refused_start(rig: &Rig, options: &[&str], exit: i32, code: &str) -> String {
    let (agent, data) = (agent(), rig.path("data"));
    let any = ["serve", "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0"];
    let mut command = gpuaas();
    command.args(any).args(["--agent-binary", agent.to_str().unwrap(), "--data", &data]);
    let output = command.args(options).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(exit), "{stderr}");
    assert!(stderr.contains(&format!("error {code}: ")), "{stderr}");
    assert!(stderr.contains("hint: "), "{stderr}");
    stderr
}

#[test]
fn transit_opens_the_master_key_at_each_start() {
    let vault = Vault::start();
    vault.with(|state| state.transit_keys.insert("transit/gpuaas".to_owned(), 1));
    let options = vault.options(&["--master-key", "vault-transit:transit/gpuaas"]);
    let options = words(&options);
    let mut rig = Rig::serving(&options);
    rig.add_site();
    rig.good("profile add plain --set site_bootstrap_bundle_ref=site-base@1.0.0");
    let onboard = |rig: &Rig, host: &str| {
        let ((mac, bmc), pass) = (rig.machine(host), rig.path("bmc.pass"));
        rig.good(&format!(
            "node onboard {host} --site lab --profile plain --bmc-address {bmc} --bmc-user admin \
             --bmc-pass-file {pass} --mac {mac} --wait --timeout 120"
        ));
    };
    onboard(&rig, "j22u11");
    assert!(!Path::new(&rig.path("data/master.key")).exists(), "no key lies in the clear");
    // A Vault that is sealed stops no control plane that runs.
    vault.with(|state| state.sealed = true);
    rig.good(&format!("site set lab --api-key-file {}", rig.path("maas.key")));
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    let sealed = refused_start(&rig, &options, 1, "vault_unusable");
    assert!(sealed.contains("sealed") && sealed.contains("unseal"), "{sealed}");
    let none = refused_start(&rig, &options[6..], 2, "command_line_invalid");
    assert!(none.contains("--vault-url"), "{none}");
    vault.with(|state| state.sealed = false);
    // Another version of the key: what the one before encrypted opens still.
    vault.with(|state| state.transit_keys.insert("transit/gpuaas".to_owned(), 2));
    rig.start_again("again.log", &options);
    onboard(&rig, "j22u15");
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    let keys = gpuaas()
        .args(["key", "show", "--data", &rig.path("data"), "-o", "json"])
        .args(&options)
        .output();
    let keys: serde_json::Value = serde_json::from_slice(&keys.unwrap().stdout).unwrap();
    assert_eq!(keys["keys"][0]["source"], "vault-transit:transit/gpuaas");
    assert!(keys["keys"][0]["values"].as_u64().unwrap() > 2, "{keys}");
}

#[test]
fn a_region_s_key_stays_in_the_vault() {
    let vault = Vault::start();
    let options = vault.options(&[]);
    let options = words(&options);
    let mut rig = Rig::serving(&options);
    let (url, key) = (rig.sim.value("listening").to_owned(), rig.sim.value("api-key").to_owned());
    let reference = "vault:secret/maas/lab#api_key";
    let add = format!("site add lab --url {url} --api-key-ref {reference}");
    rig.bad(&format!("{add} --api-key-file {}", rig.path("maas.key")), 2, "command_line_invalid");
    rig.bad(&add, 3, "vault_secret_missing");
    vault.put("a:b:c");
    rig.bad(&add, 3, "maas_key_refused");
    vault.put(&key);
    rig.good(&add);
    let shown = rig.good("site show lab");
    assert!(shown.contains(reference) && !shown.contains(&key), "{shown}");
    // Another control plane process, with no Vault to read the key from.
    vault.with(|state| state.sealed = true);
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    rig.start_again("sealed.log", &options);
    let (mac, _) = rig.machine("j22u11");
    rig.good("profile add plain --set site_bootstrap_bundle_ref=site-base@1.0.0");
    rig.good(&format!("node onboard j22u11 --site lab --profile plain --mac {mac}"));
    let health = |rig: &Rig| {
        rig.json("site show lab -o json")["status"]["health"].as_str().map(str::to_owned)
    };
    until("the site says that its key cannot be read", || {
        health(&rig).as_deref() == Some("site_key_unreadable")
    });
    let detail = rig.good("site show lab");
    assert!(detail.contains("vault_unreachable") && detail.contains("sealed"), "{detail}");
    vault.with(|state| state.sealed = false);
    rig.good("run wait j22u11 --timeout 120");
    assert_eq!(health(&rig).as_deref(), Some("ok"));
}
