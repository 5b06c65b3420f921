//! Sites as the engine sees them: the connection to a region's MAAS, how many calls it gets and when it
//! gets none, and which control plane may change its machines.

pub(crate) mod answer_cache;
pub(crate) mod call_error;
pub(crate) mod call_limits;
pub mod circuit_breaker;
pub mod connect;
pub(crate) mod connected;
pub(crate) mod outage;
pub mod ownership;
pub mod region_diagnosis;
pub mod region_identity;
pub mod region_image;

pub use call_error::CallError;
pub use connected::{Site, SiteUsage, Sites};
