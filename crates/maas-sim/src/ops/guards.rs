//! What most handlers ask first: who may change a machine, and whether its power can be.

use super::call::Call;
use crate::faults::FaultKind;
use crate::model::Machine;
use crate::region::Region;
use crate::wire::SimResponse;

/// Text of the driver where the power state cannot be read.
pub(super) const QUERY_FAILED: &str = "Power state could not be queried: IPMI password invalid";
/// Text of the driver where a machine does not switch off.
pub(super) const OFF_FAILED: &str = "Failed to power off. Connection timed out";

impl Region {
    /// The machine, if the caller may change it: an administrator, or its owner.
    pub(super) fn find_editable(&self, call: &Call<'_>) -> Result<u32, SimResponse> {
        let key = self.find_machine(call.part(0))?;
        self.check_permitted(key, call)?;
        Ok(key)
    }

    pub(super) fn check_permitted(&self, key: u32, call: &Call<'_>) -> Result<(), SimResponse> {
        let m = self.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
        if m.locked || !(call.admin || m.owner.as_deref() == Some(call.user.as_str())) {
            return Err(SimResponse::forbidden());
        }
        Ok(())
    }

    /// The machine, for administrators; locked or not.
    pub(super) fn find_as_admin(&self, call: &Call<'_>) -> Result<u32, SimResponse> {
        let key = self.find_machine(call.part(0))?;
        if call.admin { Ok(key) } else { Err(SimResponse::forbidden()) }
    }

    /// The answer to a power action that fails after the change was committed; `None` when it
    /// works. `default` is the driver's text.
    pub(super) fn power_failure(&mut self, key: u32, default: &str) -> Option<SimResponse> {
        if !self.machine(key).is_some_and(Machine::has_bmc) {
            return None;
        }
        if self.trigger_fault(key, &[FaultKind::NoRack]).is_some() {
            let text = format!(
                "Unable to connect to any rack controller {}; no connections available.",
                crate::network::RACK
            );
            return Some(SimResponse::text(503, text).header("Retry-After", "10"));
        }
        let fault = self.trigger_fault(key, &[FaultKind::BmcError])?;
        Some(SimResponse::text(500, fault.message.unwrap_or_else(|| default.to_owned())))
    }
}
