//! What a node is told at its first boot.

use gpuaas_artifact::{BootstrapInputs, BootstrapLimits};

use crate::bundles::{self, InputScope};
use crate::node::trust::trusted_pem;
use crate::run::session::RunSession;
use crate::shared::Shared;

/// The two secrets of one deployment.
pub(crate) struct NodeTokens {
    /// With which the boot scripts report how far they are.
    pub(crate) bootstrap: String,
    /// With which the agent enrolls, once.
    pub(crate) enrollment: String,
}

/// Everything that the user-data of the run's node is rendered from.
///
/// # Errors
/// One sentence: a bundle is gone, not trusted or not approved, or an input has no value.
pub(crate) async fn bootstrap_inputs(
    shared: &Shared,
    session: &RunSession,
    tokens: NodeTokens,
) -> Result<BootstrapInputs, String> {
    let (site, profile, node) = (session.site(), session.profile(), &session.node);
    let hostname = Some(node.hostname.as_str());
    let scope =
        InputScope { site_id: node.site_id, site, hostname, profile_id: node.profile_id, profile };
    let pins = session.context.bundles.pins.as_ref().map_err(Clone::clone)?;
    let now = shared.clock.now();
    let bundle = bundles::delivery(&shared.store, &shared.bundles, pins, &scope, now).await;
    Ok(BootstrapInputs {
        run_id: session.run.id,
        hostname: node.hostname.clone(),
        site: site.name.clone(),
        control_plane_url: shared.config.advertise_url.clone(),
        bootstrap_token: tokens.bootstrap,
        enrollment_token: tokens.enrollment,
        bundle: bundle.map_err(|error| error.to_string())?,
        agent: shared.config.agent.clone(),
        ca_pem: site.node_ca_pem.clone(),
        control_plane_ca_pem: trusted_pem(site, shared.config.node_anchors.pem().as_deref()),
        deploy_user: Some(profile.deploy_user.clone()).filter(|u| !u.is_empty()),
        limits: BootstrapLimits::default(),
    })
}
