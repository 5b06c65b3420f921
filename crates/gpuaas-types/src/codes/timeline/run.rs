//! Lines that runs and operators write.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_runs {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
OnboardAccepted "onboard_accepted" "An operator requested onboarding" {
    owner: None, next_action: "",
    doc: "The text names the pinned profile revision",
}
OnboardedAgain "onboarded_again" "The node's onboarding restarted from the beginning" {
    owner: None, next_action: "",
    doc: "The last run ended before the node was active; the new run looks for the machine again",
}
TakeOverApproved "take_over_approved" "An operator took over a machine that is in use" {
    owner: None, next_action: "",
    doc: "The run may release and change the machine; the text names the machine, its owner, the operator and the reason",
}
HardwareCorrected "hardware_corrected" "An operator corrected the hardware record" {
    owner: None, next_action: "",
    doc: "MAC or BMC addresses, the power driver or the architecture changed",
}
DecommissionAccepted "decommission_accepted" "An operator requested a decommission" {
    owner: None, next_action: "",
    doc: "The run takes the node out of service",
}
ReimageAccepted "reimage_accepted" "An operator requested a reimage" {
    owner: None, next_action: "",
    doc: "The run releases the machine and deploys it again",
}
SoftResetAccepted "soft_reset_accepted" "An operator requested a soft reset" {
    owner: None, next_action: "",
    doc: "The agent stops the tenant's processes and empties its folders; data elsewhere stays",
}
StorageCleanupAccepted "storage_cleanup_accepted" "An operator requested a storage cleanup" {
    owner: None, next_action: "",
    doc: "The agent empties the scratch storage",
}
DetachAccepted "detach_accepted" "An operator requested a detach" {
    owner: None, next_action: "",
    doc: "GPUaaS stops managing the machine",
}
RemoveAccepted "remove_accepted" "An operator requested a removal" {
    owner: None, next_action: "",
    doc: "The run archives the node's record",
}
BatchAccepted "batch_accepted" "A batch requested the node" {
    owner: None, next_action: "",
    doc: "The node was created with its batch; its run starts when its turn comes",
}
BatchTurn "batch_turn" "The batch started the node's run" {
    owner: None, next_action: "",
    doc: "It was the node's turn in the batch",
}
RunResumed "run_resumed" "An operator resumed the run" {
    owner: None, next_action: "",
    doc: "The run continues where it stopped",
}
ParkCauseGone "park_cause_gone" "The cause of the park was fixed" {
    owner: None, next_action: "",
    doc: "MAAS shows that the cause is fixed, so the run continues automatically; the text names the park and what MAAS shows",
}
RunRetried "run_retried" "An operator retried the run" {
    owner: None, next_action: "",
    doc: "The run continues, and earlier attempts in its step no longer count",
}
ProfileRepinned "profile_repinned" "The run switched to the latest revision of its profile" {
    owner: None, next_action: "",
    doc: "An operator continued the run with `--latest-profile`; what is already deployed does not change",
}
CancelAsked "cancel_asked" "An operator cancelled the run" {
    owner: None, next_action: "",
    doc: "How the run ends depends on its step",
}
CheckSkipped "check_skipped" "An operator overrode a check" {
    owner: None, next_action: "",
    doc: "The check counts as passed until the override expires",
}
ApprovalAsked "approval_asked" "The control plane held a request for a second approver" {
    owner: None, next_action: "list pending approvals with `gpuaas approval list`; someone other than the requester decides with `gpuaas approval approve ID --reason WHY` or `gpuaas approval deny ID --reason WHY`",
    doc: "The site's policy requires a second approver for this request; the text names the approval",
}
ApprovalGiven "approval_given" "A second approver approved the request" {
    owner: None, next_action: "",
    doc: "GPUaaS carries out the request unchanged",
}
ApprovalDenied "approval_denied" "A second approver denied the request" {
    owner: None, next_action: "",
    doc: "GPUaaS does not carry out the request; the text gives the reason",
}
TaskAsked "task_asked" "An operator gave the agent a task" {
    owner: None, next_action: "",
    doc: "The control plane signed a task for the agent, see `gpuaas node tasks NODE`",
}
SlotsApproved "slots_approved" "An operator approved slots for leases" {
    owner: None, next_action: "",
    doc: "The slots are free and can be leased; the text names the slots, the operator and the reason",
}
SlotsStale "slots_stale" "GPUaaS withdrew approved slots" {
    owner: Some(Owner::PlatformOperator), next_action: "check `gpuaas slice map NODE --diff`, then fix the host or approve the new map with `gpuaas slice approve NODE --digest DIGEST --reason TEXT`",
    doc: "A discovery found that the host no longer matches what was approved, or does not isolate; the text names the slots and the reason",
}
SlotsClaimed "slots_claimed" "Someone claimed slots" {
    owner: None, next_action: "",
    doc: "The slots that the text names are reserved for an owner, until the claim expires, is released, or is launched",
}
SlotsReturned "slots_returned" "GPUaaS freed claimed slots" {
    owner: None, next_action: "",
    doc: "A claim was released before its launch or expired, or its slots were proven clean; the text names the claim and the reason",
}
NodeClaimed "node_claimed" "Someone claimed the whole node" {
    owner: None, next_action: "",
    doc: "The owner has the bare-metal host until the claim is released",
}
NodeClaimReleased "node_claim_released" "GPUaaS started to take back the whole node" {
    owner: None, next_action: "",
    doc: "The claim keeps the node until a run has prepared its host for the next tenant",
}
NodeClaimEnded "node_claim_ended" "The claim of the whole node ended" {
    owner: None, next_action: "",
    doc: "A run cleaned the host or released the machine; the text names the run",
}
NodeClaimHeld "node_claim_held" "GPUaaS held the host because its disks were not erased" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas profile set PROFILE release_erase=true`, then `gpuaas slice release CLAIM --reason TEXT`, which erases the host and deploys it again",
    doc: "A run between two tenants did not erase the disks, because the profile does not require it or MAAS could not: the claim stays, and nobody else gets the host",
}
SliceAsked "slice_asked" "An operator launched or released a slice" {
    owner: None, next_action: "",
    doc: "GPUaaS starts the claim's guest or reclaims its slots, one part at a time; `gpuaas slice show CLAIM` lists the parts",
}
SliceInUse "slice_in_use" "The guest of a slice reported that it is up" {
    owner: None, next_action: "",
    doc: "The guest of the claim that the text names was heard",
}
SliceRefused "slice_refused" "GPUaaS did not launch a slice" {
    owner: Some(Owner::PlatformOperator), next_action: "check the devices, and free their slots with `gpuaas slice recover NODE/SLOT --reason TEXT`",
    doc: "The devices of the claim are not in the expected state; GPUaaS changed nothing, and the slots stay faulted until an operator clears them",
}
SliceAbandoned "slice_abandoned" "The launch of a slice failed" {
    owner: None, next_action: "",
    doc: "GPUaaS undoes the preparation, with the same proofs as after a tenant",
}
SliceBlocked "slice_blocked" "GPUaaS kept slots out of use because their release is not fully proven" {
    owner: Some(Owner::PlatformOperator), next_action: "see the proofs with `gpuaas slice show CLAIM`; retry with `gpuaas slice release CLAIM --reason TEXT`, or clear a slot with `gpuaas slice recover NODE/SLOT --reason TEXT`",
    doc: "These slots are not freed automatically; the text says what is unproven",
}
SlotRecovered "slot_recovered" "An operator cleared a slot" {
    owner: None, next_action: "",
    doc: "A slot that failed, or whose release is unproven, can be used again; the text names the operator and the reason",
}
CertificateRevoked "certificate_revoked" "The node's certificates were revoked" {
    owner: None, next_action: "",
    doc: "The control plane rejects the agent from its next call on",
}
WorkflowStarted "workflow_started" "The run started" {
    owner: None, next_action: "",
    doc: "The run uses the profile revision that the text names",
}
MachineBound "machine_bound" "GPUaaS bound a MAAS machine to the node" {
    owner: None, next_action: "",
    doc: "The run found, claimed or created the machine, and no other node has it",
}
ScriptsRegistered "scripts_registered" "GPUaaS registered the bundle's scripts in MAAS" {
    owner: None, next_action: "",
    doc: "MAAS has the scripts of the profile's commissioning bundle",
}
MachineTagged "machine_tagged" "GPUaaS tagged the machine" {
    owner: None, next_action: "",
    doc: "MAAS lists the run's tags on the machine, including the one with the kernel options for the deployed system",
}
KernelTagRemoved "kernel_tag_removed" "GPUaaS removed the tag with kernel arguments from the machine" {
    owner: None, next_action: "",
    doc: "The profile needs no kernel arguments, and MAAS lists no tag with those of an earlier profile on the machine",
}
MachineTaggedAgain "machine_tagged_again" "The run returned to tagging the machine" {
    owner: None, next_action: "",
    doc: "Before the deployment, the machine's tags in MAAS differed from those that the run had set",
}
Commissioned "commissioned" "MAAS commissioned the machine" {
    owner: None, next_action: "",
    doc: "MAAS reports Ready; the text names the hardware that it found",
}
CommissioningScriptsPassed "commissioning_scripts_passed" "The bundle's commissioning scripts passed" {
    owner: None, next_action: "",
    doc: "Each script is a check of the run",
}
PxePreflightPassed "pxe_preflight_passed" "GPUaaS verified the boot interface" {
    owner: None, next_action: "",
    doc: "Every check of the boot interface passed",
}
PxePreflightWarning "pxe_preflight_warning" "GPUaaS could not verify the boot interface" {
    owner: None, next_action: "",
    doc: "The profile does not set `strict_pxe_preflight`, so the run continues",
}
StorageReady "storage_ready" "GPUaaS configured the storage" {
    owner: None, next_action: "",
    doc: "Boot disk, layout, filesystems and mount points are set as the profile requires, and were read back",
}
RoceLinked "roce_linked" "GPUaaS assigned the fabric addresses" {
    owner: None, next_action: "",
    doc: "The static addresses are linked to the fabric interfaces, and were read back",
}
TokensWithdrawn "tokens_withdrawn" "GPUaaS revoked tokens of an earlier deployment" {
    owner: None, next_action: "",
    doc: "A previously deployed system could still have used them; the pre-deployment checks found them",
}
PredeployChecksPassed "predeploy_checks_passed" "The pre-deployment checks passed" {
    owner: None, next_action: "",
    doc: "No known problem prevents writing the image",
}
ImageSelected "image_selected" "GPUaaS chose the image" {
    owner: None, next_action: "",
    doc: "The text names the image to deploy",
}
BatchPlace "batch_place" "The node got a deploy slot" {
    owner: None, next_action: "",
    doc: "The node had waited for other deployments",
}
DeployStarted "deploy_started" "GPUaaS submitted the deployment" {
    owner: None, next_action: "",
    doc: "MAAS accepted the deployment",
}
ImageWritten "image_written" "MAAS wrote the image" {
    owner: None, next_action: "",
    doc: "MAAS reports that the machine reboots into the image",
}
DeployFinished "deploy_finished" "MAAS finished the deployment" {
    owner: None, next_action: "",
    doc: "MAAS reports Deployed",
}
FirstBootObserved "first_boot_observed" "The deployed system booted" {
    owner: None, next_action: "",
    doc: "The deployed system fetched its user-data from MAAS",
}
DeployFailed "deploy_failed" "The deployment failed, and GPUaaS retried it" {
    owner: None, next_action: "",
    doc: "The text names the failure class and the next attempt",
}
DeployAgain "deploy_again" "The deployment restarted" {
    owner: None, next_action: "",
    doc: "An operator continued the run after its deployment had failed",
}
CommissionedAgain "commissioned_again" "The run returned to commissioning" {
    owner: None, next_action: "",
    doc: "An operator resumed the run while MAAS was commissioning the machine, or still had to",
}
RebootIssued "reboot_issued" "GPUaaS told the agent to reboot its host" {
    owner: None, next_action: "",
    doc: "The host requires the reboot; the control plane signed a task for the agent",
}
HostRebooted "host_rebooted" "The host rebooted" {
    owner: None, next_action: "",
    doc: "Its agent reports that the host booted and needs no further reboot; the text gives the reason for the reboot",
}
DiagnosticsIssued "diagnostics_issued" "GPUaaS told the agent to check its host" {
    owner: None, next_action: "",
    doc: "The control plane signed a task for the agent",
}
SoftResetIssued "soft_reset_issued" "GPUaaS told the agent to empty the tenant's folders" {
    owner: None, next_action: "",
    doc: "The control plane signed a task for the agent",
}
StorageCleanupIssued "storage_cleanup_issued" "GPUaaS told the agent to empty the scratch storage" {
    owner: None, next_action: "",
    doc: "The control plane signed a task for the agent",
}
OperationIssued "operation_issued" "GPUaaS told the agent to carry out an operation" {
    owner: None, next_action: "",
    doc: "The control plane signed a task for the agent",
}
DiagnosticsReported "diagnostics_reported" "The agent reported its diagnostics" {
    owner: None, next_action: "",
    doc: "The host meets the bundles' requirements",
}
NodeActive "node_active" "The node became active" {
    owner: None, next_action: "",
    doc: "Every completion gate passed",
}
Drained "drained" "GPUaaS drained the node" {
    owner: None, next_action: "",
    doc: "The node takes no new work; the run continues to take it out of service",
}
NothingToRelease "nothing_to_release" "GPUaaS found no machine to release" {
    owner: None, next_action: "",
    doc: "No machine is bound to the node",
}
HandedOff "handed_off" "GPUaaS handed the machine over to its owner" {
    owner: None, next_action: "",
    doc: "The profile hands the machine over, so GPUaaS sent MAAS no request",
}
Released "released" "MAAS released the machine" {
    owner: None, next_action: "",
    doc: "MAAS shows it as Ready or New",
}
FoldersEmptied "folders_emptied" "The agent emptied folders on its host" {
    owner: None, next_action: "",
    doc: "The agent reports that it emptied the folders of the tenant or of the scratch storage; the text names the places that it left. Only a reimage that erases the disks makes sure that nothing of a tenant remains",
}
NodeRetired "node_retired" "The node went out of service" {
    owner: None, next_action: "",
    doc: "The text says what happened to the machine",
}
NodeDetached "node_detached" "GPUaaS detached the machine" {
    owner: None, next_action: "",
    doc: "GPUaaS no longer manages the machine; it sent MAAS no request",
}
NodeRemoved "node_removed" "GPUaaS archived the record" {
    owner: None, next_action: "",
    doc: "The record is kept for its history only",
}
Cancelling "cancelling" "GPUaaS started to cancel the run" {
    owner: None, next_action: "",
    doc: "The machine belongs to GPUaaS in MAAS, so it is released first",
}
Cancelled "cancelled" "GPUaaS cancelled the run" {
    owner: None, next_action: "",
    doc: "The text says what happened to the machine",
}
NodeStateChanged "node_state_changed" "The node's state changed" {
    owner: None, next_action: "",
    doc: "The text names the new state and the previous one",
}
EffectRejected "effect_rejected" "MAAS rejected a call" {
    owner: None, next_action: "",
    doc: "The text names the call and the reason that MAAS gave",
}
EffectNotSent "effect_not_sent" "GPUaaS could not send a call" {
    owner: None, next_action: "",
    doc: "GPUaaS retries it with increasing delays",
}
UnknownOutcome "unknown_outcome" "GPUaaS lost the answer to a call" {
    owner: None, next_action: "",
    doc: "MAAS may have accepted the call, so GPUaaS reads what the call would have changed",
}
OutcomeSettled "outcome_settled" "GPUaaS learned the result of a call" {
    owner: None, next_action: "",
    doc: "A read showed whether MAAS accepted the call",
}
Parked "parked" "The run stopped" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas explain NODE` to see why, who must act and what to do next",
    doc: "The text begins with the code of the park, see waits-and-parks.md",
}
$($rows)* } };
}
