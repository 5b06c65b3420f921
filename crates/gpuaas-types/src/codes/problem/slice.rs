//! Refusals of what concerns slots and claims.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_slices {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
SlotMapMissing "slot_map_missing" "The node has no slot map" {
    status: 404, owner: None, next_action: "have its agent look: `gpuaas slice discover NODE --wait`",
    doc: "No agent of the node was asked for the devices that slices are made of since its system was deployed",
}
SlotMapChanged "slot_map_changed" "The slot map is another one by now" {
    status: 409, owner: None, next_action: "look at what changed, `gpuaas slice map NODE --diff`, and approve with the digest of the new map",
    doc: "An approval names the digest of the map that it is of, and the node's last discovery gave another one",
}
SlotBlocked "slot_blocked" "A slot cannot be approved" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas slice map NODE` says who makes each blocker go away; a slot whose blockers may be overridden is named with --slot",
    doc: "A slot or its host has a blocker that nobody can override, is in use, or has a blocker and was not named",
}
NotASliceHost "not_a_slice_host" "The host's profile makes no slice host" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "deploy the host with a profile of slices: `gpuaas node reimage NODE --profile PROFILE --reason WHY`",
    doc: "The site bundle of the host's profile has no check of the gate `slice_ready`, so its slots could never be claimed, and with slots the host is no bare-metal host either",
}
NoneInSite "none_in_site" "There is less free than was asked for" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas slice list` shows what is free, and who has the rest; approve more with `gpuaas slice approve NODE --digest DIGEST --reason WHY`",
    doc: "All nodes that are ready for slices have fewer free slots together than the claim wants, or no bare-metal host is without a claim",
}
NoSingleNodeFits "no_single_node_fits" "No node has a free set of slots of this size" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "wait until a larger set is whole again, or claim fewer GPUs: 1, 2, 4 or 8, as the partitions of `gpuaas slice map NODE` allow",
    doc: "There are enough free slots, and no partition of one node is free that has this many GPUs, on one NUMA node where that is required",
}
NotReady "not_ready" "Nodes that are free are not ready" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas slice list` names the nodes, and `gpuaas explain NODE` says what keeps one from being ready",
    doc: "A node has a free set of slots for the claim, or is a free bare-metal host; it is not active, has an open run, or its gate is shut",
}
SlotsContended "slots_contended" "Others took the slots each time" {
    status: 503, owner: None, next_action: "ask again with the same Idempotency-Key",
    doc: "Each set of slots that was planned for the claim went to another claim first; there may be more",
}
ClaimNotFound "claim_not_found" "There is no such claim" {
    status: 404, owner: None, next_action: "`gpuaas slice show` lists the claims that are not over",
    doc: "No claim has this identifier",
}
ClaimInUse "claim_in_use" "The claim is past its reservation" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas slice show CLAIM` says how it stands; a claim is launched once, while it is reserved, and released once, which `gpuaas slice release CLAIM --reason WHY` begins",
    doc: "What was asked is for a claim in another state: a launch for a reserved one, a release for one that nothing releases already",
}
ClaimFenced "claim_fenced" "The claim has another holder by now" {
    status: 409, owner: None, next_action: "look at it, `gpuaas slice show CLAIM`, before asking again",
    doc: "The request names a fencing token that is older than that of the claim: something else took the claim meanwhile",
}
NodeHasClaims "node_has_claims" "Claims of the node are not over" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas slice show` says who has them; one ends by `gpuaas slice release CLAIM --reason WHY`, or, while it is only reserved, by itself when it expires",
    doc: "Slots of the node, or the node as a whole, are claimed, and what was asked would take the host from under them",
}
LaunchRefused "launch_refused" "The slots of the claim make no virtual machine" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "have the host read anew, `gpuaas slice discover NODE --wait`, and look at `gpuaas slice map NODE --diff`; release the claim with `gpuaas slice release CLAIM --reason WHY`",
    doc: "A device of the claim is not on the host as it was last read, or the registers of its GPUs need more addresses than there are; nothing was changed",
}
SlotNotRecoverable "slot_not_recoverable" "Nothing keeps the slot from being used" {
    status: 409, owner: None, next_action: "`gpuaas slice list` says how each slot stands; only one that is cleanup_blocked or faulted is recovered",
    doc: "A slot is recovered at an operator's word where its release is unproven, or where it failed before a launch",
}
$($rows)* } };
}
