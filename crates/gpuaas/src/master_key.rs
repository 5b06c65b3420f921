//! Where master keys come from.
//!
//! A control plane is told all the keys that its database may be sealed with, usually one. Which of them
//! seals is noted in the database. Only a key in a file is ever made here, where it is missing and the
//! database is new: a key from elsewhere belongs to whoever keeps it there.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_store::{KeyRing, MasterKey};
use gpuaas_types::codes::CommandCode;

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
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Credential(name) => write!(f, "credential:{name}"),
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
                Err("the name of a credential is a file name, such as gpuaas-master-key".to_owned())
            }
            _ => Err("write file:PATH or credential:NAME".to_owned()),
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
    pub(crate) fn load(&self, data: &Path, is_new: bool) -> Result<LoadedKeys, Failure> {
        let mut loaded = LoadedKeys { keys: Vec::new(), made: None };
        for source in self.all(data) {
            let missing = self.file(&source)?.filter(|file| !file.exists());
            if let Some(file) = missing {
                if !is_new || !loaded.keys.is_empty() || !matches!(source, KeySource::File(_)) {
                    return Err(key_missing(&source));
                }
                loaded.made = Some(file);
            }
            let key = self.read(&source)?;
            loaded.keys.push((source, key));
        }
        Ok(loaded)
    }

    /// Reads one key; a file is made where it is missing.
    ///
    /// # Errors
    /// `master_key_missing`; the store's for a file that cannot be used.
    pub(crate) fn read(&self, source: &KeySource) -> Result<MasterKey, Failure> {
        match source {
            KeySource::File(path) => MasterKey::load_or_create(path).map_err(store_failure),
            KeySource::Credential(_) => {
                let path = self.file(source)?.ok_or_else(|| key_missing(source))?;
                // Only this service sees the folder; the modes are systemd's.
                let text = fs::read_to_string(&path).map_err(|_| key_missing(source))?;
                MasterKey::from_text(&text).ok_or_else(|| {
                    let detail = format!("{source} is not 64 hexadecimal digits");
                    Failure::local(CommandCode::MasterKeyMissing, detail).hint(CREDENTIAL)
                })
            }
        }
    }

    /// The file that a source is read from; none: it is in no file.
    fn file(&self, source: &KeySource) -> Result<Option<PathBuf>, Failure> {
        match source {
            KeySource::File(path) => Ok(Some(path.clone())),
            KeySource::Credential(name) => {
                let folder = self.credentials.as_ref().ok_or_else(|| {
                    let detail = "systemd has handed over no credentials (CREDENTIALS_DIRECTORY)";
                    Failure::usage(CommandCode::MasterKeyMissing, detail.to_owned())
                        .hint(CREDENTIAL)
                })?;
                Ok(Some(folder.join(name)))
            }
        }
    }
}

const CREDENTIAL: &str = "make the key with `openssl rand -hex 32`, and let the unit have it: \
                          LoadCredential=NAME:PATH or LoadCredentialEncrypted=NAME:PATH";

/// A database is there, and a key of it is not.
pub(crate) fn key_missing(source: &KeySource) -> Failure {
    let detail = format!("{source} is not there, and the database was sealed with it");
    Failure::local(CommandCode::MasterKeyMissing, detail).hint(
        "restore it from a backup, or copy it from another control plane of the database; without \
         it no API key and no password can be read: name a new database with --data or --database",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_they_are_written() {
        for text in ["file:/etc/gpuaas/master.key", "file:a b", "credential:gpuaas-master-key"] {
            assert_eq!(text.parse::<KeySource>().unwrap().to_string(), text);
        }
        for bad in
            ["", "file:", "master.key", "credential:", "credential:../x", "credential:..", "x:y"]
        {
            assert!(bad.parse::<KeySource>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_credential_is_read_and_never_made() {
        let folder = tempfile::tempdir().unwrap();
        let sources = |credentials: Option<&Path>| MasterKeySources {
            sources: vec![KeySource::Credential("key".to_owned())],
            credentials: credentials.map(Path::to_owned),
        };
        for sources in [sources(None), sources(Some(folder.path()))] {
            let failure = sources.load(folder.path(), true).err().unwrap();
            assert_eq!(failure.code(), "master_key_missing");
        }
        let key = MasterKey::from_bytes([5; 32]);
        use gpuaas_store::ExposeSecret as _;
        fs::write(folder.path().join("key"), key.to_text().expose_secret()).unwrap();
        let loaded = sources(Some(folder.path())).load(folder.path(), false).unwrap();
        assert_eq!(loaded.ring().unwrap().ids(), [key.id_hex()]);
        fs::write(folder.path().join("key"), "short").unwrap();
        assert!(sources(Some(folder.path())).load(folder.path(), true).is_err());
    }

    #[test]
    fn a_file_is_made_for_a_new_database_only() {
        let folder = tempfile::tempdir().unwrap();
        let none = MasterKeySources::default();
        let failure = none.load(folder.path(), false).err().unwrap();
        assert_eq!(failure.code(), "master_key_missing");
        let made = none.load(folder.path(), true).unwrap();
        assert_eq!(made.made, Some(folder.path().join(KEY_FILE)));
        assert_eq!(none.load(folder.path(), true).unwrap().made, None);
        MasterKey::load_or_create(&folder.path().join(NEXT_KEY_FILE)).unwrap();
        assert_eq!(none.load(folder.path(), false).unwrap().keys.len(), 2);
    }
}
