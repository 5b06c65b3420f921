//! What most handlers ask first: who may change a machine, and whether its power can be.

use super::call::Call;
use crate::faults::FaultKind;
use crate::model::Machine;
use crate::region::Region;
use crate::wire::{HTML, SimResponse};

/// Text of the driver where the power state cannot be read.
pub(super) const QUERY_FAILED: &str = "Power state could not be queried: IPMI password invalid";
/// Text of the driver where a machine does not switch off.
pub(super) const OFF_FAILED: &str = "Failed to power off. Connection timed out";

/// The page of a database conflict that retrying never cures (docs/maas.md#duplicate-bmc).
fn conflict_page() -> SimResponse {
    const PAGE: &str = "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Transitional//EN\" \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">\n<html xmlns=\"http://www.w3.org/1999/xhtml\" xml:lang=\"en\" lang=\"en\">\n  <head>\n    <title>Error: Conflict Error</title>\n  </head>\n  <body>\n    <h2 class=\"p-heading--four\">\n      Conflict error. Try your request again, as it will most likely succeed.\n    </h2>\n  </body>\n</html>\n";
    SimResponse::new(409, HTML, PAGE).header("Retry-After", "5")
}

impl Region {
    /// A row that another has already, which MAAS takes for a conflict of transactions: it tries
    /// again for half a minute before it says so.
    pub(super) fn conflict_page(&self) -> SimResponse {
        conflict_page().delayed((26e6 * self.cfg.scale.min(1.0)) as i64)
    }

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
