//! Problems with slots and claims.

/// Inserts the rows of this file into a table, before the rows that it is given.
macro_rules! rows_of_slices {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
SlotMapMissing "slot_map_missing" "The node has no slot map" {
    status: 404, owner: None, next_action: "run `gpuaas slice discover NODE --wait` to have the agent report its devices",
    doc: "Since the system was deployed, no agent of the node was asked for the devices that slices use",
}
SlotMapChanged "slot_map_changed" "The slot map has changed" {
    status: 409, owner: None, next_action: "check what changed with `gpuaas slice map NODE --diff`, and approve with the digest of the new map",
    doc: "An approval names the digest of its map, and the node's latest discovery has a different digest",
}
SlotBlocked "slot_blocked" "The slot cannot be approved" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas slice map NODE` to see who can fix each blocker; to override the blockers of a slot, name it with --slot",
    doc: "The slot is in use, or the slot or its host has a blocker that cannot be overridden, or has a blocker and was not named",
}
NotASliceHost "not_a_slice_host" "The host's profile is not for slices" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "redeploy the host with a slice profile: `gpuaas node reimage NODE --profile PROFILE --reason WHY`",
    doc: "The site bundle of the host's profile has no check of the gate `slice_ready`, so its slots could never be claimed; with slots, it could not be claimed as a bare-metal host either",
}
NoneInSite "none_in_site" "Not enough free capacity" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas slice list` to see what is free and who has the rest; `gpuaas slice approve NODE --digest DIGEST --reason WHY` approves more",
    doc: "All slice-ready nodes together have fewer free slots than the claim needs, or every bare-metal host is claimed",
}
NoSingleNodeFits "no_single_node_fits" "No single node has a free set of slots of this size" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "wait until a larger set is free, or claim fewer GPUs: 1, 2, 4 or 8, as the partitions in `gpuaas slice map NODE` allow",
    doc: "There are enough free slots, but no node has a free partition with this many GPUs, on one NUMA node if the claim requires that",
}
NotReady "not_ready" "The free nodes are not ready" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas slice list` to see the nodes, and `gpuaas explain NODE` to see why a node is not ready",
    doc: "A node has a free set of slots for the claim, or is a free bare-metal host, but it is not active, has an open run, or its gate is closed",
}
SlotsContended "slots_contended" "Other claims took the slots first" {
    status: 503, owner: None, next_action: "try again with the same Idempotency-Key",
    doc: "Other claims took every set of slots that was planned for this claim; other free slots may exist",
}
ClaimNotFound "claim_not_found" "Claim not found" {
    status: 404, owner: None, next_action: "run `gpuaas slice show` to see the claims that have not ended",
    doc: "No claim has this identifier",
}
ClaimInUse "claim_in_use" "The claim's state does not allow this" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas slice show CLAIM` to see its state; a claim can be launched once, while it is reserved, and released once, with `gpuaas slice release CLAIM --reason WHY`",
    doc: "A launch needs a reserved claim, and a release needs a claim that is not already being released",
}
ClaimFenced "claim_fenced" "The claim has a new holder" {
    status: 409, owner: None, next_action: "check the claim with `gpuaas slice show CLAIM` before you try again",
    doc: "The fencing token in the request is older than the claim's, so something else took the claim in the meantime",
}
NodeHasClaims "node_has_claims" "The node has open claims" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas slice show` to see who has them; `gpuaas slice release CLAIM --reason WHY` ends a claim, and a reserved claim ends automatically when it expires",
    doc: "The node or some of its slots are claimed, and the request would take the host away from the claims",
}
LaunchRefused "launch_refused" "The slots of the claim cannot form a virtual machine" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "read the host again with `gpuaas slice discover NODE --wait`, and check `gpuaas slice map NODE --diff`; release the claim with `gpuaas slice release CLAIM --reason WHY`",
    doc: "A device of the claim was missing when the host was last read, or the registers of its GPUs need more addresses than there are; nothing was changed",
}
SlotNotRecoverable "slot_not_recoverable" "The slot does not need recovery" {
    status: 409, owner: None, next_action: "run `gpuaas slice list` to see the state of each slot; only a slot in state cleanup_blocked or faulted can be recovered",
    doc: "An operator can recover a slot only if its release is unproven, or if it failed before a launch",
}
$($rows)* } };
}
