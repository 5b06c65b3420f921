//! Polls that stand for heartbeats.
//!
//! An agent with nothing new to say would say so every half minute in a request of its own, beside the
//! poll that it sends every half minute. So the answer to a heartbeat names it by a digest, and polls
//! that carry the digest are heartbeats that say the same. The digest covers all that a heartbeat would
//! settle: what the agent said, and what it would be answered. Where that has changed, or this process
//! was not the one that wrote it, the answer to the poll asks for a heartbeat instead.

use gpuaas_core::audit_chain::value_digest;
use gpuaas_types::{RunId, Timestamp};
use serde_json::json;

use crate::ctx::{Ctx, NodeAccess};
use crate::http::problem::ApiResult;
use crate::identity::certificates::Agent;
use crate::identity::task_keys;

/// Names a heartbeat of `agent` that was answered with nothing for it to do.
pub(crate) async fn digest(
    ctx: &Ctx,
    agent: &Agent,
    agent_version: &str,
    troubles: &str,
) -> ApiResult<String> {
    let settled = Settled::read(ctx).await?;
    Ok(settled.digest(agent.run_id, agent_version, troubles))
}

/// Takes a poll that carries `digest` as a heartbeat; answers whether it could be taken so.
pub(crate) async fn take(
    ctx: &Ctx,
    agent: &Agent,
    digest: &str,
    now: Timestamp,
) -> ApiResult<bool> {
    if asks_for_renewal(ctx, agent) {
        return Ok(false);
    }
    let settled = Settled::read(ctx).await?;
    let is_said = |agent_version: &str, troubles: &str| {
        settled.digest(agent.run_id, agent_version, troubles) == digest
    };
    Ok(ctx.store.repeat_heartbeat(now, agent.node_id, agent.run_id, is_said))
}

fn asks_for_renewal(ctx: &Ctx, agent: &Agent) -> bool {
    match &ctx.nodes {
        NodeAccess::Certificates(issuer) => agent.authority < issuer.generation(),
        NodeAccess::StandIns => false,
    }
}

/// What every agent is told, that has to be told.
struct Settled {
    task_keys_revision: i64,
    trust_digest: Option<String>,
}

impl Settled {
    async fn read(ctx: &Ctx) -> ApiResult<Self> {
        let task_keys_revision = task_keys::for_agents(ctx).await?.revision;
        let trust_digest = match &ctx.nodes {
            NodeAccess::Certificates(issuer) => issuer.delivered_digest(),
            NodeAccess::StandIns => None,
        };
        Ok(Self { task_keys_revision, trust_digest })
    }

    fn digest(&self, run_id: RunId, agent_version: &str, troubles: &str) -> String {
        let Self { task_keys_revision, trust_digest } = self;
        let said = json!([run_id, agent_version, troubles, task_keys_revision, trust_digest]);
        value_digest(&said)
    }
}
