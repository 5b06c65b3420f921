//! The index of the catalog: bundles by digest, digests by name and version.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gpuaas_bundle::manifest::BundleReference;
use gpuaas_bundle::{
    AGENT_FILE, Archive, Artifact, BundleKind, Digest, Gate, Manifest, PublicKey, SigningKey,
    TrustedKey,
};
use gpuaas_types::api::BundlePin;
use parking_lot::RwLock;

use super::bundle::CatalogBundle;
use super::error::CatalogError;
use crate::scripts::CommissioningScript;
use crate::store::ArtifactStore;

/// Longest chain of bundles that require each other.
const MAX_DEPTH: usize = 8;
/// Name of the control plane's own signing key.
pub const OWN_NAME: &str = "this control plane";

/// Name of a signing key of control planes of this database, present or former, by its identifier.
#[must_use]
pub fn own_key_name(key: &PublicKey) -> String {
    format!("{OWN_NAME}, key {}", key.id())
}

#[derive(Debug, Default)]
struct Index {
    bundles: HashMap<Digest, Arc<CatalogBundle>>,
    names: BTreeMap<(String, String), Digest>,
}

/// Every bundle that this process has loaded.
#[derive(Debug)]
pub struct BundleCatalog {
    artifacts: ArtifactStore,
    own: TrustedKey,
    index: RwLock<Index>,
    sync_cursor: AtomicI64,
}

impl BundleCatalog {
    /// An empty catalog. `own` is the control plane's signing key.
    #[must_use]
    pub fn new(artifacts: ArtifactStore, own: &SigningKey) -> Self {
        let own = TrustedKey { name: OWN_NAME.to_owned(), key: own.public(), until: None };
        Self { artifacts, own, index: RwLock::default(), sync_cursor: AtomicI64::new(0) }
    }

    /// Adds a bundle; of two with the same name and version, the later one has the name.
    ///
    /// # Errors
    /// The artifact store cannot be written.
    pub fn add(&self, archive: &[u8], bundle: CatalogBundle) -> Result<(), CatalogError> {
        self.artifacts.put_bytes(archive)?;
        if bundle.bundle.agent.is_some()
            && let Some(entry) = Archive::read(archive)?.files.get(AGENT_FILE)
        {
            self.artifacts.put_bytes(&entry.bytes)?;
        }
        let Manifest { name, version, .. } = bundle.bundle.manifest.clone();
        let digest = bundle.bundle.digest;
        let mut index = self.index.write();
        index.names.insert((name, version), digest);
        index.bundles.insert(digest, Arc::new(bundle));
        Ok(())
    }

    /// The database's number of the newest bundle that was loaded; 0 before the first.
    #[must_use]
    pub fn sync_cursor(&self) -> i64 {
        self.sync_cursor.load(Ordering::SeqCst)
    }

    /// Records that the database's bundles up to number `id` are loaded.
    pub fn advance_sync_cursor(&self, id: i64) {
        self.sync_cursor.fetch_max(id, Ordering::SeqCst);
    }

    /// The control plane's own key.
    #[must_use]
    pub const fn own_key(&self) -> &TrustedKey {
        &self.own
    }

    /// The bundle of a reference: `name@version` or a digest.
    ///
    /// # Errors
    /// [`CatalogError::InvalidReference`] or [`CatalogError::NotFound`].
    pub fn find(&self, reference: &str) -> Result<Arc<CatalogBundle>, CatalogError> {
        self.find_kind(reference, None)
    }

    /// [`Self::find`] among the bundles of a kind.
    pub(super) fn find_kind(
        &self,
        reference: &str,
        kind: Option<BundleKind>,
    ) -> Result<Arc<CatalogBundle>, CatalogError> {
        let index = self.index.read();
        let digest = match parse_reference(reference)? {
            BundleRef::Digest(digest) => Some(digest),
            BundleRef::Name(BundleReference { name, version }) => {
                index.names.get(&(name, version)).copied()
            }
        };
        let fits = |bundle: &&Arc<CatalogBundle>| {
            kind.is_none_or(|kind| bundle.bundle.manifest.kind == kind)
        };
        let found = digest.and_then(|digest| index.bundles.get(&digest)).filter(fits);
        found.cloned().ok_or_else(|| CatalogError::NotFound {
            reference: reference.to_owned(),
            kind: kind.map_or("", BundleKind::as_str),
            known: index
                .names
                .iter()
                .filter(|(_, digest)| index.bundles.get(digest).as_ref().is_some_and(fits))
                .map(|((name, version), _)| format!("{name}@{version}"))
                .collect(),
        })
    }

    /// The scripts of a commissioning bundle.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub fn commissioning(&self, reference: &str) -> Result<Vec<CommissioningScript>, CatalogError> {
        let found = self.find_kind(reference, Some(BundleKind::Commissioning))?;
        Ok(found.bundle.scripts.clone())
    }

    /// The bundle of an agent.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub fn agent(&self, reference: &str) -> Result<Arc<CatalogBundle>, CatalogError> {
        self.find_kind(reference, Some(BundleKind::NodeAgent))
    }

    /// Whether `reference` is of a validation bundle.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub fn check_validation(&self, reference: &str) -> Result<(), CatalogError> {
        self.find_kind(reference, Some(BundleKind::PostDeployValidation)).map(drop)
    }

    /// Digests of a site bundle and of everything that it requires, in the order of their runs.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Circle`].
    pub fn pins(&self, reference: &str) -> Result<Vec<BundlePin>, CatalogError> {
        let main = self.find_kind(reference, Some(BundleKind::SiteBootstrap))?;
        Ok(self.with_required(&main)?.iter().map(|one| one.pin()).collect())
    }

    /// A bundle and everything that it requires, in the order of their runs.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Circle`].
    pub fn with_required(
        &self,
        bundle: &Arc<CatalogBundle>,
    ) -> Result<Vec<Arc<CatalogBundle>>, CatalogError> {
        let mut all = Vec::new();
        self.collect_required(bundle, &mut Vec::new(), &mut all)?;
        Ok(all)
    }

    fn collect_required(
        &self,
        bundle: &Arc<CatalogBundle>,
        required_by: &mut Vec<String>,
        all: &mut Vec<Arc<CatalogBundle>>,
    ) -> Result<(), CatalogError> {
        required_by.push(bundle.bundle.reference());
        if required_by.len() > MAX_DEPTH {
            return Err(CatalogError::Circle(required_by.join(" -> ")));
        }
        for requirement in &bundle.bundle.manifest.requires {
            let required = self.find_kind(&requirement.bundle, Some(BundleKind::SiteBootstrap))?;
            self.collect_required(&required, required_by, all)?;
        }
        required_by.pop();
        if !all.iter().any(|one| one.bundle.digest == bundle.bundle.digest) {
            all.push(Arc::clone(bundle));
        }
        Ok(())
    }

    /// The bundles of pins.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub fn pinned(&self, pins: &[BundlePin]) -> Result<Vec<Arc<CatalogBundle>>, CatalogError> {
        pins.iter().map(|pin| self.find(&pin.digest)).collect()
    }

    /// Artifacts that a node downloads for pins.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub fn artifacts(&self, pins: &[BundlePin]) -> Result<Vec<Artifact>, CatalogError> {
        Ok(self.pinned(pins)?.iter().map(|one| one.signed().artifact).collect())
    }

    /// Whether a site bundle, or one that it requires, has a check for `gate`.
    #[must_use]
    pub fn has_gate(&self, pins: &[BundlePin], gate: Gate) -> bool {
        let pinned = self.pinned(pins).unwrap_or_default();
        let Some((main, below)) = pinned.split_last() else { return false };
        let has_check = |one: &CatalogBundle, required| {
            one.bundle.manifest.expects.iter().any(|expected| expected.blocks(gate, required))
        };
        has_check(main, false) || below.iter().any(|one| has_check(one, true))
    }

    /// Every bundle, by name and version.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<CatalogBundle>> {
        let index = self.index.read();
        index.names.values().filter_map(|digest| index.bundles.get(digest).cloned()).collect()
    }
}

/// A parsed reference of a bundle.
enum BundleRef {
    Digest(Digest),
    Name(BundleReference),
}

fn parse_reference(reference: &str) -> Result<BundleRef, CatalogError> {
    let hex = reference.strip_prefix("sha256:").unwrap_or(reference);
    if let Ok(digest) = hex.parse() {
        return Ok(BundleRef::Digest(digest));
    }
    let invalid =
        |reason| CatalogError::InvalidReference { reference: reference.to_owned(), reason };
    reference.parse().map(BundleRef::Name).map_err(invalid)
}
