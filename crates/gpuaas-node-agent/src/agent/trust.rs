//! What the agent trusts for its control plane, replaced while it runs: one certificate authority takes
//! over from another, and a host is not installed anew for that.
//!
//! A bundle counts only where it came over TLS to an agent with a certificate, so from whoever the bundle
//! before vouches for. It is tried before it is kept: a bundle that does not lead to the control plane
//! would leave the host without one.

use gpuaas_types::agent::{HeartbeatRequest, TrustBundle};
use tracing::{info, warn};

use super::state::Agent;
use crate::atomic_file;
use crate::identity::{AgentCredential, Identity};

/// Mode of the file: scripts of the host read it.
const MODE: u32 = 0o644;

/// Tries a bundle with a heartbeat, and keeps it where that was accepted. What keeps it from that is
/// logged, and the control plane gives it again.
pub(super) async fn accept_bundle(
    agent: &Agent,
    heartbeat: &HeartbeatRequest,
    bundle: TrustBundle,
) {
    let Some(identity) = agent.identity() else { return };
    let is_certified = matches!(identity.credential, AgentCredential::Certificate { .. });
    if !is_certified || !agent.control_plane().is_tls() {
        return warn!(
            "refused a trust bundle: it arrived without TLS, or this agent has no certificate"
        );
    }
    let control_plane = match agent.control_plane().trusting_instead(bundle.pem.as_bytes()) {
        Ok(control_plane) => control_plane,
        Err(error) => return warn!(%error, "cannot use a trust bundle"),
    };
    let tried = control_plane.with_credential(&identity.credential);
    let tried = match &tried {
        Ok(authenticated) => authenticated.heartbeat(heartbeat).await.map(drop),
        Err(error) => return warn!(%error, "cannot use a trust bundle"),
    };
    if let Err(error) = tried {
        return warn!(%error, "discarding a trust bundle: it does not verify the control plane");
    }
    let written =
        agent.config.ca_file.as_ref().map_or(Ok(()), |path| {
            atomic_file::replace_with_mode(path, bundle.pem.as_bytes(), MODE)
        });
    if let Err(error) = agent.track_disk_full(written) {
        return warn!(%error, "cannot store a trust bundle");
    }
    // The file first: a process that ends here is given the bundle again.
    let current = agent.identity().unwrap_or(identity);
    let identity = Identity { trust_digest: Some(bundle.digest.clone()), ..current };
    if let Err(error) = agent.trust(control_plane, identity.clone()) {
        return warn!(%error, "cannot use a trust bundle");
    }
    if let Err(error) = agent.track_disk_full(agent.config.identity.save(&identity)) {
        warn!(%error, "using a new trust bundle, but cannot store the identity");
    }
    info!(digest = bundle.digest, "using a new trust bundle");
}
