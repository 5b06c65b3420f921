//! Bundles between the database, which keeps them, and the catalog of this process.

use gpuaas_artifact::{
    BundleCatalog, CatalogBundle, CatalogError, CheckedBundle, built_in_archives,
};
use gpuaas_bundle::{Delivery, Envelope, Inputs, SigningKey, TrustedKey};
use gpuaas_store::{BundleKey, NewBundle, ProfileRevision, Store, StoreError, StoredBundle};
use gpuaas_types::Timestamp;
use gpuaas_types::agent::{Gate, HostCheck};
use gpuaas_types::api::BundlePin;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};

/// Why the bundles cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StockError {
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
/// See [`StockError`].
pub async fn stock(
    store: &Store,
    catalog: &BundleCatalog,
    key: &SigningKey,
    now: Timestamp,
) -> Result<(), StockError> {
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
            published_by: gpuaas_artifact::catalog::OWN_NAME.to_owned(),
        };
        store.add_bundle(now, new).await?;
    }
    refresh(store, catalog).await?;
    Ok(())
}

/// Puts what was published since the last look into the catalog. Answers whether there was any.
///
/// # Errors
/// See [`StockError`].
pub async fn refresh(store: &Store, catalog: &BundleCatalog) -> Result<bool, StockError> {
    let kept = store.bundles_after(catalog.seen()).await?;
    let any = !kept.is_empty();
    for StoredBundle { id, bundle, published_at } in kept {
        match read(&bundle, published_at) {
            Ok(read) => catalog.add(&bundle.archive, read)?,
            // A newer control plane may keep what this one does not understand.
            Err(error) => {
                tracing::error!(%error, bundle = bundle.reference, "a bundle is left out")
            }
        }
        catalog.saw(id);
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
pub async fn look<T>(
    store: &Store,
    catalog: &BundleCatalog,
    look: impl Fn(&BundleCatalog) -> Result<T, CatalogError>,
) -> Result<T, CatalogError> {
    let first = look(catalog);
    if !matches!(first, Err(CatalogError::NotFound { .. })) {
        return first;
    }
    match refresh(store, catalog).await {
        Ok(true) => look(catalog),
        Ok(false) => first,
        Err(error) => {
            tracing::error!(%error, "published bundles cannot be read");
            first
        }
    }
}

/// Keys of others whose signatures count.
///
/// # Errors
/// The store's.
pub async fn trusted(store: &Store) -> Result<Vec<TrustedKey>, StoreError> {
    let keys = store.bundle_keys().await?.into_iter();
    let key = |BundleKey { name, public_key, until }| {
        Some(TrustedKey { name, key: public_key.parse().ok()?, until })
    };
    Ok(keys.filter_map(key).collect())
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
        return look(store, catalog, |catalog| catalog.pins(reference)).await;
    }
    look(store, catalog, |catalog| catalog.pinned(&revision.bundle_pins)).await?;
    Ok(revision.bundle_pins.clone())
}

/// Values of the site bundle's inputs: the site's, then the profile's.
///
/// # Errors
/// See [`CatalogError`].
pub fn inputs(
    catalog: &BundleCatalog,
    pins: &[BundlePin],
    site: &SiteSpec,
    profile: &ProfileSpec,
) -> Result<Inputs, CatalogError> {
    let pinned = catalog.pinned(pins)?;
    let of_site = pinned.last().and_then(|main| site.bundle_inputs.get(&main.bundle.manifest.name));
    let mut inputs = of_site.cloned().unwrap_or_default();
    inputs.extend(profile.site_bootstrap_inputs.clone());
    Ok(inputs)
}

/// What the profile's validation bundle asks of a host of the site, and its site bundle of an
/// active one.
///
/// # Errors
/// See [`CatalogError`].
pub(crate) async fn host_checks(
    store: &Store,
    catalog: &BundleCatalog,
    revision: &ProfileRevision,
    site: &SiteSpec,
) -> Result<Vec<HostCheck>, CatalogError> {
    let reference = &revision.spec.post_deploy_validation_bundle_ref;
    let mut checks = Vec::new();
    if !reference.is_empty() {
        checks = look(store, catalog, |catalog| catalog.validation(reference)).await?;
    }
    let pins = pins(store, catalog, revision).await?;
    let inputs = inputs(catalog, &pins, site, &revision.spec)?;
    let of_site = catalog.gate_checks(&pins, &inputs, Gate::Active)?;
    checks.extend(of_site.into_iter().filter(|check| !checks.contains(check)).collect::<Vec<_>>());
    Ok(checks)
}

/// What a node of the site is told of its bundle.
///
/// # Errors
/// A sentence that says why a run must not begin, or go on.
pub async fn delivery(
    store: &Store,
    catalog: &BundleCatalog,
    pins: &[BundlePin],
    site: &SiteSpec,
    profile: &ProfileSpec,
    now: Timestamp,
) -> Result<Option<Delivery>, DeliveryError> {
    if pins.is_empty() {
        return Ok(None);
    }
    let trusted = trusted(store).await?;
    let inputs = inputs(catalog, pins, site, profile)?;
    let delivery = catalog.delivery(pins, inputs, &trusted, now)?;
    let missing = unapproved(store, catalog, pins, &site.name).await?;
    if missing.is_empty() {
        return Ok(delivery);
    }
    Err(DeliveryError::NotApproved { bundles: missing, site: site.name.clone() })
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
