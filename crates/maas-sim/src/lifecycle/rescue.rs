//! Rescue mode: entering and leaving.

use crate::events::Level;
use crate::model::Drawn;
use crate::region::Region;
use crate::schedule::Tick;
use crate::status::Status;

impl Region {
    /// The rescue system runs.
    pub(super) fn rescue_entered(&mut self, key: u32) {
        self.set_status(key, Status::RescueMode);
        self.say(key, Level::Info, "Rescue mode", "");
    }

    pub(crate) fn start_rescue(&mut self, key: u32) -> i64 {
        let drawn = Drawn {
            bmc: self.draw(key, |c| c.times.bmc),
            post: self.draw(key, |c| c.times.post),
            ephemeral: self.draw(key, |c| c.times.ephemeral),
            ..Drawn::default()
        };
        self.begin(key, "rescue", drawn);
        self.power_off_now(key);
        self.after(key, drawn.bmc, Tick::PowerOn);
        drawn.bmc
    }

    pub(crate) fn leave_rescue(&mut self, key: u32) -> i64 {
        self.new_work(key);
        let bmc = self.draw(key, |c| c.times.bmc);
        self.begin(key, "exit_rescue", Drawn { bmc, ..Drawn::default() });
        self.after(key, bmc, Tick::RescueLeft);
        bmc
    }

    pub(super) fn rescue_left(&mut self, key: u32) {
        self.new_work(key);
        let back = self.machine(key).map_or(Status::Ready, |m| m.previous);
        self.set_status(key, back);
        self.say(key, Level::Info, "Exited rescue mode", "");
        if back == Status::Deployed {
            self.power_on_now(key);
        } else {
            self.power_off_now(key);
        }
    }
}
