//! Slots of nodes, who has claimed them, and the guests that are launched on claims.

pub(crate) mod claim_view;
pub(crate) mod claims;
pub(crate) mod guest_user_data;
pub(crate) mod launch;
pub(crate) mod node_claims;
pub(crate) mod report;
pub(crate) mod slots;
