//! Whether a machine in MAAS is the one that a request names.
//!
//! A request names its machine by several identifiers, and each of them can be wrong: a typing
//! error, a list of last year, a machine that somebody renamed. What is done to the machine cannot
//! be taken back, so one identifier that fits does not outweigh another that does not: every
//! identifier that is given has to be the machine's. What MAAS does not know of a machine, such as
//! the serial number before the first commissioning, contradicts nothing; it is compared again
//! before each change.

use crate::placeholder::is_placeholder_text;
use std::fmt;
use std::net::IpAddr;

use gpuaas_types::Timestamp;
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::spec::TakeOver;

use crate::record::ReportKind;
use crate::run_state::{MachineFacts, MachineOrigin, PowerFacts};
use crate::snapshot::Snapshot;

/// What a request says of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestedMachine<'a> {
    /// Short hostname.
    pub hostname: &'a str,
    /// Whether the machine is claimed, so that MAAS may have it under any name.
    pub claimed: bool,
    /// MAAS' identifier.
    pub system_id: Option<&'a str>,
    /// Lower-case MAC addresses, all of which have to be the machine's.
    pub mac_addresses: &'a [String],
    /// Address of the BMC.
    pub bmc_address: Option<&'a str>,
    /// Power driver that goes with that address.
    pub power_type: &'a str,
    /// Serial number of the chassis.
    pub serial: Option<&'a str>,
    /// Resource pool whose machines are the site's; none: every machine of the region.
    pub pool: Option<&'a str>,
}

impl<'a> RequestedMachine<'a> {
    /// What the run of `s` says of its machine.
    #[must_use]
    pub fn of_run(s: &Snapshot<'a>) -> Self {
        let hardware = &s.node.hardware;
        let named = s.reports.iter().rev().find_map(|report| match &report.kind {
            ReportKind::MachineNamed { system_id, serial } => {
                Some((system_id.as_deref(), serial.as_deref()))
            }
            _ => None,
        });
        let (system_id, serial) = named.unwrap_or_default();
        Self {
            hostname: &s.node.hostname,
            claimed: s.run.state.origin == Some(MachineOrigin::Claimed),
            system_id,
            mac_addresses: &hardware.mac_addresses,
            bmc_address: hardware.bmc_address.as_deref(),
            power_type: &hardware.power_type,
            serial,
            pool: s.site.pool.as_deref(),
        }
    }
}

impl RequestedMachine<'_> {
    /// Whether it names the hardware, and not only the host.
    #[must_use]
    pub const fn names_hardware(&self) -> bool {
        self.system_id.is_some() || self.bmc_address.is_some() || !self.mac_addresses.is_empty()
    }
}

/// What a machine may be named by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identifier {
    /// MAAS' identifier.
    SystemId,
    /// Short hostname.
    Hostname,
    /// MAC address of an interface.
    MacAddress,
    /// Address of the BMC.
    BmcAddress,
    /// Serial number of the chassis.
    Serial,
    /// Resource pool, which the site names.
    Pool,
}

impl Identifier {
    /// Its name in a sentence.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SystemId => "system id",
            Self::Hostname => "hostname",
            Self::MacAddress => "MAC address",
            Self::BmcAddress => "BMC address",
            Self::Serial => "serial number",
            Self::Pool => "the site's pool",
        }
    }
}

/// An identifier of the request that is not the machine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// Which one.
    pub identifier: Identifier,
    /// What the request says.
    pub given: String,
    /// What MAAS says.
    pub found: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identifier, given, found } = self;
        write!(f, "the request gives {} {given}, but MAAS has {found}", identifier.name())
    }
}

/// Every identifier of `request` that is not the machine's.
#[must_use]
pub fn contradictions(
    request: &RequestedMachine<'_>,
    system_id: &str,
    facts: &MachineFacts,
) -> Vec<Contradiction> {
    let mut all = Vec::new();
    let mut note = |identifier, given: &str, found: &str| {
        let (given, found) = (given.to_owned(), found.to_owned());
        all.push(Contradiction { identifier, given, found });
    };
    if let Some(given) = request.system_id
        && given != system_id
    {
        note(Identifier::SystemId, given, system_id);
    }
    if !request.claimed && !request.hostname.eq_ignore_ascii_case(&facts.hostname) {
        note(Identifier::Hostname, request.hostname, &facts.hostname);
    }
    for given in request.mac_addresses {
        if !facts.mac_addresses.iter().any(|found| found.eq_ignore_ascii_case(given)) {
            let found = match facts.mac_addresses.as_slice() {
                [] => "no interface".to_owned(),
                some => some.join(", "),
            };
            note(Identifier::MacAddress, given, &found);
        }
    }
    let found = facts.power.as_ref().and_then(|power| power.bmc_address.as_deref());
    if let (Some(given), Some(found)) = (request.bmc_address, found)
        && bmc_host(given) != bmc_host(found)
    {
        note(Identifier::BmcAddress, given, found);
    }
    if let Some(given) = request.serial
        && !is_placeholder_text(&facts.serial)
        && !given.trim().eq_ignore_ascii_case(facts.serial.trim())
    {
        note(Identifier::Serial, given, &facts.serial);
    }
    if let (Some(given), Some(found)) = (request.pool, facts.pool.as_deref())
        && given != found
    {
        note(Identifier::Pool, given, found);
    }
    all
}

/// What is open where the request names a BMC and MAAS drives the machine without one: adopted so,
/// it would wait for a person to switch it on. None: nothing is open, or the power was not read.
#[must_use]
pub fn power_question(request: &RequestedMachine<'_>, facts: &MachineFacts) -> Option<String> {
    let (given, power) = (request.bmc_address?, facts.power.as_ref()?);
    let PowerFacts { power_type, bmc_address: None } = power else { return None };
    if power_type == request.power_type {
        return None;
    }
    let driver = match power_type.as_str() {
        "" => "no power type".to_owned(),
        other => format!("power type {other}"),
    };
    Some(format!(
        "the request gives BMC address {given} with power type {}, but MAAS has {driver} and no \
         BMC address",
        request.power_type
    ))
}

/// Whose a machine is that is not free to be taken; none: it is free, or `user`'s and not deployed.
///
/// `deployed_by_run`: the run that asks deployed it itself.
#[must_use]
pub fn use_of_machine(facts: &MachineFacts, user: &str, deployed_by_run: bool) -> Option<String> {
    let label = status::label(facts.status);
    match &facts.owner {
        Some(owner) if owner != user => Some(format!("{label}, owned by MAAS user {owner}")),
        owner if facts.status == status::DEPLOYED && !deployed_by_run => {
            let owner = owner.as_deref().unwrap_or("nobody");
            Some(format!("{label}, owned by {owner}, and this run did not deploy it"))
        }
        _ => None,
    }
}

/// The operator's word that lets the run of `s` have the machine, as it is owned now.
#[must_use]
pub fn approved_take_over<'a>(
    s: &Snapshot<'a>,
    system_id: &str,
    owner: Option<&str>,
) -> Option<&'a TakeOver> {
    s.reports.iter().rev().find_map(|report| match &report.kind {
        ReportKind::TakeOverApproved(word)
            if word.system_id == system_id && word.owner.as_deref() == owner =>
        {
            Some(word)
        }
        _ => None,
    })
}

/// Whether an operator's word of `since` or later lets the run of `s` have the machine, as it is
/// owned now.
#[must_use]
pub fn take_over_approved_since(
    s: &Snapshot<'_>,
    since: Timestamp,
    system_id: &str,
    owner: Option<&str>,
) -> bool {
    s.reports.iter().filter(|report| report.at >= since).any(|report| {
        matches!(&report.kind, ReportKind::TakeOverApproved(word)
            if word.system_id == system_id && word.owner.as_deref() == owner)
    })
}

/// The host of a BMC address, so that two forms of one address compare: drivers such as `redfish`
/// keep a URL where `ipmi` keeps an address.
#[must_use]
pub fn bmc_host(address: &str) -> String {
    let text = address.trim();
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if let Ok(address) = rest.parse::<IpAddr>() {
        return address.to_canonical().to_string();
    }
    let host = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _)) => inside,
        None => rest.split_once(':').map_or(rest, |(host, _)| host),
    };
    host.parse::<IpAddr>().map_or_else(
        |_| host.trim_end_matches('.').to_ascii_lowercase(),
        |address| address.to_canonical().to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> MachineFacts {
        MachineFacts {
            hostname: "j22u11".to_owned(),
            status: status::READY,
            owner: None,
            mac_addresses: vec!["3c:ec:ef:00:00:01".to_owned(), "3c:ec:ef:00:00:02".to_owned()],
            serial: "ABC123".to_owned(),
            pool: Some("north".to_owned()),
            power: Some(PowerFacts {
                power_type: "ipmi".to_owned(),
                bmc_address: Some("10.0.0.7".to_owned()),
            }),
        }
    }

    const NAMED: RequestedMachine<'_> = RequestedMachine {
        hostname: "j22u11",
        claimed: false,
        system_id: None,
        mac_addresses: &[],
        bmc_address: None,
        power_type: "ipmi",
        serial: None,
        pool: None,
    };

    fn found(request: &RequestedMachine<'_>, facts: &MachineFacts) -> Vec<Identifier> {
        contradictions(request, "abc123", facts).into_iter().map(|one| one.identifier).collect()
    }

    /// Each identifier alone: one that is the machine's, in any form, and one that is not.
    #[test]
    fn one_identifier_that_is_another_machines_excludes_it() {
        let macs = |macs: &[&str]| macs.iter().map(|mac| (*mac).to_owned()).collect::<Vec<_>>();
        let good = macs(&["3c:ec:ef:00:00:02", "3C:EC:EF:00:00:01"]);
        let half = macs(&["3c:ec:ef:00:00:02", "3c:ec:ef:00:00:09"]);
        for (request, excluded) in [
            (NAMED, None),
            (RequestedMachine { hostname: "J22U11", ..NAMED }, None),
            (RequestedMachine { hostname: "j22u1", ..NAMED }, Some(Identifier::Hostname)),
            (RequestedMachine { hostname: "j22u1", claimed: true, ..NAMED }, None),
            (RequestedMachine { pool: Some("north"), ..NAMED }, None),
            (RequestedMachine { pool: Some("south"), ..NAMED }, Some(Identifier::Pool)),
            (RequestedMachine { system_id: Some("abc123"), ..NAMED }, None),
            (RequestedMachine { system_id: Some("abc124"), ..NAMED }, Some(Identifier::SystemId)),
            (RequestedMachine { mac_addresses: &good, ..NAMED }, None),
            (RequestedMachine { mac_addresses: &half, ..NAMED }, Some(Identifier::MacAddress)),
            (RequestedMachine { bmc_address: Some("10.0.0.7"), ..NAMED }, None),
            (RequestedMachine { bmc_address: Some("https://10.0.0.7:443/redfish"), ..NAMED }, None),
            (
                RequestedMachine { bmc_address: Some("10.0.0.8"), ..NAMED },
                Some(Identifier::BmcAddress),
            ),
            (RequestedMachine { serial: Some(" abc123 "), ..NAMED }, None),
            (RequestedMachine { serial: Some("ABC124"), ..NAMED }, Some(Identifier::Serial)),
        ] {
            let expected: Vec<Identifier> = excluded.into_iter().collect();
            assert_eq!(found(&request, &facts()), expected, "{request:?}");
        }
    }

    #[test]
    fn what_maas_does_not_know_contradicts_nothing() {
        let request =
            RequestedMachine { serial: Some("ABC124"), bmc_address: Some("10.0.0.8"), ..NAMED };
        let unknown = MachineFacts { serial: String::new(), power: None, ..facts() };
        assert_eq!(found(&request, &unknown), []);
    }

    #[test]
    fn forms_of_one_address_are_one_host() {
        for form in [
            "192.0.2.7",
            " 192.0.2.7 ",
            "https://192.0.2.7/",
            "https://192.0.2.7:8443/redfish/v1",
            "http://root@192.0.2.7",
            "192.0.2.7:623",
            "::ffff:192.0.2.7",
        ] {
            assert_eq!(bmc_host(form), "192.0.2.7", "{form}");
        }
        for form in ["2001:DB8::7", "[2001:db8:0::7]:443", "https://[2001:db8::7]/"] {
            assert_eq!(bmc_host(form), "2001:db8::7", "{form}");
        }
        assert_eq!(bmc_host("BMC-7.Example."), "bmc-7.example");
        assert_ne!(bmc_host("192.0.2.70"), "192.0.2.7");
    }

    #[test]
    fn a_bmc_that_maas_does_not_have_is_a_question() {
        let request = RequestedMachine { bmc_address: Some("10.0.0.7"), ..NAMED };
        let driven_by = |power_type: &str| {
            let power_type = power_type.to_owned();
            MachineFacts { power: Some(PowerFacts { power_type, bmc_address: None }), ..facts() }
        };
        for open in ["manual", "", "webhook"] {
            let text = power_question(&request, &driven_by(open)).unwrap();
            assert!(text.contains("10.0.0.7") && text.contains(open), "{text}");
        }
        assert_eq!(power_question(&request, &driven_by("ipmi")), None);
        assert_eq!(power_question(&request, &facts()), None);
        assert_eq!(power_question(&NAMED, &driven_by("manual")), None);
    }

    #[test]
    fn a_machine_is_free_where_nobody_else_has_it_and_nothing_runs_on_it() {
        let of = |number, owner: Option<&str>| MachineFacts {
            status: number,
            owner: owner.map(str::to_owned),
            ..facts()
        };
        let in_use = |facts: &MachineFacts| use_of_machine(facts, "gpuaas", false).is_some();
        assert!(!in_use(&of(status::READY, None)));
        assert!(!in_use(&of(status::FAILED_DEPLOYMENT, Some("gpuaas"))));
        assert!(in_use(&of(status::READY, Some("bob"))));
        assert!(in_use(&of(status::DEPLOYED, Some("gpuaas"))));
        assert!(in_use(&of(status::DEPLOYED, None)));
        assert_eq!(use_of_machine(&of(status::DEPLOYED, Some("gpuaas")), "gpuaas", true), None);
        assert!(use_of_machine(&of(status::DEPLOYED, Some("bob")), "gpuaas", true).is_some());
    }
}
