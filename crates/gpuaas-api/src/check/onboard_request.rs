//! What an onboarding says of a machine.

use gpuaas_core::placeholder::is_placeholder_text;
use gpuaas_core::record::{NodeHardware, ReportKind};
use gpuaas_types::spec::{OnboardRequest, TakeOver};
use gpuaas_types::{Problem, SecretText};

use super::address::{bmc_address, mac};
use super::text::{hostname, identifier};
use crate::http::problem::invalid;

/// What an onboarding says of the hardware, in normal form, and its hostname.
pub(crate) fn onboard(request: &OnboardRequest) -> Result<(String, NodeHardware), Problem> {
    let hostname = hostname("hostname", &request.hostname)?;
    let bmc = request.bmc_address.as_deref().map(bmc_address).transpose()?;
    if bmc.is_none() {
        let given = [
            ("bmc_user", request.bmc_user.is_some()),
            ("bmc_password", request.bmc_password.is_some()),
        ];
        if let Some((field, _)) = given.iter().find(|(_, given)| *given) {
            return Err(invalid(field, "requires bmc_address"));
        }
    }
    let password = request.bmc_password.as_ref().map(SecretText::expose);
    let texts = [("bmc_user", request.bmc_user.as_deref()), ("bmc_password", password)];
    for (field, text) in texts {
        if text.is_some_and(|t| t.is_empty() || t.chars().any(char::is_control)) {
            return Err(invalid(field, "must not be empty or contain control characters"));
        }
    }
    let mut mac_addresses = Vec::new();
    for (index, text) in request.mac_addresses.iter().enumerate() {
        let address = mac(&format!("mac_addresses.{index}"), text)?;
        if !mac_addresses.contains(&address) {
            mac_addresses.push(address);
        }
    }
    let default_power = if bmc.is_some() { "ipmi" } else { "manual" };
    let power_type = request.power_type.clone().unwrap_or_else(|| default_power.to_owned());
    identifier("power_type", &power_type, "_-")?;
    if power_type == "manual" && bmc.is_some() {
        return Err(invalid("power_type", "manual does not use a BMC, but bmc_address is set")
            .with_hint(
                "name the BMC's driver, such as ipmi or redfish, or leave bmc_address out",
            ));
    }
    let architecture = request.architecture.clone().unwrap_or_else(|| "amd64/generic".to_owned());
    identifier("architecture", &architecture, "/_-.")?;
    if architecture.split('/').count() != 2 || architecture.split('/').any(str::is_empty) {
        return Err(invalid(
            "architecture",
            "expected ARCHITECTURE/SUBARCHITECTURE, such as amd64/generic",
        ));
    }
    let hardware = NodeHardware {
        bmc_address: bmc,
        bmc_user: request.bmc_user.clone(),
        power_type,
        mac_addresses,
        architecture,
    };
    Ok((hostname, hardware))
}

/// What an onboarding says to its run beside the hardware: further identifiers of the machine, and
/// that a machine in use may be taken.
pub(crate) fn reports(request: &OnboardRequest) -> Result<Vec<ReportKind>, Problem> {
    let trimmed = |text: &Option<String>| text.as_deref().map(|text| text.trim().to_owned());
    let (system_id, serial) = (trimmed(&request.system_id), trimmed(&request.serial));
    if let Some(id) = &system_id {
        identifier("system_id", id, "_-")?;
    }
    let unfit = |text: &String| text.is_empty() || text.chars().count() > 128 || has_control(text);
    if serial.as_ref().is_some_and(unfit) {
        return Err(invalid("serial", "expected 1 to 128 printable characters"));
    }
    if let Some(text) = serial.as_deref().filter(|text| is_placeholder_text(text)) {
        let message =
            format!("invalid serial number {text:?}: many boards report this placeholder");
        return Err(invalid("serial", message).with_hint(
            "leave the serial number out; the machine's MAC or BMC address identifies it",
        ));
    }
    let mut take_over = None;
    if let Some(word) = &request.take_over {
        identifier("take_over.system_id", &word.system_id, "_-")?;
        let reason = super::reason(&word.reason)?;
        take_over = Some(TakeOver { reason, ..word.clone() });
    }
    Ok(ReportKind::of_request(system_id, serial, take_over))
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}
