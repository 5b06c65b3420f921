//! A typed client of the MAAS 2.0 API, for MAAS 3.4 to 3.7.
//!
//! What is here and why it is shaped so:
//!
//! - [`Client`] has one method per call. None lists all machines: that takes a region 12 s and
//!   13 MB at 500 machines.
//! - [`Error`] is sorted by what the caller does next. The hard case is the *unknown outcome*: MAAS
//!   commits first and acts on hardware after, so a failed mutation may have happened. Reads are
//!   repeated once when a connection broke; mutations never are.
//! - [`Transport`] is the seam to the wire: [`HttpTransport`] here, a simulated region elsewhere.
//! - Answers are parsed straight into small types ([`Machine`] keeps a tenth of its 20 KB), and
//!   tolerate what other versions lack or add.
//! - Time is asked of an injected clock, because a stale timestamp is a permanent 401.
//!
//! What is known of MAAS, and which of it was recorded from a real 3.7.3 region, is in
//! docs/maas.md. The tests replay those recordings (`tests/replay`).

mod classify;
mod client;
mod config;
mod encode;
mod error;
mod events;
mod http;
mod loose;
mod model;
mod oauth;
mod ops;
mod time;
mod transport;

pub use client::{Client, EndpointStats, UnixClock};
pub use config::{Config, Timeouts};
pub use error::{AuthCause, Error, MAX_TEXT_CHARS, Refusal, UnknownCause};
pub use events::{Event, EventLevel, Events, STATUS_CHANGED, StatusChange};
pub use http::{HttpTransport, MAX_BODY_BYTES};
pub use model::*;
pub use oauth::ApiKey;
pub use ops::*;
pub use time::parse_http_like;
pub use transport::{Method, Request, Response, Transport, TransportError};
