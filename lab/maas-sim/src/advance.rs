//! Time: everything that is due happens, in order.

use crate::notice::Notice;
use crate::region::Region;

impl Region {
    /// Lets everything happen that is due at `now_us`, simulated microseconds since the Unix
    /// epoch. Returns what software on hosts has to act on.
    pub fn advance(&mut self, now_us: i64) -> Vec<Notice> {
        self.advance_clock(now_us);
        self.take_notices()
    }

    /// [`Region::advance`] that leaves the notices for later.
    pub(crate) fn advance_clock(&mut self, now_us: i64) {
        while let Some(due) = self.schedule.pop_due(now_us) {
            self.now = self.now.max(due.at_us);
            if self.machines.get(&due.key).is_some_and(|m| m.work == due.work) {
                self.run_tick(due.key, due.tick);
            }
        }
        self.now = self.now.max(now_us);
    }
}
