//! Lines that runs and operators write.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_runs {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
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
ApprovalAsked "approval_asked" "A request waits for another person" {
    owner: None, next_action: "`gpuaas approval list` shows what waits; another person than the one who asked decides with `gpuaas approval approve ID --reason WHY` or `gpuaas approval deny ID --reason WHY`",
    doc: "The site's policy wants a second person for what was asked of the node; the text names the approval",
}
ApprovalGiven "approval_given" "Another person agreed" {
    owner: None, next_action: "",
    doc: "What was asked of the node is carried out as it was asked",
}
ApprovalDenied "approval_denied" "Somebody said no" {
    owner: None, next_action: "",
    doc: "What was asked of the node is not carried out; the text has the reason",
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
SlotsClaimed "slots_claimed" "Somebody claims slots" {
    owner: None, next_action: "",
    doc: "The slots that the text names are reserved for an owner, until the claim expires, is released, or is launched",
}
SlotsReturned "slots_returned" "Claimed slots are free again" {
    owner: None, next_action: "",
    doc: "A claim was released before its launch began, expired, or its slots were proven clean; the text names it and says why",
}
NodeClaimed "node_claimed" "Somebody claims the whole node" {
    owner: None, next_action: "",
    doc: "An owner has the bare-metal host from then on, until its claim is released",
}
NodeClaimReleased "node_claim_released" "The whole node is taken back" {
    owner: None, next_action: "",
    doc: "The claim stays, and nobody else gets the node, until a run that makes its host one for another tenant has ended well",
}
NodeClaimEnded "node_claim_ended" "The claim of the whole node ended" {
    owner: None, next_action: "",
    doc: "A run cleaned the host, or let the machine go; the text names it",
}
NodeClaimHeld "node_claim_held" "The host is held: nobody erased its disks" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas profile set PROFILE release_erase=true`, then `gpuaas slice release CLAIM --reason TEXT`, which erases the host and deploys it again",
    doc: "A run between two tenants ended without erasing the disks, because the profile says so or MAAS could not: the claim stays, and nobody else gets the host",
}
SliceAsked "slice_asked" "An operator launches or releases a slice" {
    owner: None, next_action: "",
    doc: "The claim's guest is started, or its slots are taken back, part by part; `gpuaas slice show CLAIM` has the parts",
}
SliceInUse "slice_in_use" "A slice runs" {
    owner: None, next_action: "",
    doc: "The guest of the claim that the text names was heard",
}
SliceRefused "slice_refused" "A slice was not launched" {
    owner: Some(Owner::PlatformOperator), next_action: "look at the devices, and free their slots with `gpuaas slice recover NODE/SLOT --reason TEXT`",
    doc: "The devices of the claim are not what they should be; nothing was changed, and its slots are faulted until an operator answers for them",
}
SliceAbandoned "slice_abandoned" "The launch of a slice failed" {
    owner: None, next_action: "",
    doc: "What was prepared is taken back, with the same proofs as after a tenant",
}
SliceBlocked "slice_blocked" "Slots are kept out of use: something of their release is unproven" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas slice show CLAIM` has the proofs; try again with `gpuaas slice release CLAIM --reason TEXT`, or answer for a slot with `gpuaas slice recover NODE/SLOT --reason TEXT`",
    doc: "No time frees these slots; the text says what is unproven",
}
SlotRecovered "slot_recovered" "An operator answers for a slot" {
    owner: None, next_action: "",
    doc: "A slot that failed, or whose release is unproven, may be used again; the text says who said so and why",
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
MachineTagged "machine_tagged" "The machine has its tags" {
    owner: None, next_action: "",
    doc: "MAAS lists the run's tags at the machine, one of them with the kernel options that a deployment carries into the system",
}
KernelTagRemoved "kernel_tag_removed" "The machine has no tag with kernel arguments any more" {
    owner: None, next_action: "",
    doc: "The profile asks for no kernel arguments, and MAAS lists no tag with those of an earlier one at the machine",
}
MachineTaggedAgain "machine_tagged_again" "The machine is tagged again" {
    owner: None, next_action: "",
    doc: "Before the deployment MAAS lists other tags at the machine than the run gave it; the run goes back to them",
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
FoldersEmptied "folders_emptied" "The agent emptied its folders" {
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
$($rows)* } };
}
