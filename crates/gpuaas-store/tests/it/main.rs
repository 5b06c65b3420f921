//! The conformance suite: every function of the store, on both databases, by the same tests.
//!
//! SQLite runs always. PostgreSQL runs where `GPUAAS_TEST_POSTGRES` names a server, such as
//! `postgres://postgres@127.0.0.1:5432/postgres`; each test makes a database there and drops it
//! when it passed. Elsewhere each test says that it skipped PostgreSQL.

#![expect(
    clippy::unwrap_used,
    reason = "the whole of this program is tests; clippy's exception sees test functions only"
)]

mod addresses;
mod agents;
mod approvals;
mod audit_chain;
mod authorities;
mod batches;
mod bundles;
mod certificates;
mod changes;
mod claims;
mod completeness;
mod connectivity;
mod control;
mod creation;
mod drift;
mod events;
mod experiments;
mod filters;
mod fixture;
mod fleet;
mod heartbeats;
mod host_images;
mod host_values;
mod key_rotation;
mod nodes;
mod regions;
mod replays;
mod retention;
mod runs;
mod setup;
mod single_reads;
mod slice_runs;
mod slots;
mod step_durations;
mod tokens;
mod transfer;
mod versions;
mod watching;
mod whole_nodes;
mod writing;
