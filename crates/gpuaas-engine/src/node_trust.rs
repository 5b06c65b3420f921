//! Whom a node trusts.

use std::sync::Arc;

use gpuaas_types::spec::SiteSpec;
use parking_lot::RwLock;

/// What nodes trust of the control plane's own, PEM, where its listener has a certificate of its own
/// authority; it may be replaced while the engine runs.
#[derive(Debug, Clone, Default)]
pub struct NodeAnchors(Arc<RwLock<Option<String>>>);

impl NodeAnchors {
    /// As it is now.
    #[must_use]
    pub fn pem(&self) -> Option<String> {
        self.0.read().clone()
    }

    /// Hands out another one from now on.
    pub fn replace(&self, pem: Option<String>) {
        *self.0.write() = pem;
    }
}

/// What nodes of a site trust when they speak to a control plane with an authority of its own, PEM:
/// that and the site's, behind which artifacts may be. The rest of the host trusts the site's only.
#[must_use]
pub fn trusted_pem(site: &SiteSpec, anchor_pem: Option<&str>) -> Option<String> {
    let parts = [Some(anchor_pem?), site.node_ca_pem.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().map(str::trim_end).collect();
    Some(format!("{}\n", parts.join("\n")))
}
