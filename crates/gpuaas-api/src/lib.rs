//! HTTP of the control plane: the admin API, and the bootstrap and agent API.
//!
//! # Shape of a request
//! `http::guard` (span, time limit, panics) -> credential -> body (`http::strict`: a mistake is named
//! with its field) -> checks (`check`: pure) -> one call of the store -> a type of `gpuaas_types`. Every
//! failure is an RFC 9457 problem from the one table in `http::problem`.
//!
//! # Who may do what
//! | path | credential |
//! |---|---|
//! | `/healthz`, `/readyz`, `/api/v1/health`, `/api/v1/version` | none |
//! | `/metrics` | a token whose role lets it look everywhere |
//! | `/api/v1/...` | a token whose role allows it: `gpuaas_types::access` |
//! | `/bootstrap/v1/...`, `/agent/v1/...` | see `gpuaas_types::agent` |
//!
//! Operators and nodes have listeners of their own ([`Routers`]); what belongs on the one is not to
//! be found on the other. The credential and its role are checked by a layer around all admin
//! routes (`identity::access`), and an operation that its table lacks opens to nobody. A good credential
//! on another's endpoint is refused as what it is (`token_wrong_purpose`), never taken, and every
//! refusal is written down (`audit::rejections`).

mod agent;
mod audit;
mod bundle;
mod check;
mod ctx;
mod event;
mod http;
mod identity;
mod image;
mod monitoring;
mod node;
pub mod openapi;
mod profile;
mod routes;
mod run;
mod site;
mod slice;

pub use self::http::body::{MAX_BODY_BYTES, MAX_BUNDLE_BODY_BYTES, MAX_RESULT_BYTES};
pub use self::http::problem;
pub use ctx::{ApiSettings, ApiState, MAX_POLL_SECONDS, NodeAccess, TelemetryLimits};
pub use event::feed::EventLimits;
pub use identity::auth::{ensure_admin_token, propose_admin_token, replace_admin_token};
pub use identity::authorities::{AuthoritySetError, load_authorities, new_authority};
pub use identity::sign_in::SignIn;
pub use image::experiment_progress::ExperimentProgress;
pub use monitoring::trace_counters::TraceCounters;
pub use routes::{Routers, routers};
