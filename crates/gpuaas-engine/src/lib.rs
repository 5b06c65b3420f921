//! The controller: claims due runs, carries out decisions, watches sites.
//!
//! The **worker** claims due runs in batches, asks `gpuaas_core::decide` what is next and does it
//! (`run::worker`). One **watcher** per site with open runs reads MAAS' event feed and wakes only what
//! changed (`event::watcher`). The **sweep** compares nodes in service with MAAS now and then
//! (`event::sweep`). The **batch** loop begins the runs of batches (`run::batches`). [`engine`] starts the
//! loops, and a [`Supervisor`] watches them: a loop that ends before it is told to ends the process.
//!
//! Nothing here decides. A crash at any point leaves either a due run, or an intent without an
//! outcome, which the next decision probes.

pub mod bundles;
pub mod clock;
mod config;
pub mod engine;
mod event;
mod loops;
mod node;
mod predeploy;
mod run;
mod shared;
pub mod site;

pub use clock::choice::ClockChoice;
pub use clock::file::FileClock;
pub use clock::pauses::{ClockPause, ClockPauser, PausableClock, Pauses};
pub use clock::virtual_clock::{AheadClock, VirtualClock};
pub use clock::{Clock, PacedClock, RealClock};
pub use config::{EngineConfig, IDLE_POLL_SECONDS, POLL_SECONDS};
pub use engine::{ClaimedRun, Engine};
pub use loops::failpoint::{Failpoint, Failpoints};
pub use loops::supervisor::{EndedLoop, Supervisor};
pub use node::trust::{NodeAnchors, NodeTrust};
pub use node::{machine_search, tokens, trust};
pub use predeploy::fetch::{self, Fetch, fetch};
pub use predeploy::image::image_standing;
pub use predeploy::reachability::HostScope;
pub use run::slices::step_slice_runs;
pub use shared::EngineParts;
pub use site::connect::{Connect, HttpConnect, KeyUnreadable, ReadKey, SiteKeyError, site_key};
pub use site::{ownership, region_diagnosis, region_identity, region_image};
