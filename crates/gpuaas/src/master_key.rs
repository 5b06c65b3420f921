//! Where master keys come from.
//!
//! A control plane is told all the keys that its database may be sealed with, usually one. Which of them
//! seals is noted in the database. Only a key in a file is ever made here, where it is missing and the
//! database is new: a key from elsewhere belongs to whoever keeps it there.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_store::{ExposeSecret as _, KeyRing, MasterKey};
use gpuaas_types::codes::CommandCode;
use vault_client::{TransitKey, VaultClient, VaultError};

use crate::private_file::write_private;
use crate::vault::{VaultOptions, vault_failure};

/// Name of the key's file in the data folder.
pub(crate) const KEY_FILE: &str = "master.key";
/// Name of the file of the key that is to come after it, while values are moved.
pub(crate) const NEXT_KEY_FILE: &str = "master.key.next";

/// One place that a master key is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file of 64 hexadecimal digits that nobody else may read.
    File(PathBuf),
    /// A credential that systemd hands over, by its name (systemd.exec(5), Credentials).
    Credential(String),
    /// A file of the data folder that Transit of a Vault encrypted, and decrypts at the start.
    VaultTransit(TransitKey),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Credential(name) => write!(f, "credential:{name}"),
            Self::VaultTransit(key) => write!(f, "vault-transit:{key}"),
        }
    }
}

impl FromStr for KeySource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            Some(("credential", name)) if is_credential_name(name) => {
                Ok(Self::Credential(name.to_owned()))
            }
            Some(("credential", _)) => {
                Err("expected a file name as credential, such as gpuaas-master-key".to_owned())
            }
            Some(("vault-transit", key)) => key.parse().map(Self::VaultTransit),
            _ => Err("expected file:PATH, credential:NAME or vault-transit:MOUNT/KEY".to_owned()),
        }
    }
}

fn is_credential_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}

/// What names the master keys of a control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MasterKeySources {
    /// Each of them; none: the file `master.key` of the data folder.
    pub sources: Vec<KeySource>,
    /// Folder of systemd's credentials.
    pub credentials: Option<PathBuf>,
    /// The Vault of those that are in one.
    pub vault: Option<VaultOptions>,
}

/// Master keys that were read.
pub(crate) struct LoadedKeys {
    /// Each key and where it is from, the first one first.
    pub(crate) keys: Vec<(KeySource, MasterKey)>,
    /// A file that was made for this.
    pub(crate) made: Option<PathBuf>,
}

impl LoadedKeys {
    /// The keys to open a store with; none: there are none.
    pub(crate) fn ring(&self) -> Option<KeyRing> {
        let mut keys = self.keys.iter().map(|(_, key)| key.clone());
        keys.next().map(|first| KeyRing::new(first, keys))
    }
}

impl MasterKeySources {
    /// Whether they are the files of the data folder.
    pub(crate) const fn is_default(&self) -> bool {
        self.sources.is_empty()
    }

    /// The sources, those of the data folder written out.
    pub(crate) fn all(&self, data: &Path) -> Vec<KeySource> {
        if !self.is_default() {
            return self.sources.clone();
        }
        let next = Some(data.join(NEXT_KEY_FILE)).filter(|file| file.exists());
        [data.join(KEY_FILE)].into_iter().chain(next).map(KeySource::File).collect()
    }

    /// Reads every key. `is_new`: there is no database yet, so the first one may be made.
    ///
    /// # Errors
    /// `master_key_missing`; the store's for a file that cannot be used.
    pub(crate) async fn load(&self, data: &Path, is_new: bool) -> Result<LoadedKeys, Failure> {
        let mut loaded = LoadedKeys { keys: Vec::new(), made: None };
        for source in self.all(data) {
            let missing = self.file(data, &source)?.filter(|file| !file.exists());
            if let Some(file) = missing {
                if !is_new || !loaded.keys.is_empty() || matches!(source, KeySource::Credential(_))
                {
                    return Err(key_missing(&source));
                }
                loaded.made = Some(file);
            }
            let key = self.read(data, &source).await?;
            loaded.keys.push((source, key));
        }
        Ok(loaded)
    }

    /// Reads one key; a file is made where it is missing.
    ///
    /// # Errors
    /// `master_key_missing`; the store's for a file that cannot be used.
    pub(crate) async fn read(&self, data: &Path, source: &KeySource) -> Result<MasterKey, Failure> {
        match source {
            KeySource::File(path) => MasterKey::load_or_create(path).map_err(store_failure),
            KeySource::Credential(_) => {
                let path = self.file(data, source)?.ok_or_else(|| key_missing(source))?;
                // Only this service sees the folder; the modes are systemd's.
                let text = fs::read_to_string(&path).map_err(|_| key_missing(source))?;
                MasterKey::from_text(&text).ok_or_else(|| {
                    let detail =
                        format!("invalid master key in {source}: expected 64 hexadecimal digits");
                    Failure::local(CommandCode::MasterKeyMissing, detail).hint(CREDENTIAL)
                })
            }
            KeySource::VaultTransit(key) => {
                let options = self.vault.as_ref().ok_or_else(|| vault_not_named(source))?;
                let client = options.client()?;
                from_transit(&client, key, &wrapped_file(data, key)).await
            }
        }
    }

    /// The file that a source is read from; none: it is in no file.
    fn file(&self, data: &Path, source: &KeySource) -> Result<Option<PathBuf>, Failure> {
        match source {
            KeySource::File(path) => Ok(Some(path.clone())),
            KeySource::VaultTransit(key) => Ok(Some(wrapped_file(data, key))),
            KeySource::Credential(name) => {
                let folder = self.credentials.as_ref().ok_or_else(|| {
                    let detail = "systemd passed no credentials: CREDENTIALS_DIRECTORY is not set";
                    Failure::usage(CommandCode::MasterKeyMissing, detail.to_owned())
                        .hint(CREDENTIAL)
                })?;
                Ok(Some(folder.join(name)))
            }
        }
    }
}

/// The file that has a master key as Transit encrypted it. It opens nothing without the Vault; each
/// control plane of a database has a copy.
fn wrapped_file(data: &Path, key: &TransitKey) -> PathBuf {
    data.join(format!("{KEY_FILE}.transit-{}-{}", key.mount, key.name))
}

/// Has Transit decrypt the key of a file; where there is no file, makes a key and has Transit encrypt it.
/// The key that is used is always what Transit gave back: one that it cannot decrypt seals nothing.
async fn from_transit(
    client: &VaultClient,
    key: &TransitKey,
    file: &Path,
) -> Result<MasterKey, Failure> {
    let asked = |error: VaultError| vault_failure(&error);
    if !file.exists() {
        let made = MasterKey::generate().map_err(store_failure)?.to_text();
        let sealed = client.encrypt(key, made.expose_secret().as_bytes()).await.map_err(asked)?;
        // It appears whole, and the first one of two that are made at once stays.
        let mut draft = file.as_os_str().to_owned();
        draft.push(format!(".{}", std::process::id()));
        let kept = write_private(Path::new(&draft), sealed.as_bytes())
            .and_then(|()| fs::hard_link(&draft, file));
        fs::remove_file(&draft).ok();
        match kept {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let detail = format!("{}: {error}", file.display());
                return Err(Failure::local(CommandCode::DataUnwritable, detail).hint(
                    "make the folder writable for this user, or choose another one with --data",
                ));
            }
            _ => {}
        }
    }
    let unreadable = |why: &str| {
        let detail = format!("{}: {why}", file.display());
        Failure::local(CommandCode::MasterKeyMissing, detail).hint(
            "restore the file from a backup of the data folder, or copy it from another control \
             plane of the database",
        )
    };
    let sealed = fs::read_to_string(file).map_err(|error| unreadable(&error.to_string()))?;
    let plain = client.decrypt(key, sealed.trim()).await.map_err(asked)?;
    let text = std::str::from_utf8(plain.expose_secret()).ok();
    text.and_then(MasterKey::from_text)
        .ok_or_else(|| unreadable("the value decrypted by Transit is not a master key"))
}

fn vault_not_named(source: &KeySource) -> Failure {
    let detail = format!("{source} is in Vault, but --vault-url is not set");
    Failure::usage(CommandCode::CommandLineInvalid, detail).hint(
        "pass --vault-url https://vault.example:8200 --vault-role-id ID --vault-secret-id-file \
         FILE",
    )
}

const CREDENTIAL: &str = "create the key with `openssl rand -hex 32`, and pass it to the unit \
                          with LoadCredential=NAME:PATH or LoadCredentialEncrypted=NAME:PATH";

/// A database is there, and a key of it is not.
pub(crate) fn key_missing(source: &KeySource) -> Failure {
    let detail = format!("{source} is missing, but the database is sealed with it");
    Failure::local(CommandCode::MasterKeyMissing, detail).hint(
        "restore the key from a backup, or copy it from another control plane of the database; if \
         it is lost, use a new database with --data or --database, since API keys and passwords \
         cannot be read",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_they_are_written() {
        for text in [
            "file:/etc/gpuaas/master.key",
            "file:a b",
            "credential:gpuaas-master-key",
            "vault-transit:transit/gpuaas",
        ] {
            assert_eq!(text.parse::<KeySource>().unwrap().to_string(), text);
        }
        for bad in
            ["", "file:", "master.key", "credential:", "credential:../x", "credential:..", "x:y"]
        {
            assert!(bad.parse::<KeySource>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_credential_is_read_and_never_made() {
        let folder = tempfile::tempdir().unwrap();
        let sources = |credentials: Option<&Path>| MasterKeySources {
            sources: vec![KeySource::Credential("key".to_owned())],
            credentials: credentials.map(Path::to_owned),
            vault: None,
        };
        for sources in [sources(None), sources(Some(folder.path()))] {
            let failure = sources.load(folder.path(), true).await.err().unwrap();
            assert_eq!(failure.code(), "master_key_missing");
        }
        let key = MasterKey::from_bytes([5; 32]);
        use gpuaas_store::ExposeSecret as _;
        fs::write(folder.path().join("key"), key.to_text().expose_secret()).unwrap();
        let loaded = sources(Some(folder.path())).load(folder.path(), false).await.unwrap();
        assert_eq!(loaded.ring().unwrap().ids(), [key.id_hex()]);
        fs::write(folder.path().join("key"), "short").unwrap();
        assert!(sources(Some(folder.path())).load(folder.path(), true).await.is_err());
    }

    #[tokio::test]
    async fn a_file_is_made_for_a_new_database_only() {
        let folder = tempfile::tempdir().unwrap();
        let none = MasterKeySources::default();
        let failure = none.load(folder.path(), false).await.err().unwrap();
        assert_eq!(failure.code(), "master_key_missing");
        let made = none.load(folder.path(), true).await.unwrap();
        assert_eq!(made.made, Some(folder.path().join(KEY_FILE)));
        assert_eq!(none.load(folder.path(), true).await.unwrap().made, None);
        MasterKey::load_or_create(&folder.path().join(NEXT_KEY_FILE)).unwrap();
        assert_eq!(none.load(folder.path(), false).await.unwrap().keys.len(), 2);
    }

    #[tokio::test]
    async fn a_key_is_kept_as_transit_encrypted_it() {
        use gpuaas_testkit::vault_stand_in::{ROLE_ID, VaultStandIn};
        gpuaas_client::install_cryptography();
        let folder = tempfile::tempdir().unwrap();
        let vault = VaultStandIn::start("hush-secret-id").await.unwrap();
        vault.with(|state| state.transit_keys.insert("transit/gpuaas".to_owned(), 1));
        let secret_id_file = folder.path().join("secret-id");
        fs::write(&secret_id_file, "hush-secret-id\n").unwrap();
        let sources = |url: &str| MasterKeySources {
            sources: vec!["vault-transit:transit/gpuaas".parse().unwrap()],
            credentials: None,
            vault: Some(VaultOptions {
                url: url.to_owned(),
                role_id: ROLE_ID.to_owned(),
                secret_id_file: secret_id_file.clone(),
                ca_file: None,
                namespace: None,
            }),
        };
        let named = sources(&vault.url);
        let lost = named.load(folder.path(), false).await.err().unwrap();
        assert_eq!(lost.code(), "master_key_missing");
        let made = named.load(folder.path(), true).await.unwrap();
        let again = named.load(folder.path(), false).await.unwrap();
        assert_eq!(made.ring().unwrap().ids(), again.ring().unwrap().ids());
        let file = folder.path().join("master.key.transit-transit-gpuaas");
        let sealed = fs::read_to_string(&file).unwrap();
        let key = again.keys[0].1.to_text();
        assert!(sealed.starts_with("vault:v1:") && !sealed.contains(key.expose_secret()));
        vault.with(|state| state.sealed = true);
        let sealed = named.load(folder.path(), false).await.err().unwrap();
        assert_eq!(sealed.code(), "vault_unusable");
        let plain = sources("http://192.0.2.1:8200").load(folder.path(), false).await;
        assert!(plain.err().unwrap().to_string().contains("https"), "not in the clear");
        let none = MasterKeySources { vault: None, ..named };
        assert_eq!(
            none.load(folder.path(), false).await.err().unwrap().code(),
            "command_line_invalid"
        );
    }
}
