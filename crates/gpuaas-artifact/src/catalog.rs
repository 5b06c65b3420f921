//! Which bundles exist: `name@version` to digest.
//!
//! Bundles come from two places: built into this crate, and a folder
//! `BUNDLES/NAME/VERSION/bootstrap.sh`. A version that has a `validate.json`, a list of
//! [`HostCheck`], is a validation bundle as well, and one with a folder `commissioning` of
//! [`CommissioningScript`] files a commissioning bundle; it may have only one of these. Bootstrap
//! scripts are put into the artifact store when the catalog is opened, so what a run resolved stays
//! fetchable by digest while an operator edits the folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::agent::HostCheck;
use serde::{Deserialize, Serialize};

use crate::scripts::{self, CommissioningScript};
use crate::store::{ArtifactStore, Stored};
use gpuaas_bundle::Digest;

/// Bundles that are part of the control plane: name, version, script.
const BUILT_IN: &[(&str, &str, &str)] =
    &[("site-base", "1.0.0", include_str!("../bundles/site-base/bootstrap.sh"))];

/// Validation bundles that are part of the control plane: name, version, list of checks.
const BUILT_IN_VALIDATIONS: &[(&str, &str, &str)] =
    &[("validate-base", "1.0.0", include_str!("../bundles/validate-base/validate.json"))];

/// Commissioning bundles that are part of the control plane: name, version, scripts.
const BUILT_IN_COMMISSIONING: &[(&str, &str, &[&str])] = &[(
    "commissioning-base",
    "1.0.0",
    &[
        include_str!("../bundles/commissioning-base/fabric-ports.sh"),
        include_str!("../bundles/commissioning-base/gpu-presence.sh"),
        include_str!("../bundles/commissioning-base/nvme-health.sh"),
    ],
)];

/// A bundle, or any other artifact with a name, as a node is told about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// Name, `[a-z0-9-]`.
    pub name: String,
    /// Version, `[0-9A-Za-z.+-]`.
    pub version: String,
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Where to fetch it: absolute, or a path below the control plane's URL.
    pub url: String,
}

impl Bundle {
    /// An artifact that `stored` holds, under the path that the control plane serves it.
    #[must_use]
    pub fn of_stored(name: &str, version: &str, stored: Stored) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            digest: stored.digest,
            size_bytes: stored.size_bytes,
            url: ArtifactStore::url_path(&stored.digest),
        }
    }
}

/// Why a reference does not lead to a bundle, or a folder is no catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No bundle of that name and version.
    #[error("no bundle {reference}")]
    NotFound {
        /// As it was asked for.
        reference: String,
        /// Every reference that would have worked.
        known: Vec<String>,
    },
    /// Not of the form `name@version`.
    #[error("{reference:?} is not a bundle reference: {reason}")]
    Invalid {
        /// As it was asked for.
        reference: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two bundles of one name and version.
    #[error("bundle {reference} exists twice: {path} has the name of a built-in bundle")]
    Duplicate {
        /// The name and version.
        reference: String,
        /// The second one.
        path: PathBuf,
    },
    /// A script of a commissioning bundle that MAAS must not be given.
    #[error("{path} cannot be a commissioning script: {reason}")]
    Script {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder or the store cannot be read or written.
    #[error("cannot read bundles at {path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl CatalogError {
    /// Stable code for a problem body.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "bundle_not_found",
            Self::Invalid { .. } => "bundle_ref_invalid",
            Self::Duplicate { .. } => "bundle_duplicate",
            Self::Script { .. } => "bundle_script_invalid",
            Self::Io { .. } => "bundle_catalog_unreadable",
        }
    }

    /// What the reader should do next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotFound { known, .. } => format!(
                "use one of: {}; or add it to the folder of bundles and restart",
                known.join(", ")
            ),
            Self::Invalid { .. } => {
                "write it as name@version, such as site-base@1.0.0; leave it empty for none".into()
            }
            Self::Duplicate { .. } => "give the bundle in the folder another version".into(),
            Self::Script { path, .. } => format!("correct {}, then restart", path.display()),
            Self::Io { path, .. } => format!("make {} readable", path.display()),
        }
    }
}

/// Every bundle that a profile may name. Immutable once opened.
#[derive(Debug, Clone)]
pub struct BundleCatalog {
    bundles: BTreeMap<(String, String), Bundle>,
    validations: BTreeMap<(String, String), Vec<HostCheck>>,
    commissioning: BTreeMap<(String, String), Vec<CommissioningScript>>,
}

impl BundleCatalog {
    /// Puts the built-in bundles and those of `folder` (when it exists) into `store`.
    ///
    /// # Errors
    /// The folder cannot be read, holds a name that no reference could name, or repeats a
    /// built-in bundle; the store cannot be written.
    pub fn open(store: &ArtifactStore, folder: Option<&Path>) -> Result<Self, CatalogError> {
        let mut catalog = Self {
            bundles: BTreeMap::new(),
            validations: BTreeMap::new(),
            commissioning: BTreeMap::new(),
        };
        for (name, version, script) in BUILT_IN {
            let stored = store.put_bytes(script.as_bytes()).map_err(|source| CatalogError::Io {
                path: PathBuf::from("the artifact store"),
                source,
            })?;
            catalog.insert(name, version, stored, Path::new("built in"))?;
        }
        for (name, version, checks) in BUILT_IN_VALIDATIONS {
            catalog.insert_validation(name, version, checks.as_bytes(), Path::new("built in"))?;
        }
        for (name, version, texts) in BUILT_IN_COMMISSIONING {
            let path = Path::new("built in");
            let wrong = |reason| CatalogError::Script { path: path.to_owned(), reason };
            let scripts = texts.iter().map(|text| scripts::parse(text)).collect::<Result<_, _>>();
            catalog.insert_commissioning(name, version, scripts.map_err(wrong)?, path)?;
        }
        if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
            for (name, name_path) in folders(folder)? {
                for (version, path) in folders(&name_path)? {
                    catalog.insert_folder(store, &name, &version, &path)?;
                }
            }
        }
        Ok(catalog)
    }

    /// Whatever a version's folder holds; a bootstrap script where there is nothing else.
    fn insert_folder(
        &mut self,
        store: &ArtifactStore,
        name: &str,
        version: &str,
        path: &Path,
    ) -> Result<(), CatalogError> {
        let manifest = path.join("validate.json");
        let commissioning = path.join("commissioning");
        if manifest.is_file() {
            let failed = |source| CatalogError::Io { path: manifest.clone(), source };
            let checks = fs::read(&manifest).map_err(failed)?;
            self.insert_validation(name, version, &checks, &manifest)?;
        }
        if commissioning.is_dir() {
            let scripts = scripts::read_folder(&commissioning)?;
            self.insert_commissioning(name, version, scripts, &commissioning)?;
        }
        let script = path.join("bootstrap.sh");
        if !script.exists() && (manifest.is_file() || commissioning.is_dir()) {
            return Ok(());
        }
        let failed = |source| CatalogError::Io { path: script.clone(), source };
        let stored = store.put_file(&script).map_err(failed)?;
        self.insert(name, version, stored, &script)
    }

    fn insert(
        &mut self,
        name: &str,
        version: &str,
        stored: Stored,
        path: &Path,
    ) -> Result<(), CatalogError> {
        let reference = format!("{name}@{version}");
        let key = split(&reference)?;
        let bundle = Bundle::of_stored(name, version, stored);
        match self.bundles.insert(key, bundle) {
            None => Ok(()),
            Some(_) => Err(CatalogError::Duplicate { reference, path: path.to_owned() }),
        }
    }

    fn insert_validation(
        &mut self,
        name: &str,
        version: &str,
        manifest: &[u8],
        path: &Path,
    ) -> Result<(), CatalogError> {
        let reference = format!("{name}@{version}");
        let key = split(&reference)?;
        let checks: Vec<HostCheck> = serde_json::from_slice(manifest)
            .map_err(|source| CatalogError::Io { path: path.to_owned(), source: source.into() })?;
        match self.validations.insert(key, checks) {
            None => Ok(()),
            Some(_) => Err(CatalogError::Duplicate { reference, path: path.to_owned() }),
        }
    }

    fn insert_commissioning(
        &mut self,
        name: &str,
        version: &str,
        scripts: Vec<CommissioningScript>,
        path: &Path,
    ) -> Result<(), CatalogError> {
        let reference = format!("{name}@{version}");
        let key = split(&reference)?;
        match self.commissioning.insert(key, scripts) {
            None => Ok(()),
            Some(_) => Err(CatalogError::Duplicate { reference, path: path.to_owned() }),
        }
    }

    /// The scripts of the commissioning bundle that `reference` (`name@version`) names.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] or [`CatalogError::NotFound`].
    pub fn commissioning(&self, reference: &str) -> Result<&[CommissioningScript], CatalogError> {
        let found = self.commissioning.get(&split(reference)?);
        found.map(Vec::as_slice).ok_or_else(|| CatalogError::NotFound {
            reference: reference.to_owned(),
            known: self.commissioning.keys().map(|(name, v)| format!("{name}@{v}")).collect(),
        })
    }

    /// The checks of the validation bundle that `reference` (`name@version`) names.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] or [`CatalogError::NotFound`].
    pub fn validation(&self, reference: &str) -> Result<&[HostCheck], CatalogError> {
        let found = self.validations.get(&split(reference)?);
        found.map(Vec::as_slice).ok_or_else(|| CatalogError::NotFound {
            reference: reference.to_owned(),
            known: self.validations.keys().map(|(name, v)| format!("{name}@{v}")).collect(),
        })
    }

    /// The bundle that `reference` (`name@version`) names.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] or [`CatalogError::NotFound`].
    pub fn resolve(&self, reference: &str) -> Result<&Bundle, CatalogError> {
        self.bundles.get(&split(reference)?).ok_or_else(|| CatalogError::NotFound {
            reference: reference.to_owned(),
            known: self.references(),
        })
    }

    /// Every reference that resolves, sorted.
    #[must_use]
    pub fn references(&self) -> Vec<String> {
        self.bundles.keys().map(|(name, version)| format!("{name}@{version}")).collect()
    }

    /// Every bundle, by name and version.
    pub fn list(&self) -> impl Iterator<Item = &Bundle> {
        self.bundles.values()
    }
}

fn split(reference: &str) -> Result<(String, String), CatalogError> {
    let invalid = |reason| CatalogError::Invalid { reference: reference.to_owned(), reason };
    let (name, version) = reference
        .split_once('@')
        .ok_or_else(|| invalid("there is no @ between name and version"))?;
    if !is_name(name) {
        return Err(invalid(
            "a name is 1 to 64 of a-z, 0-9 and -, and begins with a letter or digit",
        ));
    }
    if !is_version(version) {
        return Err(invalid(
            "a version is 1 to 64 of letters, digits, dot, + and -, and begins with a letter or digit",
        ));
    }
    Ok((name.to_owned(), version.to_owned()))
}

/// Whether `text` may name a bundle. A name is also a file name on the node.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether `text` may be a version.
pub(crate) fn is_version(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".+-".contains(&b))
}

/// Sub-folders of `path` that are not hidden, sorted by name.
fn folders(path: &Path) -> Result<Vec<(String, PathBuf)>, CatalogError> {
    let failed = |source| CatalogError::Io { path: path.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !name.starts_with('.') {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(bundles: &[(&str, &str)]) -> (tempfile::TempDir, Result<BundleCatalog, CatalogError>) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("bundles");
        for (path, script) in bundles {
            fs::create_dir_all(folder.join(path)).unwrap();
            fs::write(folder.join(path).join("bootstrap.sh"), script).unwrap();
        }
        let store = ArtifactStore::open(dir.path()).unwrap();
        let catalog = BundleCatalog::open(&store, Some(&folder));
        (dir, catalog)
    }

    #[test]
    fn resolves_built_in_and_registered_bundles() {
        let (dir, catalog) = open(&[("h200-ib/2.1.0", "#!/bin/bash\n")]);
        let catalog = catalog.unwrap();
        assert_eq!(catalog.references(), ["h200-ib@2.1.0", "site-base@1.0.0"]);
        let bundle = catalog.resolve("h200-ib@2.1.0").unwrap();
        assert_eq!(bundle.digest, Digest::of(b"#!/bin/bash\n"));
        assert_eq!(bundle.size_bytes, 12);
        assert_eq!(bundle.url, format!("/bootstrap/v1/artifacts/sha256/{}", bundle.digest));
        let store = ArtifactStore::open(dir.path()).unwrap();
        for bundle in catalog.list() {
            assert!(store.get(&bundle.digest).unwrap().is_some());
        }
    }

    #[test]
    fn a_validation_bundle_is_a_list_of_checks() {
        let (dir, catalog) = open(&[]);
        assert!(!catalog.unwrap().validation("validate-base@1.0.0").unwrap().is_empty());
        let folder = dir.path().join("bundles");
        fs::create_dir_all(folder.join("ib/1")).unwrap();
        let manifest = folder.join("ib/1/validate.json");
        fs::write(&manifest, r#"[{"check":"infiniband_up","count":8}]"#).unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        let catalog = BundleCatalog::open(&store, Some(&folder)).unwrap();
        let checks = catalog.validation("ib@1").unwrap();
        assert_eq!(checks, [HostCheck::InfinibandUp { count: 8 }]);
        assert_eq!(catalog.resolve("ib@1").unwrap_err().code(), "bundle_not_found");
        fs::write(&manifest, r#"[{"check":"shell","run":"true"}]"#).unwrap();
        let error = BundleCatalog::open(&store, Some(&folder)).unwrap_err();
        assert_eq!(error.code(), "bundle_catalog_unreadable");
    }

    #[test]
    fn a_commissioning_bundle_is_a_folder_of_scripts() {
        let (dir, catalog) = open(&[]);
        let catalog = catalog.unwrap();
        let built_in = catalog.commissioning("commissioning-base@1.0.0").unwrap();
        let labels: Vec<&str> = built_in.iter().map(|s| s.script.label.as_str()).collect();
        assert_eq!(labels, ["fabric-ports", "gpu-presence", "nvme-health"]);
        let error = catalog.commissioning("site-base@1.0.0").unwrap_err();
        assert_eq!(error.code(), "bundle_not_found");
        assert!(error.hint().contains("commissioning-base@1.0.0"), "{}", error.hint());
        let folder = dir.path().join("bundles");
        let scripts = folder.join("firmware/1/commissioning");
        fs::create_dir_all(&scripts).unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        let again = || BundleCatalog::open(&store, Some(&folder));
        assert_eq!(again().unwrap_err().code(), "bundle_script_invalid");
        fs::write(scripts.join("a.sh"), &built_in[0].text).unwrap();
        let label = again().unwrap().commissioning("firmware@1").unwrap()[0].script.label.clone();
        assert!(label.starts_with("gpuaas-fabric-ports-"), "{label}");
        assert_eq!(again().unwrap().resolve("firmware@1").unwrap_err().code(), "bundle_not_found");
        fs::write(scripts.join("b.sh"), &built_in[0].text).unwrap();
        assert!(again().unwrap_err().to_string().contains("another script is called"));
    }

    #[test]
    fn an_unknown_reference_lists_what_exists() {
        let (_dir, catalog) = open(&[]);
        let catalog = catalog.unwrap();
        let error = catalog.resolve("site-base@9.9.9").unwrap_err();
        assert_eq!(error.code(), "bundle_not_found");
        assert!(error.hint().contains("site-base@1.0.0"), "{}", error.hint());
    }

    #[test]
    fn malformed_references_are_refused() {
        let (_dir, catalog) = open(&[]);
        let catalog = catalog.unwrap();
        for bad in ["", "site-base", "@1", "a@", "../x@1", "A@1", "a@../1", "a@1@2", "a@1/2"] {
            assert_eq!(catalog.resolve(bad).unwrap_err().code(), "bundle_ref_invalid", "{bad}");
        }
    }

    #[test]
    fn a_folder_may_not_shadow_or_misname_a_bundle() {
        assert_eq!(open(&[("site-base/1.0.0", "x")]).1.unwrap_err().code(), "bundle_duplicate");
        assert_eq!(open(&[("Bad Name/1", "x")]).1.unwrap_err().code(), "bundle_ref_invalid");
    }
}
