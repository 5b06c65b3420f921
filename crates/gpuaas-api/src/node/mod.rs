//! Nodes: onboarding, changing and showing them, their history, and what keeps them from going on.

pub(crate) mod change;
pub(crate) mod drift;
pub(crate) mod explain;
pub(crate) mod facts;
pub(crate) mod history;
pub(crate) mod nodes;
pub(crate) mod stuck;
pub(crate) mod view;
