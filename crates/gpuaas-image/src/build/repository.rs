//! Archives of packages beside the base's own: NVIDIA's, a site's.
//!
//! Such an archive is flat: its index lies beside its packages. apt verifies the index with the keys that
//! the recipe names and with no other, and nothing else that apt trusts may be signed by them. In the
//! finished image the source is there and disabled, because curtin runs `apt-get update` at every deploy.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::error::BuildError;
use super::request::EmbeddedFile;
use super::snapshot::{fetch, index_snapshot};
use crate::command::{Tool, need};
use crate::signed_repository::SignedRepository;

/// Seconds that fetching or reading keys may take.
const KEY_SECONDS: u64 = 60;
/// How a file of keys begins that is text.
const ARMOR: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";

/// An archive whose keys are here and are the right ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedRepository {
    name: String,
    url: String,
    /// Its keys as text, without a blank line at either end.
    keys: String,
    prefer: bool,
    /// Digest of its keys and of its index, in hex digits.
    pub(super) digest: String,
    /// When its index was made, in seconds since 1970.
    pub(super) epoch_seconds: i64,
}

impl SignedRepository {
    /// Fetches keys and index, and compares the keys' fingerprints.
    ///
    /// # Errors
    /// [`BuildError::SourceUnreachable`], [`BuildError::RepositoryUntrusted`].
    pub fn trusted(&self, scratch: &Path) -> Result<TrustedRepository, BuildError> {
        need("gpg")?;
        let folder = tempfile::Builder::new().prefix("keys-").tempdir_in(scratch)?;
        let file = folder.path().join("fetched");
        fetch(&self.key_url, &file, KEY_SECONDS)?;
        let keys = Keys::read(&file, &folder).map_err(|detail| self.untrusted(detail))?;
        let is_known =
            |found: &&String| self.fingerprints.is_empty() || self.fingerprints.contains(found);
        if let Some(odd) = keys.fingerprints.iter().find(|found| !is_known(found)) {
            let wanted = self.fingerprints.join(" or ");
            return Err(self.untrusted(format!(
                "{} serves the key {odd}, but the recipe expects {wanted}",
                self.key_url
            )));
        }
        let folder_url = self.url.trim_end_matches('/');
        // One with its signature in it, or, from tools of another age, one with it beside it.
        let index = match index_snapshot(&format!("{folder_url}/InRelease"), scratch) {
            Err(BuildError::SourceUnreachable { .. }) => {
                index_snapshot(&format!("{folder_url}/Release"), scratch)
            }
            found => found,
        }?;
        Ok(TrustedRepository {
            name: self.name.clone(),
            url: self.url.clone(),
            prefer: self.prefer,
            digest: hex::encode(Sha256::digest(format!("{}{}", keys.text, index.digest))),
            keys: keys.text,
            epoch_seconds: index.epoch_seconds,
        })
    }

    fn untrusted(&self, detail: String) -> BuildError {
        BuildError::RepositoryUntrusted { name: self.name.clone(), detail }
    }
}

/// Keys of a file.
struct Keys {
    text: String,
    fingerprints: Vec<String>,
}

impl Keys {
    /// Reads a file of keys with gpg, whose home is in `folder`. The error is a sentence.
    fn read(file: &Path, folder: &TempDir) -> Result<Self, String> {
        let home = folder.path().join("home");
        let made = fs::create_dir(&home).and_then(|()| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&home, fs::Permissions::from_mode(0o700))
        });
        made.map_err(|error| error.to_string())?;
        let gpg = |step| {
            let tool = Tool::plain(step, "gpg", KEY_SECONDS).arg("--homedir").arg(&home);
            tool.arg("--batch").arg("--quiet").arg("--no-autostart").arg("--with-colons")
        };
        let said = |tool: Tool| tool.run().map_err(|error| error.to_string());
        said(gpg("read the keys").arg("--import").arg(file))?;
        let listed = said(gpg("list the keys").arg("--list-keys"))?;
        let text = match fs::read_to_string(file) {
            Ok(text) if text.contains(ARMOR) => text,
            // Keys in their binary form.
            _ => said(gpg("write the keys").arg("--armor").arg("--export"))?,
        };
        let fingerprints = primary_fingerprints(&listed);
        if fingerprints.is_empty() {
            return Err("its key file contains no key".to_owned());
        }
        Ok(Self { text: text.trim().to_owned(), fingerprints })
    }
}

/// Fingerprints of the keys in gpg's list, without those of their subkeys
/// (doc/DETAILS of GnuPG: the record `fpr` follows the one that it belongs to).
fn primary_fingerprints(listed: &str) -> Vec<String> {
    let records = listed.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut is_primary = false;
    let mut found = Vec::new();
    for record in records {
        match record.first() {
            Some(&"pub") => is_primary = true,
            Some(&"fpr") if is_primary => {
                found.extend(record.get(9).map(|text| (*text).to_owned()));
                is_primary = false;
            }
            _ => {}
        }
    }
    found
}

impl TrustedRepository {
    /// One with no keys.
    #[cfg(test)]
    pub(super) fn sample(digest: &str, epoch_seconds: i64) -> Self {
        let (name, url, keys) = (String::new(), String::new(), String::new());
        Self { name, url, keys, prefer: false, digest: digest.to_owned(), epoch_seconds }
    }

    /// Name of its file in `/etc/apt/sources.list.d`, without the ending.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// URL of the folder with its index.
    pub(super) fn url(&self) -> &str {
        self.url.trim_end_matches('/')
    }

    /// Its source in the words of sources.list(5), its keys in it.
    fn source(&self, is_enabled: bool) -> String {
        let enabled = if is_enabled { "yes" } else { "no" };
        let keys = self.keys.lines().map(|line| match line.trim_end() {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        });
        let keys: String = keys.collect();
        format!(
            "Enabled: {enabled}\nTypes: deb\nURIs: {}\nSuites: ./\nSigned-By:\n{keys}",
            self.url
        )
    }

    /// Whose packages win, in the words of apt_preferences(5): 500 is the base's own priority. A driver and
    /// what has to be of its version come from one archive.
    fn preference(&self) -> String {
        let rest = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        let host = rest.split(['/', ':']).next().unwrap_or_default();
        let priority = if self.prefer { 600 } else { 400 };
        format!("Package: *\nPin: origin \"{host}\"\nPin-Priority: {priority}\n\n")
    }

    /// The file that a finished image has: disabled, for whoever needs the archive on a host.
    pub(super) fn disabled(&self) -> EmbeddedFile {
        EmbeddedFile {
            path: format!("/etc/apt/sources.list.d/{}.sources", self.name),
            content: self.source(false).into_bytes(),
            mode: 0o644,
        }
    }
}

/// Name of the file with apt's preferences among the sources.
pub(super) const PREFERENCES: &str = "gpuaas.preferences";
/// Packages that no build installs, whatever asks for them: they write the firmware of adapters that they
/// find, which are the build host's.
const NEVER: &str = "Package: mlnx-fw-updater*\nPin: release *\nPin-Priority: -1\n\n";

/// Writes the sources of all archives, enabled, and which of them wins, into the new folder `sources`
/// beside `tree`.
pub(super) fn write_sources(
    repositories: &[TrustedRepository],
    tree: &Path,
) -> Result<PathBuf, BuildError> {
    let folder = std::path::absolute(tree.with_file_name("sources"))?;
    fs::create_dir(&folder)?;
    for repository in repositories {
        let file = folder.join(format!("{}.sources", repository.name));
        fs::write(file, repository.source(true))?;
    }
    let preferences: String = repositories.iter().map(TrustedRepository::preference).collect();
    fs::write(folder.join(PREFERENCES), format!("{NEVER}{preferences}"))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_its_keys_and_is_disabled_in_an_image() {
        let repository = TrustedRepository {
            name: "cuda".to_owned(),
            url: "https://a.example/x/".to_owned(),
            keys: format!("{ARMOR}\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----"),
            prefer: false,
            digest: String::new(),
            epoch_seconds: 0,
        };
        let preference = "Package: *\nPin: origin \"a.example\"\nPin-Priority: 400\n\n";
        assert_eq!(repository.preference(), preference);
        let file = repository.disabled();
        assert_eq!(file.path, "/etc/apt/sources.list.d/cuda.sources");
        assert_eq!(
            String::from_utf8(file.content).unwrap(),
            format!(
                "Enabled: no\nTypes: deb\nURIs: https://a.example/x/\nSuites: ./\nSigned-By:\n {ARMOR}\n .\n mQ==\n -----END PGP PUBLIC KEY BLOCK-----\n"
            )
        );
        assert!(repository.source(true).starts_with("Enabled: yes\n"));
    }

    #[test]
    fn fingerprints_of_subkeys_do_not_count() {
        let listed = "tru::1:1:0:3:1:5\npub:u:255:22:AA:1:::u:::scSC:::::ed25519:::0:\nfpr:::::::::AA11:\nuid:u::::1::H::a::::::::::0:\nsub:u:255:18:BB:1::::::e:::::cv25519::\nfpr:::::::::BB22:\npub:u:1::CC:\nfpr:::::::::CC33:\n";
        assert_eq!(primary_fingerprints(listed), ["AA11", "CC33"]);
        assert!(primary_fingerprints("").is_empty());
    }
}
