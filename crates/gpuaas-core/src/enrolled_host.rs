//! Whether the host of an agent that enrolls is the machine that its token was made for.
//!
//! A token is text in a file, and files are copied. So MAAS' knowledge of the machine is held
//! against what the agent's host shows: its MAC addresses, its system UUID, and the address that it
//! asks from. An agent behind address translation is known by its MAC addresses, so one of the two
//! is enough.

use std::net::IpAddr;

use gpuaas_types::machine::MachineView;

use crate::placeholder::is_placeholder_uuid;

/// What is known of a host whose agent asks to enroll.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnrollingHost {
    /// MAC addresses of its links, as the agent says.
    pub mac_addresses: Vec<String>,
    /// The system UUID of its SMBIOS, as the agent says.
    pub system_uuid: Option<String>,
    /// The address that it asks from; none: it is not known.
    pub address: Option<IpAddr>,
}

/// Compares the host with the machine. Answers what they have in common.
///
/// # Errors
/// What contradicts, as a sentence.
pub fn check_enrolling_host(host: &EnrollingHost, machine: &MachineView) -> Result<String, String> {
    let uuid = host.system_uuid.as_deref().and_then(uuid_digits);
    let known_uuid = uuid_digits(&machine.hardware_uuid);
    let same_uuid = match (&uuid, &known_uuid) {
        (Some(uuid), Some(known)) => Some(uuid == known || *uuid == mixed_endian(known)),
        _ => None,
    };
    if same_uuid == Some(false) {
        let uuid = host.system_uuid.as_deref().unwrap_or_default();
        return Err(format!(
            "the host's system UUID is {uuid}, but MAAS has {}",
            machine.hardware_uuid
        ));
    }
    let macs: Vec<String> = host.mac_addresses.iter().map(|mac| mac.to_lowercase()).collect();
    let known_mac = |mac: &String| machine.nics.iter().any(|nic| nic.mac_address == *mac);
    if let Some(mac) = macs.iter().find(|mac| known_mac(mac)) {
        return Ok(format!("MAC address {mac}"));
    }
    let links = machine.nics.iter().flat_map(|nic| &nic.links);
    let known: Vec<IpAddr> =
        links.filter_map(|link| link.ip_address.as_ref()?.parse().ok()).collect();
    if let Some(address) = host.address.filter(|address| known.contains(&address.to_canonical())) {
        return Ok(format!("address {address}"));
    }
    if same_uuid == Some(true) {
        return Ok(format!("system UUID {}", machine.hardware_uuid));
    }
    if machine.nics.is_empty() {
        return Ok("nothing: MAAS lists no interfaces for the machine".to_owned());
    }
    let macs = if macs.is_empty() { "none".to_owned() } else { macs.join(", ") };
    let nics: Vec<&str> = machine.nics.iter().map(|nic| nic.mac_address.as_str()).collect();
    Err(format!("the host has MAC addresses {macs}, but MAAS lists {}", nics.join(", ")))
}

/// The 32 hexadecimal digits of a UUID, in lower case; none: it is no UUID, or one of those that
/// vendors leave in.
fn uuid_digits(text: &str) -> Option<String> {
    let digits: String = text.trim().to_lowercase().chars().filter(|c| *c != '-').collect();
    let is_uuid = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    (is_uuid && !is_placeholder_uuid(&digits)).then_some(digits)
}

/// The same UUID with its first three parts in the other order of bytes, as firmware before SMBIOS
/// 2.6 stores them.
fn mixed_endian(digits: &str) -> String {
    let turned = |part: &str| -> String {
        let bytes: Vec<&str> =
            (0..part.len()).step_by(2).filter_map(|at| part.get(at..at + 2)).collect();
        bytes.into_iter().rev().collect()
    };
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [turned(part(0, 8)), turned(part(8, 12)), turned(part(12, 16)), part(16, 32).to_owned()]
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixture::machine;

    const UUID: &str = "4C4C4544-0042-3510-8052-B4C04F4D4D32";

    fn host(macs: &[&str], uuid: Option<&str>, address: Option<&str>) -> EnrollingHost {
        EnrollingHost {
            mac_addresses: macs.iter().map(|mac| (*mac).to_owned()).collect(),
            system_uuid: uuid.map(str::to_owned),
            address: address.map(|address| address.parse().unwrap()),
        }
    }

    #[test]
    fn a_host_is_the_machine_by_its_mac_its_address_or_its_uuid() {
        let mut machine = machine(gpuaas_types::machine::maas_status::DEPLOYED);
        let mac = machine.nics[0].mac_address.clone();
        let link = gpuaas_types::machine::NicLink {
            id: 1,
            mode: "auto".to_owned(),
            subnet_id: None,
            subnet_cidr: None,
            ip_address: Some("10.0.0.7".to_owned()),
        };
        machine.nics[0].links = vec![link];
        let good = |host: &EnrollingHost, machine: &MachineView| {
            check_enrolling_host(host, machine).is_ok()
        };
        assert!(good(&host(&["02:00:00:00:00:99", &mac.to_uppercase()], None, None), &machine));
        assert!(good(&host(&[], None, Some("10.0.0.7")), &machine));
        assert!(good(&host(&[], None, Some("::ffff:10.0.0.7")), &machine));
        assert!(!good(&host(&[], None, Some("10.0.0.8")), &machine));
        assert!(!good(&host(&["02:00:00:00:00:99"], None, None), &machine));
        assert!(!good(&host(&[], Some(UUID), None), &machine), "MAAS knows no UUID");

        machine.hardware_uuid = UUID.to_lowercase();
        assert!(good(&host(&[], Some(UUID), Some("10.0.0.8")), &machine));
        let turned = "44454C4C-4200-1035-8052-B4C04F4D4D32";
        assert!(good(&host(&[], Some(turned), None), &machine));
        let other = UUID.replace("4D32", "4D33");
        let fault = check_enrolling_host(&host(&[&mac], Some(&other), None), &machine).unwrap_err();
        assert!(fault.contains("system UUID"), "{fault}");
        // What vendors leave in says nothing.
        let blank = "ffffffff-ffff-ffff-ffff-ffffffffffff";
        assert!(good(&host(&[&mac], Some(blank), None), &machine));
        // A UUID that many boards share is no evidence for another host with the token.
        for shared in [
            "03000200-0400-0500-0006-000700080009",
            "12345678-1234-5678-90ab-cddeefaabbcc",
            "fefefefe-fefe-fefe-fefe-fefefefefefe",
            "00020003-0004-0005-0006-000700080009",
        ] {
            machine.hardware_uuid = shared.to_owned();
            let other = host(&["02:00:00:00:00:99"], Some(shared), Some("10.0.0.8"));
            assert!(!good(&other, &machine), "{shared}");
            assert!(good(&host(&[&mac], Some(shared), None), &machine), "{shared}");
        }

        machine.nics.clear();
        machine.hardware_uuid.clear();
        assert!(good(&host(&[], None, None), &machine), "there is nothing to compare");
    }
}
