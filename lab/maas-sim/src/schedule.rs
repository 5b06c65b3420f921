//! The heap of what is due: one entry for each thing to come, over all machines.
//!
//! A task per machine would be the usual way. A thousand machines then cost a thousand tasks, and
//! two runs with one seed take different paths, because a scheduler orders tasks as it likes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens to a machine by itself at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tick {
    PowerOn,
    NetworkBoot,
    EphemeralUp,
    ScriptsDone,
    TestsDone,
    PowerOffIdle,
    ImageDone,
    NoDatasource,
    UserData,
    Released,
    EraseDone,
    RescueLeft,
    Timeout,
    HwSync,
    Vanish,
    Flap(u8),
}

/// A tick with its time, ordered by time and then by the order of scheduling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScheduledTick {
    /// Simulated microseconds since the Unix epoch.
    pub(crate) at_us: i64,
    sequence: u64,
    /// Database id of the machine.
    pub(crate) key: u32,
    /// The machine's work number when this was scheduled: under another one the tick is void.
    pub(crate) work: u64,
    pub(crate) tick: Tick,
}

/// Ticks in the order in which they are due.
#[derive(Debug, Default, Clone)]
pub(crate) struct Schedule {
    heap: BinaryHeap<Reverse<ScheduledTick>>,
    sequence: u64,
}

impl Schedule {
    /// Adds a tick for a machine under its present work number.
    pub(crate) fn push(&mut self, at_us: i64, key: u32, work: u64, tick: Tick) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.heap.push(Reverse(ScheduledTick { at_us, sequence, key, work, tick }));
    }

    /// When the first tick is due.
    pub(crate) fn next_at_us(&self) -> Option<i64> {
        self.heap.peek().map(|entry| entry.0.at_us)
    }

    /// Takes the first tick that is due at `now_us`.
    pub(crate) fn pop_due(&mut self, now_us: i64) -> Option<ScheduledTick> {
        if self.next_at_us()? > now_us {
            return None;
        }
        self.heap.pop().map(|entry| entry.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_by_time_and_then_by_the_order_of_scheduling() {
        let mut schedule = Schedule::default();
        schedule.push(20, 1, 0, Tick::Timeout);
        schedule.push(10, 2, 0, Tick::Released);
        schedule.push(10, 3, 0, Tick::PowerOn);
        assert_eq!(schedule.next_at_us(), Some(10));
        assert_eq!(schedule.pop_due(9), None);
        let keys: Vec<u32> =
            std::iter::from_fn(|| schedule.pop_due(20)).map(|due| due.key).collect();
        assert_eq!(keys, [2, 3, 1]);
        assert_eq!(schedule.next_at_us(), None);
    }
}
