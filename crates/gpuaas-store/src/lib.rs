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
//! On SQLite all writes go through one writer that commits in groups (`database/sqlite/writer.rs` says
//! why). On PostgreSQL the frequent ones are committed in groups, too (`database/postgres/group.rs`),
//! and the others each in a transaction of its own; the frequent reads share statements
//! (`database/postgres/shared_read.rs`).
//!
//! # Files
//! `database` is access to either database. `store` is the value that callers hold. Every other
//! directory is about one subject and adds methods to that value. A file `rows.rs`, or one whose name
//! ends in `_rows`, has the rows of a table and the statements on it, for use inside a transaction. The
//! methods stand on these, and none of these knows of a method. Such a file may use one of a table that
//! its own refers to, never the other way round.
//!
//! # Secrets
//! Sealed before they reach a statement (`identity/secret/seal.rs`), moved from one master key to the next
//! (`key_rotation.rs`), by one list of sealed columns (`sealed_columns.rs`); tokens are kept as SHA-256
//! hashes only.

mod agent;
mod audit;
mod bundle;
mod database;
mod error;
mod event;
mod identity;
mod image;
mod node;
mod open;
mod run;
mod shared_reads;
mod site;
mod slice;
mod store;

pub use agent::gate::StoredGate;
pub use agent::noted_heartbeats::ReceivedHeartbeat;
pub use agent::operator_task::{NewOperatorTask, OperatorTask};
pub use audit::chain::AuditChainRows;
pub use audit::entries::{AuditEntry, AuditFilter, StoredAction};
pub use audit::request_replay::{KeptResponse, ReplayKey};
pub use audit::rows::{IdempotencyKey, NewAuditEntry};
pub use bundle::bundles::{BundleApproval, BundleKey, NewBundle, StoredBundle};
pub use bundle::input_secret::SecretOwner;
pub use bundle::profile::{ProfileBrief, ProfileRevision};
pub use database::id_range::IdKind;
pub use database::page::Page;
pub use database::postgres::scratch::ScratchDatabase;
pub use database::postgres::startup::StartupLock;
pub use database::schema::control_plane::ControlPlaneView;
pub use database::schema::inspection::{
    DatabaseInspection, SchemaVersion, copy_database_file, insecure_database_host, inspect_database,
};
pub use database::schema::migrations::{SchemaChange, SchemaChangeKind};
pub use database::schema::retention::{ExpiredPage, RetainedTable, RowKey};
pub use database::transfer::{
    StoreTransfer, TransferReport, TransferredTable, measure_transfer, transfer_store,
};
pub use database::{ApprovalExecution, RequestOrigin, current_origin, with_origin};
pub use error::{StoreError, TokenRejection};
pub use event::sink::{EventSinkLease, EventSinkWrite, NewEventSink};
pub use event::sink_rows::NewDeadLetter;
pub use event::watch::{MachineRead, ObservedEvent, WatchLease, WatchUpdate, WatchedMachine};
pub use identity::access_token::NewAccessToken;
pub use identity::approval::{
    ApprovalFilter, ApprovalRequester, ApprovalVerdict, NewApproval, StoredApproval,
};
pub use identity::authority::{AuthorityLaggards, NewAuthority, StoredAuthority};
pub use identity::certificate::StoredCertificate;
pub use identity::certificate_rows::{CertificateEnding, NewCertificate};
pub use identity::secret::key_ring::{FormerMasterKey, KeyRing, MasterKeyState};
pub use identity::secret::key_rotation::SealedCount;
pub use identity::secret::seal::MasterKey;
pub use identity::token::{EnrolledAgent, NewAgentCredential, NewEnrollment, sha256};
pub use identity::token_rows::{NewToken, TokenGrant, TokenPurpose};
pub use image::experiment::{ExperimentRun, ImageNote, StoredExperiment};
pub use image::host_image::{ImageUses, StoredImage};
pub use node::bmc_access::{BmcAccess, BmcAccessNote};
pub use node::change::HardwareChange;
pub use node::drift::{ListedDrift, MissedObservation, SweepFinding, SweepSubject};
pub use node::fleet::{
    EndedRuns, FailedRuns, FleetCounts, NodeCount, OpenRuns, RUN_DURATION_BOUNDS,
};
pub use node::host_value::HeldValue;
pub use node::nodes::{ListedNode, NodeFilter, RunBrief};
pub use node::onboarding::{AcceptedOnboarding, NewOnboarding, NewRunOfNode};
pub use node::rows::NewNode;
pub use run::batch::{
    BatchAdvance, MemberRun, MemberStart, NewBatch, OperatorBatchCommand, StoredBatch, StoredMember,
};
pub use run::lease::{LeasedRun, NewTask, NodeChange, RunWrite};
pub use run::moment_rows::RunMoments;
pub use run::operator_command::OperatorCommand;
pub use run::queries::{DeployLimitScope, ListedRun, RunFilter};
pub use run::rows::{NewRun, Transition};
pub use run::step_durations::RunClass;
pub use run::timeline::StoredTimelineEvent;
pub use run::times::RunTimes;
pub use secrecy::{ExposeSecret, SecretString};
pub use site::connectivity::{ConnectivityNote, ConnectivitySubject};
pub use slice::claim::ClaimOutcome;
pub use slice::claim_queries::{SlotAccounts, SlotClaimFilter};
pub use slice::claim_rows::{NewSlotClaim, SlotClaim, SlotClaimRelease};
pub use slice::launch::{NewSliceLaunch, NewSliceTask, SliceRunWrite};
pub use slice::launch_rows::{SliceTaskState, StoredSliceRun};
pub use slice::recovery::SlotRecovery;
pub use slice::slot::{NewSlotApproval, StoredSlot};
pub use slice::topology::NewSliceTopology;
pub use slice::topology_rows::{BlockedSlotMap, SliceTopology};
pub use slice::whole_node::{NewNodeClaim, NodeClaimOutcome, WholeNodeCounts};
pub use store::{Store, StoreCounters};
