//! An agent dies and comes back while control planes come and go.

use gpuaas_core::connectivity::connectivity_of;
use gpuaas_engine::Clock as _;
use gpuaas_store::{NodeFilter, Store};
use gpuaas_types::NodeState;
use gpuaas_types::api::{ConnectivityState, TimelineEvent};
use maas_sim::ZERO;

use super::*;
use crate::plan::SimulationPlan;

const HEARTBEAT_SECONDS: f64 = 30.0;

async fn pass(simulation: &mut Simulation, seconds: f64) {
    let until = simulation.clock.now().plus_seconds(seconds);
    while simulation.clock.now() < until {
        if simulation.tick(until).await.unwrap() == Tick::Idle {
            simulation.clock.advance_to(until);
        }
    }
}

/// Lines about silence of a node, and every change of its state after `active`.
async fn silences(store: &Store, node_id: NodeId) -> Vec<TimelineEvent> {
    let lines = store.timeline_of_node(node_id, 0, 999).await.unwrap();
    let lines = lines.into_iter().map(|line| line.event);
    lines.filter(|line| line.code.starts_with("agent_")).collect()
}

async fn codes(store: &Store, node_id: NodeId) -> Vec<String> {
    silences(store, node_id).await.into_iter().map(|line| line.code).collect()
}

/// A fleet of three in service, with two control planes.
async fn in_service(seed: u64) -> (Simulation, Vec<NodeId>, u32) {
    let calm = SimulationPlan::calm(seed, 3, &ZERO);
    let plan = SimulationPlan { heartbeat_seconds: HEARTBEAT_SECONDS, ..calm };
    let mut simulation = Simulation::new(plan).await.unwrap();
    let first = simulation.start(0.0).await.unwrap();
    simulation.start_beside(0.5, None);
    simulation.onboard_all();
    pass(&mut simulation, 3600.0).await;
    let nodes = simulation.store.list_nodes(NodeFilter::default()).await.unwrap();
    assert!(nodes.iter().all(|node| node.node.state == NodeState::Active), "{nodes:?}");
    let ids = nodes.into_iter().map(|node| node.node.id).collect();
    (simulation, ids, first)
}

/// The story of an agent that dies, with the lines of its node.
async fn die_and_come_back(seed: u64) -> Vec<TimelineEvent> {
    let (mut simulation, nodes, first) = in_service(seed).await;
    let (store, dead) = (simulation.store.clone(), nodes[0]);
    let state = || async { store.node(dead).await.unwrap().state };
    assert_eq!(codes(&store, dead).await, [""; 0]);
    assert!(simulation.kill_agent(dead));
    // Its last heartbeat may be thirty seconds old already.
    pass(&mut simulation, 260.0).await;
    assert_eq!((state().await, codes(&store, dead).await.len()), (NodeState::Active, 0));
    pass(&mut simulation, 60.0).await;
    assert_eq!(state().await, NodeState::Offline);
    // One control plane dies and starts again; the other goes on.
    simulation.crash(first);
    pass(&mut simulation, 600.0).await;
    let again = simulation.start_beside(0.0, None);
    pass(&mut simulation, 600.0).await;
    assert_eq!(codes(&store, dead).await, ["agent_offline"]);

    simulation.start_agent(dead);
    pass(&mut simulation, 60.0).await;
    assert_eq!(state().await, NodeState::Active);
    simulation.crash(again);
    pass(&mut simulation, 600.0).await;
    assert_eq!(codes(&store, dead).await, ["agent_offline", "agent_online"]);
    let node = store.node(dead).await.unwrap();
    let seen = connectivity_of(&node, simulation.clock.now()).state;
    assert_eq!(seen, ConnectivityState::Online);
    for node_id in &nodes[1..] {
        assert_eq!(codes(&store, *node_id).await, [""; 0], "nobody else was silent");
    }
    silences(&store, dead).await
}

#[tokio::test]
async fn an_agent_that_dies_and_comes_back_is_one_line_each_way() {
    let lines = die_and_come_back(7).await;
    assert!(lines[0].text.ends_with("the node is offline"), "{}", lines[0].text);
    assert!(lines[1].text.contains("silent for 2"), "{}", lines[1].text);
    assert_eq!(die_and_come_back(7).await, lines, "the same seed is the same story");
}

#[tokio::test]
async fn an_hour_without_a_control_plane_is_no_silence_of_agents() {
    let (mut simulation, nodes, _) = in_service(8).await;
    let running: Vec<u32> = simulation.running().collect();
    running.into_iter().for_each(|id| simulation.crash(id));
    pass(&mut simulation, 3600.0).await;
    // This one dies meanwhile, and stays away.
    assert!(simulation.kill_agent(nodes[2]));
    simulation.start(0.0).await.unwrap();
    pass(&mut simulation, 200.0).await;
    let store = simulation.store.clone();
    for node_id in &nodes {
        assert_eq!(codes(&store, *node_id).await, [""; 0]);
    }
    pass(&mut simulation, 200.0).await;
    assert_eq!(codes(&store, nodes[2]).await, ["agent_offline"]);
    assert_eq!(codes(&store, nodes[0]).await, [""; 0]);
}
