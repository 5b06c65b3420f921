//! Slots of nodes, the claims that hold them, and what is launched for a claim.

pub(crate) mod claim;
pub(crate) mod claim_group;
pub(crate) mod claim_queries;
pub(crate) mod claim_queue;
pub(crate) mod claim_rows;
pub(crate) mod free;
pub(crate) mod launch;
pub(crate) mod launch_rows;
pub(crate) mod placement;
pub(crate) mod recovery;
pub(crate) mod slot;
pub(crate) mod topology;
pub(crate) mod topology_rows;
pub(crate) mod whole_node;
