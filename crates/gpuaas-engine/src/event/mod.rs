//! What changed in the regions: one watcher per site reads MAAS' event feed, and slower looks find what
//! makes no event. Whatever is found wakes the runs that it concerns, and no others.

pub(crate) mod feed;
pub(crate) mod open_runs;
pub(crate) mod pace;
pub(crate) mod rewind;
pub(crate) mod sweep;
pub(crate) mod unannounced;
pub(crate) mod watcher;
