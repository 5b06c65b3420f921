//! Runs the work: claims due runs, performs effects, watches sites.
//!
//! Three loops. The **worker** claims due runs in batches, asks `gpuaas_core::decide` what is
//! next and does it (`worker`). One **watcher** per site reads MAAS' event feed and wakes only
//! what changed (`watcher`). The **keeper** starts watchers for sites with open work and renews
//! leases ([`engine`]).
//!
//! Nothing here decides. A crash at any point leaves either a due run, or an intent without an
//! outcome, which the next decision probes.

mod batch;
mod batches;
mod bmcs;
pub mod breaker;
pub mod bundles;
pub mod clock;
pub mod convert;
pub mod engine;
pub mod fetch;
mod journal;
pub mod moments;
mod pace;
mod perform;
mod predeploy;
mod reads;
mod scripts;
pub mod site;
mod sweep;
pub mod tokens;
pub mod virtual_clock;
mod watcher;
mod worker;

pub use clock::{Clock, PacedClock, RealClock};
pub use engine::{Engine, EngineConfig, EngineParts, Work};
pub use fetch::Fetch;
pub use moments::{Moment, Moments};
pub use site::{Connect, HttpConnect};
pub use virtual_clock::{AheadClock, VirtualClock};
