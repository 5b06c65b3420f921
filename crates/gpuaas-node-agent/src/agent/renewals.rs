//! The loop that renews the agent's certificate from two thirds of its life on, beside everything
//! else. It uses the connection that the old certificate opens; until the new one is there, the
//! agent goes on with the old one.

use gpuaas_types::agent::{NodeCertificate, RenewRequest};
use tracing::{error, info, warn};

use super::state::{Agent, pause_seconds};
use crate::identity::{AgentCredential, Identity, NodeKey, renew_at};
use crate::protocol::ControlPlaneError;

/// Longest sleep until the due time is computed again, in seconds: a host's clock may be set.
const MAX_SLEEP_SECONDS: f64 = 3600.0;
/// Shortest time from one renewal to the next, in seconds.
const MIN_INTERVAL_SECONDS: f64 = 60.0;

/// Renews the certificate whenever it is due; returns at once where the agent has none.
pub(super) async fn run(agent: &Agent, identity: &Identity) {
    let [.., a, b, c, d] = identity.node_id.0.into_bytes();
    let spread = f64::from(u32::from_be_bytes([a, b, c, d])) / 4_294_967_296.0;
    let mut backoff = agent.backoff("certificate");
    loop {
        let current = agent.identity();
        let certificate = current.as_ref().and_then(|identity| identity.credential.certificate());
        let Some(certificate) = certificate else { return };
        let due_seconds = renew_at(certificate, spread).seconds_since(agent.clock.now());
        if due_seconds > 0.0 {
            tokio::select! {
                () = agent.clock.sleep(due_seconds.min(MAX_SLEEP_SECONDS)) => continue,
                () = agent.renewal_asked.notified() => {}
            }
        }
        match renew(agent).await {
            Ok(next) => {
                info!(serial = next.serial, until = %next.not_after, "a new certificate");
                backoff.reset();
                // A certificate that is due as soon as it arrives must not cause a request storm.
                agent.clock.sleep(MIN_INTERVAL_SECONDS).await;
            }
            Err(error) => {
                let pause_seconds = pause_seconds(&mut backoff, &error);
                log_failure(agent, certificate, &error, pause_seconds);
                agent.clock.sleep(pause_seconds).await;
            }
        }
    }
}

fn log_failure(
    agent: &Agent,
    old: &NodeCertificate,
    error: &ControlPlaneError,
    pause_seconds: f64,
) {
    let (serial, until) = (&old.serial, old.not_after);
    if agent.clock.now() <= until {
        return warn!(serial, %until, %error, pause_seconds, "certificate renewal failed, retrying");
    }
    error!(
        code = "certificate_expired", serial, %until, %error, pause_seconds,
        "the certificate has expired and the control plane does not renew it: correct this host's \
         clock if it is wrong; otherwise reimage the node"
    );
}

/// Gets the next certificate, for a new key.
async fn renew(agent: &Agent) -> Result<NodeCertificate, ControlPlaneError> {
    let unusable = |error: &dyn std::fmt::Display| ControlPlaneError::Malformed(error.to_string());
    let NodeKey { key_pem, csr_pem } = NodeKey::generate().map_err(|e| unusable(&e))?;
    let request = RenewRequest { run_id: agent.config.run_id, csr_pem };
    let certificate = agent.authenticated().renew(&request).await?;
    // Read after the call: newer task keys may have come meanwhile.
    let current = agent.identity().ok_or_else(|| unusable(&"the agent is not enrolled"))?;
    let credential = AgentCredential::Certificate { key_pem, certificate: certificate.clone() };
    let identity = Identity { credential, ..current };
    agent.assume_identity(identity.clone()).map_err(|e| unusable(&e))?;
    if let Err(error) = agent.track_disk_full(agent.config.identity.save(&identity)) {
        warn!(%error, "renewed the certificate, but cannot store the identity");
    }
    Ok(certificate)
}
