//! Commissioning and tests.

use crate::events::Level;
use crate::faults::FaultKind;
use crate::model::{ActivityTimes, Power, ScriptState, SetKind};
use crate::region::Region;
use crate::schedule::Tick;
use crate::scripts::COMMISSIONING_SCRIPTS;
use crate::status::Status;

impl Region {
    /// Begins a commissioning in the name of a user, who owns the machine until it is Ready.
    pub(crate) fn start_commissioning(&mut self, key: u32, user: &str) {
        self.cancel_activity(key);
        self.record_user_event(key, user, "User starting node commissioning", None);
        let options = self.machine(key).map(|m| m.options.clone()).unwrap_or_default();
        self.clear_configuration(key, !options.skip_networking, !options.skip_storage);
        let builtin = COMMISSIONING_SCRIPTS.iter().map(|s| (*s).to_owned());
        let scripts = builtin.chain(options.scripts.iter().cloned()).collect();
        let set = self.new_set(key, SetKind::Commissioning, scripts);
        let tests = (!options.tests.is_empty())
            .then(|| self.new_set(key, SetKind::Testing, options.tests.clone()));
        self.edit(key, |m| {
            m.previous = m.status;
            m.owner = Some(user.to_owned());
            m.status_action = Some("");
            m.only_tests = false;
            m.commissioning_state = ScriptState::Pending;
            m.current_commissioning = Some(set);
            m.testing_state =
                if tests.is_some() { ScriptState::Pending } else { ScriptState::Unknown };
            m.storage_test_state = m.testing_state;
            m.current_testing = tests.or(m.current_testing);
            if m.power == Power::Unknown && m.has_bmc() {
                m.power = Power::Off;
            }
        });
        self.record_event(key, Level::Info, "Commissioning", "");
        self.set_status(key, Status::Commissioning);
        let work = self.draw_duration(key, |c| c.times.scripts)
            + if tests.is_some() { self.draw_duration(key, |c| c.times.tests) } else { 0 };
        let times = ActivityTimes {
            bmc: self.draw_duration(key, |c| c.times.bmc),
            post: self.draw_duration(key, |c| c.times.post),
            ephemeral: self.draw_duration(key, |c| c.times.ephemeral),
            work,
            ..ActivityTimes::default()
        };
        self.begin_activity(key, "commission", times);
        self.schedule_tick(key, times.bmc, Tick::PowerOn);
    }

    /// The hook that runs when a power action of a fresh activity fails.
    pub(crate) fn revert_commissioning(&mut self, key: u32, user: &str) {
        self.cancel_activity(key);
        let back = self.machine(key).map_or(Status::New, |m| m.previous);
        let text = format!(
            "({user}) - Aborting COMMISSIONING and reverting to {}. Unable to power control the node. Please check power credentials.",
            back.filter_name().to_uppercase()
        );
        self.record_event(key, Level::Warning, "Failed to query node's BMC", text);
        let set = self.machine(key).and_then(|m| m.current_commissioning);
        self.end_set(key, set, ScriptState::Aborted);
        self.edit(key, |m| m.commissioning_state = ScriptState::Unknown);
        self.set_status(key, back);
    }

    pub(super) fn script_events(&mut self, key: u32, scripts: &[String], failed: &[String]) {
        for name in scripts {
            let end = if failed.contains(name) { "Failed" } else { "Passed" };
            for (a, b) in [("Pending", "Running"), ("Running", end)] {
                let text = format!("{name} changed status from '{a}' to '{b}'");
                self.record_event(key, Level::Debug, "Script result", text);
            }
        }
    }

    /// Which of the scripts fail: the last one where the whole fails, or the one that a fault
    /// names.
    fn failed_scripts(&mut self, key: u32, scripts: &[String], whole: FaultKind) -> Vec<String> {
        if self.trigger_fault(key, &[whole]).is_some() {
            return scripts.last().cloned().into_iter().collect();
        }
        let fault = self.trigger_script_fault(key, scripts);
        fault.and_then(|fault| fault.script_to_fail(scripts).cloned()).into_iter().collect()
    }

    fn fail_set(&mut self, key: u32, set: Option<i64>, scripts: &[String], failed: Vec<String>) {
        self.script_events(key, scripts, &failed);
        self.end_set(key, set, ScriptState::Failed);
        self.edit(key, |m| {
            if let Some(set) = m.sets.iter_mut().find(|s| Some(s.id) == set) {
                set.failed = failed;
            }
        });
    }

    pub(super) fn scripts_done(&mut self, key: u32) {
        let set = self.machine(key).and_then(|m| m.current_commissioning);
        let scripts = self
            .machine(key)
            .and_then(|m| m.set(set))
            .map(|s| s.scripts.clone())
            .unwrap_or_default();
        let failed = self.failed_scripts(key, &scripts, FaultKind::CommissioningFailed);
        if !failed.is_empty() {
            self.fail_set(key, set, &scripts, failed);
            self.edit(key, |m| m.commissioning_state = ScriptState::Failed);
            self.cancel_activity(key);
            self.set_status(key, Status::FailedCommissioning);
            self.record_event(key, Level::Info, "Failed commissioning", "");
            return;
        }
        self.script_events(key, &scripts, &[]);
        let text = "'cloudinit' running modules for final";
        self.record_event(key, Level::Debug, "Node commissioning", text);
        self.end_set(key, set, ScriptState::Passed);
        self.edit(key, |m| m.commissioning_state = ScriptState::Passed);
        self.discover_hardware(key);
        let tests = self
            .machine(key)
            .map(|m| (m.options.tests.len(), m.activity_times.work))
            .filter(|(n, _)| *n > 0);
        match tests {
            Some((_, work)) => {
                self.record_event(key, Level::Info, "Testing", "");
                self.set_status(key, Status::Testing);
                self.running_tests(key);
                self.edit(key, |m| m.testing_state = ScriptState::Running);
                self.schedule_tick(key, work - work * 5 / 8, Tick::TestsDone);
            }
            None => self.become_ready(key),
        }
    }

    pub(super) fn become_ready(&mut self, key: u32) {
        self.cancel_activity(key);
        self.edit(key, |m| m.owner = None);
        self.record_event(key, Level::Info, "Ready", "");
        self.set_status(key, Status::Ready);
        if self.trigger_fault(key, &[FaultKind::FlappingPower]).is_some() {
            self.schedule_tick(key, 0, Tick::Flap(6));
        } else {
            let off = self.draw_duration(key, |c| c.times.bmc);
            self.schedule_tick(key, off, Tick::PowerOffIdle);
        }
    }

    pub(super) fn flap_power(&mut self, key: u32, left: u8) {
        if left == 0 {
            return self.power_off_now(key);
        }
        let power = [Power::On, Power::Error, Power::Off][usize::from(left) % 3];
        self.edit(key, |m| m.power = power);
        self.schedule_tick(key, 10_000_000, Tick::Flap(left - 1));
    }

    pub(super) fn tests_done(&mut self, key: u32) {
        let Some(m) = self.machine(key) else { return };
        let (scripts, set, back) =
            (m.options.tests.clone(), m.current_testing, m.status_after_tests());
        let failed = self.failed_scripts(key, &scripts, FaultKind::TestingFailed);
        if !failed.is_empty() {
            self.fail_set(key, set, &scripts, failed);
            self.edit(key, |m| {
                (m.testing_state, m.storage_test_state) = (ScriptState::Failed, ScriptState::Failed)
            });
            self.cancel_activity(key);
            self.set_status(key, Status::FailedTesting);
            self.record_event(key, Level::Info, "Failed testing", "");
            return;
        }
        self.script_events(key, &scripts, &[]);
        self.end_set(key, set, ScriptState::Passed);
        self.edit(key, |m| {
            (m.testing_state, m.storage_test_state) = (ScriptState::Passed, ScriptState::Passed)
        });
        if back == Status::Ready {
            self.become_ready(key);
        } else {
            self.cancel_activity(key);
            self.set_status(key, back);
        }
    }

    /// The events of tests that begin: one of storage runs on each disk by itself.
    pub(super) fn running_tests(&mut self, key: u32) {
        const STORAGE: i64 = 3;
        let Some(m) = self.machine(key) else { return };
        let disks: Vec<String> =
            m.disks.iter().filter(|d| d.logical.is_none()).map(|d| d.name.clone()).collect();
        for name in m.options.tests.clone() {
            let of_disks = self.scripts.named(&name).is_some_and(|s| s.hardware == STORAGE);
            if !of_disks || disks.is_empty() {
                self.record_event(key, Level::Info, "Running test", name);
                continue;
            }
            for disk in &disks {
                self.record_event(key, Level::Info, "Running test", format!("{name} on {disk}"));
            }
        }
    }

    /// Begins tests of their own, apart from a commissioning.
    pub(crate) fn start_testing(&mut self, key: u32, user: &str, tests: Vec<String>) {
        self.cancel_activity(key);
        self.record_user_event(key, user, "User starting node testing", None);
        let set = self.new_set(key, SetKind::Testing, tests.clone());
        self.edit(key, |m| {
            m.previous = m.status;
            m.only_tests = true;
            m.options.tests = tests;
            m.current_testing = Some(set);
            m.testing_state = ScriptState::Pending;
            m.storage_test_state = ScriptState::Pending;
            m.status_action = Some("");
            if m.owner.is_none() {
                m.owner = Some(user.to_owned());
            }
        });
        self.record_event(key, Level::Info, "Testing", "");
        self.set_status(key, Status::Testing);
        let times = ActivityTimes {
            bmc: self.draw_duration(key, |c| c.times.bmc),
            post: self.draw_duration(key, |c| c.times.post),
            ephemeral: self.draw_duration(key, |c| c.times.ephemeral),
            work: self.draw_duration(key, |c| c.times.tests),
            ..ActivityTimes::default()
        };
        self.begin_activity(key, "test", times);
        self.schedule_tick(key, times.bmc, Tick::PowerOn);
    }
}
