//! The tables as a whole: how they are made and migrated, which control planes use them, and which rows
//! are old.

pub(crate) mod control_plane;
pub(crate) mod inspection;
pub(crate) mod meta;
pub(crate) mod migrations;
pub(crate) mod retention;
