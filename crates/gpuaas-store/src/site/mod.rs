//! Sites and the regions that they are of: who may change a region's machines, and which agents there
//! are silent.

pub(crate) mod connectivity;
pub(crate) mod ownership;
pub(crate) mod region;
pub(crate) mod removal;
pub(crate) mod rows;
pub(crate) mod sites;
