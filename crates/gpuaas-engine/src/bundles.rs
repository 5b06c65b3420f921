//! Bundles between the database, which keeps them, and the catalog of this process.

use gpuaas_artifact::catalog::OWN_NAME;
use gpuaas_artifact::{
    BundleCatalog, CatalogBundle, CatalogError, CheckedBundle, CommissioningScript,
    built_in_archives,
};
use gpuaas_bundle::{Delivery, Envelope, InputError, Inputs, Manifest, SigningKey, TrustedKey};
use gpuaas_store::{
    BundleKey, ExposeSecret as _, NewBundle, ProfileRevision, SecretOwner, Store, StoreError,
    StoredBundle,
};
use gpuaas_types::agent::{Gate, HostCheck};
use gpuaas_types::api::BundlePin;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{ProfileId, SiteId, Timestamp};

/// Why the bundles cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The database did not give or take them.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// They are not what they should be.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// Keeps the bundles that came with this control plane, signed with its key at `now`, and puts
/// everything that is kept into the catalog.
///
/// # Errors
/// See [`SeedError`].
pub async fn seed_built_in(
    store: &Store,
    catalog: &BundleCatalog,
    key: &SigningKey,
    now: Timestamp,
) -> Result<(), SeedError> {
    for archive in built_in_archives()? {
        let bundle = CheckedBundle::read(&archive)?;
        let envelope = key
            .sign(&bundle.statement(now))
            .map_err(|source| CatalogError::Signature { bundle: bundle.reference(), source })?;
        let new = NewBundle {
            digest: bundle.digest.to_string(),
            reference: bundle.reference(),
            built_in: true,
            archive,
            envelope: serde_json::to_value(&envelope).unwrap_or_default(),
            published_by: OWN_NAME.to_owned(),
        };
        store.add_bundle(now, new, None).await?;
    }
    sign_anew(store, key, now).await?;
    refresh(store, catalog).await?;
    Ok(())
}

/// Signs what a former key of this database's control planes signed, so that it counts after the end of
/// that key.
async fn sign_anew(store: &Store, key: &SigningKey, now: Timestamp) -> Result<(), SeedError> {
    let is_former = |one: &TrustedKey| one.name.starts_with(OWN_NAME) && one.key != key.public();
    let former = trusted_keys(store).await?.into_iter().filter(is_former);
    // What they signed stays theirs after their end.
    let former: Vec<TrustedKey> = former.map(|one| TrustedKey { until: None, ..one }).collect();
    if former.is_empty() {
        return Ok(());
    }
    for StoredBundle { bundle, .. } in store.bundles_after(0).await? {
        let Ok(checked) = CheckedBundle::read(&bundle.archive) else { continue };
        let Ok(envelope) = serde_json::from_value::<Envelope>(bundle.envelope) else { continue };
        let reference = checked.reference();
        if envelope.verify_digest(&former, &reference, checked.digest, now).is_err() {
            continue;
        }
        let envelope = key
            .sign(&checked.statement(now))
            .map_err(|source| CatalogError::Signature { bundle: reference, source })?;
        let envelope = serde_json::to_value(&envelope).unwrap_or_default();
        store.sign_bundle_anew(&bundle.digest, &envelope).await?;
    }
    Ok(())
}

/// Puts what was published since the last look into the catalog. Answers whether there was any.
///
/// # Errors
/// See [`SeedError`].
pub async fn refresh(store: &Store, catalog: &BundleCatalog) -> Result<bool, SeedError> {
    let kept = store.bundles_after(catalog.sync_cursor()).await?;
    let any = !kept.is_empty();
    for StoredBundle { id, bundle, published_at } in kept {
        match read(&bundle, published_at) {
            Ok(read) => catalog.add(&bundle.archive, read)?,
            // A newer control plane may keep what this one does not understand.
            Err(error) => {
                tracing::error!(%error, bundle = bundle.reference, "skipping a bundle")
            }
        }
        catalog.advance_sync_cursor(id);
    }
    Ok(any)
}

fn read(kept: &NewBundle, published_at: Timestamp) -> Result<CatalogBundle, CatalogError> {
    let bundle = CheckedBundle::read(&kept.archive)?;
    let envelope: Envelope = serde_json::from_value(kept.envelope.clone()).map_err(|error| {
        let source = gpuaas_bundle::SignatureError::Malformed(error.to_string());
        CatalogError::Signature { bundle: kept.reference.clone(), source }
    })?;
    let (built_in, published_by) = (kept.built_in, kept.published_by.clone());
    Ok(CatalogBundle { bundle, envelope, built_in, published_by, published_at })
}

/// Looks for something, and once more when it may have been published through another control
/// plane.
///
/// # Errors
/// See [`CatalogError`].
pub async fn find_or_refresh<T>(
    store: &Store,
    catalog: &BundleCatalog,
    find: impl Fn(&BundleCatalog) -> Result<T, CatalogError>,
) -> Result<T, CatalogError> {
    let first = find(catalog);
    if !matches!(first, Err(CatalogError::NotFound { .. })) {
        return first;
    }
    match refresh(store, catalog).await {
        Ok(true) => find(catalog),
        Ok(false) => first,
        Err(error) => {
            tracing::error!(%error, "cannot read published bundles");
            first
        }
    }
}

/// Keys of others whose signatures count.
///
/// # Errors
/// The store's.
pub async fn trusted_keys(store: &Store) -> Result<Vec<TrustedKey>, StoreError> {
    let keys = store.bundle_keys().await?.into_iter();
    let key = |BundleKey { name, public_key, until }| {
        Some(TrustedKey { name, key: public_key.parse().ok()?, until })
    };
    Ok(keys.filter_map(key).collect())
}

/// The site and the profile whose values the inputs of a node's bundle take: the site's first, the
/// profile's over them, and the host's own over both.
#[derive(Debug, Clone, Copy)]
pub struct InputScope<'a> {
    /// Identifier of the site, which names its sealed values.
    pub site_id: SiteId,
    /// The site as written by the operator.
    pub site: &'a SiteSpec,
    /// The host's name; none: any host of the site.
    pub hostname: Option<&'a str>,
    /// Identifier of the profile, which names its sealed values.
    pub profile_id: ProfileId,
    /// The revision of the profile that the run pins.
    pub profile: &'a ProfileSpec,
}

/// The bundles that a profile's revision names, as a node of a site gets them. Each that cannot be
/// had says why, in one sentence.
#[derive(Debug)]
pub struct NodeBundles {
    /// The site bundle with everything that it requires, by digest; empty: the profile names none.
    pub pins: Result<Vec<BundlePin>, String>,
    /// What the validation bundle asks of a host, and the site bundle of an active one.
    pub host_checks: Result<Vec<HostCheck>, String>,
    /// Arguments that the kernel is to be started with: what the site bundle's gates ask for, then
    /// the profile's own.
    pub kernel_arguments: Result<Vec<String>, String>,
    /// Scripts of the commissioning bundle; empty: the profile names none.
    pub commissioning: Result<Vec<CommissioningScript>, String>,
    /// Whether the site bundle makes slice hosts: it has checks of the gate `slice_ready`.
    pub for_slices: bool,
}

/// Resolves every bundle that `revision` names. A bundle that another control plane has published
/// meanwhile is found, too.
pub async fn for_node(
    store: &Store,
    catalog: &BundleCatalog,
    revision: &ProfileRevision,
    site: &SiteSpec,
    hostname: &str,
) -> NodeBundles {
    let reference = &revision.spec.commissioning_bundle_ref;
    let commissioning = if reference.is_empty() {
        Ok(Vec::new())
    } else {
        find_or_refresh(store, catalog, |catalog| catalog.commissioning(reference)).await
    };
    let pins = pins(store, catalog, revision).await;
    NodeBundles {
        for_slices: pins.as_ref().is_ok_and(|pins| catalog.has_gate(pins, Gate::SliceReady)),
        pins: pins.map_err(|error| error.to_string()),
        host_checks: host_checks(store, catalog, revision, site, hostname)
            .await
            .map_err(|e| e.to_string()),
        kernel_arguments: kernel_arguments(store, catalog, revision, site, hostname)
            .await
            .map_err(|error| error.to_string()),
        commissioning: commissioning.map_err(|error| error.to_string()),
    }
}

/// The site bundle of a profile's revision with what it requires, by digest.
///
/// # Errors
/// See [`CatalogError`].
pub async fn pins(
    store: &Store,
    catalog: &BundleCatalog,
    revision: &ProfileRevision,
) -> Result<Vec<BundlePin>, CatalogError> {
    let reference = &revision.spec.site_bootstrap_bundle_ref;
    if reference.is_empty() {
        return Ok(Vec::new());
    }
    if revision.bundle_pins.is_empty() {
        return find_or_refresh(store, catalog, |catalog| catalog.pins(reference)).await;
    }
    find_or_refresh(store, catalog, |catalog| catalog.pinned(&revision.bundle_pins)).await?;
    Ok(revision.bundle_pins.clone())
}

/// Input of a site bundle that `require_hw_sync` of the profile sets, where the bundle has it and
/// neither the site nor the profile gives it another value: what is asked of MAAS is then looked
/// for on the host.
const HW_SYNC: &str = "require_hw_sync";

/// Input of a site bundle that the profile's own `kernel_arguments` set, where the bundle has it and
/// neither the site nor the profile gives it another value: the bundle then brings them about and
/// checks them.
const KERNEL_ARGUMENTS: &str = "kernel_arguments";

/// Values of the site bundle's inputs that may be shown: the site's, then the profile's, then those of
/// the host. Values for a bundle that it requires are handed on by it; of a site, those that it decides
/// by itself are for the site's other hosts.
///
/// # Errors
/// See [`CatalogError`]; `bundle_input_not_passed_on` of a host's value that would reach nobody.
pub fn inputs(
    catalog: &BundleCatalog,
    pins: &[BundlePin],
    site: &SiteSpec,
    hostname: Option<&str>,
    profile: &ProfileSpec,
) -> Result<Inputs, CatalogError> {
    let (mut inputs, _) = catalog.values_of_site_bundle(pins, &site.bundle_inputs)?;
    inputs.extend(profile.site_bootstrap_inputs.clone());
    let pinned = catalog.pinned(pins)?;
    let declares = |name: &str| {
        pinned.last().is_some_and(|main| main.bundle.manifest.inputs.contains_key(name))
    };
    if profile.require_hw_sync && declares(HW_SYNC) {
        inputs.entry(HW_SYNC.to_owned()).or_insert_with(|| "1".to_owned());
    }
    if !profile.kernel_arguments.is_empty() && declares(KERNEL_ARGUMENTS) {
        let arguments = profile.kernel_arguments.clone();
        inputs.entry(KERNEL_ARGUMENTS.to_owned()).or_insert(arguments);
    }
    if let Some(set) = hostname.and_then(|name| site.host_inputs.get(name)) {
        let (of_host, lost) = catalog.values_of_site_bundle(pins, set)?;
        if let Some(error) = lost {
            return Err(error);
        }
        inputs.extend(of_host);
    }
    Ok(inputs)
}

/// Values of the others, out of their seals.
async fn secrets(
    store: &Store,
    main: &Manifest,
    scope: &InputScope<'_>,
) -> Result<Inputs, StoreError> {
    let mut secrets = Inputs::new();
    if main.inputs.values().any(|input| input.secret) {
        for owner in [SecretOwner::Site(scope.site_id), SecretOwner::Profile(scope.profile_id)] {
            for (input, value) in store.input_secret_values(owner, &main.name).await? {
                secrets.insert(input, value.expose_secret().to_owned());
            }
        }
    }
    Ok(secrets)
}

/// What the validation bundle asks of a host, and the site bundle of an active one, each once.
async fn host_checks(
    store: &Store,
    catalog: &BundleCatalog,
    revision: &ProfileRevision,
    site: &SiteSpec,
    hostname: &str,
) -> Result<Vec<HostCheck>, CatalogError> {
    let reference = &revision.spec.post_deploy_validation_bundle_ref;
    let mut checks = Vec::new();
    if !reference.is_empty() {
        let set = &site.bundle_inputs;
        checks =
            find_or_refresh(store, catalog, |catalog| catalog.validation(reference, set)).await?;
    }
    let pins = pins(store, catalog, revision).await?;
    let inputs = inputs(catalog, &pins, site, Some(hostname), &revision.spec)?;
    let of_site = catalog.gate_checks(&pins, &inputs, Gate::Active)?;
    checks.extend(of_site.into_iter().filter(|check| !checks.contains(check)).collect::<Vec<_>>());
    // A bundle with that input checks them itself, at the gate that it chooses.
    if !inputs.contains_key(KERNEL_ARGUMENTS) {
        let own = revision.spec.kernel_arguments.split_ascii_whitespace();
        let own = own.map(|argument| HostCheck::KernelArgument { argument: argument.to_owned() });
        checks.extend(own.filter(|check| !checks.contains(check)).collect::<Vec<_>>());
    }
    Ok(checks)
}

/// Whether an argument says how many large pages the kernel takes.
fn is_of_pages(argument: &str) -> bool {
    argument.starts_with("hugepages=") || argument.starts_with("hugepagesz=")
}

/// What the gates of the site bundle ask of the kernel's command line, each once, then what the profile
/// adds. Pages that the profile names replace those of its slices' shape.
async fn kernel_arguments(
    store: &Store,
    catalog: &BundleCatalog,
    revision: &ProfileRevision,
    site: &SiteSpec,
    hostname: &str,
) -> Result<Vec<String>, CatalogError> {
    let pins = pins(store, catalog, revision).await?;
    let inputs = inputs(catalog, &pins, site, Some(hostname), &revision.spec)?;
    let own: Vec<&str> = revision.spec.kernel_arguments.split_ascii_whitespace().collect();
    let own_pages = own.iter().any(|argument| is_of_pages(argument));
    let mut arguments: Vec<String> = Vec::new();
    for gate in Gate::ALL {
        let checks = catalog.gate_checks(&pins, &inputs, gate)?;
        for argument in checks.iter().flat_map(HostCheck::kernel_arguments) {
            let replaced = own_pages && is_of_pages(&argument) || own.contains(&&*argument);
            if !replaced && !arguments.contains(&argument) {
                arguments.push(argument);
            }
        }
    }
    arguments.extend(own.into_iter().map(str::to_owned));
    Ok(arguments)
}

/// What a node of the site is told of its bundle.
///
/// # Errors
/// A sentence that says why a run must not begin, or go on.
pub async fn delivery(
    store: &Store,
    catalog: &BundleCatalog,
    pins: &[BundlePin],
    scope: &InputScope<'_>,
    now: Timestamp,
) -> Result<Option<Delivery>, DeliveryError> {
    let pinned = catalog.pinned(pins)?;
    let Some(main) = pinned.last().map(|main| &main.bundle.manifest) else { return Ok(None) };
    let trusted = trusted_keys(store).await?;
    let inputs = inputs(catalog, pins, scope.site, scope.hostname, scope.profile)?;
    let secrets = secrets(store, main, scope).await?;
    let delivery =
        catalog.delivery(pins, inputs, secrets, &trusted, now).map_err(|error| match error {
            CatalogError::Input { bundle, source: InputError::SecretMissing { name } }
                if bundle == main.reference() =>
            {
                let (site, bundle) = (scope.site.name.clone(), main.name.clone());
                DeliveryError::SecretMissing { bundle, input: name, site }
            }
            other => other.into(),
        })?;
    let missing = unapproved(store, catalog, pins, &scope.site.name).await?;
    if missing.is_empty() {
        return Ok(delivery);
    }
    Err(DeliveryError::NotApproved { bundles: missing, site: scope.site.name.clone() })
}

/// Why a bundle is not given to a node.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The database's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is not there, its inputs do not fit, or nobody trusted vouches for it.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A secret input has no value.
    #[error(
        "secret input {input} of {bundle} is not set: run `gpuaas site secret set {site} {bundle} \
         {input} --file FILE`"
    )]
    SecretMissing {
        /// The bundle's name.
        bundle: String,
        /// The input.
        input: String,
        /// The site.
        site: String,
    },
    /// Nobody approved it for the site.
    #[error("{} is not approved for site {site}", .bundles.join(", "))]
    NotApproved {
        /// `name@version` of each.
        bundles: Vec<String>,
        /// The site.
        site: String,
    },
}

/// Bundles of these that nobody approved for a site. What came with the control plane needs no
/// approval.
///
/// # Errors
/// The database's, or the catalog's.
pub async fn unapproved(
    store: &Store,
    catalog: &BundleCatalog,
    pins: &[BundlePin],
    site: &str,
) -> Result<Vec<String>, DeliveryError> {
    let pinned = catalog.pinned(pins)?;
    if pinned.iter().all(|bundle| bundle.built_in) {
        return Ok(Vec::new());
    }
    let approvals = store.bundle_approvals().await?;
    let approved = |digest: &str| approvals.iter().any(|a| a.site == site && a.digest == digest);
    let missing =
        pinned.iter().filter(|one| !one.built_in && !approved(&one.bundle.digest.to_string()));
    Ok(missing.map(|one| one.bundle.reference()).collect())
}

#[cfg(test)]
mod tests {
    use gpuaas_artifact::ArtifactStore;

    use super::*;

    /// The host is asked for the timer that MAAS is asked to install, unless an input says otherwise.
    #[test]
    fn hardware_sync_of_the_profile_reaches_the_bundle_that_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        let key = SigningKey::generate().unwrap();
        let now = Timestamp::from_micros(1_795_190_400_000_000);
        let catalog = BundleCatalog::with_built_in(&store, &key, now).unwrap();
        let site = serde_json::json!({ "name": "lab", "url": "http://maas.example/MAAS" });
        let mut site: SiteSpec = serde_json::from_value(site).unwrap();
        let of_host = |host: &str, bundle: &str, site: &SiteSpec, profile: &ProfileSpec| {
            let pins = catalog.pins(bundle).unwrap();
            let inputs = inputs(&catalog, &pins, site, Some(host), profile).unwrap();
            let checks = catalog.gate_checks(&pins, &inputs, Gate::Active).unwrap();
            let asked = checks.iter().any(|check| check.name() == "unit maas_hardware_sync.timer");
            (inputs.get("require_hw_sync").cloned(), asked)
        };
        let asked = |bundle: &str, site: &SiteSpec, profile: &ProfileSpec| {
            of_host("j22u11", bundle, site, profile)
        };
        let plain = ProfileSpec::default();
        let synced = ProfileSpec { require_hw_sync: true, ..ProfileSpec::default() };
        assert_eq!(asked(gpuaas_types::built_in_bundle!("h200-ib"), &site, &plain), (None, false));
        assert_eq!(
            asked(gpuaas_types::built_in_bundle!("h200-ib"), &site, &synced),
            (Some("1".to_owned()), true)
        );
        assert_eq!(asked("site-base@1.0.0", &site, &synced), (None, false));
        let set: Inputs = [("require_hw_sync".to_owned(), "0".to_owned())].into();
        site.bundle_inputs.insert("h200-ib".to_owned(), set);
        assert_eq!(
            asked(gpuaas_types::built_in_bundle!("h200-ib"), &site, &synced),
            (Some("0".to_owned()), false)
        );
        // What is said of one host wins, and is said of no other.
        let set: Inputs = [("require_hw_sync".to_owned(), "1".to_owned())].into();
        site.host_inputs.insert("j22u11".to_owned(), [("h200-ib".to_owned(), set)].into());
        assert_eq!(
            asked(gpuaas_types::built_in_bundle!("h200-ib"), &site, &plain),
            (Some("1".to_owned()), true)
        );
        let other = of_host("j22u15", gpuaas_types::built_in_bundle!("h200-ib"), &site, &synced);
        assert_eq!(other, (Some("0".to_owned()), false));
        // A slice host hands it on to the bundle that it requires.
        let slices =
            of_host("j22u11", gpuaas_types::built_in_bundle!("h200-slice-vm"), &site, &plain).0;
        assert_eq!(slices, Some("1".to_owned()));
    }
}
