//! What a bundle is for.

use serde::{Deserialize, Serialize};

/// The executable in a bundle of kind `node_agent`.
pub const AGENT_FILE: &str = "gpuaas-node-agent";

/// What a bundle is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BundleKind {
    /// Runs at a node's first boot, before the agent enrolls.
    SiteBootstrap,
    /// Scripts that MAAS runs while it commissions a machine.
    Commissioning,
    /// Checks that a node has to pass after its deployment.
    PostDeployValidation,
    /// An agent that nodes may be updated to: the executable [`AGENT_FILE`].
    NodeAgent,
}

impl BundleKind {
    /// The name of the kind in a manifest.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SiteBootstrap => "site_bootstrap",
            Self::Commissioning => "commissioning",
            Self::PostDeployValidation => "post_deploy_validation",
            Self::NodeAgent => "node_agent",
        }
    }
}
