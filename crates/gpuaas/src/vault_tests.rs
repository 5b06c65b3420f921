//! API keys of regions that are kept in a Vault, which is the stand-in.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gpuaas_engine::site::{CallError, Sites};
use gpuaas_engine::{Clock as _, Connect, HttpConnect, ReadKey, RealClock, VirtualClock};
use gpuaas_store::{MasterKey, SecretString, Store};
use gpuaas_testkit::vault_stand_in::{ROLE_ID, VaultStandIn};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{RandomIds, SiteId};
use maas_sim::{SharedRegion, SimHandle, SimOptions, SimServer, ZERO};
use serde_json::json;

use super::{VaultKeys, VaultOptions};

const SECRET_ID: &str = "hush-secret-id";
const REFERENCE: &str = "vault:secret/maas/lab#api_key";

/// A region, a site of it whose key is in a Vault, and what reads it there.
struct Fixture {
    folder: tempfile::TempDir,
    vault: VaultStandIn,
    sim: SimHandle,
    store: Store,
    site: SiteId,
    clock: VirtualClock,
}

impl Fixture {
    async fn start() -> Self {
        gpuaas_client::install_cryptography();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret-id"), SECRET_ID).unwrap();
        let vault = VaultStandIn::start(SECRET_ID).await.unwrap();
        let options = SimOptions { class: &ZERO, scale: 0.0, ..SimOptions::default() };
        let sim = SimServer::start(options).await.unwrap();
        let url = format!("sqlite:{}", folder.path().join("gpuaas.db").display());
        let store = Store::open(&url, MasterKey::from_bytes([7; 32])).await.unwrap();
        let clock = VirtualClock::new(RealClock.now());
        let site = SiteId::new(&RandomIds, clock.now());
        let reference = Some(REFERENCE.parse().unwrap());
        let spec = SiteSpec { api_key_ref: reference, ..SiteSpec::new("lab", &sim.url()) };
        let none = SecretString::default();
        store
            .create_site(
                clock.now(),
                site,
                spec,
                Default::default(),
                &none,
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        Self { folder, vault, sim, store, site, clock }
    }

    fn put(&self, key: &str) {
        let fields = json!({ "api_key": key, "number": 7 });
        self.vault.with(|state| state.secrets.insert("secret/maas/lab".to_owned(), fields));
    }

    fn secret_id_file(&self) -> PathBuf {
        self.folder.path().join("secret-id")
    }

    fn keys(&self) -> Arc<dyn ReadKey> {
        Arc::new(VaultKeys::new(VaultOptions {
            url: self.vault.url.clone(),
            role_id: ROLE_ID.to_owned(),
            secret_id_file: self.secret_id_file(),
            ca_file: None,
            namespace: None,
        }))
    }

    /// What one control plane has of the site.
    fn replica(&self) -> Sites {
        let clock = Arc::new(self.clock.clone());
        let connect = HttpConnect::new(clock.clone()).with_keys(Some(self.keys()));
        Sites::new(self.store.clone(), clock, Arc::new(connect) as Arc<dyn Connect>)
    }

    async fn ask(&self, sites: &Sites) -> Result<String, CallError> {
        let site = sites.get(self.site).await?;
        site.call(|client| async move { client.whoami().await.map(|user| user.username) }).await
    }

    /// So long that a key is asked for again.
    fn pass_a_while(&self) {
        self.clock.advance_to(self.clock.now().plus_seconds(6.0));
    }

    fn region(&self) -> &SharedRegion {
        &self.sim.region
    }
}

#[tokio::test]
async fn a_key_that_was_replaced_in_the_vault_is_taken_up_without_a_restart() {
    let fixture = Fixture::start().await;
    fixture.put(&fixture.sim.api_key);
    let replicas = [fixture.replica(), fixture.replica()];
    for sites in &replicas {
        fixture.ask(sites).await.unwrap();
    }
    let next = fixture.region().with(maas_sim::Region::replace_api_key);
    for sites in &replicas {
        let refused = fixture.ask(sites).await.unwrap_err();
        assert!(refused.code().starts_with("maas_auth"), "{refused}");
    }
    fixture.pass_a_while();
    let away = fixture.ask(&replicas[0]).await.unwrap_err();
    assert_eq!(away.code(), "site_key_refused", "the Vault has no other key yet");
    fixture.put(&next);
    fixture.pass_a_while();
    for sites in &replicas {
        assert!(!fixture.ask(sites).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_vault_that_is_away_is_said_and_asked_again() {
    let fixture = Fixture::start().await;
    fixture.put(&fixture.sim.api_key);
    let before = fixture.replica();
    fixture.ask(&before).await.unwrap();
    fixture.vault.with(|state| state.sealed = true);
    let started = fixture.replica();
    let away = fixture.ask(&started).await.unwrap_err();
    assert_eq!(away.code(), "site_key_unreadable");
    assert!(away.to_string().contains("vault_unreachable"), "{away}");
    fixture.ask(&before).await.unwrap();
    let asked = fixture.vault.with(|state| state.asked.len());
    fixture.ask(&started).await.unwrap_err();
    assert_eq!(fixture.vault.with(|state| state.asked.len()), asked, "not for each call");
    fixture.vault.with(|state| state.sealed = false);
    fixture.pass_a_while();
    fixture.ask(&started).await.unwrap();
    let site = started.get(fixture.site).await.unwrap();
    assert!(site.answering_since().is_some(), "whoever watches the site wakes its runs");
}

#[tokio::test]
async fn what_the_vault_does_not_give_has_a_code() {
    let fixture = Fixture::start().await;
    fixture.put("a:b:c");
    let keys = fixture.keys();
    let read = async |reference: &str| {
        keys.read_key(&reference.parse().unwrap()).await.map(drop).unwrap_err()
    };
    let missing = read("vault:secret/maas/none#api_key").await;
    assert_eq!(missing.code, ProblemCode::VaultSecretMissing);
    let field = read("vault:secret/maas/lab#nosuch").await;
    assert_eq!(field.code, ProblemCode::VaultSecretMissing);
    assert!(field.text.contains("field nosuch"), "{field}");
    assert_eq!(read("vault:secret/maas/lab#number").await.code, ProblemCode::VaultAnswerUnreadable);
    // Another secret id: the one in the file is read again once the Vault has refused the first.
    fixture.vault.with(|state| {
        state.tokens.clear();
        state.secret_id = "hush-next-id".to_owned();
    });
    let refused = read(REFERENCE).await;
    assert_eq!(refused.code, ProblemCode::VaultRefused);
    assert!(!format!("{refused:?}").contains("hush"), "{refused:?}");
    fs::write(fixture.secret_id_file(), "hush-next-id").unwrap();
    keys.read_key(&REFERENCE.parse().unwrap()).await.unwrap();
}
