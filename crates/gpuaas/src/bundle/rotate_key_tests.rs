//! Control planes before and after another key of their own.

use gpuaas_artifact::{ArtifactStore, BundleCatalog};
use gpuaas_bundle::{Inputs, TrustedKey};
use gpuaas_engine::bundles::{seed_built_in, trusted_keys};
use gpuaas_store::MasterKey;
use gpuaas_types::api::BundlePin;

use super::*;
use crate::args::{ActorArgs, MasterKeyArgs, OwnDatabaseArgs};

const BUNDLE: &str = "site-base@1.0.0";

struct Folder {
    dir: tempfile::TempDir,
    args: BundleRotateKeyArgs,
}

/// A control plane, as far as bundles go.
struct Plane {
    catalog: BundleCatalog,
    _artifacts: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        MasterKey::load_or_create(&dir.path().join("master.key")).unwrap();
        let of = OwnDatabaseArgs {
            data: dir.path().to_owned(),
            database: None,
            master_key: MasterKeyArgs::default(),
        };
        let args = BundleRotateKeyArgs {
            of,
            grace_days: 7.0,
            reason: "once a year".to_owned(),
            who: ActorArgs { actor: "ann".to_owned() },
        };
        Self { dir, args }
    }

    async fn store(&self) -> Store {
        let key = MasterKey::load_or_create(&self.dir.path().join("master.key")).unwrap();
        Store::open(&database_url(self.dir.path(), None), key).await.unwrap()
    }

    async fn rotate(&self) -> Result<String, Failure> {
        let (mut terminal, output) = Terminal::captured();
        run(self.args.clone(), &mut terminal).await.map(|()| output.stdout())
    }
}

impl Plane {
    async fn start(store: &Store, now: Timestamp) -> Self {
        let artifacts = tempfile::tempdir().unwrap();
        let proposed = SecretString::from(SigningKey::generate().unwrap().to_pem());
        let kept = store.ensure_signing_key(&proposed).await.unwrap();
        let key = SigningKey::from_pem(kept.expose_secret()).unwrap();
        let catalog = BundleCatalog::new(ArtifactStore::open(artifacts.path()).unwrap(), &key);
        seed_built_in(store, &catalog, &key, now).await.unwrap();
        Self { catalog, _artifacts: artifacts }
    }

    /// What a host would be told at `now`: the names of the keys that count, or why nothing is told.
    async fn deliver(&self, store: &Store, now: Timestamp) -> Result<Vec<TrustedKey>, String> {
        let pins: Vec<BundlePin> = self.catalog.pins(BUNDLE).unwrap();
        let trusted = trusted_keys(store).await.unwrap();
        let delivery = self.catalog.delivery(&pins, Inputs::new(), Inputs::new(), &trusted, now);
        let delivery = delivery.map_err(|error| error.to_string())?.unwrap();
        for one in &delivery.bundles {
            let keys = &delivery.trusted_keys;
            let seen = one.envelope.verify_digest(keys, BUNDLE, one.artifact.digest, now);
            seen.map_err(|error| format!("the host says: {error}"))?;
        }
        Ok(delivery.trusted_keys)
    }
}

#[tokio::test]
async fn what_the_former_key_signed_is_signed_anew_and_nothing_is_refused_meanwhile() {
    let folder = Folder::new();
    let now = RealClock.now();
    let store = folder.store().await;
    let before = Plane::start(&store, now).await;
    assert_eq!(before.deliver(&store, now).await.unwrap().len(), 1);
    store.close().await;

    let next: PublicKey = folder.rotate().await.unwrap().trim().parse().unwrap();
    let store = folder.store().await;
    let late = now.plus_seconds(400.0 * DAY_SECONDS);
    // A control plane that has not been started again.
    for at in [now, late] {
        let trusted = before.deliver(&store, at).await.unwrap();
        assert!(trusted.iter().any(|key| key.key == next && key.until.is_none()));
    }
    let after = Plane::start(&store, now).await;
    assert_eq!(after.catalog.own_key().key, next);
    let trusted = after.deliver(&store, late).await.unwrap();
    let former = trusted.iter().find(|key| key.key != next).unwrap();
    assert!(former.until.is_some_and(|until| until < late), "{former:?}");
    assert_eq!(trusted.iter().filter(|key| key.key == next).count(), 1, "{trusted:?}");
    before.deliver(&store, now).await.unwrap();
    let entries = store.audit_entries(0, 9).await.unwrap();
    assert!(entries.iter().any(|entry| entry.entry.action == "bundle_key.rotate"), "{entries:?}");
    store.close().await;

    let third = folder.rotate().await.unwrap();
    assert_ne!(third.trim(), next.to_string());
    let store = folder.store().await;
    let trusted = Plane::start(&store, now).await.deliver(&store, now).await.unwrap();
    assert_eq!(trusted.iter().filter(|key| key.until.is_some()).count(), 2);
    store.close().await;
}

#[tokio::test]
async fn a_store_in_use_is_left_alone() {
    let folder = Folder::new();
    assert_eq!(folder.rotate().await.unwrap_err().code(), "nothing_to_reset");
    folder.store().await.close().await;
    let held = lock(&folder.dir.path().join("gpuaas.db")).unwrap();
    assert_eq!(folder.rotate().await.unwrap_err().code(), "data_in_use");
    drop(held);
    folder.rotate().await.unwrap();
}
