//! HTTP of the control plane: the admin API, and the bootstrap and agent API.
//!
//! # Shape of a request
//! `guard` (span, time limit, panics) -> credential -> body (`strict`: a mistake is named with its
//! field) -> checks (`check`: pure) -> one call of the store -> a type of `gpuaas_types`. Every
//! failure is an RFC 9457 problem from the one table in `problem`.
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
//! routes (`access`), and an operation that its table lacks opens to nobody. A good credential on
//! another's endpoint is refused as what it is (`token_wrong_purpose`), never taken, and every
//! refusal is written down (`rejections`).

mod access;
mod address_check;
mod agent;
mod agent_update;
mod approval_waits;
mod approvals;
mod audit;
mod auth;
mod authorities;
mod batches;
mod body;
mod bootstrap;
mod bundles;
mod caller;
mod certificates;
mod check;
mod claim_view;
mod control;
mod ctx;
mod drift;
mod enrollment;
mod etag;
mod event_feed;
mod event_sinks;
mod event_streams;
mod events;
mod experiment_progress;
mod experiment_samples;
mod experiments;
mod explain;
mod guard;
mod guest_user_data;
mod health;
mod heartbeat_writer;
mod history;
mod id_prefix;
mod idempotency;
mod image_check;
mod image_rollback;
mod image_verdicts;
mod images;
mod issuing;
mod kernel_arguments;
mod known_task_keys;
mod long_poll;
mod metrics;
mod node_change;
mod node_claims;
mod node_facts;
mod node_view;
mod nodes;
mod offboarding;
mod onboard_plan;
mod open_bodies;
pub mod openapi;
mod pages;
mod probe;
pub mod problem;
mod profiles;
mod rate_limit;
mod refused_credentials;
mod rejection_audit;
mod rejections;
mod removal;
mod repeated_heartbeat;
mod request_metrics;
mod roce;
mod routes;
mod runs;
mod second_person;
mod secrets;
mod sign_in;
mod sites;
mod slice_claims;
mod slice_launch;
mod slice_report;
mod slices;
mod strict;
mod stuck;
mod task_keys;
mod tasks;
mod telemetry;
mod tokens;
mod trace_counters;
mod zeroed;

pub use auth::{ensure_admin_token, propose_admin_token, replace_admin_token};
pub use authorities::{AuthoritySetError, load_authorities, new_authority};
pub use body::{MAX_BODY_BYTES, MAX_BUNDLE_BODY_BYTES, MAX_RESULT_BYTES};
pub use ctx::{ApiSettings, ApiState, MAX_POLL_SECONDS, NodeAccess, TelemetryLimits};
pub use event_feed::EventLimits;
pub use experiment_progress::ExperimentProgress;
pub use routes::{Routers, routers};
pub use sign_in::SignIn;
pub use trace_counters::TraceCounters;
