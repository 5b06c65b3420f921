//! `gpuaas restore`: a data folder from what `gpuaas backup` wrote.
//!
//! What happened between the backup and now, the restored database does not know. Two things keep a
//! machine from being deployed twice for it. A database at another place changes nothing in a region
//! whose mark says that another control plane wrote there later, until an operator's word
//! (`--original-is-gone`, or `gpuaas site take-control`). And a run takes no machine that is
//! deployed and not by this run: it parks and shows it.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{ExposeSecret as _, MasterKey, NewAuditEntry, Store, StoreError};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{AuditAction, Timestamp};
use serde_json::json;

use crate::args::RestoreArgs;
use crate::backup::{
    BackupKeys, BackupManifest, DATABASE, FORMAT, KEYS, KEYS_OWNER, MANIFEST, MANIFEST_OWNER,
    describe,
};
use crate::master_key::{KEY_FILE, MasterKeySources, NEXT_KEY_FILE};
use crate::private_file::write_private;
use crate::serve::make_private_dir;

/// `gpuaas restore`.
///
/// # Errors
/// `backup_damaged`, `backup_key_missing`, `data_in_use` where the data folder has a control plane,
/// `data_unwritable`; those of the key's file and the store's. What was restored by then is removed
/// again.
pub(crate) async fn run(args: RestoreArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let manifest = read_manifest(&args.backup)?;
    let keys = read_keys(&args)?;
    check_seal(&manifest, &keys)?;
    refuse_used(&args.data)?;
    make_private_dir(&args.data)?;
    let restored = restore(&args, &manifest, &keys).await;
    let regions = match restored {
        Ok(regions) => regions,
        Err(failure) => {
            remove_restored(&args.data);
            return Err(failure);
        }
    };
    terminal.message(&format!("restored the backup of {}", manifest.made_at));
    if keys.admin_token.is_none() {
        terminal.message(
            "the backup contains no admin token: run `gpuaas token reset --data DIR --reason \
             TEXT` to create one",
        );
    }
    if args.original_is_gone {
        terminal
            .message(&format!("this control plane now manages the machines of {regions} regions"));
    } else {
        terminal.message(
            "machines stay unchanged until each region shows that no other control plane answers; \
             if one wrote to a region after the backup, run `gpuaas site take-control SITE \
             --reason TEXT`",
        );
    }
    terminal.data(&args.data.display().to_string())
}

fn read_manifest(backup: &Path) -> Result<BackupManifest, Failure> {
    let file = backup.join(MANIFEST);
    let text = fs::read_to_string(&file)
        .map_err(|error| damaged(&format!("{}: {error}", file.display())))?;
    let manifest: BackupManifest = serde_json::from_str(&text)
        .map_err(|error| damaged(&format!("{}: {error}", file.display())))?;
    if manifest.format != FORMAT {
        let detail = format!("unknown format {}: expected {FORMAT}", manifest.format);
        let hint = "restore the backup with the version that made it, which is in the manifest";
        return Err(damaged(&detail).hint(hint));
    }
    if !manifest.files.iter().any(|file| file.name == DATABASE) {
        return Err(damaged("the backup contains no database"));
    }
    for file in &manifest.files {
        if ![DATABASE, KEYS].contains(&file.name.as_str()) {
            return Err(damaged(&format!("{:?} is not a backup file", file.name)));
        }
        let found = describe(backup, &file.name)
            .map_err(|error| damaged(&format!("{}: {error}", file.name)))?;
        if found != *file {
            return Err(damaged(&format!("{} was changed after the backup", file.name)));
        }
    }
    Ok(manifest)
}

fn read_keys(args: &RestoreArgs) -> Result<BackupKeys, Failure> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
        key_missing(&format!("{}: {error}", path.display()))
    };
    if let Some(path) = &args.master_key_file {
        let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        return Ok(BackupKeys {
            master_key: text.trim().to_owned(),
            other_master_keys: Vec::new(),
            admin_token: None,
        });
    }
    let Some(path) = &args.key_file else {
        return Err(key_missing("expected --key-file or --master-key-file"));
    };
    if !path.exists() {
        return Err(unreadable(path, &"the file does not exist"));
    }
    let sealed = args.backup.join(KEYS);
    let sealed = fs::read(&sealed).map_err(|error| unreadable(&sealed, &error))?;
    let key = MasterKey::load_or_create(path).map_err(store_failure)?;
    let opened = key.open(KEYS_OWNER, &sealed).map_err(|error| unreadable(path, &error))?;
    serde_json::from_str(opened.expose_secret()).map_err(|error| damaged(&error.to_string()))
}

/// Checks that the manifest, and so each digest in it, was written by whoever has the master key.
fn check_seal(manifest: &BackupManifest, keys: &BackupKeys) -> Result<(), Failure> {
    let sealed = BASE64.decode(&manifest.seal);
    let sealed =
        sealed.map_err(|error| damaged(&format!("malformed seal of {MANIFEST}: {error}")))?;
    let digest = manifest.digest().map_err(|error| damaged(&error.to_string()))?;
    let texts = keys.other_master_keys.iter().chain([&keys.master_key]);
    let mut keys = texts.filter_map(|text| MasterKey::from_text(text));
    let Some(key) = keys.find(|key| key.id_hex() == manifest.master_key) else {
        let detail = format!("the backup was made with the master key {:?}", manifest.master_key);
        return Err(key_missing(&detail));
    };
    let opened = key.open(MANIFEST_OWNER, &sealed);
    if opened.is_ok_and(|opened| opened.expose_secret() == digest) {
        return Ok(());
    }
    let detail = format!("the seal of {MANIFEST} does not match: the backup was changed");
    Err(damaged(&detail).hint("restore another backup, and find out who changed this one"))
}

/// Files that a restore makes.
fn restored_files(data: &Path) -> [PathBuf; 4] {
    [DATABASE, KEY_FILE, "admin-token", NEXT_KEY_FILE].map(|name| data.join(name))
}

fn refuse_used(data: &Path) -> Result<(), Failure> {
    match restored_files(data).into_iter().find(|file| file.exists()) {
        None => Ok(()),
        Some(file) => Err(Failure::local(
            CommandCode::DataInUse,
            format!("{} already exists", file.display()),
        )
        .hint("use --data to choose a folder without a control plane")),
    }
}

async fn restore(
    args: &RestoreArgs,
    manifest: &BackupManifest,
    keys: &BackupKeys,
) -> Result<u64, Failure> {
    let [database, master_key, admin_token, next_key] = restored_files(&args.data);
    let unwritable = |error: io::Error| {
        Failure::local(CommandCode::DataUnwritable, error.to_string())
            .hint("make the folder writable for this user, or choose another one with --data")
    };
    write_private(&master_key, keys.master_key.as_bytes()).map_err(unwritable)?;
    copy_private(&args.backup.join(DATABASE), &database).map_err(unwritable)?;
    if let Some(token) = &keys.admin_token {
        write_private(&admin_token, format!("{token}\n").as_bytes()).map_err(unwritable)?;
    }
    if let Some(key) = keys.other_master_keys.first() {
        write_private(&next_key, key.as_bytes()).map_err(unwritable)?;
    }
    let loaded = MasterKeySources::default().load(&args.data, false).await?;
    let ring = loaded.ring().ok_or_else(|| key_missing("the backup contains no master key"))?;
    // It notes that the database is at another place.
    let url = format!("sqlite:{}", database.display());
    let store = Store::open(&url, ring).await.map_err(store_failure)?;
    let noted = note(&store, args, manifest, RealClock.now()).await;
    store.close().await;
    noted.map_err(store_failure)
}

/// Copies a file to a new one for this user alone, which is on the disk when this returns.
fn copy_private(from: &Path, to: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut copy = options.write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut fs::File::open(from)?, &mut copy)?;
    copy.sync_all()
}

/// Takes the regions where that was said, and writes down that this is a restored database. Answers
/// how many regions were taken.
async fn note(
    store: &Store,
    args: &RestoreArgs,
    manifest: &BackupManifest,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let regions = if args.original_is_gone { store.take_control_of_all(now).await? } else { 0 };
    let entry = NewAuditEntry {
        actor: args.who.actor.clone(),
        action: AuditAction::BackupRestore,
        subject: manifest.made_at.to_string(),
        detail: json!({
            "reason": args.reason, "version": manifest.version,
            "original_is_gone": args.original_is_gone, "regions": regions,
        }),
    };
    store.append_audit_entry(now, entry).await?;
    Ok(regions)
}

/// Removes what was not restored to the end, all of which this command made.
fn remove_restored(data: &Path) {
    let companions = ["-wal", "-shm"].map(|end| data.join(format!("{DATABASE}{end}")));
    for file in restored_files(data).into_iter().chain(companions) {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %file.display(), "cannot remove a restored file");
            }
            _ => {}
        }
    }
}

fn damaged(detail: &str) -> Failure {
    Failure::local(CommandCode::BackupDamaged, detail)
        .hint("use an unchanged folder written by `gpuaas backup --to DIR`")
}

fn key_missing(detail: &str) -> Failure {
    Failure::local(CommandCode::BackupKeyMissing, detail).hint(
        "pass the key file of the backup, `gpuaas restore BACKUP --key-file FILE --reason TEXT`, \
         or the master key of its data folder with --master-key-file",
    )
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
