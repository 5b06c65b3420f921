//! Lines of a node's history.

use crate::RunKind;
use crate::agent::{Gate, PhaseOutcome};
use crate::api::Owner;

/// A row of [`TIMELINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineRow {
    /// The code.
    pub code: TimelineCode,
    /// What happened, in a few words.
    pub title: &'static str,
    /// Who has to act; none: nobody.
    pub owner: Option<Owner>,
    /// What to do; empty: nothing.
    pub next_action: &'static str,
    /// What the line means, and what its text says.
    pub doc: &'static str,
}

impl TimelineCode {
    /// The line that a run of this kind begins with.
    #[must_use]
    pub const fn accepted(kind: RunKind) -> Self {
        match kind {
            RunKind::Onboard => Self::OnboardAccepted,
            RunKind::Decommission => Self::DecommissionAccepted,
            RunKind::Reimage => Self::ReimageAccepted,
            RunKind::SoftReset => Self::SoftResetAccepted,
            RunKind::StorageCleanup => Self::StorageCleanupAccepted,
            RunKind::Detach => Self::DetachAccepted,
            RunKind::Remove => Self::RemoveAccepted,
        }
    }

    /// The line that says that a gate opened or shut.
    #[must_use]
    pub const fn gate(gate: Gate, is_open: bool) -> Self {
        match (gate, is_open) {
            (Gate::Active, true) => Self::GateActiveOpen,
            (Gate::Active, false) => Self::GateActiveShut,
            (Gate::SliceReady, true) => Self::GateSliceReadyOpen,
            (Gate::SliceReady, false) => Self::GateSliceReadyShut,
            (Gate::Telemetry, true) => Self::GateTelemetryOpen,
            (Gate::Telemetry, false) => Self::GateTelemetryShut,
        }
    }

    /// The line that says how a phase of a bundle ended.
    #[must_use]
    pub const fn phase(outcome: PhaseOutcome) -> Self {
        match outcome {
            PhaseOutcome::Ran => Self::BundlePhaseFinished,
            PhaseOutcome::Skipped => Self::BundlePhaseSkipped,
            PhaseOutcome::Failed => Self::BundlePhaseFailed,
        }
    }
}

codes! {
/// What a line of a node's history says, as its `code` names it.
TimelineCode, TimelineRow, TIMELINE;
OnboardAccepted "onboard_accepted" "An onboarding was asked for" {
    owner: None, next_action: "",
    doc: "An operator asked for the node; the text names the pinned profile revision",
}
OnboardedAgain "onboarded_again" "The node is onboarded from the beginning" {
    owner: None, next_action: "",
    doc: "Its last run ended before it was active; its machine is looked for anew",
}
TakeOverApproved "take_over_approved" "An operator takes a machine that is in use" {
    owner: None, next_action: "",
    doc: "The run may release and change the machine; the text names the machine, its owner, who said so and why",
}
HardwareCorrected "hardware_corrected" "What is known of the hardware was corrected" {
    owner: None, next_action: "",
    doc: "An operator corrected MAC or BMC addresses, the power driver or the architecture",
}
DecommissionAccepted "decommission_accepted" "A decommission was asked for" {
    owner: None, next_action: "",
    doc: "An operator takes the node out of service",
}
ReimageAccepted "reimage_accepted" "A reimage was asked for" {
    owner: None, next_action: "",
    doc: "An operator has the node released and deployed again",
}
SoftResetAccepted "soft_reset_accepted" "A soft reset was asked for" {
    owner: None, next_action: "",
    doc: "An operator has the agent stop the tenant's processes and empty its folders; whatever else holds data stays",
}
StorageCleanupAccepted "storage_cleanup_accepted" "A storage cleanup was asked for" {
    owner: None, next_action: "",
    doc: "An operator has the agent empty the scratch storage",
}
DetachAccepted "detach_accepted" "A detach was asked for" {
    owner: None, next_action: "",
    doc: "An operator gives the machine up",
}
RemoveAccepted "remove_accepted" "A removal was asked for" {
    owner: None, next_action: "",
    doc: "An operator puts the record of the node away",
}
BatchAccepted "batch_accepted" "The node was asked for in a batch" {
    owner: None, next_action: "",
    doc: "The node was made with its batch; its run begins when its turn comes",
}
BatchTurn "batch_turn" "The node's turn in its batch came" {
    owner: None, next_action: "",
    doc: "The batch begins the node's run",
}
RunResumed "run_resumed" "An operator resumed the run" {
    owner: None, next_action: "",
    doc: "The run goes on where it stopped",
}
ParkCauseGone "park_cause_gone" "What had stopped the run is over" {
    owner: None, next_action: "",
    doc: "MAAS shows that the cause of the park is gone, so the run goes on by itself; the text names the park and what was seen",
}
RunRetried "run_retried" "An operator has the run try again" {
    owner: None, next_action: "",
    doc: "The run goes on, and what was tried in its step does not count any more",
}
ProfileRepinned "profile_repinned" "The run uses the latest revision of its profile" {
    owner: None, next_action: "",
    doc: "An operator let the run go on with `--latest-profile`; what is deployed already stays as it is",
}
CancelAsked "cancel_asked" "An operator cancels the run" {
    owner: None, next_action: "",
    doc: "The run ends as its step allows",
}
CheckSkipped "check_skipped" "An operator answers for a check" {
    owner: None, next_action: "",
    doc: "The operator's word stands in for the check until it expires",
}
TaskAsked "task_asked" "An operator has the agent do something" {
    owner: None, next_action: "",
    doc: "A task was signed for the agent, see `gpuaas node tasks NODE`",
}
SlotsApproved "slots_approved" "An operator approved slots for leases" {
    owner: None, next_action: "",
    doc: "The slots are free and may be handed out; the text names them, who said so and why",
}
SlotsStale "slots_stale" "Approved slots are not handed out any more" {
    owner: Some(Owner::PlatformOperator), next_action: "look at `gpuaas slice map NODE --diff`, mend the host or approve the map anew with `gpuaas slice approve NODE --digest DIGEST --reason TEXT`",
    doc: "A discovery saw that the host is no longer what was approved, or does not isolate; the text names the slots and why",
}
CertificateRevoked "certificate_revoked" "The node's certificates were revoked" {
    owner: None, next_action: "",
    doc: "The agent is refused from its next call on",
}
WorkflowStarted "workflow_started" "The run began" {
    owner: None, next_action: "",
    doc: "The run works with the profile revision that the text names",
}
MachineBound "machine_bound" "A machine of MAAS belongs to the node" {
    owner: None, next_action: "",
    doc: "The machine was found, claimed or made, and no other node has it",
}
ScriptsRegistered "scripts_registered" "The bundle's scripts are in MAAS" {
    owner: None, next_action: "",
    doc: "The scripts of the profile's commissioning bundle are registered",
}
MachineTagged "machine_tagged" "The machine has the profile's tag" {
    owner: None, next_action: "",
    doc: "MAAS lists the tag at the machine, with the kernel options that a deployment carries into the system",
}
Commissioned "commissioned" "The machine is commissioned" {
    owner: None, next_action: "",
    doc: "MAAS says Ready; the text names the hardware that it found",
}
CommissioningScriptsPassed "commissioning_scripts_passed" "The bundle's commissioning scripts passed" {
    owner: None, next_action: "",
    doc: "Each of them is a check of the run",
}
PxePreflightPassed "pxe_preflight_passed" "The boot interface is fit to boot from" {
    owner: None, next_action: "",
    doc: "Every check of the boot interface passed",
}
PxePreflightWarning "pxe_preflight_warning" "The boot interface may not be fit to boot from" {
    owner: None, next_action: "",
    doc: "The profile does not have `strict_pxe_preflight`, so the run goes on",
}
StorageReady "storage_ready" "The storage is as the profile asks" {
    owner: None, next_action: "",
    doc: "Boot disk, layout, filesystems and mount points are set and read back",
}
RoceLinked "roce_linked" "The fabric interfaces have their addresses" {
    owner: None, next_action: "",
    doc: "The static addresses are linked and read back",
}
TokensWithdrawn "tokens_withdrawn" "Tokens of an earlier deployment were withdrawn" {
    owner: None, next_action: "",
    doc: "A system that was deployed before could still have used them; the checks before the deployment found them",
}
PredeployChecksPassed "predeploy_checks_passed" "The checks before the deployment passed" {
    owner: None, next_action: "",
    doc: "Nothing known speaks against writing the image",
}
ImageSelected "image_selected" "The image is chosen" {
    owner: None, next_action: "",
    doc: "The text names the image that is deployed",
}
BatchPlace "batch_place" "The node's turn to deploy came" {
    owner: None, next_action: "",
    doc: "The node waited because others deployed",
}
DeployStarted "deploy_started" "The deployment was submitted" {
    owner: None, next_action: "",
    doc: "MAAS took the deployment",
}
ImageWritten "image_written" "The image is written" {
    owner: None, next_action: "",
    doc: "MAAS says that the machine reboots into the image",
}
DeployFinished "deploy_finished" "The deployment is finished" {
    owner: None, next_action: "",
    doc: "MAAS says Deployed",
}
FirstBootObserved "first_boot_observed" "The deployed system booted" {
    owner: None, next_action: "",
    doc: "The deployed system asked MAAS for its user-data",
}
DeployFailed "deploy_failed" "The deployment failed, and is tried again" {
    owner: None, next_action: "",
    doc: "The text names the class of the failure and which try comes next",
}
DeployAgain "deploy_again" "The deployment begins again" {
    owner: None, next_action: "",
    doc: "An operator let the run go on after its deployment had come to nothing",
}
CommissionedAgain "commissioned_again" "The run goes back to the commissioning" {
    owner: None, next_action: "",
    doc: "An operator let the run go on while MAAS commissions the machine, or has to",
}
RebootIssued "reboot_issued" "The host is to be started again" {
    owner: None, next_action: "",
    doc: "The host asks for it; a task for the agent was signed",
}
HostRebooted "host_rebooted" "The host was started again" {
    owner: None, next_action: "",
    doc: "Its agent says that it booted and that nothing asks for another boot; the text names why it was started again",
}
DiagnosticsIssued "diagnostics_issued" "The agent is to look at its host" {
    owner: None, next_action: "",
    doc: "A task for the agent was signed",
}
SoftResetIssued "soft_reset_issued" "The agent is to empty the tenant's folders" {
    owner: None, next_action: "",
    doc: "A task for the agent was signed",
}
StorageCleanupIssued "storage_cleanup_issued" "The agent is to empty the scratch storage" {
    owner: None, next_action: "",
    doc: "A task for the agent was signed",
}
OperationIssued "operation_issued" "The agent is to carry out an operation" {
    owner: None, next_action: "",
    doc: "A task for the agent was signed",
}
DiagnosticsReported "diagnostics_reported" "The agent reported its diagnostics" {
    owner: None, next_action: "",
    doc: "The host is as the bundles require",
}
NodeActive "node_active" "The node is active" {
    owner: None, next_action: "",
    doc: "Every completion gate passed",
}
Drained "drained" "The node takes no new work" {
    owner: None, next_action: "",
    doc: "The run goes on to take the node out of service",
}
NothingToRelease "nothing_to_release" "There is no machine to release" {
    owner: None, next_action: "",
    doc: "No machine is bound to the node",
}
HandedOff "handed_off" "The machine is its owner's" {
    owner: None, next_action: "",
    doc: "The profile hands the machine over, so MAAS is not asked",
}
Released "released" "The machine is released" {
    owner: None, next_action: "",
    doc: "MAAS shows it as Ready or New",
}
HostCleaned "host_cleaned" "The agent emptied its folders" {
    owner: None, next_action: "",
    doc: "The agent says that it emptied the folders of the tenant or of scratch storage; the text names the places that it left. A host is clean of a tenant after a reimage that erases its disks",
}
NodeRetired "node_retired" "The node is out of service" {
    owner: None, next_action: "",
    doc: "The text says what became of the machine",
}
NodeDetached "node_detached" "The machine is given up" {
    owner: None, next_action: "",
    doc: "GPUaaS knows the machine no more; MAAS was not asked",
}
NodeRemoved "node_removed" "The record is put away" {
    owner: None, next_action: "",
    doc: "The record is kept for its history only",
}
Cancelling "cancelling" "The run is being cancelled" {
    owner: None, next_action: "",
    doc: "The machine belongs to GPUaaS in MAAS and is released first",
}
Cancelled "cancelled" "The run is cancelled" {
    owner: None, next_action: "",
    doc: "The text says what became of the machine",
}
NodeStateChanged "node_state_changed" "The node's state changed" {
    owner: None, next_action: "",
    doc: "The text names the state and the one before",
}
EffectRejected "effect_rejected" "MAAS refused a call" {
    owner: None, next_action: "",
    doc: "The text names the call and MAAS' reason",
}
EffectNotSent "effect_not_sent" "A call was not sent" {
    owner: None, next_action: "",
    doc: "It is made again with a growing pause",
}
UnknownOutcome "unknown_outcome" "Whether MAAS took a call is not known" {
    owner: None, next_action: "",
    doc: "The answer was lost; what the call would have changed is read again",
}
OutcomeSettled "outcome_settled" "What became of a call is known" {
    owner: None, next_action: "",
    doc: "A read showed whether MAAS took the call",
}
Parked "parked" "The run stopped" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says why, who has to act, and what to do next",
    doc: "The text begins with the code of the park, see waits-and-parks.md",
}
SiteBootstrapStarted "site_bootstrap_started" "The site bootstrap began" {
    owner: None, next_action: "",
    doc: "A callback of the scripts in the user-data",
}
SiteBootstrapFinished "site_bootstrap_finished" "The site bootstrap succeeded" {
    owner: None, next_action: "",
    doc: "A callback of the scripts in the user-data",
}
SiteBootstrapFailed "site_bootstrap_failed" "The site bootstrap failed" {
    owner: Some(Owner::BundleOwner), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "A callback of the scripts in the user-data",
}
NodeBootstrapStarted "node_bootstrap_started" "The node bootstrap began" {
    owner: None, next_action: "",
    doc: "A callback of the scripts in the user-data",
}
NodeBootstrapFinished "node_bootstrap_finished" "The node bootstrap succeeded" {
    owner: None, next_action: "",
    doc: "A callback of the scripts in the user-data",
}
NodeBootstrapFailed "node_bootstrap_failed" "The node bootstrap failed" {
    owner: Some(Owner::PlatformOperator), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "A callback of the scripts in the user-data",
}
BundlePhaseFinished "bundle_phase_finished" "A phase of a bundle ended" {
    owner: None, next_action: "",
    doc: "The text names the bundle, the phase and its seconds",
}
BundlePhaseSkipped "bundle_phase_skipped" "A phase of a bundle was not needed" {
    owner: None, next_action: "",
    doc: "The text says why",
}
BundlePhaseFailed "bundle_phase_failed" "A phase of a bundle failed" {
    owner: Some(Owner::BundleOwner), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "The text has the phase's last words",
}
EnrollmentStarted "enrollment_started" "The agent asks to be enrolled" {
    owner: None, next_action: "",
    doc: "The text names its version and the host",
}
EnrollmentFinished "enrollment_finished" "The agent is enrolled" {
    owner: None, next_action: "",
    doc: "The text names the credential that was issued",
}
FirstHeartbeat "first_heartbeat" "The agent's first heartbeat came" {
    owner: None, next_action: "",
    doc: "The agent of this run lives",
}
CertificateRenewed "certificate_renewed" "The agent has another certificate" {
    owner: None, next_action: "",
    doc: "The agent asked for it before the old one ended",
}
AgentTroubled "agent_troubled" "Something keeps the agent from its work" {
    owner: Some(Owner::PlatformOperator), next_action: "look at the host: `gpuaas node task NODE diagnostics --reason WHY` collects what is needed",
    doc: "The text names what, such as a full disk",
}
AgentWell "agent_well" "Nothing keeps the agent from its work any more" {
    owner: None, next_action: "",
    doc: "What the agent named before is over",
}
AgentOffline "agent_offline" "The agent is silent" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says what to do",
    doc: "No heartbeat came for longer than the profile allows (`offline_after_seconds`); an active node is offline from here on",
}
AgentOnline "agent_online" "The agent is heard again" {
    owner: None, next_action: "",
    doc: "A heartbeat came after a silence; the text says how long it lasted. A node that was offline is active again",
}
TaskFinished "task_finished" "The agent finished a task" {
    owner: None, next_action: "",
    doc: "The text says whether it could be done",
}
GateActiveOpen "gate_active_open" "The gate active is open" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate pass",
}
GateActiveShut "gate_active_shut" "The gate active is shut" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says what to do",
    doc: "The text names the checks that do not pass",
}
GateSliceReadyOpen "gate_slice_ready_open" "The gate slice_ready is open" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate pass",
}
GateSliceReadyShut "gate_slice_ready_shut" "The gate slice_ready is shut" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says what to do",
    doc: "The text names the checks that do not pass",
}
GateTelemetryOpen "gate_telemetry_open" "The gate telemetry is open" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate pass",
}
GateTelemetryShut "gate_telemetry_shut" "The gate telemetry is shut" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node telemetry NODE` says where the fault is",
    doc: "The text names the checks that do not pass",
}
EnrollmentContested "enrollment_contested" "Another key asked to enroll as this node" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says what to do about the run",
    doc: "Somebody else has the token of the node's agent; the text says from where it asked",
}
CredentialRefused "credential_refused" "A credential of the node was refused" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node certificates NODE` says who enrolled",
    doc: "The text names the address and the code of the problem",
}
MaasEvent "maas_event" "An event of MAAS" {
    owner: None, next_action: "",
    doc: "A warning, an error or a change of power in the event feed",
}
DriftFound "drift_found" "The machine differs from what is remembered" {
    owner: Some(Owner::InfraOperator), next_action: "`gpuaas drift list` says what to do about it",
    doc: "The text names the difference",
}
DriftResolved "drift_resolved" "A difference is over" {
    owner: None, next_action: "",
    doc: "The machine is again as remembered",
}
DriftAdopted "drift_adopted" "A change in MAAS is taken over" {
    owner: None, next_action: "",
    doc: "The site's policy says so for this kind of difference",
}
DriftNotAdopted "drift_not_adopted" "A change in MAAS cannot be taken over" {
    owner: Some(Owner::InfraOperator), next_action: "give one of the two machines another name in MAAS",
    doc: "Another node has the name",
}
Quarantined "quarantined" "The node is held back" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas drift list` says what to do about it",
    doc: "The site's policy says so for this kind of difference",
}
RegionRewound "region_rewound" "The region has another past" {
    owner: Some(Owner::InfraOperator),
    next_action: "compare the machine in MAAS with what the node should be: what was done there since the backup is lost",
    doc: "The region's event ids went back while its machines stayed, or it lost the mark that is kept in it, so it was restored from a backup or rebuilt; the text has the ids. Every machine of a node was read again",
}
MissedObservation "missed_work" "A change was seen late" {
    owner: None, next_action: "",
    doc: "The event feed did not bring it; a sweep of the region found it",
}
SiteCircuitOpen "site_circuit_open" "The region does not answer" {
    owner: None, next_action: "",
    doc: "Several calls in a row were not answered; the run goes on once the region answers",
}
SiteKeyRefused "site_key_refused" "MAAS does not accept the site's API key" {
    owner: Some(Owner::PlatformOperator), next_action: "give the site a key of a MAAS administrator, `gpuaas site set SITE --api-key-file FILE`",
    doc: "Nothing was sent; the run goes on once MAAS accepts the key",
}
SiteClockWrong "site_clock_wrong" "The clocks of MAAS and of this host differ" {
    owner: Some(Owner::PlatformOperator), next_action: "set both clocks by NTP",
    doc: "Nothing was sent; the run goes on once MAAS takes the time of our requests",
}
MaasLate "maas_answer_given_up" "An answer is not waited for any more" {
    owner: None, next_action: "",
    doc: "The region was away and answers again; what it had not answered by then is asked once more",
}
SiteUnusable "site_unusable" "The site cannot be used" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas site show SITE` says what is wrong",
    doc: "No client can be made for the site: its address, its key or its CA cannot be used",
}
MaasUnavailable "maas_unavailable" "MAAS does not answer" {
    owner: None, next_action: "",
    doc: "A read failed; it is made again with a growing pause",
}
MaasUnknownOutcome "maas_unknown_outcome" "The answer to a read was lost" {
    owner: None, next_action: "",
    doc: "The read is made again",
}
MaasServerError "maas_server_error" "MAAS failed to answer a read" {
    owner: None, next_action: "",
    doc: "MAAS answered 500; the read is made again",
}
MaasMalformedAnswer "maas_malformed_answer" "MAAS answered what cannot be understood" {
    owner: None, next_action: "",
    doc: "The read is made again",
}
MaasInvalidRequest "maas_invalid_request" "A read cannot be asked for" {
    owner: None, next_action: "",
    doc: "A value cannot be put into a request",
}
MaasValidation "maas_validation" "MAAS refused a field of a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasBadRequest "maas_bad_request" "MAAS refused a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthInvalidKey "maas_auth_invalid_key" "MAAS does not know the API key" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthInvalidToken "maas_auth_invalid_token" "MAAS does not know the API key's token" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthBadSignature "maas_auth_bad_signature" "MAAS does not accept the signature" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthClockSkew "maas_auth_clock_skew" "The clocks of MAAS and of this host differ" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthNonceReplay "maas_auth_nonce_replay" "MAAS has seen the request before" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthNotAuthenticated "maas_auth_not_authenticated" "MAAS saw no credential" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthRefused "maas_auth_refused" "MAAS refuses the API key" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasForbidden "maas_forbidden" "The API key may not read this" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasNotFound "maas_not_found" "MAAS does not know what was asked for" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAddressInUse "maas_address_in_use" "An address is in use" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasUnknownEndpoint "maas_unknown_endpoint" "This MAAS has no such endpoint" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasMethodNotAllowed "maas_method_not_allowed" "This MAAS does not take the method" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasStateConflict "maas_state_conflict" "The machine's status forbids a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasDatabaseConflict "maas_database_conflict" "MAAS' database refuses a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasRefused "maas_refused" "MAAS refused a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
}
