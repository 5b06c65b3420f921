//! Launch and release of a slice, decided.
//!
//! [`decide_slice_run`] says what comes next of what is known: the run, what the agent was given last
//! and what came of it, and what was proven. It is pure and level-triggered as [`crate::decide`] is,
//! and follows the same rule: an action whose outcome nobody knows is looked at before it is done
//! again. [`apply`] writes the decision into the run, so that a store has one thing to keep.
//!
//! A launch that fails once something was changed becomes a release: what was prepared is taken back
//! with the same proofs as a slice that a tenant had. A launch whose devices are not what they should
//! be has changed nothing, and is refused: erasing a drive that somebody else uses would be the worst
//! that could follow.
//!
//! A release ends when each proof is there that its devices ask for ([`missing_proofs`]). What is
//! unproven keeps the slots out of capacity until an operator acts. No time frees them.

mod apply;
mod decide;
mod launch_spec;
mod proofs;
mod states;
mod table;

#[cfg(test)]
mod tests;

pub use self::apply::{TaskLimits, apply, new_launch, to_release};
pub use self::decide::{SliceDecision, SliceSnapshot, SliceTaskOutcome, decide_slice_run};
pub use self::launch_spec::{SliceLaunchFault, SliceLaunchSpec, launch_spec};
pub use self::proofs::missing_proofs;
pub use self::states::claim_and_slot_state;
pub use self::table::{SliceActionRow, action_row, parts};
