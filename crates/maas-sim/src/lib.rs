//! A simulated MAAS 3.7 region: machines, API, events, faults.
//!
//! [`Region`] is the whole of it and does no I/O: a request and the time go in, an answer comes
//! out. Three faces use it: calls within a process ([`InProcess`]), HTTP ([`SimServer`]), and
//! the recordings of a real region that its tests replay. It knows nothing of the control plane
//! that it is used to test; whoever wants software to run on its hosts listens to its
//! [`Notice`]s.
//!
//! Where a refusal's text, a status or a side effect is odd, it was measured on a real 3.7.3
//! region and is odd there.

mod advance;
mod auth;
mod chance;
mod class;
mod clock;
mod control_api;
mod dispatch;
mod events;
mod faults;
mod human_action;
mod images;
mod inspect;
mod inventory;
mod json;
mod layout;
mod lifecycle;
mod machine_response;
mod machine_spec;
mod model;
mod names;
mod network;
mod notice;
mod ops;
mod options;
mod probe;
mod region;
mod render;
mod schedule;
mod scripts;
mod server;
mod settings;
mod setup;
mod shared_region;
mod stats;
mod status;
mod times;
mod wire;

pub use auth::User;
pub use chance::{Chance, Span};
pub use class::{CLASSES, DiskPart, ETHERNET, H200, HardwareClass, NicPart, Times, ZERO};
pub use clock::{ManualClock, PacedClock, SimClock, Wait};
pub use events::FeedLine;
pub use faults::{Fault, FaultFileError, FaultKind, parse_faults};
pub use human_action::{HumanAction, HumanError};
pub use inventory::HostView;
pub use machine_spec::MachineSpec;
pub use notice::{FirstBoot, HostRef, Metadata, Notice};
pub use options::{SimOptions, build};
pub use region::{Region, RegionConfig};
pub use server::{SimHandle, SimServer, serve};
pub use shared_region::{InProcess, Shared};
pub use stats::{EndpointStats, LogEntry, MachineStats, Stats};
pub use status::Status;
pub use wire::{Delivery, Request, Response};
