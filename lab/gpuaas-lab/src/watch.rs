//! Polls nodes until every run has ended or parked, and gathers their final states.
//!
//! Level-triggered: one list of the nodes per poll, whatever their number. A poll that fails
//! while the control plane restarts changes nothing.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_engine::Clock;
use gpuaas_types::api::{GateView, NodeView};
use gpuaas_types::{NodeState, RunStatus};
use tokio::time::{MissedTickBehavior, interval};

use crate::operator::SITE;
use crate::summary::EndedNode;

/// Failed looks in a row, a second and more, after which the control plane counts as gone.
const PATIENCE_SECONDS: f64 = 60.0;
const AT_ONCE: usize = 8;
/// Looks for what agents say of their gates: twenty seconds.
const GATE_LOOKS: u32 = 200;

/// How often to look, by the wall.
#[must_use]
pub fn look_every(nodes: usize) -> Duration {
    match nodes {
        0..=50 => Duration::from_millis(100),
        51..=300 => Duration::from_millis(400),
        _ => Duration::from_secs(1),
    }
}

/// Returns when `count` nodes have runs and none of them moves by itself any more.
///
/// # Errors
/// When the control plane refuses, or is away for a minute.
pub async fn until_settled(
    client: &ApiClient,
    count: usize,
    wall: &dyn Clock,
    mut shown: impl FnMut(&[NodeView]),
) -> Result<(), Failure> {
    let mut looks = interval(look_every(count));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered = wall.now();
    loop {
        looks.tick().await;
        match client.nodes(None, None).await {
            Ok(list) => {
                answered = wall.now();
                shown(&list.items);
                if list.items.len() >= count && list.items.iter().all(settled) {
                    return Ok(());
                }
            }
            Err(failure) if is_away(&failure) => {
                if wall.now().seconds_since(answered) > PATIENCE_SECONDS {
                    return Err(failure);
                }
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Returns when the agents of active nodes have said how their gates stand, or after a while: what
/// is not said by then is the answer.
pub async fn until_gates_reported(client: &ApiClient) {
    let mut looks = interval(look_every(0));
    let unsaid = |node: &NodeView| {
        let waits = |gate: &GateView| gate.said_at.is_none();
        node.state == NodeState::Active && node.gates.iter().any(waits)
    };
    for _ in 0..GATE_LOOKS {
        looks.tick().await;
        match client.nodes(Some(SITE), None).await {
            Ok(list) if !list.items.iter().any(unsaid) => return,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Whether the control plane may merely be restarting.
#[must_use]
pub fn is_away(failure: &Failure) -> bool {
    failure.exit == Exit::Unreachable
        || (failure.exit == Exit::Refused && failure.problem.status >= 500)
}

pub(crate) fn settled(node: &NodeView) -> bool {
    node.run.as_ref().is_some_and(|run| {
        matches!(
            run.status,
            RunStatus::Parked | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled
        )
    })
}

/// Every node of the site with its run, by hostname.
///
/// # Errors
/// When the control plane refuses or does not answer.
pub async fn gather(client: &ApiClient) -> Result<Vec<EndedNode>, Failure> {
    let mut nodes = client.nodes(Some(SITE), None).await?.items;
    nodes.sort_by(|a, b| a.hostname.cmp(&b.hostname));
    let runs = nodes.into_iter().filter_map(|node| {
        let id = node.run.as_ref()?.id.to_string();
        Some(async move { client.run(&id).await.map(|run| EndedNode { node, run }) })
    });
    let mut answers = stream::iter(runs).buffered(AT_ONCE);
    let mut ended = Vec::new();
    while let Some(answer) = answers.next().await {
        ended.push(answer?);
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_testkit::views;
    use gpuaas_types::codes::CommandCode;

    #[test]
    fn a_parked_run_is_settled_and_a_waiting_one_is_not() {
        assert!(settled(&views::parked_node()));
        assert!(!settled(&views::commissioning_node()));
        let mut bare = views::commissioning_node();
        bare.run = None;
        assert!(!settled(&bare));
    }

    #[test]
    fn a_restart_is_not_a_refusal() {
        let unreachable = Failure::new(Exit::Unreachable, CommandCode::ServerUnreachable, "");
        assert!(is_away(&unreachable));
        let refused = gpuaas_types::Problem::new(401, "token_missing", "");
        assert!(!is_away(&Failure::refused(refused)));
        let busy = gpuaas_types::Problem::new(503, "database_unavailable", "");
        assert!(is_away(&Failure::refused(busy)));
    }
}
