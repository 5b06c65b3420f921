//! What the admin API of a simulation's control plane is made of.

use std::sync::Arc;

use gpuaas_artifact::{ArtifactStore, BundleCatalog};
use gpuaas_bundle::SigningKey;
use gpuaas_engine::{Clock, Connect};
use gpuaas_store::Store;
use gpuaas_types::IdSource;

/// What the admin API of a simulation's control plane works with.
pub struct ControlPlaneParts {
    /// State of the control planes.
    pub store: Store,
    /// The simulation's clock.
    pub clock: Arc<dyn Clock>,
    /// Where identifiers come from.
    pub ids: Arc<dyn IdSource>,
    /// Bundles by name.
    pub bundles: Arc<BundleCatalog>,
    /// Signs what is published.
    pub bundle_key: Arc<SigningKey>,
    /// Bytes by digest.
    pub artifacts: Arc<ArtifactStore>,
    /// Clients for the region, answered at once.
    pub connect: Arc<dyn Connect>,
}
