//! Becoming the agent of a node, and staying it: the enrollment, and the renewal of its certificate.

use std::io;

use gpuaas_types::agent::{EnrollRequest, EnrollResponse, NodeCertificate, RenewRequest};
use tracing::{info, warn};

use crate::agent::{Agent, AgentError, lock, pause};
use crate::identity::{Identity, NodeKey, Proof, renew_at};
use crate::protocol::{CallError, ControlPlane, SetupError};

/// Longest sleep until the certificate is looked at again, in seconds: a host's clock may be set.
const RENEWAL_LOOK_SECONDS: f64 = 3600.0;
/// Shortest time from one renewal to the next, in seconds.
const SOONEST_SECONDS: f64 = 60.0;

impl Agent {
    pub(crate) async fn identity(&self) -> Result<Identity, AgentError> {
        if let Some(identity) = self.config.identity.load(self.config.run_id) {
            match self.speak_as(identity.clone()) {
                Ok(()) => {
                    info!(node = %identity.node_id, "enrolled before");
                    return Ok(identity);
                }
                Err(error) => warn!(%error, "what is kept of an enrollment cannot be used"),
            }
        }
        let mut request = EnrollRequest {
            run_id: self.config.run_id,
            hostname: self.config.hostname.clone(),
            agent_version: crate::VERSION.to_owned(),
            started_at: self.started_at,
            facts: self.config.host.facts().await,
            csr_pem: None,
        };
        let key = self.control_plane.is_tls().then(|| self.key()).transpose();
        let key = key.map_err(AgentError::NoKey)?;
        request.csr_pem = key.as_ref().map(|key| key.csr_pem.clone());
        let mut backoff = self.backoff("enroll");
        let identity = loop {
            let answer = self.control_plane.enroll(&self.config.enrollment_token, &request).await;
            match answer.and_then(|response| self.enrolled(response, key.as_ref())) {
                Ok(identity) => break identity,
                Err(CallError::Refused(problem)) => {
                    return Err(AgentError::EnrollmentRefused(Box::new(problem)));
                }
                Err(error) => {
                    let pause_seconds = backoff.next_seconds();
                    warn!(%error, pause_seconds, "enrollment will be tried again");
                    self.clock.sleep(pause_seconds).await;
                }
            }
        };
        match self.kept(self.config.identity.save(&identity)) {
            Ok(()) => info!(node = %identity.node_id, "enrolled"),
            Err(error) => warn!(%error, "enrolled, but a restart will not remember it"),
        }
        Ok(identity)
    }

    /// The key to enroll with, on the disk before anybody hears of it: the token works once, and
    /// again only for the key that it worked for. So it is that of an agent before this one which
    /// did not live to keep the answer.
    fn key(&self) -> io::Result<NodeKey> {
        let run_id = self.config.run_id;
        if let Some(key) = self.config.identity.load_key(run_id) {
            info!("an agent before this one asked for a certificate and did not keep it");
            return Ok(key);
        }
        let key = NodeKey::generate()?;
        if let Err(error) = self.kept(self.config.identity.save_key(run_id, &key)) {
            warn!(%error, "the key is not kept; if this agent ends now, no other can enroll");
        }
        Ok(key)
    }

    /// Who the agent is from now on.
    fn enrolled(
        &self,
        response: EnrollResponse,
        key: Option<&NodeKey>,
    ) -> Result<Identity, CallError> {
        let proof = match (response.certificate, response.credential, key) {
            (Some(certificate), _, Some(key)) => {
                Proof::Certificate { key_pem: key.key_pem.clone(), certificate }
            }
            (None, Some(credential), None) => Proof::Bearer(credential),
            _ => return Err(CallError::Malformed("it gives no certificate".to_owned())),
        };
        let identity = Identity {
            run_id: self.config.run_id,
            node_id: response.node_id,
            proof,
            heartbeat_interval_seconds: response.heartbeat_interval_seconds.max(1),
            poll_seconds: response.poll_seconds,
            task_keys: response.task_keys,
        };
        let unusable = |error: SetupError| CallError::Malformed(error.to_string());
        self.speak_as(identity.clone()).map_err(unusable)?;
        Ok(identity)
    }

    /// Speaks to the control plane as this identity from now on.
    fn speak_as(&self, identity: Identity) -> Result<(), SetupError> {
        *lock(&self.line) = self.control_plane.with_proof(&identity.proof)?;
        *lock(&self.known) = Some(identity);
        Ok(())
    }

    /// The control plane, to whom this is the agent.
    pub(crate) fn line(&self) -> ControlPlane {
        lock(&self.line).clone()
    }

    /// Asks for the next certificate in time; a stand-in has none.
    pub(crate) async fn renewals(&self, identity: &Identity) {
        let [.., a, b, c, d] = identity.node_id.0.into_bytes();
        let spread = f64::from(u32::from_be_bytes([a, b, c, d])) / 4_294_967_296.0;
        let mut backoff = self.backoff("certificate");
        loop {
            let known = lock(&self.known).clone();
            let Some(certificate) = known.as_ref().and_then(|known| known.proof.certificate())
            else {
                return;
            };
            let due_seconds = renew_at(certificate, spread).seconds_since(self.clock.now());
            if due_seconds > 0.0 {
                self.clock.sleep(due_seconds.min(RENEWAL_LOOK_SECONDS)).await;
                continue;
            }
            match self.renew().await {
                Ok(next) => {
                    info!(serial = next.serial, until = %next.not_after, "a new certificate");
                    backoff.reset();
                    // One that is due as soon as it is here must not make this a storm.
                    self.clock.sleep(SOONEST_SECONDS).await;
                }
                Err(error) => {
                    let pause_seconds = pause(&mut backoff, &error);
                    self.say_not_renewed(certificate, &error, pause_seconds);
                    self.clock.sleep(pause_seconds).await;
                }
            }
        }
    }

    fn say_not_renewed(&self, old: &NodeCertificate, error: &CallError, pause_seconds: f64) {
        let (serial, until) = (&old.serial, old.not_after);
        if self.clock.now() <= until {
            return warn!(serial, %until, %error, pause_seconds, "no new certificate yet");
        }
        tracing::error!(
            code = "certificate_expired", serial, %until, %error, pause_seconds,
            "the certificate has expired and the control plane gives no other: set right this \
             host's clock if it is wrong; else reimage the node"
        );
    }

    /// Trades the certificate for the next one, with a new key.
    async fn renew(&self) -> Result<NodeCertificate, CallError> {
        let unusable = |error: &dyn std::fmt::Display| CallError::Malformed(error.to_string());
        let NodeKey { key_pem, csr_pem } = NodeKey::generate().map_err(|e| unusable(&e))?;
        let request = RenewRequest { run_id: self.config.run_id, csr_pem };
        let certificate = self.line().renew(&request).await?;
        // Read now: task keys may have come meanwhile.
        let known = lock(&self.known).clone().ok_or_else(|| unusable(&"nobody is enrolled"))?;
        let proof = Proof::Certificate { key_pem, certificate: certificate.clone() };
        let identity = Identity { proof, ..known };
        self.speak_as(identity.clone()).map_err(|e| unusable(&e))?;
        if let Err(error) = self.kept(self.config.identity.save(&identity)) {
            warn!(%error, "a new certificate, but a restart will not remember it");
        }
        Ok(certificate)
    }
}
