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

/// Whom a node trusts when it speaks to the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeTrust {
    /// Authorities that it is given, PEM.
    pub pem: Option<String>,
    /// Whether it trusts the authorities of its own system as well.
    pub system: bool,
}

impl NodeTrust {
    /// The trust of a site's nodes: the anchor and the site's authority, and nobody else; where the
    /// control plane has no anchor of its own, the site's authority beside those of the system.
    #[must_use]
    pub fn of_site(site: &SiteSpec, anchor_pem: Option<&str>) -> Self {
        match trusted_pem(site, anchor_pem) {
            Some(pem) => Self { pem: Some(pem), system: false },
            None => Self { pem: site.node_ca_pem.clone(), system: true },
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The site's nodes get the anchor as their only authority beside the site's; only without an anchor
    /// do they trust their system's.
    #[test]
    fn node_trusts_the_anchor_and_the_site_alone() {
        let mut site = SiteSpec::new("lab", "http://127.0.0.1:5240/MAAS");
        let trust = NodeTrust::of_site(&site, Some("ANCHOR\n"));
        assert_eq!(trust, NodeTrust { pem: Some("ANCHOR\n".to_owned()), system: false });
        site.node_ca_pem = Some("SITE\n".to_owned());
        let trust = NodeTrust::of_site(&site, Some("ANCHOR\n"));
        assert_eq!(trust, NodeTrust { pem: Some("ANCHOR\nSITE\n".to_owned()), system: false });
        let trust = NodeTrust::of_site(&site, None);
        assert_eq!(trust, NodeTrust { pem: Some("SITE\n".to_owned()), system: true });
    }
}
