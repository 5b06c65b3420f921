//! Which bundles exist: digest to bundle, and `name@version` to digest.
//!
//! Every bundle is an archive with a signature, whether it came with the control plane or was
//! published to it. Its bytes are in the artifact store, so a node fetches them by digest. A
//! published version never changes; the bundles of this repository may, with a newer control
//! plane, and what was resolved before then stays as it was: whoever resolves a name keeps the
//! digests ([`BundleCatalog::pins`]).
//!
//! The catalog is what one process knows. What lasts is in the database, and a name that is not
//! found here may be there.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use gpuaas_bundle::manifest::Reference;
use gpuaas_bundle::{
    Archive, ArchiveError, Artifact, Delivery, Digest, Envelope, Gate, InputError, Inputs, Kind,
    Manifest, SignatureError, SignedBundle, SigningKey, Statement, TrustedKey, input,
};
use gpuaas_types::Timestamp;
use gpuaas_types::agent::HostCheck;
use gpuaas_types::api::BundlePin;

use crate::built_in;
use crate::scripts::{self, CommissioningScript};
use crate::source::{self, Finding};
use crate::store::ArtifactStore;

mod secrets;

pub use secrets::secret_hint;

/// Bundles that require bundles at most.
const MAX_DEPTH: usize = 8;
/// Whose name the control plane's own signatures bear.
pub const OWN_NAME: &str = "this control plane";

/// A bundle that was looked at as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedBundle {
    /// SHA-256 of the archive.
    pub digest: Digest,
    /// Length of the archive in bytes.
    pub size_bytes: u64,
    /// What it says of itself.
    pub manifest: Manifest,
    /// Of a commissioning bundle.
    pub scripts: Vec<CommissioningScript>,
}

/// A bundle of the catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogBundle {
    /// The bundle.
    pub bundle: CheckedBundle,
    /// Who vouches for it.
    pub envelope: Envelope,
    /// Whether it came with the control plane.
    pub built_in: bool,
    /// Who published it.
    pub published_by: String,
    /// When.
    pub published_at: Timestamp,
}

/// Why a reference does not lead to a bundle, or bytes are none.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No bundle of that name and version, or of that digest, for that purpose.
    #[error("there is no bundle {reference}{}", of_kind(.what))]
    NotFound {
        /// As it was asked for.
        reference: String,
        /// For what.
        what: &'static str,
        /// Every reference that would have worked.
        known: Vec<String>,
    },
    /// Neither of the form `name@version` nor a digest.
    #[error("{reference:?} is not a bundle reference: {reason}")]
    Invalid {
        /// As it was asked for.
        reference: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Bytes that no build wrote.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A bundle that a build would not have let through.
    #[error("it cannot be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Wrong(Vec<Finding>),
    /// Nobody who is trusted vouches for it.
    #[error("{bundle} is not trusted: {source}")]
    Signature {
        /// `name@version`.
        bundle: String,
        /// Why not.
        source: SignatureError,
    },
    /// A value that cannot be used.
    #[error("{bundle}: {source}")]
    Input {
        /// `name@version`.
        bundle: String,
        /// Which value and why.
        source: InputError,
    },
    /// Bundles that require each other.
    #[error("bundles require each other: {0}")]
    Circle(String),
    /// The artifact store cannot be written.
    #[error("the artifact store cannot be written: {0}")]
    Io(#[from] io::Error),
}

impl CatalogError {
    /// Stable code for a problem body.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "bundle_not_found",
            Self::Invalid { .. } => "bundle_ref_invalid",
            Self::Archive(error) => error.code(),
            Self::Wrong(_) => "bundle_invalid",
            Self::Signature { source, .. } => source.code(),
            Self::Input { source, .. } => source.code(),
            Self::Circle(_) => "bundle_circle",
            Self::Io(_) => "bundle_store_unwritable",
        }
    }

    /// What the reader should do next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotFound { known, .. } => format!(
                "use one of: {}; or publish it with gpuaas bundle publish",
                known.join(", ")
            ),
            Self::Invalid { .. } => {
                "write it as name@version, such as site-base@1.0.0, or as a digest; leave it empty for none".into()
            }
            Self::Archive(_) | Self::Wrong(_) => {
                "gpuaas bundle lint says what is wrong with a folder; gpuaas bundle build makes the file".into()
            }
            Self::Signature { .. } => {
                "sign it with a key of gpuaas bundle keys, or trust its key with gpuaas bundle trust".into()
            }
            Self::Input { bundle, source: InputError::SecretInOpen { name } } => {
                secret_hint(bundle, name)
            }
            Self::Input { source: InputError::SecretMissing { .. }, .. } => {
                "gpuaas site secret set sets a secret of the bundle that a profile names; a bundle \
                 that requires another hands it on with its requires"
                    .into()
            }
            Self::Input { source: InputError::NotSecret { .. }, .. } => {
                "a profile sets it with --input, a site with --bundle-input".into()
            }
            Self::Input { source: InputError::GivenAway { .. }, .. } => {
                "hand a secret on to an input that is one".into()
            }
            Self::Input { .. } => {
                "gpuaas bundle show lists the inputs of a bundle's folder or file; a profile sets \
                 them with --input, a site with --bundle-input"
                    .into()
            }
            Self::Circle(_) => "publish a version that does not require the others".into(),
            Self::Io(_) => "make room in the data folder".into(),
        }
    }
}

impl CheckedBundle {
    /// Looks at everything that a build looks at.
    ///
    /// # Errors
    /// [`CatalogError::Archive`] for bytes that no build wrote, [`CatalogError::Wrong`].
    pub fn read(bytes: &[u8]) -> Result<Self, CatalogError> {
        let archive = Archive::read(bytes)?;
        let findings = source::of_scripts(&archive);
        if !findings.is_empty() {
            return Err(CatalogError::Wrong(findings));
        }
        let scripts = match archive.manifest.kind {
            Kind::Commissioning => {
                scripts::of_archive(&archive).map_err(|f| CatalogError::Wrong(vec![f]))?
            }
            Kind::SiteBootstrap | Kind::PostDeployValidation => Vec::new(),
        };
        Ok(Self {
            digest: Digest::of(bytes),
            size_bytes: bytes.len() as u64,
            manifest: archive.manifest,
            scripts,
        })
    }

    /// `name@version`.
    #[must_use]
    pub fn reference(&self) -> String {
        self.manifest.reference()
    }

    /// What is said of it by whoever signs it.
    #[must_use]
    pub fn statement(&self, signed_at: Timestamp) -> Statement {
        Statement { bundle: self.reference(), digest: self.digest, signed_at, expires_at: None }
    }
}

impl CatalogBundle {
    /// Its name and its bytes.
    #[must_use]
    pub fn pin(&self) -> BundlePin {
        BundlePin { bundle: self.bundle.reference(), digest: self.bundle.digest.to_string() }
    }

    fn signed(&self) -> SignedBundle {
        let CheckedBundle { digest, size_bytes, manifest, .. } = &self.bundle;
        let artifact = Artifact {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            digest: *digest,
            size_bytes: *size_bytes,
            url: ArtifactStore::url_path(digest),
        };
        SignedBundle { artifact, envelope: self.envelope.clone() }
    }
}

/// Archives of the bundles that came with the control plane.
///
/// # Errors
/// One of them is wrong, which a test excludes.
pub fn built_in_archives() -> Result<Vec<Vec<u8>>, CatalogError> {
    let archives = built_in::BUNDLES.iter().map(|files| {
        let archive = built_in::archive(files).map_err(CatalogError::Wrong)?;
        Ok(archive.write()?)
    });
    archives.collect()
}

#[derive(Debug, Default)]
struct Shelf {
    bundles: HashMap<Digest, Arc<CatalogBundle>>,
    names: BTreeMap<(String, String), Digest>,
}

/// Every bundle that this process knows.
#[derive(Debug)]
pub struct BundleCatalog {
    artifacts: ArtifactStore,
    own: TrustedKey,
    shelf: RwLock<Shelf>,
    seen: AtomicI64,
}

impl BundleCatalog {
    /// An empty one. `own`: the key of the control plane.
    #[must_use]
    pub fn new(artifacts: ArtifactStore, own: &SigningKey) -> Self {
        let own = TrustedKey { name: OWN_NAME.to_owned(), key: own.public(), until: None };
        Self { artifacts, own, shelf: RwLock::default(), seen: AtomicI64::new(0) }
    }

    /// One with the bundles that came with the control plane, signed at `now`.
    ///
    /// # Errors
    /// The artifact store cannot be written.
    pub fn with_built_in(
        artifacts: &ArtifactStore,
        key: &SigningKey,
        now: Timestamp,
    ) -> Result<Self, CatalogError> {
        let catalog = Self::new(artifacts.clone(), key);
        for archive in built_in_archives()? {
            let bundle = CheckedBundle::read(&archive)?;
            let envelope = key
                .sign(&bundle.statement(now))
                .map_err(|source| CatalogError::Signature { bundle: bundle.reference(), source })?;
            let published_by = OWN_NAME.to_owned();
            let one =
                CatalogBundle { bundle, envelope, built_in: true, published_by, published_at: now };
            catalog.add(&archive, one)?;
        }
        Ok(catalog)
    }

    /// Puts a bundle on the shelf; of two with one name, the later one has it.
    ///
    /// # Errors
    /// The artifact store cannot be written.
    pub fn add(&self, archive: &[u8], bundle: CatalogBundle) -> Result<(), CatalogError> {
        self.artifacts.put_bytes(archive)?;
        let Manifest { name, version, .. } = bundle.bundle.manifest.clone();
        let digest = bundle.bundle.digest;
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        shelf.names.insert((name, version), digest);
        shelf.bundles.insert(digest, Arc::new(bundle));
        Ok(())
    }

    /// Number of the newest bundle of the database that is on the shelf.
    #[must_use]
    pub fn seen(&self) -> i64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// The bundle numbered `id` was put on the shelf.
    pub fn saw(&self, id: i64) {
        self.seen.fetch_max(id, Ordering::SeqCst);
    }

    /// The control plane's own key.
    #[must_use]
    pub const fn own_key(&self) -> &TrustedKey {
        &self.own
    }

    /// The bundle of a reference: `name@version` or a digest.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] or [`CatalogError::NotFound`].
    pub fn find(&self, reference: &str) -> Result<Arc<CatalogBundle>, CatalogError> {
        self.find_kind(reference, None)
    }

    fn find_kind(
        &self,
        reference: &str,
        kind: Option<Kind>,
    ) -> Result<Arc<CatalogBundle>, CatalogError> {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let digest = match parse(reference)? {
            Wanted::Digest(digest) => Some(digest),
            Wanted::Name(Reference { name, version }) => shelf.names.get(&(name, version)).copied(),
        };
        let fits = |bundle: &&Arc<CatalogBundle>| {
            kind.is_none_or(|kind| bundle.bundle.manifest.kind == kind)
        };
        let found = digest.and_then(|digest| shelf.bundles.get(&digest)).filter(fits);
        found.cloned().ok_or_else(|| CatalogError::NotFound {
            reference: reference.to_owned(),
            what: kind.map_or("", Kind::as_str),
            known: shelf
                .names
                .iter()
                .filter(|(_, digest)| shelf.bundles.get(digest).as_ref().is_some_and(fits))
                .map(|((name, version), _)| format!("{name}@{version}"))
                .collect(),
        })
    }

    /// The scripts of a commissioning bundle.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub fn commissioning(&self, reference: &str) -> Result<Vec<CommissioningScript>, CatalogError> {
        let found = self.find_kind(reference, Some(Kind::Commissioning))?;
        Ok(found.bundle.scripts.clone())
    }

    /// Whether there is such a validation bundle.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub fn is_validation(&self, reference: &str) -> Result<(), CatalogError> {
        self.find_kind(reference, Some(Kind::PostDeployValidation)).map(drop)
    }

    /// The checks of a validation bundle, with what `set` says for it, by bundle's name.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Input`].
    pub fn validation(
        &self,
        reference: &str,
        set: &BTreeMap<String, Inputs>,
    ) -> Result<Vec<HostCheck>, CatalogError> {
        let found = self.find_kind(reference, Some(Kind::PostDeployValidation))?;
        let manifest = &found.bundle.manifest;
        let values = resolve(manifest, set.get(&manifest.name).unwrap_or(&Inputs::new()))?;
        manifest.checks(&values).map_err(|fault| wrong(manifest, &fault))
    }

    /// A site bundle with everything that it requires, each by digest, in the order to run them.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Circle`].
    pub fn pins(&self, reference: &str) -> Result<Vec<BundlePin>, CatalogError> {
        let main = self.find_kind(reference, Some(Kind::SiteBootstrap))?;
        Ok(self.with_required(&main)?.iter().map(|one| one.pin()).collect())
    }

    /// A bundle with everything that it requires, in the order to run them.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Circle`].
    pub fn with_required(
        &self,
        bundle: &Arc<CatalogBundle>,
    ) -> Result<Vec<Arc<CatalogBundle>>, CatalogError> {
        let mut all = Vec::new();
        self.collect(bundle, &mut Vec::new(), &mut all)?;
        Ok(all)
    }

    fn collect(
        &self,
        bundle: &Arc<CatalogBundle>,
        above: &mut Vec<String>,
        all: &mut Vec<Arc<CatalogBundle>>,
    ) -> Result<(), CatalogError> {
        above.push(bundle.bundle.reference());
        if above.len() > MAX_DEPTH {
            return Err(CatalogError::Circle(above.join(" -> ")));
        }
        for requirement in &bundle.bundle.manifest.requires {
            let required = self.find_kind(&requirement.bundle, Some(Kind::SiteBootstrap))?;
            self.collect(&required, above, all)?;
        }
        above.pop();
        if !all.iter().any(|one| one.bundle.digest == bundle.bundle.digest) {
            all.push(Arc::clone(bundle));
        }
        Ok(())
    }

    /// Whether what a bundle requires is there and takes what it is given.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Input`].
    pub fn check_requires(&self, manifest: &Manifest) -> Result<(), CatalogError> {
        for requirement in &manifest.requires {
            let required = self.find_kind(&requirement.bundle, Some(Kind::SiteBootstrap))?;
            let refuse =
                |source| Err(CatalogError::Input { bundle: requirement.bundle.clone(), source });
            let inputs = &required.bundle.manifest.inputs;
            if let Some(name) = requirement.with.keys().find(|name| !inputs.contains_key(*name)) {
                return refuse(InputError::Unknown { name: name.clone() });
            }
            if let Some(name) = manifest.gives_away(requirement, &required.bundle.manifest) {
                return refuse(InputError::GivenAway { name });
            }
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

    /// Whether `set` names inputs of the site bundle and every value is of its type. What a site
    /// may still set is not missed.
    ///
    /// # Errors
    /// [`CatalogError::Input`].
    pub fn check_inputs(&self, pins: &[BundlePin], set: &Inputs) -> Result<(), CatalogError> {
        let pinned = self.pinned(pins)?;
        let Some(main) = pinned.last() else { return Ok(()) };
        let manifest = &main.bundle.manifest;
        let refuse = |source| CatalogError::Input { bundle: manifest.reference(), source };
        input::refuse_secrets(&manifest.inputs, set).map_err(refuse)?;
        for (name, value) in set {
            let input = manifest.inputs.get(name);
            let input = input.ok_or_else(|| refuse(InputError::Unknown { name: name.clone() }))?;
            let invalid = |reason| refuse(InputError::Invalid { name: name.clone(), reason });
            input.kind.parse(value).map_err(invalid)?;
        }
        Ok(())
    }

    /// What a node is told, when nothing is missing and somebody trusted vouches for all of it.
    /// Of `secrets` only those count that the bundle has as such.
    ///
    /// # Errors
    /// [`CatalogError::Input`] also for what a required bundle would be given;
    /// [`CatalogError::Signature`].
    pub fn delivery(
        &self,
        pins: &[BundlePin],
        inputs: Inputs,
        mut secrets: Inputs,
        trusted: &[TrustedKey],
        now: Timestamp,
    ) -> Result<Option<Delivery>, CatalogError> {
        let pinned = self.pinned(pins)?;
        let Some(main) = pinned.last() else { return Ok(None) };
        let manifest = &main.bundle.manifest;
        input::refuse_secrets(&manifest.inputs, &inputs)
            .map_err(|source| CatalogError::Input { bundle: manifest.reference(), source })?;
        secrets.retain(|name, _| manifest.inputs.get(name).is_some_and(|input| input.secret));
        let mut delivery =
            Delivery { bundles: Vec::new(), inputs, secrets, trusted_keys: Vec::new() };
        follow(manifest, &delivery.values(), &pinned, resolve, &mut |manifest, values| {
            manifest.checks(values).map(drop).map_err(|fault| wrong(manifest, &fault))
        })?;
        let mut trusted_keys = vec![self.own.clone()];
        trusted_keys.extend_from_slice(trusted);
        for one in &pinned {
            let bundle = one.bundle.reference();
            let claimed =
                one.envelope.verify_digest(&trusted_keys, &bundle, one.bundle.digest, now);
            claimed.map_err(|source| CatalogError::Signature { bundle, source })?;
        }
        delivery.bundles = pinned.iter().map(|one| one.signed()).collect();
        delivery.trusted_keys = trusted_keys;
        Ok(Some(delivery))
    }

    /// What a site bundle and those that it requires ask of a host for `gate`, each once. Takes no
    /// secrets, and leaves out what holds one: only the host looks at that.
    ///
    /// # Errors
    /// See [`Self::find`]; [`CatalogError::Input`].
    pub fn gate_checks(
        &self,
        pins: &[BundlePin],
        inputs: &Inputs,
        gate: Gate,
    ) -> Result<Vec<HostCheck>, CatalogError> {
        let pinned = self.pinned(pins)?;
        let Some(main) = pinned.last() else { return Ok(Vec::new()) };
        let mut checks = Vec::new();
        let main = &main.bundle.manifest;
        follow(main, inputs, &pinned, resolve_in_open, &mut |manifest, values| {
            let required = manifest.name != main.name;
            let own = manifest.gate_in_open(gate, values, required);
            let own = own.map_err(|fault| wrong(manifest, &fault))?;
            checks.extend(own);
            Ok(())
        })?;
        let mut once: Vec<HostCheck> = Vec::new();
        for check in checks {
            if !once.contains(&check) {
                once.push(check);
            }
        }
        Ok(once)
    }

    /// What a node fetches of these.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub fn artifacts(&self, pins: &[BundlePin]) -> Result<Vec<Artifact>, CatalogError> {
        Ok(self.pinned(pins)?.iter().map(|one| one.signed().artifact).collect())
    }

    /// Whether a site bundle, or one that it requires, asks something of a host for `gate`.
    #[must_use]
    pub fn has_gate(&self, pins: &[BundlePin], gate: Gate) -> bool {
        let pinned = self.pinned(pins).unwrap_or_default();
        let Some((main, below)) = pinned.split_last() else { return false };
        let asks = |one: &CatalogBundle, required| {
            one.bundle.manifest.expects.iter().any(|expected| expected.blocks(gate, required))
        };
        asks(main, false) || below.iter().any(|one| asks(one, true))
    }

    /// Every bundle, by name and version.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<CatalogBundle>> {
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        shelf.names.values().filter_map(|digest| shelf.bundles.get(digest).cloned()).collect()
    }
}

fn of_kind(kind: &str) -> String {
    if kind.is_empty() { String::new() } else { format!(" of kind {kind}") }
}

fn resolve(manifest: &Manifest, set: &Inputs) -> Result<Inputs, CatalogError> {
    let bundle = manifest.reference();
    manifest.resolve(set).map_err(|source| CatalogError::Input { bundle, source })
}

fn resolve_in_open(manifest: &Manifest, set: &Inputs) -> Result<Inputs, CatalogError> {
    let bundle = manifest.reference();
    manifest.resolve_in_open(set).map_err(|source| CatalogError::Input { bundle, source })
}

fn wrong(manifest: &Manifest, fault: &gpuaas_bundle::Fault) -> CatalogError {
    let file = manifest.reference();
    CatalogError::Wrong(vec![Finding { file, line: None, text: fault.to_string() }])
}

/// Follows values down to what is required, as a launcher would, and shows each bundle with its
/// own.
fn follow<'a>(
    manifest: &'a Manifest,
    set: &Inputs,
    pinned: &'a [Arc<CatalogBundle>],
    resolve: fn(&Manifest, &Inputs) -> Result<Inputs, CatalogError>,
    show: &mut impl FnMut(&'a Manifest, &Inputs) -> Result<(), CatalogError>,
) -> Result<(), CatalogError> {
    let values = resolve(manifest, set)?;
    show(manifest, &values)?;
    for requirement in &manifest.requires {
        let mut manifests = pinned.iter().map(|one| &one.bundle.manifest);
        let Some(required) = manifests.find(|m| m.reference() == requirement.bundle) else {
            continue;
        };
        let refuse = |source| CatalogError::Input { bundle: manifest.reference(), source };
        // One that was published before this was refused there.
        if let Some(name) = manifest.gives_away(requirement, required) {
            return Err(refuse(InputError::GivenAway { name }));
        }
        let given = manifest.given(requirement, &values).map_err(refuse)?;
        follow(required, &given, pinned, resolve, show)?;
    }
    Ok(())
}

enum Wanted {
    Digest(Digest),
    Name(Reference),
}

fn parse(reference: &str) -> Result<Wanted, CatalogError> {
    let hex = reference.strip_prefix("sha256:").unwrap_or(reference);
    if let Ok(digest) = hex.parse() {
        return Ok(Wanted::Digest(digest));
    }
    let invalid = |reason| CatalogError::Invalid { reference: reference.to_owned(), reason };
    reference.parse().map(Wanted::Name).map_err(invalid)
}

#[cfg(test)]
mod tests;
