//! What happens at each tick, and the parts of an activity that all of them go through.

use crate::events::Level;
use crate::faults::FaultKind;
use crate::model::ScriptState;
use crate::region::Region;
use crate::schedule::Tick;
use crate::status::Status;

impl Region {
    /// Does what is due for a machine.
    pub(crate) fn run_tick(&mut self, key: u32, tick: Tick) {
        match tick {
            Tick::PowerOn => self.power_came_on(key),
            Tick::NetworkBoot => self.network_boot(key),
            Tick::EphemeralUp => self.ephemeral_up(key),
            Tick::ScriptsDone => self.scripts_done(key),
            Tick::TestsDone => self.tests_done(key),
            Tick::PowerOffIdle => self.power_off_now(key),
            Tick::ImageDone => self.image_done(key),
            Tick::NoDatasource => self.no_datasource(key),
            Tick::UserData => self.user_data_fetched(key),
            Tick::Released => self.finish_release(key),
            Tick::EraseDone => self.erase_done(key),
            Tick::RescueLeft => self.rescue_left(key),
            Tick::Timeout => self.time_out(key),
            Tick::HwSync => self.hw_sync(key),
            Tick::Vanish => self.remove_machine(key),
            Tick::Flap(left) => self.flap_power(key, left),
        }
    }

    fn power_came_on(&mut self, key: u32) {
        if self.status(key) == Status::Deploying
            && let Some(fault) = self.trigger_fault(key, &[FaultKind::BmcError])
        {
            let text = fault
                .message
                .unwrap_or_else(|| "Failed to power on. Connection timed out".to_owned());
            return self.fail_deployment(key, &text);
        }
        self.set_power(key, true);
        let post = self.machine(key).map_or(0, |m| m.activity_times.post);
        self.schedule_tick(key, post, Tick::NetworkBoot);
    }

    fn network_boot(&mut self, key: u32) {
        if self.status(key) == Status::DiskErasing
            && self.trigger_fault(key, &[FaultKind::StuckErasing]).is_some()
        {
            // The region sets no timeout on erasing (docs/maas.md#status-timeouts).
            return;
        }
        let stuck = match self.status(key) {
            Status::Commissioning => self.trigger_fault(key, &[FaultKind::StuckCommissioning]),
            Status::Deploying => self.trigger_fault(key, &[FaultKind::StuckDeploying]),
            _ => None,
        };
        if let Some(fault) = stuck {
            // The machine is silent until the region's timeout. Hardware that takes no time does
            // not shorten it: otherwise no observer could see the machine stuck.
            let us = fault.seconds.map_or(self.node_timeout(), |s| (s * 1e6) as i64);
            return self.schedule_tick(key, us, Tick::Timeout);
        }
        self.record_event(key, Level::Info, "Performing PXE boot", "");
        self.record_event(key, Level::Info, "Loading ephemeral", "");
        let ephemeral = self.machine(key).map_or(0, |m| m.activity_times.ephemeral);
        self.schedule_tick(key, ephemeral, Tick::EphemeralUp);
    }

    fn ephemeral_up(&mut self, key: u32) {
        let Some(m) = self.machine(key) else { return };
        let (work, set) = (m.activity_times.work, m.current_commissioning);
        match m.status {
            Status::Commissioning => {
                self.record_event(key, Level::Info, "Gathering information", "");
                self.start_set(key, set);
                self.edit(key, |m| m.commissioning_state = ScriptState::Running);
                let tests = self.machine(key).is_some_and(|m| !m.options.tests.is_empty());
                let scripts = if tests { work * 5 / 8 } else { work };
                self.schedule_tick(key, scripts, Tick::ScriptsDone);
            }
            Status::Testing => {
                self.running_tests(key);
                self.edit(key, |m| m.testing_state = ScriptState::Running);
                self.schedule_tick(key, work, Tick::TestsDone);
            }
            Status::Deploying => {
                self.record_event(key, Level::Info, "Configuring storage", "");
                self.record_event(key, Level::Info, "Installing OS", "");
                let text = "'curtin' curtin command install";
                self.record_event(key, Level::Debug, "Node installation", text);
                let set = self.machine(key).and_then(|m| m.current_installation);
                self.start_set(key, set);
                self.schedule_tick(key, work, Tick::ImageDone);
            }
            Status::DiskErasing => self.schedule_tick(key, work, Tick::EraseDone),
            Status::EnteringRescueMode => self.rescue_entered(key),
            _ => {}
        }
    }

    fn time_out(&mut self, key: u32) {
        let minutes = self.settings.int("node_timeout").unwrap_or(30);
        let (next, label, minutes) = match self.status(key) {
            Status::Commissioning => (Status::FailedCommissioning, "Commissioning", minutes),
            Status::Deploying => (Status::FailedDeployment, "Deploying", minutes),
            Status::Releasing => (Status::FailedReleasing, "Releasing", 5),
            _ => return,
        };
        let text = format!("Node operation '{label}' timed out after {minutes} minutes.");
        if next == Status::FailedDeployment {
            return self.fail_deployment(key, &text);
        }
        self.cancel_activity(key);
        let set = self.machine(key).and_then(|m| m.current_commissioning);
        if next == Status::FailedCommissioning {
            self.end_set(key, set, ScriptState::TimedOut);
            self.edit(key, |m| m.commissioning_state = ScriptState::TimedOut);
        }
        self.mark_failed(key, next, &text);
    }
}
