//! How a simulator is started, and the region that this describes.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::{PacedSimClock, SimClock};
use crate::faults::Fault;
use crate::hardware_class::{H200, HardwareClass};
use crate::region::{Region, RegionConfig};
use crate::rng::SimRng;

/// How a simulator is started.
pub struct SimOptions {
    /// Address to listen on; port 0 for any.
    pub listen: SocketAddr,
    /// Number of hosts that MAAS does not know yet.
    pub machines: usize,
    /// Names of those machines; the rest is called `node0001` and on.
    pub names: Vec<String>,
    /// Hardware class of those machines.
    pub class: &'static HardwareClass,
    /// Seed of everything random.
    pub seed: u64,
    /// Clock of the hardware, and of the timestamps that requests are signed with.
    pub clock: Arc<dyn SimClock>,
    /// Multiplies hardware durations; 0 for none.
    pub scale: f64,
    /// API key of the administrator, `consumer:token:secret`; absent for one made from the seed.
    pub api_key: Option<String>,
    /// Password of the administrator; absent for `admin`.
    pub password: Option<String>,
    /// Faults from the start.
    pub faults: Vec<Fault>,
    /// Custom images that are there from the start.
    pub images: Vec<String>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            machines: 0,
            names: Vec::new(),
            class: &H200,
            seed: 1,
            clock: Arc::new(PacedSimClock::new(1.0)),
            scale: 1.0,
            api_key: None,
            password: None,
            faults: Vec::new(),
            images: Vec::new(),
        }
    }
}

impl std::fmt::Debug for SimOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimOptions")
            .field("listen", &self.listen)
            .field("machines", &self.machines)
            .finish_non_exhaustive()
    }
}

/// Makes the region that the options describe; returns it with its administrator's API key.
#[must_use]
pub fn build_region(options: &SimOptions) -> (Region, String) {
    let mut config = RegionConfig {
        seed: options.seed,
        scale: options.scale,
        class: options.class,
        ..RegionConfig::default()
    };
    let key = options.api_key.clone().unwrap_or_else(|| {
        let mut rng = SimRng::for_name(options.seed, "api-key");
        let mut word = || rng.uuid().replace('-', "");
        format!("{}:{}:{}", word(), word(), word())
    });
    for user in config.users.iter_mut().filter(|u| u.name == "admin") {
        user.keys = vec![key.clone()];
        if options.password.is_some() {
            user.password.clone_from(&options.password);
        }
    }
    let mut region = Region::new(config);
    let names = options.names.iter().cloned().chain((1..).map(|n| format!("node{n:04}")));
    for name in names.take(options.machines.max(options.names.len())) {
        region.add_host(&name, options.class);
    }
    options.images.iter().for_each(|name| region.preload_image(name));
    options.faults.iter().cloned().for_each(|fault| {
        region.inject(fault);
    });
    (region, key)
}
