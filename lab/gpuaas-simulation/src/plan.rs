//! The parameters of a simulation, and the constants that all simulations share.

use std::collections::BTreeMap;

use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{Step, Timestamp};
use maas_sim::HardwareClass;

/// When every simulation begins: any moment will do, as long as it is the same one.
pub(crate) const BEGIN: Timestamp = Timestamp::from_micros(1_795_190_400_000_000);
/// Name of the site.
pub(crate) const SITE: &str = "simulated";
/// Name under which nodes are told to reach the control plane.
pub(crate) const ADVERTISE: &str = "http://127.0.0.1:8080";
/// Seconds after which an operator or an agent tries again while the control plane is away.
pub(crate) const RETRY_SECONDS: f64 = 5.0;
/// Seconds between two looks for silent agents.
pub(crate) const AGENT_WATCH_SECONDS: f64 = 10.0;

/// What a simulation is made of.
#[derive(Debug, Clone)]
pub struct SimulationPlan {
    /// Seed of everything random.
    pub seed: u64,
    /// Racked machines.
    pub nodes: usize,
    /// What they are.
    pub class: &'static HardwareClass,
    /// Seconds from one request of the operator to the next.
    pub apart_seconds: f64,
    /// Seconds between two looks at the event feed.
    pub poll_seconds: f64,
    /// Seconds between two looks at the event feed while nothing moves; 0: none, so that a
    /// simulation in which nothing moves any more comes to its end.
    pub idle_poll_seconds: f64,
    /// Seconds between two looks at the mark of the region; 0: none, and none is written.
    pub mark_seconds: f64,
    /// Chance that a node's callback is lost.
    pub lost_callbacks: f64,
    /// What nodes are to be.
    pub profile: ProfileSpec,
    /// Nodes of the site that may deploy at once; 0: all.
    pub site_batch_max_parallel: u32,
    /// Chance that an agent cannot do a task, or finds its host not as it should be.
    pub failing_tasks: f64,
    /// Seconds between two sweeps; 0: none.
    pub sweep_seconds: f64,
    /// Seconds between two heartbeats of an agent whose run is over; control planes then look for
    /// silent agents as well. 0: neither, which spares a long simulation most of its events.
    pub heartbeat_seconds: f64,
    /// Each control plane panics once, in the first decision that it makes in this step.
    pub panics_in: Option<Step>,
    /// Each control plane decides without end in this step until the run parks.
    pub loops_in: Option<Step>,
    /// Images with packages baked in: the part of the site bundle's time that is left, by name in MAAS.
    pub baked_images: BTreeMap<String, f64>,
    /// `postgres://...` of the empty database that keeps the state of the control planes; none:
    /// SQLite in memory.
    pub database: Option<String>,
}

impl SimulationPlan {
    /// A fleet in which nothing goes wrong.
    #[must_use]
    pub fn calm(seed: u64, nodes: usize, class: &'static HardwareClass) -> Self {
        Self {
            seed,
            nodes,
            class,
            apart_seconds: 1.0,
            poll_seconds: 5.0,
            idle_poll_seconds: 0.0,
            mark_seconds: 0.0,
            lost_callbacks: 0.0,
            profile: ProfileSpec::default(),
            site_batch_max_parallel: 0,
            failing_tasks: 0.0,
            sweep_seconds: 0.0,
            heartbeat_seconds: 0.0,
            panics_in: None,
            loops_in: None,
            baked_images: BTreeMap::new(),
            database: None,
        }
    }
}
