//! The controller: claims due runs, carries out decisions, watches sites.
//!
//! The **worker** claims due runs in batches, asks `gpuaas_core::decide` what is next and does it
//! (`worker`). One **watcher** per site with open runs reads MAAS' event feed and wakes only what
//! changed (`watcher`). The **sweep** compares nodes in service with MAAS now and then (`sweep`).
//! The **batch** loop begins the runs of batches (`batches`). [`engine`] starts the loops, and a
//! [`supervisor`] watches them: a loop that ends before it is told to ends the process.
//!
//! Nothing here decides. A crash at any point leaves either a due run, or an intent without an
//! outcome, which the next decision probes.

mod agent_watch;
mod answer_cache;
mod batches;
mod bmc_index;
mod bmc_logins;
pub mod bundles;
mod call_error;
mod call_limits;
pub mod circuit_breaker;
pub mod clock;
mod clock_choice;
mod clock_pauses;
mod config;
pub mod connect;
pub mod control;
mod decisions;
mod deploy_admission;
mod effects;
pub mod engine;
pub mod failpoint;
mod feed;
mod feed_pace;
pub mod fetch;
mod file_clock;
mod host_values;
mod image_check;
mod lease;
mod maas_request;
mod maas_view;
pub mod machine_search;
mod node_inputs;
pub mod node_trust;
mod open_runs;
mod outage;
pub mod panics;
mod predeploy;
mod reach_script;
mod reachability;
mod reads;
mod recheck;
pub mod region_diagnosis;
pub mod region_identity;
pub mod region_image;
mod repeated_failure;
mod rewind;
mod run_context;
mod run_session;
mod scripts;
mod shared;
pub mod site;
mod slice_runs;
mod step_durations;
pub mod supervisor;
mod sweep;
pub mod tokens;
mod unannounced;
pub mod virtual_clock;
mod watcher;
mod worker;

pub use clock::{Clock, PacedClock, RealClock};
pub use clock_choice::ClockChoice;
pub use clock_pauses::{ClockPause, ClockPauser, PausableClock, Pauses};
pub use config::{EngineConfig, IDLE_POLL_SECONDS, POLL_SECONDS};
pub use connect::{Connect, HttpConnect, KeyUnreadable, ReadKey, SiteKeyError, site_key};
pub use engine::{ClaimedRun, Engine};
pub use failpoint::{Failpoint, Failpoints};
pub use fetch::{Fetch, fetch};
pub use file_clock::FileClock;
pub use image_check::image_standing;
pub use node_trust::{NodeAnchors, NodeTrust};
pub use reachability::HostScope;
pub use shared::EngineParts;
pub use slice_runs::step_slice_runs;
pub use supervisor::{EndedLoop, Supervisor};
pub use virtual_clock::{AheadClock, VirtualClock};
