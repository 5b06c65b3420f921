//! Events: the history of all nodes in one order, the sinks that it is delivered to, and what is read
//! of MAAS' own feed.

pub(crate) mod events;
pub(crate) mod rows;
pub(crate) mod sink;
pub(crate) mod sink_rows;
pub(crate) mod watch;
pub(crate) mod watch_rows;
