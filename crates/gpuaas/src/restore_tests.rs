//! Backups of data folders, restored elsewhere.

use gpuaas_core::control_mark::{ControlRecord, ControlState};
use gpuaas_store::SecretString;
use gpuaas_types::ids::IdSource as _;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{AuditAction, SiteId};

use super::*;
use crate::args::{ActorArgs, BackupArgs};

const API_KEY: &str = "consumer:token:hush";

struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn store(&self, data: &str) -> Store {
        make_private_dir(&self.path(data)).unwrap();
        let key = MasterKey::load_or_create(&self.path(data).join("master.key")).unwrap();
        let url = format!("sqlite:{}", self.path(data).join(DATABASE).display());
        Store::open(&url, key).await.unwrap()
    }

    async fn backup(&self, to: &str, key_file: Option<&str>) -> Result<String, Failure> {
        let (mut terminal, output) = Terminal::captured();
        let args = BackupArgs {
            to: self.path(to),
            data: self.path("data"),
            database: None,
            master_key: Default::default(),
            key_file: key_file.map(|name| self.path(name)),
            keep: None,
        };
        crate::backup::run(args, &mut terminal).await.map(|()| output.stderr())
    }

    fn restore_args(&self, backup: &str, data: &str) -> RestoreArgs {
        RestoreArgs {
            backup: self.path(backup),
            data: self.path(data),
            key_file: Some(self.path("backup.key")),
            master_key_file: None,
            original_is_gone: false,
            reason: "the disk is lost".to_owned(),
            who: ActorArgs { actor: "ann".to_owned() },
        }
    }
}

async fn restore_with(args: RestoreArgs) -> Result<String, Failure> {
    let (mut terminal, output) = Terminal::captured();
    run(args, &mut terminal).await.map(|()| output.stderr())
}

/// A store with a site whose region this database has.
async fn with_site(store: &Store) -> SiteId {
    let now = RealClock.now();
    let id = SiteId(gpuaas_types::RandomIds.uuid(now));
    let key = SecretString::from(API_KEY.to_owned());
    let spec = SiteSpec::new("lab", "http://lab.example/MAAS");
    store
        .create_site(
            now,
            id,
            spec,
            Default::default(),
            &key,
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
    let record = ControlRecord { state: ControlState::Held, ..Default::default() };
    store.set_site_control(now, id, Default::default(), record, None, None).await.unwrap();
    id
}

#[tokio::test]
async fn a_backup_of_a_running_control_plane_is_restored_elsewhere() {
    let folder = Folder::new();
    let store = folder.store("data").await;
    let site_id = with_site(&store).await;
    fs::write(folder.path("data/admin-token"), "gptoken-x\n").unwrap();
    let entry = |subject: &str| NewAuditEntry {
        actor: "ann".to_owned(),
        action: AuditAction::TestWrite,
        subject: subject.to_owned(),
        detail: json!({}),
    };
    store.append_audit_entry(RealClock.now(), entry("before")).await.unwrap();
    // The database stays open, and is written to.
    folder.backup("backup", Some("backup.key")).await.unwrap();
    store.append_audit_entry(RealClock.now(), entry("after")).await.unwrap();
    assert_eq!(folder.backup("backup", None).await.unwrap_err().code(), "backup_failed");

    // Nothing of the backup opens a secret by itself.
    let bytes: Vec<u8> = fs::read_dir(folder.path("backup"))
        .unwrap()
        .flat_map(|file| fs::read(file.unwrap().path()).unwrap())
        .collect();
    let master_key = fs::read_to_string(folder.path("data/master.key")).unwrap();
    for secret in [API_KEY, "gptoken-x", master_key.trim()] {
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret}");
    }

    let said = restore_with(folder.restore_args("backup", "other")).await.unwrap();
    assert!(said.contains("gpuaas site take-control"), "{said}");
    let restored = folder.store("other").await;
    let key = restored.site_api_key(site_id).await.unwrap();
    assert_eq!(key.expose_secret(), API_KEY);
    let control = restored.site_control(site_id).await.unwrap();
    assert_eq!(control.state, ControlState::Unconfirmed, "it is a copy");
    let entries = restored.audit_entries(0, 9).await.unwrap();
    let actions: Vec<_> = entries.iter().map(|one| one.entry.action.as_str()).collect();
    assert_eq!(actions, ["test.write", "test.write", "backup.restore"]);
    let token = fs::read_to_string(folder.path("other/admin-token")).unwrap();
    assert_eq!(token, "gptoken-x\n");
    restored.close().await;

    let args = RestoreArgs { original_is_gone: true, ..folder.restore_args("backup", "third") };
    restore_with(args).await.unwrap();
    let third = folder.store("third").await;
    let control = third.site_control(site_id).await.unwrap();
    assert_eq!((control.state, control.term), (ControlState::Held, 1));
}

#[tokio::test]
async fn what_is_no_backup_of_ours_is_refused_and_nothing_is_left() {
    let folder = Folder::new();
    folder.store("data").await.close().await;
    let said = folder.backup("backup", None).await.unwrap();
    assert!(said.contains("does not contain the keys"), "{said}");
    let refused = async |args: RestoreArgs| {
        let failure = restore_with(args).await.unwrap_err();
        assert!(!failure.problem.hint.is_empty());
        failure.code().to_owned()
    };
    let args = || folder.restore_args("backup", "other");
    assert_eq!(refused(args()).await, "backup_key_missing");
    let none = RestoreArgs { key_file: None, ..args() };
    assert_eq!(refused(none).await, "backup_key_missing");
    let apart = RestoreArgs {
        key_file: None,
        master_key_file: Some(folder.path("data/master.key")),
        ..args()
    };
    let used = RestoreArgs { data: folder.path("data"), ..apart.clone() };
    assert_eq!(refused(used).await, "data_in_use");
    fs::write(folder.path("wrong.key"), "ab".repeat(32)).unwrap();
    let wrong = RestoreArgs { master_key_file: Some(folder.path("wrong.key")), ..apart.clone() };
    assert_eq!(refused(wrong).await, "backup_key_missing");
    assert!(!folder.path("other").exists());
    restore_with(apart.clone()).await.unwrap();

    let database = folder.path("backup").join(DATABASE);
    let mut bytes = fs::read(&database).unwrap();
    bytes[5000] ^= 1;
    fs::write(&database, bytes).unwrap();
    let bent = || RestoreArgs { data: folder.path("fourth"), ..apart.clone() };
    assert_eq!(refused(bent()).await, "backup_damaged");
    // The digest beside it is made to fit, and so is all that needs no key.
    let file = folder.path("backup").join(MANIFEST);
    let mut manifest: BackupManifest =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    manifest.files = vec![describe(&folder.path("backup"), DATABASE).unwrap()];
    let write = |manifest: &BackupManifest| {
        fs::write(&file, serde_json::to_string_pretty(manifest).unwrap()).unwrap();
    };
    write(&manifest);
    assert_eq!(refused(bent()).await, "backup_damaged");
    let stranger = MasterKey::generate().unwrap();
    let digest = SecretString::from(manifest.digest().unwrap());
    let seal = BASE64.encode(stranger.seal(MANIFEST_OWNER, &digest).unwrap());
    write(&BackupManifest { seal: seal.clone(), ..manifest.clone() });
    assert_eq!(refused(bent()).await, "backup_damaged");
    write(&BackupManifest { master_key: stranger.id_hex(), seal, ..manifest.clone() });
    assert_eq!(refused(bent()).await, "backup_key_missing");
    // The form that had no seal.
    write(&BackupManifest { format: 1, seal: String::new(), ..manifest });
    assert_eq!(refused(bent()).await, "backup_damaged");
    let nothing = RestoreArgs { backup: folder.path("nothing"), ..apart };
    assert_eq!(refused(nothing).await, "backup_damaged");
    assert!(!folder.path("fourth").exists());
}

#[tokio::test]
async fn a_server_is_left_to_its_own_program() {
    let folder = Folder::new();
    let args = BackupArgs {
        to: folder.path("backup"),
        data: folder.path("data"),
        master_key: Default::default(),
        database: Some("postgres://u:hush@h/d".to_owned()),
        key_file: None,
        keep: None,
    };
    let (mut terminal, _) = Terminal::captured();
    let failure = crate::backup::run(args, &mut terminal).await.unwrap_err();
    assert_eq!(failure.code(), "database_not_embedded");
    assert!(failure.problem.hint.contains("pg_dump") && !failure.to_string().contains("hush"));
    let missing = folder.backup("backup", None).await.unwrap_err();
    assert_eq!(missing.code(), "backup_failed");
}

#[tokio::test]
async fn the_newest_backups_are_kept_and_nothing_else_is_touched() {
    let folder = Folder::new();
    let _store = folder.store("data").await;
    let (mut terminal, _) = Terminal::captured();
    let mut keep = async |name: &str, keep: u32| {
        let (to, data) = (folder.path("kept").join(name), folder.path("data"));
        let key_file = Some(folder.path("backup.key"));
        let args = BackupArgs {
            to,
            data,
            database: None,
            master_key: Default::default(),
            key_file,
            keep: Some(keep),
        };
        crate::backup::run(args, &mut terminal).await
    };
    for name in ["1", "2", "3"] {
        keep(name, 3).await.unwrap();
    }
    for (name, file) in [("4.part", MANIFEST), ("notes", "notes.txt")] {
        fs::create_dir(folder.path("kept").join(name)).unwrap();
        fs::copy(folder.path("kept/1/backup.json"), folder.path("kept").join(name).join(file))
            .unwrap();
    }
    fs::write(folder.path("kept/2/mine.txt"), "a person's").unwrap();

    let failure = keep("5", 2).await.unwrap_err();
    assert_eq!(failure.code(), "backup_failed");
    let detail = failure.problem.detail.clone();
    assert!(detail.contains("kept/2 was not deleted: mine.txt"), "{detail}");
    assert!(folder.path("kept/2").join(DATABASE).exists());

    fs::remove_dir_all(folder.path("kept/2")).unwrap();
    keep("6", 2).await.unwrap();
    let mut left: Vec<_> = fs::read_dir(folder.path("kept"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["4.part", "5", "6", "notes"]);
}
