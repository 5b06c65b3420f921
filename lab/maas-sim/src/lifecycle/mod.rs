//! The life of a machine as a state machine driven by ticks.
//!
//! A caller's verb changes the status at once and schedules the first tick; each tick does what is
//! due and schedules the next. Whatever ends an activity early (abort, release, failure, delete)
//! raises the machine's `work` number. Ticks of an older number are void. Durations are drawn when
//! an activity begins, so its ideal length is known from the first moment.
//!
//! ```text
//! commission  Commissioning --bmc,post,ephemeral,scripts--> [Testing --tests-->] Ready
//! deploy      Deploying --bmc,post,ephemeral,image--> Rebooting --post,first boot--> Deployed
//! release     Releasing --bmc--> Ready | New
//! erase       Disk erasing --bmc,post,ephemeral,erase--> Releasing --> Ready
//! ```

mod activity;
mod commissioning;
pub(crate) mod deployment;
mod rescue;
mod ticks;
