//! What is asked of slots: how many GPUs, and how near to each other.

use crate::string_enum::string_enum;

string_enum! {
/// Whether the GPUs of a claim have to be of as few NUMA nodes as their number allows.
NumaPreference {
    /// They have to; a set that is split further is refused.
    Required = "required",
    /// They should.
    Preferred = "preferred",
}
}

string_enum! {
/// Why a claim got no slots.
ClaimRefusal {
    /// The site has fewer free slots than are asked for.
    NoneInSite = "none_in_site",
    /// The site has enough free slots, and no node has a free set of them.
    NoSingleNodeFits = "no_single_node_fits",
    /// A node would have a free set, and is not ready for slices.
    NotReady = "not_ready",
}
}
