//! Enrollment: from a single-use token to the identity of a node.

use std::io;

use gpuaas_bundle::Digest;
use gpuaas_bundle::tpm_quote::enrollment_nonce;
use gpuaas_types::agent::{EnrollRequest, EnrollResponse, TpmQuote};
use tracing::{info, warn};

use super::state::{Agent, AgentError};
use crate::identity::{AgentCredential, Identity, NodeKey};
use crate::protocol::{ControlPlaneError, SetupError};

/// The stored identity, or that of an enrollment, which is retried until the control plane answers.
pub(super) async fn enroll(agent: &Agent) -> Result<Identity, AgentError> {
    let config = &agent.config;
    if let Some(identity) = config.identity.load(config.run_id) {
        match agent.assume_identity(identity.clone()) {
            Ok(()) => {
                info!(node = %identity.node_id, "already enrolled");
                return Ok(identity);
            }
            Err(error) => warn!(%error, "cannot use the stored identity"),
        }
    }
    let mut request = EnrollRequest {
        run_id: config.run_id,
        hostname: config.hostname.clone(),
        agent_version: crate::VERSION.to_owned(),
        started_at: agent.started_at,
        facts: config.host.facts().await,
        csr_pem: None,
        tpm_quote: None,
    };
    let key = agent.control_plane().is_tls().then(|| load_or_create_key(agent)).transpose();
    let key = key.map_err(AgentError::NoKey)?;
    request.csr_pem = key.as_ref().map(|key| key.csr_pem.clone());
    if let Some(csr) = &request.csr_pem {
        request.tpm_quote = quote(agent, csr).await;
    }
    let mut backoff = agent.backoff("enroll");
    let identity = loop {
        let response = agent.control_plane().enroll(&config.enrollment_token, &request).await;
        match response.and_then(|response| accept_response(agent, response, key.as_ref())) {
            Ok(identity) => break identity,
            Err(ControlPlaneError::Refused(problem)) => {
                return Err(AgentError::EnrollmentRefused(Box::new(problem)));
            }
            Err(error) => {
                let pause_seconds = backoff.next_seconds();
                warn!(%error, pause_seconds, "enrollment failed, retrying");
                agent.clock.sleep(pause_seconds).await;
            }
        }
    };
    match agent.track_disk_full(config.identity.save(&identity)) {
        Ok(()) => info!(node = %identity.node_id, "enrolled"),
        Err(error) => warn!(%error, "enrolled, but cannot store the identity"),
    }
    Ok(identity)
}

/// What the machine's TPM signs of this enrollment; a host whose TPM does not answer enrolls without, and
/// the control plane knows whether it showed one before.
async fn quote(agent: &Agent, csr_pem: &str) -> Option<TpmQuote> {
    let tpm = agent.config.env.tpm.as_ref()?;
    let token = Digest::sha256(agent.config.enrollment_token.as_bytes());
    match tpm.quote(&enrollment_nonce(token.as_bytes(), csr_pem)).await {
        Ok(quote) => Some(quote),
        Err(error) => {
            warn!(%error, "the TPM returned no quote");
            None
        }
    }
}

/// The key to enroll with, on the disk before the control plane is asked. The token works once, and
/// again only for the key that it worked for. So a key is used again that an earlier process of the
/// agent left, which ended before it could store the response.
fn load_or_create_key(agent: &Agent) -> io::Result<NodeKey> {
    let (run_id, store) = (agent.config.run_id, &agent.config.identity);
    if let Some(key) = store.load_key(run_id) {
        info!("reusing the key of an earlier process that stored no certificate");
        return Ok(key);
    }
    let key = NodeKey::generate()?;
    if let Err(error) = agent.track_disk_full(store.save_key(run_id, &key)) {
        warn!(%error, "cannot store the key; if this process ends now, no other can enroll");
    }
    Ok(key)
}

/// Assumes the identity of an enrollment's response.
fn accept_response(
    agent: &Agent,
    response: EnrollResponse,
    key: Option<&NodeKey>,
) -> Result<Identity, ControlPlaneError> {
    let credential = match (response.certificate, response.credential, key) {
        (Some(certificate), _, Some(key)) => {
            AgentCredential::Certificate { key_pem: key.key_pem.clone(), certificate }
        }
        (None, Some(credential), None) => AgentCredential::Bearer(credential.into()),
        _ => {
            return Err(ControlPlaneError::Malformed("the response has no certificate".to_owned()));
        }
    };
    let identity = Identity {
        run_id: agent.config.run_id,
        node_id: response.node_id,
        credential,
        heartbeat_interval_seconds: response.heartbeat_interval_seconds.max(1),
        poll_seconds: response.poll_seconds,
        task_keys: response.task_keys,
        trust_digest: None,
    };
    let unusable = |error: SetupError| ControlPlaneError::Malformed(error.to_string());
    agent.assume_identity(identity.clone()).map_err(unusable)?;
    Ok(identity)
}
