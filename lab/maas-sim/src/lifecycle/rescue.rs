//! Rescue mode: entering and leaving.

use crate::events::Level;
use crate::model::ActivityTimes;
use crate::region::Region;
use crate::schedule::Tick;
use crate::status::Status;

impl Region {
    /// The rescue system runs.
    pub(super) fn rescue_entered(&mut self, key: u32) {
        self.set_status(key, Status::RescueMode);
        self.record_event(key, Level::Info, "Rescue mode", "");
    }

    /// Begins to enter rescue mode. Returns the time of the BMC in microseconds.
    pub(crate) fn start_rescue(&mut self, key: u32) -> i64 {
        let times = ActivityTimes {
            bmc: self.draw_duration(key, |c| c.times.bmc),
            post: self.draw_duration(key, |c| c.times.post),
            ephemeral: self.draw_duration(key, |c| c.times.ephemeral),
            ..ActivityTimes::default()
        };
        self.begin_activity(key, "rescue", times);
        self.power_off_now(key);
        self.schedule_tick(key, times.bmc, Tick::PowerOn);
        times.bmc
    }

    /// Begins to leave rescue mode. Returns the time of the BMC in microseconds.
    pub(crate) fn leave_rescue(&mut self, key: u32) -> i64 {
        self.cancel_activity(key);
        let bmc = self.draw_duration(key, |c| c.times.bmc);
        self.begin_activity(key, "exit_rescue", ActivityTimes { bmc, ..ActivityTimes::default() });
        self.schedule_tick(key, bmc, Tick::RescueLeft);
        bmc
    }

    pub(super) fn rescue_left(&mut self, key: u32) {
        self.cancel_activity(key);
        let back = self.machine(key).map_or(Status::Ready, |m| m.previous);
        if matches!(back, Status::New | Status::Ready | Status::FailedCommissioning) {
            self.edit(key, |m| m.owner = None);
        }
        self.set_status(key, back);
        self.record_event(key, Level::Info, "Exited rescue mode", "");
        if back == Status::Deployed {
            self.power_on_now(key);
        } else {
            self.power_off_now(key);
        }
    }
}
