//! What all activities of a machine share: beginning, power, script sets, failing.

use crate::events::Level;
use crate::faults::Fault;
use crate::model::{ActivityTimes, Power, ScriptSet, ScriptState, SetKind};
use crate::notice::{HostRef, Notice};
use crate::region::Region;
use crate::schedule::Tick;
use crate::stats::LogEntry;
use crate::status::Status;

/// Simulated microseconds of a minute.
pub(super) const MINUTE_US: i64 = 60_000_000;

impl Region {
    /// Ends what was under way.
    pub(crate) fn cancel_activity(&mut self, key: u32) {
        self.edit(key, |m| m.work += 1);
    }

    /// Host, deployment and time, as notices name them.
    pub(crate) fn host_ref(&self, key: u32) -> Option<HostRef> {
        self.machine(key).map(|m| HostRef {
            system_id: m.system_id.clone(),
            hostname: m.hostname.clone(),
            deployment: m.deployment,
            at_us: self.now,
        })
    }

    /// Adds a notice about the machine.
    pub(crate) fn push_notice(&mut self, key: u32, make: fn(HostRef) -> Notice) {
        if let Some(host) = self.host_ref(key) {
            self.notices.push(make(host));
        }
    }

    pub(super) fn set_power(&mut self, key: u32, on: bool) {
        let Some(host) = self.machine(key).map(|m| m.host) else {
            return;
        };
        self.hosts[host].on = on;
        self.edit(key, |m| m.power = if on { Power::On } else { Power::Off });
    }

    /// The power goes away; what ran on a deployed disk stops.
    pub(crate) fn power_off_now(&mut self, key: u32) {
        let Some(m) = self.machine(key) else { return };
        let (was_on, deployment) = (self.hosts[m.host].on, m.deployment);
        self.set_power(key, false);
        if was_on && deployment > 0 {
            self.push_notice(key, Notice::PoweredOff);
        }
    }

    /// A host with a system on its disk is switched on.
    pub(crate) fn power_on_now(&mut self, key: u32) {
        self.set_power(key, true);
        if self.status(key) == Status::Deployed
            && self.machine(key).is_some_and(|m| m.deployment > 0)
        {
            self.push_notice(key, Notice::PoweredOn);
        }
    }

    pub(super) fn begin_activity(
        &mut self,
        key: u32,
        activity: &'static str,
        times: ActivityTimes,
    ) {
        let ideal_us =
            times.bmc + times.post + times.ephemeral + times.work + times.reboot + times.first_boot;
        self.edit(key, |m| m.activity_times = times);
        self.append_log(key, LogEntry::Drawn { at_us: self.now, activity, ideal_us });
    }

    /// Adds a pending script set; returns its id.
    pub(crate) fn new_set(&mut self, key: u32, kind: SetKind, scripts: Vec<String>) -> i64 {
        let id = self.next_id("scriptset");
        let first_result = self.next_id("scriptresult");
        for _ in 1..scripts.len() {
            self.next_id("scriptresult");
        }
        let set = ScriptSet {
            id,
            kind,
            state: ScriptState::Pending,
            first_result,
            scripts,
            failed: Vec::new(),
            created_us: self.now,
            started_us: None,
            ended_us: None,
        };
        self.edit(key, |m| {
            m.sets.push(set);
            // MAAS keeps ten of each kind.
            let same: Vec<i64> = m.sets.iter().filter(|s| s.kind == kind).map(|s| s.id).collect();
            if same.len() > 10 {
                m.sets.retain(|s| s.id != same[0]);
            }
        });
        id
    }

    /// Ends a script set in a state, at the present time.
    pub(crate) fn end_set(&mut self, key: u32, id: Option<i64>, state: ScriptState) {
        let now = self.now;
        self.edit(key, |m| {
            if let Some(set) = m.sets.iter_mut().find(|s| Some(s.id) == id) {
                set.state = state;
                set.started_us = set.started_us.or(Some(now));
                set.ended_us = Some(now);
            }
        });
    }

    pub(super) fn start_set(&mut self, key: u32, id: Option<i64>) {
        let now = self.now;
        self.edit(key, |m| {
            if let Some(set) = m.sets.iter_mut().find(|s| Some(s.id) == id) {
                set.state = ScriptState::Running;
                set.started_us = Some(now);
            }
        });
    }

    pub(super) fn node_timeout(&self) -> i64 {
        self.settings.int("node_timeout").unwrap_or(30) * MINUTE_US
    }

    /// Schedules the region's timeout of the activity. Where hardware takes less than real time, a fault's
    /// wait is shortened alike, unless the fault names its length.
    pub(super) fn schedule_timeout(&mut self, key: u32, whole: i64, fault: &Fault) {
        let us = fault
            .seconds
            .map_or((whole as f64 * self.cfg.scale.min(1.0)) as i64, |s| (s * 1e6) as i64);
        self.schedule_tick(key, us, Tick::Timeout);
    }

    pub(super) fn mark_failed(&mut self, key: u32, status: Status, text: &str) {
        self.set_status(key, status);
        self.edit(key, |m| {
            text.clone_into(&mut m.error_description);
            m.status_action = Some("mark_failed");
        });
        self.record_event(key, Level::Error, "Marking node failed", text);
    }
}
