//! A simulated MAAS 3.7 region: machines, API, events, faults.
//!
//! [`Region`] is the whole of it and does no I/O: a request and the time go in, an answer comes
//! out. It is used by calls within a process ([`InProcessRegion`]), over HTTP ([`SimServer`]), and
//! by the tests that replay recordings. It knows nothing of the control plane that it is used to
//! test; whoever runs software on its hosts listens to its [`Notice`]s.
//!
//! Where a refusal's text, a status or a side effect is odd, a real 3.7.3 region is odd there.
//! docs/maas.md has the facts and their sources.
//!
//! # Examples
//! A machine that MAAS knows is deployed, and the region tells when its system boots:
//!
//! ```
//! use maas_sim::{MachineSpec, Notice, Region, RegionConfig, SimRequest, Status, ZERO};
//!
//! // Hardware of the class ZERO takes no time. Times are microseconds since the Unix epoch.
//! let mut region = Region::new(RegionConfig { class: &ZERO, ..RegionConfig::default() });
//! let system_id = region.add_machine(MachineSpec::new("j22u11", Status::Ready));
//! let (now_us, wall_seconds) = (1_795_179_600_000_000, 1_795_179_600);
//!
//! let authorization = "OAuth oauth_consumer_key=\"simconsumer\", oauth_token=\"simtoken\", \
//!      oauth_signature_method=\"PLAINTEXT\", oauth_signature=\"%26simsecret\", \
//!      oauth_nonce=\"1\", oauth_timestamp=\"1795179600\"";
//! let deploy = SimRequest {
//!     method: "POST".to_owned(),
//!     path: format!("/MAAS/api/2.0/machines/{system_id}/"),
//!     authorization: Some(authorization.to_owned()),
//!     content_type: Some("application/x-www-form-urlencoded".to_owned()),
//!     body: "op=deploy&user_data=aGk=".into(),
//!     ..SimRequest::default()
//! };
//! let response = region.handle(now_us, wall_seconds, &deploy);
//! assert_eq!(response.body_json()["status_name"], "Deploying");
//!
//! let notices = region.advance(now_us);
//! assert_eq!(region.status_of("j22u11"), Some(Status::Deployed));
//! assert!(matches!(&notices[..], [.., Notice::FirstBoot(boot)] if boot.user_data == b"hi"));
//!
//! // A nonce counts once.
//! assert_eq!(region.handle(now_us, wall_seconds, &deploy).status, 401);
//! ```

mod advance;
mod auth;
mod clock;
mod control_api;
mod dispatch;
mod events;
mod faults;
mod hardware_class;
mod hardware_discovery;
mod human_action;
mod images;
mod inspect;
mod inventory;
mod json;
mod lifecycle;
mod machine_response;
mod machine_spec;
mod model;
mod name_index;
mod network;
mod notice;
mod ops;
mod person;
mod queue;
mod region;
mod render;
mod rng;
mod schedule;
mod scripts;
mod server;
mod settings;
mod setup;
mod shared_region;
mod sim_options;
mod stats;
mod status;
mod storage_layout;
mod tables;
mod times;
mod wire;

pub use auth::User;
pub use clock::{ClockWait, ManualClock, PacedSimClock, SimClock};
pub use events::FeedEvent;
pub use faults::{Fault, FaultFileError, FaultKind, parse_faults};
pub use hardware_class::{
    CLASSES, DiskPart, ETHERNET, H200, HardwareClass, HardwareTimes, NicPart, ZERO,
};
pub use human_action::{HumanAction, HumanError};
pub use inventory::HostView;
pub use machine_spec::MachineSpec;
pub use notice::{FirstBoot, HostRef, Metadata, Notice};
pub use region::{Region, RegionConfig};
pub use rng::{LogNormal, SimRng};
pub use server::{SimHandle, SimServer, serve};
pub use shared_region::{InProcessRegion, SharedRegion};
pub use sim_options::{SimOptions, build_region};
pub use stats::{EndpointStats, LogEntry, MachineStats, Stats};
pub use status::Status;
pub use wire::{ResponseDelivery, SimRequest, SimResponse};
