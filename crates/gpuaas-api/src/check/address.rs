//! Addresses of interfaces and BMCs in requests, in one form; what can be nobody's is refused.

use std::net::IpAddr;

use gpuaas_types::Problem;

use crate::http::problem::invalid;

/// Whether `text` is a label of RFC 1123 section 2.1: 1 to 63 letters, digits and hyphens, none
/// of them at an end.
pub(crate) fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A MAC address as six lower-case pairs joined by colons. Dashes, the three groups of four digits
/// that switches print, and bare digits are taken too.
pub(crate) fn mac(field: &str, text: &str) -> Result<String, Problem> {
    let text = text.trim().to_ascii_lowercase().replace('-', ":");
    let grouped = [".", ":"].iter().any(|joint| {
        let groups: Vec<&str> = text.split(joint).collect();
        groups.len() == 3 && groups.iter().all(|group| group.len() == 4)
    });
    let text = match text.replace(['.', ':'], "") {
        bare if bare.is_ascii() && bare.len() == 12 && (grouped || bare == text) => {
            let pairs: Vec<&str> = (0..12).step_by(2).map(|at| &bare[at..at + 2]).collect();
            pairs.join(":")
        }
        _ => text,
    };
    let pairs: Vec<&str> = text.split(':').collect();
    let is_pair = |pair: &&str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
    if pairs.len() != 6 || !pairs.iter().all(is_pair) {
        return Err(invalid(field, "expected six pairs of hexadecimal digits")
            .with_hint("write it as 3c:ec:ef:00:11:22"));
    }
    if text == "00:00:00:00:00:00" {
        return Err(invalid(field, "00:00:00:00:00:00 is not the address of an interface"));
    }
    let first = u8::from_str_radix(pairs[0], 16).unwrap_or_default();
    if first & 1 == 1 {
        let message = format!("invalid MAC address {text:?}: it is a multicast address");
        return Err(invalid(field, message)
            .with_hint("give the address of a single interface: its first pair is even"));
    }
    Ok(text)
}

/// The address of a BMC: an IP address or a DNS name.
pub(crate) fn bmc_address(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        if let Some(kind) = nobodys(address) {
            let message = format!("invalid BMC address {address}: a BMC cannot have {kind}");
            return Err(invalid("bmc_address", message).with_hint(
                "read the address on the BMC: ipmitool lan print shows 0.0.0.0 if none is set",
            ));
        }
        return Ok(address.to_string());
    }
    let looks_like_v4 = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !looks_like_v4 && text.len() <= 253 && text.split('.').all(is_label) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(invalid("bmc_address", "expected an IP address or a DNS name")
        .with_hint("give the address alone, without http:// and without a port"))
}

/// What kind of address it is that no BMC has; none: it may be one's.
fn nobodys(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        address if address.is_unspecified() => Some("the unspecified address"),
        address if address.is_loopback() => Some("a loopback address"),
        address if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(address) if address.octets()[0] == 0 => Some("an address in 0.0.0.0/8"),
        IpAddr::V4(address) if address.is_broadcast() => Some("the broadcast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_have_one_form() {
        for form in [
            "3C-EC-EF-00-11-22",
            "3cecef001122",
            "3CEC.EF00.1122",
            "3cec-ef00-1122",
            "3c:ec:ef:00:11:22",
        ] {
            assert_eq!(mac("m", form).unwrap(), "3c:ec:ef:00:11:22", "{form}");
        }
        for bad in [
            "",
            "3c:ec:ef:00:11",
            "3c:ec:ef:00:11:2g",
            "3cecef00112",
            "3cecef00112é",
            "3cecef.001122",
            "3c:ecef:00:11:22",
            "00:00:00:00:00:00",
            "ff:ff:ff:ff:ff:ff",
            "01:00:5e:00:00:01",
            "33:33:00:00:00:01",
        ] {
            assert!(mac("m", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bmc_addresses() {
        assert_eq!(bmc_address("10.0.0.7").unwrap(), "10.0.0.7");
        assert_eq!(bmc_address("2001:DB8::1").unwrap(), "2001:db8::1");
        assert_eq!(bmc_address("BMC-7.example").unwrap(), "bmc-7.example");
        for nobody in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(bmc_address(nobody).is_err(), "{nobody}");
        }
        for bad in ["", "10.0.0.256", "10.0.0", "http://10.0.0.7", "10.0.0.7:623", "a b"] {
            assert!(bmc_address(bad).is_err(), "{bad}");
        }
    }
}
