//! Master keys of data folders, shown and rotated.

use std::path::PathBuf;

use gpuaas_store::{ExposeSecret as _, MasterKey};
use gpuaas_types::ids::IdSource as _;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{AuditAction, SiteId};

use super::*;
use crate::args::{ActorArgs, MasterKeyArgs};
use gpuaas_client::arguments::Format;

const API_KEY: &str = "consumer:token:hush";

struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    /// A data folder with a site.
    async fn new() -> (Self, SiteId) {
        let folder = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(folder.data()).unwrap();
        MasterKey::load_or_create(&folder.data().join(KEY_FILE)).unwrap();
        let now = RealClock.now();
        let id = SiteId(gpuaas_types::RandomIds.uuid(now));
        let store = folder.open(&[]).await.unwrap();
        let (spec, key) = (SiteSpec::new("lab", "http://127.0.0.1/MAAS"), API_KEY.to_owned());
        store
            .create_site(
                now,
                id,
                spec,
                Default::default(),
                &key.into(),
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        store.close().await;
        (folder, id)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn database_args(&self, sources: &[&str]) -> OwnDatabaseArgs {
        let master_keys = sources.iter().map(|text| text.parse().unwrap()).collect();
        let credentials_directory = Some(self.dir.path().to_owned());
        OwnDatabaseArgs {
            data: self.data(),
            database: None,
            master_key: MasterKeyArgs { master_keys, credentials_directory, ..Default::default() },
        }
    }

    async fn open(&self, sources: &[&str]) -> Result<Store, Failure> {
        let of = self.database_args(sources);
        let loaded = of.master_key.sources().load(&of.data, false).await?;
        let url = database_url(&of.data, None);
        Store::open(&url, loaded.ring().unwrap()).await.map_err(store_failure)
    }

    async fn rotate(&self, sources: &[&str], to: Option<&str>) -> Result<String, Failure> {
        let args = KeyRotateArgs {
            of: self.database_args(sources),
            to: to.map(|text| text.parse().unwrap()),
            force: false,
            reason: "once a year".to_owned(),
            who: ActorArgs { actor: "ann".to_owned() },
        };
        let (mut terminal, output) = Terminal::captured();
        run(KeyCommand::Rotate(args), &mut terminal).await.map(|()| output.stdout())
    }

    async fn shown(&self, sources: &[&str]) -> serde_json::Value {
        let (mut terminal, output) = Terminal::captured();
        let args = KeyShowArgs { of: self.database_args(sources), format: Format::Json };
        run(KeyCommand::Show(args), &mut terminal).await.unwrap();
        serde_json::from_str(&output.stdout()).unwrap()
    }

    async fn api_key(&self, sources: &[&str], id: SiteId) -> String {
        let store = self.open(sources).await.unwrap();
        let key = store.site_api_key(id).await.unwrap();
        store.close().await;
        key.expose_secret().to_owned()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.data()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.starts_with(KEY_FILE)).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn the_key_of_a_data_folder_is_rotated_and_the_former_one_kept_by_its_name() {
    let (folder, site) = Folder::new().await;
    let before = MasterKey::load_or_create(&folder.data().join(KEY_FILE)).unwrap();
    let id = folder.rotate(&[], None).await.unwrap().trim().to_owned();
    assert_ne!(id, before.id_hex());
    let former = format!("master.key.former-{}", before.id_hex());
    assert_eq!(folder.files(), [KEY_FILE, former.as_str()]);
    assert_eq!(folder.api_key(&[], site).await, API_KEY);
    let shown = folder.shown(&[]).await;
    assert_eq!(shown["keys"][0]["key_id"], id);
    assert_eq!(shown["keys"][0]["state"], "sealing");
    assert_eq!(shown["keys"][0]["values"], 1);
    assert_eq!(shown["keys"][1]["state"], "retired");
    assert_eq!(shown["keys"][1]["values"], 0);
    let source = format!("file:{}", folder.data().join(former).display());
    assert_eq!(folder.open(&[&source]).await.err().unwrap().code(), "master_key_wrong");
    let again = folder.rotate(&[], None).await.unwrap();
    assert_ne!(again.trim(), id);
    assert_eq!(folder.files().len(), 3);
}

/// Killed where the database is done and the files are not, and where neither is.
#[tokio::test]
async fn a_rotation_that_was_killed_is_ended_by_the_same_command() {
    let (folder, site) = Folder::new().await;
    let next = MasterKey::load_or_create(&folder.data().join(NEXT_KEY_FILE)).unwrap();
    let store = folder.open(&[]).await.unwrap();
    let entry = NewAuditEntry {
        actor: "ann".to_owned(),
        action: AuditAction::MasterKeyRotate,
        subject: next.id_hex(),
        detail: json!({}),
    };
    let now = RealClock.now();
    store.begin_key_rotation(now, &next.id_hex(), entry.clone(), false).await.unwrap();
    assert_eq!(folder.api_key(&[], site).await, API_KEY, "as `gpuaas serve` reads the keys");
    assert_eq!(folder.shown(&[]).await["keys"][1]["state"], "moving");
    assert_eq!(store.rewrap_batch(9).await.unwrap(), 1);
    store.end_key_rotation(now, entry).await.unwrap();
    store.close().await;
    assert_eq!(folder.api_key(&[], site).await, API_KEY);
    assert_eq!(folder.rotate(&[], None).await.unwrap().trim(), next.id_hex());
    assert_eq!(folder.files().len(), 2);
    assert_eq!(folder.api_key(&[], site).await, API_KEY);
}

/// As `sealed_values_left` says: the key of what is left, and the one that seals.
#[tokio::test]
async fn values_of_another_key_are_moved_by_naming_it_and_the_one_that_seals() {
    let (folder, site) = Folder::new().await;
    let next = MasterKey::load_or_create(&folder.data().join(NEXT_KEY_FILE)).unwrap();
    let store = folder.open(&[]).await.unwrap();
    let entry = NewAuditEntry {
        actor: "ann".to_owned(),
        action: AuditAction::MasterKeyRotate,
        subject: next.id_hex(),
        detail: json!({}),
    };
    store.begin_key_rotation(RealClock.now(), &next.id_hex(), entry.clone(), false).await.unwrap();
    let left = store.end_key_rotation(RealClock.now(), entry).await.unwrap_err();
    assert_eq!(left.code(), "sealed_values_left");
    let command = "`gpuaas key rotate --master-key SOURCE --to SOURCE --reason TEXT`";
    assert!(left.hint().contains(command), "{}", left.hint());
    store.close().await;
    let [left, seals] = [KEY_FILE, NEXT_KEY_FILE]
        .map(|name| format!("file:{}", folder.data().join(name).display()));
    assert_eq!(folder.rotate(&[&left], Some(&seals)).await.unwrap().trim(), next.id_hex());
    assert_eq!(folder.api_key(&[&seals], site).await, API_KEY);
}

#[tokio::test]
async fn a_key_moves_from_the_data_folder_to_a_credential_and_to_a_file() {
    let (folder, site) = Folder::new().await;
    let credential = MasterKey::from_bytes([9; 32]);
    let text = credential.to_text();
    fs::write(folder.dir.path().join("plane-key"), text.expose_secret()).unwrap();
    folder.rotate(&[], Some("credential:plane-key")).await.unwrap();
    assert_eq!(folder.files().len(), 1, "the former one alone");
    assert_eq!(folder.open(&[]).await.err().unwrap().code(), "master_key_missing");
    assert_eq!(folder.api_key(&["credential:plane-key"], site).await, API_KEY);

    let refused = folder.rotate(&["credential:plane-key"], None).await.unwrap_err();
    assert_eq!(refused.code(), "command_line_invalid");
    let file = format!("file:{}", folder.dir.path().join("other.key").display());
    folder.rotate(&["credential:plane-key"], Some(&file)).await.unwrap();
    assert_eq!(folder.api_key(&[&file], site).await, API_KEY);
    let back = folder.rotate(&[&file], Some("credential:plane-key")).await.unwrap_err();
    assert_eq!(back.code(), "master_key_retired");
}

#[tokio::test]
async fn a_store_in_use_is_left_alone_and_one_that_is_not_there_is_not_made() {
    let (folder, _) = Folder::new().await;
    let held = lock(&folder.data().join("gpuaas.db")).unwrap();
    assert_eq!(folder.rotate(&[], None).await.unwrap_err().code(), "data_in_use");
    assert_eq!(folder.files(), [KEY_FILE], "nothing was made");
    drop(held);
    fs::remove_file(folder.data().join("gpuaas.db")).unwrap();
    assert_eq!(folder.rotate(&[], None).await.unwrap_err().code(), "nothing_to_reset");
}

/// The others would be left without the key.
#[tokio::test]
async fn the_next_key_of_a_shared_database_is_named() {
    let (folder, _) = Folder::new().await;
    let args = KeyRotateArgs {
        of: OwnDatabaseArgs {
            database: Some("postgres://u@127.0.0.1:1/d".to_owned()),
            ..folder.database_args(&[])
        },
        to: None,
        force: false,
        reason: "once a year".to_owned(),
        who: ActorArgs { actor: "ann".to_owned() },
    };
    let (mut terminal, _) = Terminal::captured();
    let refused = run(KeyCommand::Rotate(args), &mut terminal).await.unwrap_err();
    assert_eq!(refused.code(), "command_line_invalid");
    assert_eq!(folder.files(), [KEY_FILE], "nothing was made");
}
