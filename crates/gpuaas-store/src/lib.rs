//! All SQL of GPUaaS. Nobody above this crate knows what a table is called.
//!
//! # One interface, two databases
//! [`Store`] keeps its state in one SQLite file (the default: nothing to install) or in
//! PostgreSQL (any number of control planes share it). Each statement is written once; what
//! differs lives in `database`, and one conformance suite runs every function on
//! both. Every moment is stored as whole microseconds in a BIGINT: the databases' own time types
//! differ in precision and in text form, integers do not.
//!
//! # How runs are handed out
//! A run row is the queue entry, the lease and the state at once.
//!
//! - `due_at` says when a worker should look. [`Store::claim`] takes what is due, in a batch,
//!   over a partial index. A parked run is due where it looks again by itself, and else never. A claimed run is due again when its lease ends, so a dead
//!   worker's runs come back by themselves and the range "due" of the index never holds anything
//!   that could not be claimed; [`Store::next_due`] is one look at the index for the same reason.
//! - `lease_token` is a fencing token: it grows with every claim, every write of a worker names
//!   the one it got, and a write with an older one is refused whole ([`StoreError::LeaseLost`]).
//!   A worker that was away too long, for whatever reason, cannot do damage.
//! - `wake_seq` counts events. The worker that gives a run back writes the count *it read at the
//!   claim* to `handled_seq`; if the count grew meanwhile, the run is due at once. An event that
//!   arrives during the work is thus never lost, and never interrupts it either.
//!
//! In PostgreSQL, rows are locked in one order everywhere (run, node, then the rest), so that
//! two transactions cannot wait for each other.
//!
//! # Writes
//! On SQLite all writes go through one writer that commits in groups (`database/writer.rs` says
//! why). On PostgreSQL the frequent ones are committed in groups, too (`database/group.rs`), and the
//! others each in a transaction of its own; the frequent reads share statements
//! (`database/shared_read.rs`).
//!
//! # Files
//! `database` is access to either database. `tables` has rows and the statements on one table
//! each. `store` is the value that callers hold. Every other file adds methods to it, and none of
//! them takes anything from another.
//!
//! # Secrets
//! Sealed before they reach a statement (`seal`), moved from one master key to the next
//! (`key_rotation`), by one list of sealed columns (`tables/sealed.rs`); tokens are kept as SHA-256 hashes only.

mod access_token;
mod agent;
mod approval;
mod audit;
mod audit_chain;
mod authority;
mod batch;
mod bmc_access;
mod bundle;
mod certificate;
mod claim_queue;
mod connectivity;
mod control;
mod control_plane;
mod database;
mod drift;
mod error;
mod event;
mod event_sink;
mod experiment;
mod fleet;
mod gate;
mod health;
mod heartbeats;
mod host_image;
mod host_value;
mod id_range;
mod image_verdict;
mod input_secret;
mod inspection;
mod key_ring;
mod key_rotation;
mod list_filter;
mod migrations;
mod node;
mod node_change;
mod node_tpm;
mod noted_heartbeats;
mod open;
mod operator_command;
mod operator_task;
mod page;
mod postgres;
mod profile;
mod queries;
mod region;
mod removal;
mod request_replay;
mod retention;
mod roce;
mod run;
mod run_queries;
mod run_times;
mod scratch;
mod seal;
mod secret;
mod shared_reads;
mod site;
mod slice_claim;
mod slice_claim_group;
mod slice_claim_queries;
mod slice_free;
mod slice_placement;
mod slice_recovery;
mod slice_run;
mod slice_slot;
mod slice_topology;
mod step_durations;
mod store;
mod tables;
mod task_key;
mod timeline;
mod token;
mod transfer;
mod watch;
mod whole_node_claim;

pub use access_token::NewAccessToken;
pub use approval::{
    ApprovalFilter, ApprovalRequester, ApprovalVerdict, NewApproval, StoredApproval,
};
pub use audit::{AuditEntry, AuditFilter, StoredAction};
pub use audit_chain::AuditChainRows;
pub use authority::{AuthorityLaggards, NewAuthority, StoredAuthority};
pub use batch::{
    BatchAdvance, MemberRun, MemberStart, NewBatch, OperatorBatchCommand, StoredBatch, StoredMember,
};
pub use bmc_access::{BmcAccess, BmcAccessNote};
pub use bundle::{BundleApproval, BundleKey, NewBundle, StoredBundle};
pub use certificate::StoredCertificate;
pub use connectivity::{ConnectivityNote, ConnectivitySubject};
pub use control_plane::ControlPlaneView;
pub use database::{ApprovalExecution, RequestOrigin, current_origin, with_origin};
pub use drift::{ListedDrift, MissedObservation, SweepFinding, SweepSubject};
pub use error::{StoreError, TokenRejection};
pub use event_sink::{EventSinkLease, EventSinkWrite, NewEventSink};
pub use experiment::{ExperimentRun, ImageNote, StoredExperiment};
pub use fleet::{EndedRuns, FailedRuns, FleetCounts, NodeCount, OpenRuns, RUN_DURATION_BOUNDS};
pub use gate::StoredGate;
pub use host_image::{ImageUses, StoredImage};
pub use host_value::HeldValue;
pub use id_range::IdKind;
pub use input_secret::SecretOwner;
pub use inspection::{
    DatabaseInspection, SchemaVersion, copy_database_file, insecure_database_host, inspect_database,
};
pub use key_ring::{FormerMasterKey, KeyRing, MasterKeyState};
pub use key_rotation::SealedCount;
pub use migrations::{SchemaChange, SchemaChangeKind};
pub use node::{AcceptedOnboarding, ListedNode, NewOnboarding, NewRunOfNode, NodeFilter, RunBrief};
pub use node_change::HardwareChange;
pub use noted_heartbeats::ReceivedHeartbeat;
pub use operator_command::OperatorCommand;
pub use operator_task::{NewOperatorTask, OperatorTask};
pub use page::Page;
pub use postgres::StartupLock;
pub use profile::{ProfileBrief, ProfileRevision};
pub use request_replay::{KeptResponse, ReplayKey};
pub use retention::{ExpiredPage, RetainedTable, RowKey};
pub use run::{LeasedRun, NewTask, NodeChange, RunWrite};
pub use run_queries::{DeployLimitScope, ListedRun, RunFilter};
pub use run_times::RunTimes;
pub use scratch::ScratchDatabase;
pub use seal::MasterKey;
pub use secrecy::{ExposeSecret, SecretString};
pub use slice_claim::ClaimOutcome;
pub use slice_claim_queries::{SlotAccounts, SlotClaimFilter};
pub use slice_recovery::SlotRecovery;
pub use slice_run::{NewSliceLaunch, NewSliceTask, SliceRunWrite};
pub use slice_slot::{NewSlotApproval, StoredSlot};
pub use slice_topology::NewSliceTopology;
pub use step_durations::RunClass;
pub use store::{Store, StoreCounters};
pub use tables::audit::{IdempotencyKey, NewAuditEntry};
pub use tables::certificate::{CertificateEnding, NewCertificate};
pub use tables::event_sink::NewDeadLetter;
pub use tables::node::NewNode;
pub use tables::run::{NewRun, Transition};
pub use tables::run_moment::RunMoments;
pub use tables::slice_claim::{NewSlotClaim, SlotClaim, SlotClaimRelease};
pub use tables::slice_run::{SliceTaskState, StoredSliceRun};
pub use tables::slice_topology::{BlockedSlotMap, SliceTopology};
pub use tables::token::{NewToken, TokenGrant, TokenPurpose};
pub use timeline::StoredTimelineEvent;
pub use token::{EnrolledAgent, NewAgentCredential, NewEnrollment, sha256};
pub use transfer::{
    StoreTransfer, TransferReport, TransferredTable, measure_transfer, transfer_store,
};
pub use watch::{MachineRead, ObservedEvent, WatchLease, WatchUpdate, WatchedMachine};
pub use whole_node_claim::{NewNodeClaim, NodeClaimOutcome, WholeNodeCounts};
