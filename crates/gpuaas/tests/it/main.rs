//! The executable, driven as an operator drives it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of a test fail it by panicking")]

mod approvals;
mod attack;
mod backup;
mod commit;
mod doctor;
mod events;
mod image_lineage;
mod image_upload;
mod key_rotation;
mod lab_runs;
mod loops;
mod migrate_store;
mod node_claims;
mod oci;
mod oidc;
mod onboarding;
mod outsiders;
mod planted_secrets;
mod prometheus;
mod readme;
mod replicas;
mod rolling;
mod secrets;
mod secrets_of_programs;
mod systemd;
mod tls;
mod traces;
mod vault;
mod versions;
mod watch;
