//! Two slice profiles of one site at once, in random orders: every host boots with its own kernel
//! arguments, and a machine that leaves keeps none. Fifty orders of the decisions alone are in
//! `gpuaas_core::decide::machine_tag`.

use gpuaas_engine::Clock as _;
use gpuaas_types::spec::{KERNEL_TAG_PREFIX, ProfileSpec};
use gpuaas_types::{NodeId, NodeState, ProfileId, RunKind};
use maas_sim::SimRng;

use crate::plan::SimulationPlan;
use crate::simulation::Simulation;
use crate::tick::Tick;

/// Orders that are tried.
const ORDERS: u64 = 3;
/// Machines in each.
const MACHINES: usize = 3;
/// Seconds of the simulation's clock in which every run ends.
const LIMIT_SECONDS: f64 = 86_400.0;
/// Kernel arguments of the profiles.
const PAGES: [&str; 2] = ["hugepagesz=1G hugepages=512", "hugepagesz=1G hugepages=256"];

fn profile(pages: &str) -> ProfileSpec {
    ProfileSpec { kernel_arguments: pages.to_owned(), ..ProfileSpec::default() }
}

/// A site with both profiles and one deploy slot, so that runs wait long between their tag and their
/// deployment.
async fn site(seed: u64) -> (Simulation, [ProfileId; 2]) {
    let plan = SimulationPlan {
        profile: profile(PAGES[0]),
        site_batch_max_parallel: 1,
        ..SimulationPlan::calm(seed, MACHINES, &maas_sim::H200)
    };
    let mut simulation = Simulation::new(plan).await.unwrap();
    simulation.start(0.0).await.unwrap();
    let (now, first) = (simulation.clock.now(), simulation.profile_id);
    let second = ProfileId::new(&*simulation.parts.ids, now);
    let made = gpuaas_store::NewAuditEntry::in_test();
    let spec = profile(PAGES[1]);
    simulation.store.create_profile(now, second, "small", &spec, &[], made).await.unwrap();
    (simulation, [first, second])
}

/// Lets the simulation go on for so many seconds, or until nothing moves.
async fn go_on(simulation: &mut Simulation, seconds: f64) {
    let until = simulation.clock.now().plus_seconds(seconds);
    while simulation.clock.now() < until && simulation.tick(until).await.unwrap() != Tick::Idle {}
}

async fn one_order(seed: u64) {
    let (mut simulation, profiles) = site(seed).await;
    let mut rng = SimRng::for_name(seed, "kernel_tags");
    let mut hosts = simulation.region.with(|region| region.hosts());
    let mut nodes: Vec<(NodeId, usize)> = Vec::new();
    while !hosts.is_empty() {
        let host = hosts.swap_remove(rng.below(hosts.len()));
        // Both profiles occur in every order.
        let which = if nodes.len() < 2 { nodes.len() } else { rng.below(2) };
        simulation.profile_id = profiles[which];
        let (_, node_id) = simulation.onboard_host(&host).await.unwrap().unwrap();
        nodes.push((node_id, which));
        go_on(&mut simulation, rng.uniform() * 1500.0).await;
    }
    go_on(&mut simulation, LIMIT_SECONDS).await;
    for (node_id, which) in &nodes {
        let node = simulation.store.node(*node_id).await.unwrap();
        assert_eq!(node.state, NodeState::Active, "seed {seed}, {}", node.hostname);
        let id = node.system_id.unwrap();
        assert_eq!(simulation.kernel_options[&id], PAGES[*which], "seed {seed}, {}", node.hostname);
    }
    let (leaving, _) = nodes[rng.below(nodes.len())];
    simulation.begin_run(leaving, RunKind::Decommission).await.unwrap().unwrap();
    go_on(&mut simulation, LIMIT_SECONDS).await;
    let node = simulation.store.node(leaving).await.unwrap();
    assert_eq!(node.state, NodeState::Retired, "seed {seed}");
    let id = node.system_id.unwrap();
    let shown = simulation.region.with(|region| region.machine_json(&id)).unwrap();
    let tags = shown["tag_names"].as_array().unwrap().iter().filter_map(|tag| tag.as_str());
    let left: Vec<&str> = tags.filter(|tag| tag.starts_with(KERNEL_TAG_PREFIX)).collect();
    assert!(left.is_empty(), "seed {seed}: {left:?}");
}

#[tokio::test]
async fn hosts_of_two_profiles_boot_with_their_own_kernel_arguments_in_any_order() {
    for seed in 0..ORDERS {
        one_order(seed).await;
    }
}
