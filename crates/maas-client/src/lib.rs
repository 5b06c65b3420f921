//! A typed client of the MAAS 2.0 API, for MAAS 3.4 to 3.7.
//!
//! - [`Client`] has one method per call. None lists all machines: that takes a region 12 s and
//!   13 MB at 500 machines.
//! - [`Error`] has one variant for each thing that a caller does next. The hard one is the
//!   *unknown outcome*: MAAS commits first and acts on hardware after, so a failed mutation may
//!   have taken effect. Reads are repeated once where a connection broke; mutations never are.
//! - [`Transport`] is the seam to the wire: [`HttpTransport`] here, a simulated region elsewhere.
//! - Answers are parsed straight into small types ([`Machine`] keeps a tenth of its 20 KB), and
//!   tolerate what other versions lack or add.
//! - Time comes from an injected clock, because a stale timestamp is a permanent 401.
//!
//! What is known of MAAS, and which of it was recorded from a real 3.7.3 region, is in
//! docs/maas.md. The tests replay those recordings (`tests/replay`).
//!
//! # Examples
//! Finding a machine by its name, over a transport that answers as a region does:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use maas_client::{
//!     Client, Config, MachineFilter, Request, Response, Transport, TransportError, status,
//! };
//!
//! struct OneMachine;
//!
//! #[async_trait::async_trait]
//! impl Transport for OneMachine {
//!     async fn send(&self, request: Request, _: Duration) -> Result<Response, TransportError> {
//!         assert_eq!(request.path_and_query, "/MAAS/api/2.0/machines/?hostname=j22u11");
//!         assert!(request.header("authorization").is_some_and(|value| value.starts_with("OAuth ")));
//!         let body = r#"[{"system_id": "abc123", "hostname": "j22u11", "status": 4, "owner": null}]"#;
//!         Ok(Response {
//!             status: 200,
//!             content_type: Some("application/json".to_owned()),
//!             body: body.into(),
//!             ..Response::default()
//!         })
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new("http://127.0.0.1:5240/MAAS", "CONSUMER:TOKEN:SECRET".parse()?);
//! let clock = Arc::new(|| 1_795_181_527); // seconds since 1970
//! let client = Client::with_transport(&config, Arc::new(OneMachine), clock)?;
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! let machines = runtime.block_on(client.machines(&MachineFilter::hostname("j22u11")))?;
//! assert_eq!((machines.len(), machines[0].status), (1, status::READY));
//! assert_eq!(client.stats()["GET machines/"].calls, 1);
//! # Ok(())
//! # }
//! ```

mod classify;
mod client;
mod config;
mod encode;
mod error;
mod events;
mod http;
mod lenient;
mod model;
mod oauth;
mod ops;
#[cfg(test)]
mod tests;
mod time;
mod transport;

pub use client::{CallStats, Client, UnixClock};
pub use config::{Config, Timeouts};
pub use error::{AuthCause, Error, MAX_TEXT_CHARS, RefusalKind, UnknownCause};
pub use events::{Event, EventLevel, Events, STATUS_CHANGED, StatusChange};
pub use http::{HttpTransport, MAX_BODY_BYTES};
pub use model::*;
pub use oauth::ApiKey;
pub use ops::*;
pub use time::parse_maas_time;
pub use transport::{Method, Request, Response, Transport, TransportError};
