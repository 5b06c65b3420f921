//! Whom a node trusts.

use gpuaas_types::spec::SiteSpec;

/// What nodes of a site trust when they speak to a control plane with an authority of its own, PEM:
/// that and the site's, behind which artifacts may be. The rest of the host trusts the site's only.
pub(crate) fn trusted_pem(site: &SiteSpec, anchor_pem: Option<&str>) -> Option<String> {
    let parts = [Some(anchor_pem?), site.node_ca_pem.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().map(str::trim_end).collect();
    Some(format!("{}\n", parts.join("\n")))
}
