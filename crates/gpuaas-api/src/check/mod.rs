//! Is what an operator wrote well-formed? Pure functions; each answers the normal form.

mod address;

use std::net::IpAddr;

use gpuaas_core::connectivity::MISSED_HEARTBEATS;
use gpuaas_core::image_approval::ImageApproval;
use gpuaas_core::image_state::uploaded_name;
use gpuaas_core::layout;
use gpuaas_core::placeholder::is_placeholder_text;
use gpuaas_core::record::{NodeHardware, ReportKind};
use gpuaas_types::agent::HEARTBEAT_INTERVAL_SECONDS;
use gpuaas_types::spec::{
    FabricMode, OnboardRequest, ProfileSpec, RoceAssignmentSpec, SiteSpec, TakeOver,
};
use gpuaas_types::{DriftAction, DriftKind, Problem, SecretText};

pub(crate) use self::address::mac;
use self::address::{bmc_address, is_label};
use crate::http::problem::invalid;
use crate::profile::kernel_arguments;

/// Longest pause between two looks at the event feed of a quiet site, in seconds.
const LONGEST_IDLE_POLL_SECONDS: u32 = 3600;
/// Shortest life of an enrollment token, in seconds.
const MIN_TTL_SECONDS: u32 = 60;
/// Longest life of an enrollment token, in seconds.
const MAX_TTL_SECONDS: u32 = 7 * 86_400;
const MAX_OFFLINE_AFTER_SECONDS: u32 = 86_400;
const MAX_DEPLOY_RETRIES: u32 = 20;

/// The name of a site or profile.
pub(crate) fn name(field: &str, text: &str) -> Result<(), Problem> {
    if is_label(text) && !text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(invalid(
        field,
        "expected 1 to 63 characters of a-z, 0-9 and -, with no - at the start or end",
    ))
}

/// A short hostname, lower case.
pub(crate) fn hostname(field: &str, text: &str) -> Result<String, Problem> {
    if is_label(text) {
        return Ok(text.to_ascii_lowercase());
    }
    if text.trim().parse::<IpAddr>().is_ok() {
        let message = format!("invalid hostname {text:?}: this is an IP address");
        return Err(invalid(field, message).with_hint("use the machine's name as MAAS shows it"));
    }
    if text.split('.').count() > 1 && text.split('.').all(is_label) {
        return Err(invalid(field, "expected a short hostname")
            .with_hint("use the short hostname, without the domain"));
    }
    Err(invalid(field, "expected 1 to 63 letters, digits and -, with no - at the start or end"))
}

fn identifier(field: &str, text: &str, extra: &str) -> Result<(), Problem> {
    let fits = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
    if (1..=128).contains(&text.len()) && text.chars().all(fits) {
        return Ok(());
    }
    Err(invalid(field, format!("expected 1 to 128 characters: letters, digits and {extra}")))
}

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
        let reason = self::reason(&word.reason)?;
        take_over = Some(TakeOver { reason, ..word.clone() });
    }
    Ok(ReportKind::of_request(system_id, serial, take_over))
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// A site as written. `prefix`: path of the specification in the request.
pub(crate) fn site(prefix: &str, spec: &SiteSpec) -> Result<(), Problem> {
    let at = |field: &str| format!("{prefix}{field}");
    name(&at("name"), &spec.name)?;
    if !spec.url.starts_with("http://") && !spec.url.starts_with("https://") {
        return Err(invalid(&at("url"), "expected a URL that starts with http:// or https://")
            .with_hint("give the base URL of MAAS, such as http://maas.example:5240/MAAS"));
    }
    for (field, pem) in [("ca_pem", &spec.ca_pem), ("node_ca_pem", &spec.node_ca_pem)] {
        if let Some(pem) = pem {
            gpuaas_artifact::validate_ca_bundle(pem)
                .map_err(|error| invalid(&at(field), error.to_string()))?;
        }
    }
    if let Some(pool) = &spec.pool {
        identifier(&at("pool"), pool, "_- ")?;
    }
    if spec.pxe_vlan.is_some_and(|tag| !(0..=4094).contains(&tag)) {
        return Err(invalid(&at("pxe_vlan"), "expected a VLAN tag from 0 (untagged) to 4094"));
    }
    if spec.idle_poll_seconds > LONGEST_IDLE_POLL_SECONDS {
        let text = format!("expected at most {LONGEST_IDLE_POLL_SECONDS}, or 0 for the default");
        return Err(invalid(&at("idle_poll_seconds"), text));
    }
    for (index, image) in spec.approved_images.iter().enumerate() {
        ImageApproval::parse(image)
            .map_err(|why| invalid(&at(&format!("approved_images.{index}")), why))?;
    }
    if let Some((kind, action)) = spec
        .drift_policy
        .iter()
        .find(|(kind, action)| !gpuaas_core::drift::is_allowed(**kind, **action))
    {
        return Err(invalid(
            &at(&format!("drift_policy.{kind}")),
            format!("{action} is only allowed for {}", adoptable().join(", ")),
        )
        .with_hint("use report or quarantine"));
    }
    Ok(())
}

/// The kinds of drift that can be taken over.
fn adoptable() -> Vec<&'static str> {
    let can = |kind: &&DriftKind| gpuaas_core::drift::is_allowed(**kind, DriftAction::Adopt);
    DriftKind::ALL.iter().filter(can).map(|kind| kind.as_str()).collect()
}

/// A profile as written, but for its bundles.
pub(crate) fn profile(prefix: &str, spec: &ProfileSpec) -> Result<(), Problem> {
    let at = |field: &str| format!("{prefix}{field}");
    if !spec.hardware_sync_interval.is_empty() && !is_interval(&spec.hardware_sync_interval) {
        return Err(invalid(&at("hardware_sync_interval"), "expected an interval such as 15m")
            .with_hint("write hours, minutes and seconds in this order: 15m, 1h30m, 90s"));
    }
    let ttl = spec.enrollment_token_ttl_seconds;
    if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&ttl) {
        let message = format!("expected {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS} seconds");
        return Err(invalid(&at("enrollment_token_ttl_seconds"), message));
    }
    let shortest = MISSED_HEARTBEATS * HEARTBEAT_INTERVAL_SECONDS;
    if !(shortest..=MAX_OFFLINE_AFTER_SECONDS).contains(&spec.offline_after_seconds) {
        let message = format!("expected {shortest} to {MAX_OFFLINE_AFTER_SECONDS} seconds");
        return Err(invalid(&at("offline_after_seconds"), message));
    }
    if spec.max_deploy_retry_attempts > MAX_DEPLOY_RETRIES {
        let message = format!("expected at most {MAX_DEPLOY_RETRIES} deploy retries");
        return Err(invalid(&at("max_deploy_retry_attempts"), message));
    }
    if spec.enable_phase2_roce && spec.fabric_mode == FabricMode::Ib {
        let message = "not available with fabric_mode=ib: MAAS assigns no addresses on InfiniBand";
        return Err(invalid(&at("enable_phase2_roce"), message)
            .with_hint("set fabric_mode=roce, or enable_phase2_roce=false"));
    }
    if layout::find(&spec.storage_layout_profile).is_none() {
        let message = format!("expected one of {}", layout::names().join(", "));
        return Err(invalid(&at("storage_layout_profile"), message));
    }
    if !spec.machine_tag.is_empty() {
        identifier(&at("machine_tag"), &spec.machine_tag, "-_")?;
    }
    kernel_arguments::check(spec, &at)?;
    for (index, site) in spec.sites.iter().enumerate() {
        name(&at(&format!("sites.{index}")), site)?;
    }
    identifier(&at("distro_series"), &spec.distro_series, "/._-:+")?;
    let digest = &spec.image_sha256;
    if !digest.is_empty() {
        let is_digest = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_digest {
            return Err(invalid(&at("image_sha256"), "expected 64 hexadecimal digits"));
        }
        if uploaded_name(&spec.distro_series).is_none() {
            let message = "only an uploaded image (custom/NAME) can have a digest";
            return Err(invalid(&at("image_sha256"), message));
        }
    }
    let user = &spec.deploy_user;
    let is_user = user.len() <= 32
        && user.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && user.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b));
    if !user.is_empty() && !is_user {
        return Err(invalid(&at("deploy_user"), "expected a Linux user name"));
    }
    Ok(())
}

/// Name of an uploaded image in MAAS, without `custom/`.
pub(crate) fn image_name(field: &str, text: &str) -> Result<(), Problem> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-:+".contains(c);
    if (1..=128).contains(&text.len()) && text.chars().all(fits) {
        return Ok(());
    }
    Err(invalid(field, "expected 1 to 128 characters: letters, digits and ._-:+"))
}

/// Hours, minutes and seconds in this order, at least one of them, more than nothing in all.
fn is_interval(text: &str) -> bool {
    let mut rest = text;
    let mut total = 0u64;
    for unit in ['h', 'm', 's'] {
        let Some((number, tail)) = rest.split_once(unit) else {
            continue;
        };
        let digits = (1..=6).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
        if !digits {
            return false;
        }
        total += number.parse::<u64>().unwrap_or(0);
        rest = tail;
    }
    rest.is_empty() && total > 0
}

/// An interface as assignments name it: a MAC address in its normal form, else the name.
pub(crate) fn interface(text: &str) -> String {
    let text = text.trim();
    mac("interface", text).unwrap_or_else(|_| text.to_owned())
}

/// A fabric address as written, in normal form.
pub(crate) fn roce(spec: RoceAssignmentSpec) -> Result<RoceAssignmentSpec, Problem> {
    let hostname = hostname("hostname", &spec.hostname)?;
    let interface = spec.interface.trim().to_owned();
    if interface.is_empty() {
        return Err(invalid("interface", "expected the name or the MAC address of an interface"));
    }
    let interface = if interface.contains(':') { mac("interface", &interface)? } else { interface };
    identifier("interface", &interface, ":._-")?;
    let (network, prefix) = cidr(&spec.subnet_cidr)?;
    let address: IpAddr = spec
        .ip_address
        .trim()
        .parse()
        .map_err(|_| invalid("ip_address", "expected an IP address"))?;
    if address.is_ipv4() != network.is_ipv4() || masked(address, prefix) != number(network) {
        let message = format!("{address} is not in {network}/{prefix}");
        return Err(invalid("ip_address", message)
            .with_hint("use an address inside subnet_cidr, or the subnet that contains it"));
    }
    let host_bits = width(address) - prefix;
    let all_ones = number(network) | ones(host_bits);
    let reserved = address.is_ipv4() && host_bits > 1;
    if reserved && (address == network || number(address) == all_ones) {
        return Err(invalid(
            "ip_address",
            format!("{address} is the network or broadcast address"),
        ));
    }
    Ok(RoceAssignmentSpec {
        site: spec.site,
        hostname,
        interface,
        subnet_cidr: format!("{network}/{prefix}"),
        ip_address: address.to_string(),
    })
}

fn cidr(text: &str) -> Result<(IpAddr, u32), Problem> {
    let wanted = || {
        invalid("subnet_cidr", "expected a subnet, such as 10.20.0.0/24")
            .with_hint("write it as MAAS shows it")
    };
    let (address, prefix) = text.trim().split_once('/').ok_or_else(wanted)?;
    let address: IpAddr = address.parse().map_err(|_| wanted())?;
    let prefix: u32 = prefix.parse().map_err(|_| wanted())?;
    if prefix > width(address) {
        return Err(wanted());
    }
    if masked(address, prefix) != number(address) {
        return Err(invalid(
            "subnet_cidr",
            format!("{address} has host bits set for prefix /{prefix}"),
        )
        .with_hint("use the network address, such as 10.20.0.0/24"));
    }
    Ok((address, prefix))
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The lowest `bits` bits set.
fn ones(bits: u32) -> u128 {
    1u128.checked_shl(bits).map_or(u128::MAX, |bit| bit - 1)
}

/// The network part of an address.
fn masked(address: IpAddr, prefix: u32) -> u128 {
    number(address) & !ones(width(address).saturating_sub(prefix))
}

/// At most `limit` characters of `text`, without control characters; line breaks become spaces.
pub(crate) fn plain_text(text: &str, limit: usize) -> String {
    text.chars()
        .map(|c| if matches!(c, '\n' | '\t' | '\r') { ' ' } else { c })
        .filter(|c| !gpuaas_types::text::is_invisible(*c))
        .take(limit)
        .collect()
}

/// Longest reason that is kept, in characters.
pub(crate) const REASON_CHARS: usize = 500;

/// Why something is asked for, in the form that the audit keeps.
///
/// # Errors
/// `invalid_field` where it is empty.
pub(crate) fn reason(text: &str) -> Result<String, Problem> {
    words("reason", text, REASON_CHARS, "must not be empty")
}

/// What a person writes, without control characters and without white space at its ends: at most
/// `limit` characters. `wanted` says what to write where nothing is left of it.
///
/// # Errors
/// `invalid_field`.
pub(crate) fn words(
    field: &str,
    text: &str,
    limit: usize,
    wanted: &str,
) -> Result<String, Problem> {
    let plain = plain_text(text, usize::MAX);
    let words: String = plain.trim().chars().take(limit).collect();
    if words.is_empty() { Err(invalid(field, wanted)) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::text;
    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::event;

    fn field(problem: Problem) -> String {
        assert_eq!(problem.code, "invalid_field");
        problem.errors[0].field.clone()
    }

    /// Texts that a pattern allows, the same ones each time.
    fn drawn(pattern: &str) -> Vec<String> {
        // Of the whole text; the generator knows no anchors.
        let whole = pattern.trim_start_matches('^').trim_end_matches('$');
        let strategy = proptest::string::string_regex(whole).unwrap();
        let mut runner = TestRunner::deterministic();
        (0..100).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
    }

    /// What a schema says that a text may be, the check of its field takes.
    #[test]
    fn a_text_of_its_kind_is_taken() {
        type Check = fn(&str) -> Result<(), Problem>;
        let checks: [(&str, Check); 9] = [
            (text::WebhookUrlText::PATTERN, event::sinks::check_url),
            (text::NameText::PATTERN, |text| name("x", text)),
            (text::HostnameText::PATTERN, |text| hostname("x", text).map(drop)),
            (text::WordsText::PATTERN, |text| reason(text).map(drop)),
            (text::PowerTypeText::PATTERN, |text| identifier("x", text, "_-")),
            (text::SystemIdText::PATTERN, |text| identifier("x", text, "_-")),
            (text::InterfaceText::PATTERN, |text| identifier("x", text, ":._-")),
            (text::PrintableText::PATTERN, |text| {
                onboard(&OnboardRequest {
                    hostname: "h".to_owned(),
                    bmc_address: Some("10.0.0.1".to_owned()),
                    bmc_user: Some(text.to_owned()),
                    ..OnboardRequest::default()
                })
                .map(drop)
            }),
            (text::ArchitectureText::PATTERN, |text| {
                onboard(&OnboardRequest {
                    hostname: "h".to_owned(),
                    architecture: Some(text.to_owned()),
                    ..OnboardRequest::default()
                })
                .map(drop)
            }),
        ];
        // A schema names the invisible characters of the basic plane alone.
        let visible = |text: &String| !text.chars().all(text::is_invisible);
        for (pattern, check) in checks {
            for text in drawn(pattern).into_iter().filter(visible) {
                check(&text).unwrap_or_else(|problem| panic!("{pattern}: {text:?}: {problem}"));
            }
        }
        for moment in drawn(text::TimestampText::PATTERN) {
            assert!(gpuaas_types::Timestamp::from_rfc3339(&moment).is_some(), "{moment}");
        }
        for text in drawn(text::MaasKeyText::PATTERN) {
            assert!(text.parse::<maas_client::ApiKey>().is_ok(), "{text:?}");
        }
        assert!(reason(&format!("{}x", " ".repeat(600))).is_ok(), "white space is no limit");
    }

    #[test]
    fn hostnames() {
        assert_eq!(hostname("h", "J22u11").unwrap(), "j22u11");
        for bad in ["", "-a", "a-", "a_b", "a b", &"a".repeat(64), "a..b", "é"] {
            assert!(hostname("h", bad).is_err(), "{bad}");
        }
        assert!(hostname("h", "a.b.c").unwrap_err().hint.contains("domain"));
        for address in ["10.0.0.9", "2001:db8::9", "::ffff:10.0.0.9"] {
            let problem = hostname("h", address).unwrap_err();
            assert!(problem.errors[0].message.contains("this is an IP address"), "{problem:?}");
        }
        assert_eq!(hostname("h", "42").unwrap(), "42", "digits alone are a name, kept whole");
    }

    #[test]
    fn intervals() {
        for good in ["15m", "1h", "1h30m", "90s", "1h1m1s"] {
            assert!(is_interval(good), "{good}");
        }
        for bad in ["15", "m", "0m", "15 m", "30m1h", "-1m", "15d"] {
            assert!(!is_interval(bad), "{bad}");
        }
    }

    #[test]
    fn fabric_addresses_are_inside_their_subnet() {
        let spec = |interface: &str, cidr: &str, ip: &str| RoceAssignmentSpec {
            site: "s".into(),
            hostname: "H1".into(),
            interface: interface.into(),
            subnet_cidr: cidr.into(),
            ip_address: ip.into(),
        };
        let good = roce(spec(" AA-bb:cc:dd:ee:ff ", "10.0.0.0/24", "10.0.0.9")).unwrap();
        assert_eq!((good.hostname.as_str(), good.interface.as_str()), ("h1", "aa:bb:cc:dd:ee:ff"));
        assert!(roce(spec("eth0", "fd00::/64", "fd00::1")).is_ok());
        assert!(roce(spec("eth0", "10.0.0.4/31", "10.0.0.5")).is_ok());
        for (bad, at) in [
            (spec("", "10.0.0.0/24", "10.0.0.9"), "interface"),
            (spec("eth0", "10.0.0.1/24", "10.0.0.9"), "subnet_cidr"),
            (spec("eth0", "10.0.0.0/33", "10.0.0.9"), "subnet_cidr"),
            (spec("eth0", "10.0.0.0/24", "10.0.1.9"), "ip_address"),
            (spec("eth0", "10.0.0.0/24", "fd00::1"), "ip_address"),
            (spec("eth0", "10.0.0.0/24", "10.0.0.255"), "ip_address"),
            (spec("eth0", "10.0.0.0/24", "x"), "ip_address"),
        ] {
            assert_eq!(field(roce(bad).unwrap_err()), at);
        }
    }

    #[test]
    fn messages_are_cut_and_cleaned() {
        assert_eq!(plain_text("a\u{1b}[31m\nb\0", 10), "a[31m b");
        assert_eq!(plain_text(&"é".repeat(3000), 2000).chars().count(), 2000);
    }
}
