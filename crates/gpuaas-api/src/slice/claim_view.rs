//! How a claim is shown, of slots or of a whole node.

use gpuaas_store::SlotClaim;
use gpuaas_types::claim::ClaimView;

/// Characters of an owner's name.
pub(crate) const OWNER_CHARS: usize = 100;

/// The claim as a list shows it.
pub(crate) fn view(claim: SlotClaim) -> ClaimView {
    ClaimView {
        id: claim.id,
        owner: claim.owner,
        state: claim.state,
        node: claim.hostname,
        site: claim.site,
        whole_node: claim.whole_node,
        gpus: u32::try_from(claim.slots.len()).unwrap_or(u32::MAX),
        numa: claim.numa,
        fence: u64::try_from(claim.fence).unwrap_or_default(),
        slots: claim.slots,
        created_at: claim.created_at,
        expires_at: claim.expires_at,
        ended_at: claim.ended_at,
        reason: claim.reason,
        run: None,
        proofs: Vec::new(),
    }
}
