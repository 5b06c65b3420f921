//! `gpuaas backup`: the embedded database as it is at one moment, and what opens it.
//!
//! A backup is a folder that appears under its name only whole. Its manifest has the digest of each
//! file, and is sealed with the master key. The master key and the admin token are in it only sealed with a key of the operator's, so a
//! backup alone opens nothing. Artifacts are not in it: bundles are in the database, and the agent
//! comes with the executable.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_bundle::Digest;
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{ExposeSecret as _, MasterKey, SecretString, copy_database_file};
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;
use serde::{Deserialize, Serialize};

use crate::args::BackupArgs;
use crate::master_key::{KeySource, LoadedKeys};
use crate::private_file::write_private;
use crate::serve::{database_url, embedded_path};

/// Form of the folder; a later one is not read.
pub(crate) const FORMAT: u32 = 2;
/// Files of a backup.
pub(crate) const MANIFEST: &str = "backup.json";
pub(crate) const DATABASE: &str = "gpuaas.db";
pub(crate) const KEYS: &str = "keys.sealed";
/// Ending of a folder that is not whole yet.
const PART: &str = "part";
/// What the keys are sealed for.
pub(crate) const KEYS_OWNER: &str = "backup/keys";

/// What the seal of a manifest is for.
pub(crate) const MANIFEST_OWNER: &str = "backup/manifest";

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupManifest {
    pub(crate) format: u32,
    /// Version of the control plane's executable.
    pub(crate) version: String,
    /// Moment before the copy began.
    pub(crate) made_at: Timestamp,
    pub(crate) files: Vec<BackupFile>,
    /// Identifier of the master key that sealed it.
    #[serde(default)]
    pub(crate) master_key: String,
    /// [`Self::digest`], sealed with the master key, base64: whoever lacks that key can change no file of
    /// the backup, nor its digest, without being noticed.
    #[serde(default)]
    pub(crate) seal: String,
}

impl BackupManifest {
    /// SHA-256 of everything but the seal, hex.
    ///
    /// # Errors
    /// The serializer refuses.
    pub(crate) fn digest(&self) -> Result<String, serde_json::Error> {
        let text = serde_json::to_string(&Self { seal: String::new(), ..self.clone() })?;
        Ok(Digest::sha256(text.as_bytes()).to_string())
    }
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// SHA-256, hex.
    pub(crate) sha256: String,
}

/// What [`KEYS`] has, sealed.
#[derive(Serialize, Deserialize)]
pub(crate) struct BackupKeys {
    /// The text of `master.key`.
    pub(crate) master_key: String,
    /// Those of further keys that the database may be sealed with: it was made in a rotation.
    #[serde(default)]
    pub(crate) other_master_keys: Vec<String>,
    /// The text of `admin-token`, where there is one.
    pub(crate) admin_token: Option<String>,
}

/// `gpuaas backup`.
///
/// # Errors
/// `database_not_embedded`, `backup_failed`; those of the key's file.
pub(crate) async fn run(args: BackupArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let url = database_url(&args.data, args.database.as_deref());
    let Some(database) = embedded_path(&url) else { return Err(not_embedded()) };
    let (has_keys, to, keep) = (args.key_file.is_some(), args.to.clone(), args.keep);
    let version = env!("GPUAAS_VERSION").to_owned();
    let made_at = RealClock.now();
    check_paths(&args.to, &database)?;
    let loaded = args.master_key.sources().load(&args.data, false).await?;
    let made =
        tokio::task::spawn_blocking(move || write(&args, &database, loaded, version, made_at));
    let manifest = made.await.map_err(|error| failed(&error.to_string()))??;
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    if !has_keys {
        terminal.message(
            "the backup does not contain the keys: store `master.key` separately, since passwords \
             and API keys in the backup cannot be read without it, or use `--key-file`",
        );
    }
    terminal.message(&format!("backup size: {bytes} bytes"));
    terminal.data(&to.display().to_string())?;
    let Some(keep) = keep else { return Ok(()) };
    for backup in older_backups(&to, keep).map_err(|error| not_deleted(&to, &error))? {
        remove_backup(&backup).map_err(|error| not_deleted(&backup, &error))?;
        terminal.message(&format!("deleted {}, keeping the newest {keep}", backup.display()));
    }
    Ok(())
}

fn not_embedded() -> Failure {
    let detail = "the database is on a PostgreSQL server, which has its own backup tools";
    Failure::usage(CommandCode::DatabaseNotEmbedded, detail).hint(
        "back it up with `pg_dump --format=custom --file=FILE URL` while control planes run, and \
         restore it with `pg_restore --clean --if-exists --dbname=URL FILE`; copy `master.key` \
         from the data folder to a separate place once",
    )
}

fn check_paths(to: &Path, database: &Path) -> Result<(), Failure> {
    if to.exists() {
        return Err(failed(&format!("{} already exists", to.display())));
    }
    if !database.is_file() {
        return Err(failed(&format!("database {} does not exist", database.display())));
    }
    Ok(())
}

/// Writes the whole backup beside its place, and moves it there.
fn write(
    args: &BackupArgs,
    database: &Path,
    loaded: LoadedKeys,
    version: String,
    made_at: Timestamp,
) -> Result<BackupManifest, Failure> {
    let keys = args.key_file.as_deref();
    let keys = keys.map(|file| sealed_keys(&args.data, &loaded, file)).transpose()?;
    let (_, master_key) = loaded.keys.first().ok_or_else(|| failed("no master key found"))?;
    let draft = beside(&args.to);
    let unwritable = |error: io::Error| failed(&format!("{}: {error}", draft.display()));
    if let Some(parent) = draft.parent() {
        fs::create_dir_all(parent).map_err(unwritable)?;
    }
    DirBuilder::new().mode(0o700).create(&draft).map_err(unwritable)?;
    let manifest = BackupManifest {
        format: FORMAT,
        version,
        made_at,
        files: Vec::new(),
        master_key: master_key.id_hex(),
        seal: String::new(),
    };
    let written = fill(&draft, database, (keys.as_deref(), master_key), manifest);
    let moved = written.and_then(|manifest| {
        fs::rename(&draft, &args.to).map_err(unwritable)?;
        Ok(manifest)
    });
    if moved.is_err()
        && let Err(error) = fs::remove_dir_all(&draft)
    {
        tracing::warn!(%error, folder = %draft.display(), "cannot remove an incomplete backup");
    }
    moved
}

/// Backups beside a new one that are more than `keep` with it, the newest first. A folder that this
/// command did not write whole is none.
fn older_backups(to: &Path, keep: u32) -> io::Result<Vec<PathBuf>> {
    let folder = to.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let mut backups = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Ok(text) = fs::read_to_string(path.join(MANIFEST)) else { continue };
        if path.file_name() == to.file_name() || path.extension().is_some_and(|end| end == PART) {
            continue;
        }
        if let Ok(manifest) = serde_json::from_str::<BackupManifest>(&text) {
            backups.push((manifest.made_at, path));
        }
    }
    backups.sort_by(|one, other| other.cmp(one));
    Ok(backups.into_iter().skip(keep.saturating_sub(1) as usize).map(|(_, path)| path).collect())
}

/// Deletes a backup, unless something else is in its folder.
fn remove_backup(backup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(backup)? {
        let name = entry?.file_name();
        if ![KEYS, DATABASE, MANIFEST].iter().any(|ours| name == **ours) {
            return Err(io::Error::other(format!("{} is not ours", name.display())));
        }
    }
    fs::remove_dir_all(backup)
}

fn not_deleted(path: &Path, error: &io::Error) -> Failure {
    let detail =
        format!("the new backup is complete, but {} was not deleted: {error}", path.display());
    Failure::local(CommandCode::BackupFailed, detail)
        .hint("check what else is in that folder, and delete it manually")
}

/// The folder that a backup is written in until it is whole.
fn beside(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(PART);
    to.with_file_name(name)
}

fn fill(
    draft: &Path,
    database: &Path,
    (keys, master_key): (Option<&[u8]>, &MasterKey),
    mut manifest: BackupManifest,
) -> Result<BackupManifest, Failure> {
    let unwritable = |error: io::Error| failed(&format!("{}: {error}", draft.display()));
    let copy = draft.join(DATABASE);
    copy_database_file(database, &copy).map_err(store_failure)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).map_err(unwritable)?;
    File::open(&copy).and_then(|file| file.sync_all()).map_err(unwritable)?;
    manifest.files.push(describe(draft, DATABASE).map_err(unwritable)?);
    if let Some(keys) = keys {
        write_private(&draft.join(KEYS), keys).map_err(unwritable)?;
        manifest.files.push(describe(draft, KEYS).map_err(unwritable)?);
    }
    let digest = manifest.digest().map_err(|error| failed(&error.to_string()))?;
    let sealed = master_key.seal(MANIFEST_OWNER, &SecretString::from(digest));
    manifest.seal = BASE64.encode(sealed.map_err(store_failure)?);
    let text =
        serde_json::to_string_pretty(&manifest).map_err(|error| failed(&error.to_string()))?;
    write_private(&draft.join(MANIFEST), text.as_bytes()).map_err(unwritable)?;
    File::open(draft).and_then(|folder| folder.sync_all()).map_err(unwritable)?;
    Ok(manifest)
}

/// The keys of a data folder, sealed with the key of a file.
fn sealed_keys(data: &Path, loaded: &LoadedKeys, key_file: &Path) -> Result<Vec<u8>, Failure> {
    let text = |(_, key): &(KeySource, MasterKey)| key.to_text().expose_secret().to_owned();
    let mut texts = loaded.keys.iter().map(text);
    let master_key = texts.next().ok_or_else(|| failed("no master key found"))?;
    let other_master_keys: Vec<String> = texts.collect();
    let admin_token = fs::read_to_string(data.join("admin-token")).ok();
    let admin_token = admin_token.map(|text| text.trim().to_owned());
    let admin_token = admin_token.filter(|token| !token.is_empty());
    let keys = BackupKeys { master_key, other_master_keys, admin_token };
    let text = serde_json::to_string(&keys).map_err(|error| failed(&error.to_string()))?;
    let key = MasterKey::load_or_create(key_file).map_err(store_failure)?;
    key.seal(KEYS_OWNER, &SecretString::from(text)).map_err(store_failure)
}

/// Name, length and digest of a file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn describe(folder: &Path, name: &str) -> io::Result<BackupFile> {
    let mut file = File::open(folder.join(name))?;
    let bytes = file.metadata()?.len();
    let sha256 = Digest::sha256_of_reader(&mut file)?.to_string();
    Ok(BackupFile { name: name.to_owned(), bytes, sha256 })
}

fn failed(detail: &str) -> Failure {
    Failure::local(CommandCode::BackupFailed, detail).hint(
        "run the command on the control plane's host as its user, with the `--data` and \
         `--database` of `gpuaas serve`, and choose a new folder with --to",
    )
}
