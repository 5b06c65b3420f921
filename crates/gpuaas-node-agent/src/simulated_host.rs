//! A simulated host: the callbacks of the bootstrap scripts, then the real agent, in one future.
//!
//! For fleets that are too large for a process a host. It makes the same calls through the same
//! client in the same order as the scripts that `gpuaas-artifact` renders; it leaves out the shell.

use std::sync::Arc;

use gpuaas_types::RunId;
use gpuaas_types::agent::{BootstrapPhase, BootstrapProgress, ProgressStatus};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::agent::{self, AgentConfig};
use crate::clock::AgentClock;
use crate::protocol::{ControlPlane, ControlPlaneError};

/// Attempts of a callback: the scripts' default `callback_attempts`.
const CALLBACK_ATTEMPTS: u32 = 3;
/// Pause between attempts of a callback, in seconds.
const RETRY_SECONDS: f64 = 5.0;

/// What a simulated host does from its first boot on.
#[derive(Debug)]
pub struct SimulatedHost {
    /// Configuration of the agent; its `ready` is replaced.
    pub agent: AgentConfig,
    /// Token of the progress callbacks. Secret.
    pub bootstrap_token: String,
    /// How long the site bundle takes, in seconds.
    pub site_seconds: f64,
    /// Message with which the site bundle fails; `None`: it succeeds.
    pub site_failure: Option<String>,
    /// How long the installation of the agent takes, in seconds.
    pub node_seconds: f64,
}

/// Sends the progress callbacks of the bootstrap.
struct Reporter<'a> {
    run_id: RunId,
    bootstrap_token: &'a str,
    control_plane: &'a ControlPlane,
    clock: &'a dyn AgentClock,
}

/// Boots the host and runs its agent until `shutdown`, or until the bootstrap has failed.
pub async fn run(
    host: SimulatedHost,
    control_plane: ControlPlane,
    clock: Arc<dyn AgentClock>,
    shutdown: CancellationToken,
) {
    let SimulatedHost { mut agent, bootstrap_token, site_seconds, site_failure, node_seconds } =
        host;
    let reporter = Reporter {
        run_id: agent.run_id,
        bootstrap_token: &bootstrap_token,
        control_plane: &control_plane,
        clock: clock.as_ref(),
    };
    let boot = Box::pin(async {
        reporter.report(BootstrapPhase::SiteBootstrap, ProgressStatus::Started, "").await;
        clock.sleep(site_seconds).await;
        if let Some(message) = site_failure {
            reporter.report(BootstrapPhase::SiteBootstrap, ProgressStatus::Failed, &message).await;
            let message = "the site bootstrap of this run did not succeed";
            return reporter
                .report(BootstrapPhase::NodeBootstrap, ProgressStatus::Failed, message)
                .await;
        }
        reporter.report(BootstrapPhase::SiteBootstrap, ProgressStatus::Succeeded, "").await;
        reporter.report(BootstrapPhase::NodeBootstrap, ProgressStatus::Started, "").await;
        clock.sleep(node_seconds).await;
        let (ready, is_ready) = oneshot::channel();
        agent.ready = Some(ready);
        let enrolled = async {
            if is_ready.await.is_ok() {
                reporter.report(BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded, "").await;
            }
        };
        let life = agent::run(agent, control_plane.clone(), Arc::clone(&clock), shutdown.clone());
        let life = Box::pin(life);
        let (ended, ()) = tokio::join!(life, enrolled);
        if let Err(error) = ended {
            let message = format!("the agent stopped: {error}");
            reporter.report(BootstrapPhase::NodeBootstrap, ProgressStatus::Failed, &message).await;
        }
    });
    if shutdown.run_until_cancelled(boot).await.is_none() {
        debug!("stopping a simulated host");
    }
}

impl Reporter<'_> {
    async fn report(&self, phase: BootstrapPhase, status: ProgressStatus, message: &str) {
        // Each of the two scripts runs once.
        let attempt = Some(match phase {
            BootstrapPhase::SiteBootstrap => 1,
            BootstrapPhase::NodeBootstrap => 2,
        });
        let progress = BootstrapProgress { phase, status, message: message.to_owned(), attempt };
        for attempt in 1..=CALLBACK_ATTEMPTS {
            let call = self.control_plane.progress(self.run_id, self.bootstrap_token, &progress);
            match call.await {
                Ok(()) => return,
                Err(error @ ControlPlaneError::Refused(_)) => return warn!(%error, "callback"),
                Err(error) => warn!(%error, attempt, "callback"),
            }
            if attempt < CALLBACK_ATTEMPTS {
                self.clock.sleep(RETRY_SECONDS).await;
            }
        }
    }
}
