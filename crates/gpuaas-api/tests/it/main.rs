//! The API as its clients see it: real router, real store, a MAAS that answers as told.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod agents;
mod approvals;
mod artifacts;
mod attempts;
mod audit;
mod authority_rollover;
mod batches;
mod bundles;
mod changes;
mod doors;
mod drift;
mod event_sinks;
mod events;
mod experiments;
mod filters;
mod hang_up;
mod hang_up_cases;
mod hang_up_single_cases;
mod http;
mod id_prefixes;
mod idempotency;
mod identity;
mod images;
mod key_references;
mod limits;
mod metrics;
mod node_claims;
mod nodes;
mod offboarding;
mod open_bodies;
mod openapi;
mod operators;
mod pages;
mod problems;
mod refused_credentials;
mod revisions;
mod rig;
mod second_person;
mod second_person_property;
mod secret_kinds;
mod secrets;
mod sign_in;
mod signing;
mod slice_claims;
mod slice_launch;
mod slices;
mod tasks;
mod telemetry;
mod telemetry_nginx;
#[path = "../../../gpuaas-engine/tests/it/common/test_database.rs"]
mod test_database;
mod tls;
