//! Inputs of a bundle: the values that a site may set, their types, and their defaults.
//!
//! A value is text, because the scripts of a bundle get it in their environment. Its type is checked
//! before anything runs: a malformed prefix never reaches a shell.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Longest value, in bytes.
const MAX_VALUE_BYTES: usize = 4096;
/// Suffix of a placeholder that stands for the port of a socket.
const PORT_SUFFIX: &str = ":port";

/// Type of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputType {
    /// Any text without control characters.
    String,
    /// A whole number, in decimal.
    Integer,
    /// `1` or `0`; `true`, `false`, `yes` and `no` are accepted and converted to these.
    Boolean,
    /// An IPv4 or IPv6 address.
    Address,
    /// An address and the length of its prefix: `192.168.0.0/16`.
    Cidr,
    /// An address and a port, `127.0.0.1:19998` or `[::1]:80`. `{name:port}` is its port.
    Socket,
    /// Name of a network link (Linux: at most 15 bytes, no slash, no space).
    Interface,
    /// An absolute path without `..`.
    Path,
    /// A PCI function, `0000:19:00.0`.
    PciAddress,
    /// A Debian package's name.
    Package,
    /// One of these texts.
    Choice(Vec<String>),
    /// Any number of the inner type, separated by spaces.
    List(Box<InputType>),
}

/// One input, as the manifest declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Type of the value.
    #[serde(rename = "type")]
    pub kind: InputType,
    /// Purpose of the input, one line.
    pub about: String,
    /// Value where none is set; `None`: a value has to be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Environment variable of the scripts with the value. An operator who runs the bundle by hand may
    /// set it.
    pub environment: String,
    /// Whether the value must never be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// Whether each host has a value of its own, such as an address: no two hosts of a site share one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unique: bool,
    /// What the bundle makes of other inputs where the value is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Derivation>,
}

/// An address that a bundle derives: the network part of a subnet with the host part of another address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derivation {
    /// Input with the address whose host part is taken.
    pub address: String,
    /// Input with the subnet whose network part is taken.
    pub subnet: String,
    /// A boolean input; the address is derived where it is 1. None: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_when: Option<String>,
}

/// Values of a bundle's inputs, by name.
pub type Inputs = BTreeMap<String, String>;

/// Why the value of an input cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The bundle has no input of this name.
    #[error("unknown input {name}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// Neither a value nor a default.
    #[error("input {name} must be set")]
    Missing {
        /// Name of the input.
        name: String,
    },
    /// A secret with neither a value nor a default.
    #[error("the secret input {name} is not set")]
    SecretMissing {
        /// Name of the input.
        name: String,
    },
    /// A secret among values that are stored in plain text.
    #[error(
        "input {name} is a secret: it cannot be stored with the plain values of a profile or site"
    )]
    SecretNotAllowed {
        /// Name of the input.
        name: String,
    },
    /// A value to seal as a secret, of an input that is not secret.
    #[error("input {name} is not a secret")]
    NotSecret {
        /// Name of the input.
        name: String,
    },
    /// An input that is not secret would get the secret of another bundle.
    #[error("input {name} would receive a secret, but is not declared secret")]
    SecretLeaked {
        /// Name of the input.
        name: String,
    },
    /// A value of a required bundle that the bundle which requires it does not leave open.
    #[error("input {name} is set by {by}, which requires this bundle")]
    NotPassedOn {
        /// Name of the input.
        name: String,
        /// The bundle that requires it.
        by: String,
    },
    /// One value for many hosts, of an input of which each host has its own.
    #[error("input {name} needs a value per host, but this value is for all hosts")]
    NotOfOneHost {
        /// Name of the input.
        name: String,
    },
    /// Two hosts with one value of such an input.
    #[error(
        "input {name}: {first} and {second} would both get {value}, but each host needs its own value"
    )]
    Shared {
        /// Name of the input.
        name: String,
        /// What they share.
        value: String,
        /// One host.
        first: String,
        /// The other host, or the same.
        second: String,
    },
    /// A value that is not of the input's type.
    #[error("input {name}: {reason}")]
    Invalid {
        /// Name of the input.
        name: String,
        /// What is wrong; never the value of a secret.
        reason: String,
    },
}

impl InputError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "bundle_input_unknown",
            Self::Missing { .. } => "bundle_input_missing",
            Self::SecretMissing { .. } => "bundle_secret_missing",
            Self::SecretNotAllowed { .. } => "bundle_secret_in_open",
            Self::NotSecret { .. } => "bundle_input_not_secret",
            Self::SecretLeaked { .. } => "bundle_secret_given_away",
            Self::NotPassedOn { .. } => "bundle_input_not_passed_on",
            Self::NotOfOneHost { .. } => "bundle_input_not_of_one_host",
            Self::Shared { .. } => "bundle_input_shared",
            Self::Invalid { .. } => "bundle_input_invalid",
        }
    }
}

impl InputType {
    /// Parses a value, and returns it in its normal form.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn parse(&self, text: &str) -> Result<String, String> {
        if text.len() > MAX_VALUE_BYTES {
            return Err(format!("longer than {MAX_VALUE_BYTES} bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err("contains a control character".to_owned());
        }
        let text = match self {
            Self::String => text,
            _ => text.trim(),
        };
        let fits = match self {
            Self::String => true,
            Self::Integer => text.parse::<i64>().is_ok(),
            Self::Boolean => return boolean(text),
            Self::Address => is_address(text),
            Self::Cidr => is_cidr(text),
            Self::Socket => port(text).is_some_and(|port| port > 0),
            Self::Interface => is_interface(text),
            Self::Path => is_path(text),
            Self::PciAddress => is_pci_address(text),
            Self::Package => is_package(text),
            Self::Choice(words) => words.iter().any(|word| word == text),
            Self::List(inner) => {
                let words: Result<Vec<String>, String> = text
                    .split([' ', ','])
                    .filter(|w| !w.is_empty())
                    .map(|w| inner.parse(w))
                    .collect();
                return Ok(words?.join(" "));
            }
        };
        if fits { Ok(text.to_owned()) } else { Err(format!("not {}", self.describe())) }
    }

    /// The type as a noun with its article, for error texts.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::String => "text".to_owned(),
            Self::Integer => "a whole number".to_owned(),
            Self::Boolean => "1 or 0".to_owned(),
            Self::Address => "an IP address".to_owned(),
            Self::Cidr => "an address with a prefix length, such as 192.168.0.0/16".to_owned(),
            Self::Socket => "an address with a port, such as 127.0.0.1:19998".to_owned(),
            Self::Interface => "an interface name".to_owned(),
            Self::Path => "an absolute path".to_owned(),
            Self::PciAddress => "a PCI address, such as 0000:19:00.0".to_owned(),
            Self::Package => "a package name".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::List(inner) => format!("a list in which each item is {}", inner.describe()),
        }
    }
}

fn boolean(text: &str) -> Result<String, String> {
    match text {
        "1" | "true" | "yes" => Ok("1".to_owned()),
        "0" | "false" | "no" => Ok("0".to_owned()),
        _ => Err("not 1 or 0".to_owned()),
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok() || text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let max_length = match (address.parse::<Ipv4Addr>(), address.parse::<Ipv6Addr>()) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        _ => return false,
    };
    length.bytes().all(|b| b.is_ascii_digit())
        && length.parse::<u8>().is_ok_and(|n| n <= max_length)
}

/// The port of an address that has one.
fn port(text: &str) -> Option<u16> {
    text.parse().ok().map(|socket: SocketAddr| socket.port())
}

/// `dev_valid_name` of the kernel: at most 15 bytes, no slash, colon or space, not `.` or `..`.
fn is_interface(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text != "."
        && text != ".."
        && !text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
}

/// Whether `text` is an absolute path without `..`.
#[must_use]
pub fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains('\0') && text.split('/').all(|part| part != "..")
}

fn is_pci_address(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = |range: std::ops::Range<usize>| {
        bytes.get(range).is_some_and(|part| part.iter().all(u8::is_ascii_hexdigit))
    };
    bytes.len() == 12
        && hex(0..4)
        && bytes[4] == b':'
        && hex(5..7)
        && bytes[7] == b':'
        && hex(8..10)
        && bytes[10] == b'.'
        && matches!(bytes[11], b'0'..=b'7')
}

/// Debian policy 5.6.1: at least two of `a-z0-9+-.`, beginning with a letter or digit.
fn is_package(text: &str) -> bool {
    let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
    text.len() >= 2
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.bytes().all(rest)
}

/// The values of all `declared` inputs: those of `set`, else the defaults.
///
/// # Errors
/// The first value that is unknown, missing or not of its type.
pub fn resolve(declared: &BTreeMap<String, Input>, set: &Inputs) -> Result<Inputs, InputError> {
    if let Some(name) = set.keys().find(|name| !declared.contains_key(*name)) {
        return Err(InputError::Unknown { name: name.clone() });
    }
    let mut values = Inputs::new();
    for (name, input) in declared {
        let text = set.get(name).or(input.default.as_ref());
        let text = text.ok_or_else(|| {
            let name = name.clone();
            if input.secret {
                InputError::SecretMissing { name }
            } else {
                InputError::Missing { name }
            }
        })?;
        let value = input
            .kind
            .parse(text)
            .map_err(|reason| InputError::Invalid { name: name.clone(), reason })?;
        values.insert(name.clone(), value);
    }
    Ok(values)
}

/// Refuses secrets among values that are stored in plain text.
///
/// # Errors
/// [`InputError::SecretNotAllowed`].
pub fn refuse_secrets(declared: &BTreeMap<String, Input>, set: &Inputs) -> Result<(), InputError> {
    let secret = |name: &&String| declared.get(*name).is_some_and(|input| input.secret);
    match set.keys().find(secret) {
        Some(name) => Err(InputError::SecretNotAllowed { name: name.clone() }),
        None => Ok(()),
    }
}

/// Fills the placeholders of a JSON document: `{name}` in a text becomes the value, `{name:port}` the
/// port of a socket. A text that is only `{name}` of an integer, or only a port, becomes a number.
///
/// # Errors
/// A placeholder that names no input, or the port of a value that has none.
pub fn fill_placeholders(
    document: &serde_json::Value,
    declared: &BTreeMap<String, Input>,
    values: &Inputs,
) -> Result<serde_json::Value, InputError> {
    use serde_json::Value;
    Ok(match document {
        Value::String(text) => match number(text, declared, values) {
            Some(number) => number.into(),
            None => fill_text(text, values)?.into(),
        },
        Value::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| fill_placeholders(item, declared, values))
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| {
                    Ok((name.clone(), fill_placeholders(value, declared, values)?))
                })
                .collect::<Result<_, _>>()?,
        ),
        other => other.clone(),
    })
}

/// `text` with `{name}` replaced by the input's value, and `{name:port}` by its port.
///
/// # Errors
/// A placeholder that names no input, has no end, or is of the port of a value that has none.
pub fn fill_text(text: &str, values: &Inputs) -> Result<String, InputError> {
    let unknown = |name: &str| InputError::Unknown { name: name.to_owned() };
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or_else(|| unknown(after))?;
        filled.push_str(before);
        let socket = name.strip_suffix(PORT_SUFFIX);
        let value = values.get(socket.unwrap_or(name)).ok_or_else(|| unknown(name))?;
        match socket {
            None => filled.push_str(value),
            Some(name) => filled.push_str(&port(value).ok_or_else(|| no_port(name))?.to_string()),
        }
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn no_port(name: &str) -> InputError {
    let reason = "the value has no port: expected ADDRESS:PORT".to_owned();
    InputError::Invalid { name: name.to_owned(), reason }
}

/// The number that a text stands for which is only a placeholder; `None` where it is not one.
fn number(text: &str, declared: &BTreeMap<String, Input>, values: &Inputs) -> Option<i64> {
    let name = text.strip_prefix('{')?.strip_suffix('}')?;
    if let Some(socket) = name.strip_suffix(PORT_SUFFIX) {
        return port(values.get(socket)?).map(i64::from);
    }
    declared.get(name).filter(|input| input.kind == InputType::Integer)?;
    values.get(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_accept_their_values_and_nothing_else() {
        let list = InputType::List(Box::new(InputType::Interface));
        let choice = InputType::Choice(vec!["keep".to_owned(), "drop".to_owned()]);
        for (kind, good, bad) in [
            (InputType::Integer, vec!["8", "-1"], vec!["", "8.0", "0x8", "eight"]),
            (InputType::Address, vec!["10.0.0.1", "fe80::1"], vec!["10.0.0", "10.0.0.1/24", "h"]),
            (
                InputType::Cidr,
                vec!["192.168.0.0/16", "fd00::/8"],
                vec!["1.2.3.4", "1.2.3.4/33", "1.2.3.4/+8"],
            ),
            (
                InputType::Socket,
                vec!["127.0.0.1:19998", "[::1]:80", "0.0.0.0:65535"],
                vec!["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:80", "h:1", ":1"],
            ),
            (
                InputType::Interface,
                vec!["ibp24s0", "ens1f0np0"],
                vec!["", "a/b", "..", "a b", "0123456789abcdef"],
            ),
            (InputType::Path, vec!["/", "/etc/netplan"], vec!["etc", "/a/../b", ""]),
            (
                InputType::PciAddress,
                vec!["0000:19:00.0", "0000:aB:1f.7"],
                vec!["19:00.0", "0000:19:00.8"],
            ),
            (InputType::Package, vec!["libvirt-daemon", "g++"], vec!["A", "a", "a;b", "-a"]),
            (choice, vec!["keep"], vec!["Keep", ""]),
            (list, vec!["", "ib0 ib1", "ib0,ib1"], vec!["a/b ib0"]),
        ] {
            for text in good {
                assert!(kind.parse(text).is_ok(), "{kind:?} {text:?}");
            }
            for text in bad {
                assert!(kind.parse(text).is_err(), "{kind:?} {text:?}");
            }
        }
        assert_eq!(InputType::Boolean.parse("yes").unwrap(), "1");
        assert!(InputType::Boolean.parse("on").is_err());
        assert!(InputType::String.parse("a\nb").is_err());
    }

    fn declared() -> BTreeMap<String, Input> {
        serde_json::from_value(serde_json::json!({
            "vfs": {"type": "integer", "about": "VFs", "default": "8", "environment": "VFS"},
            "gateway": {"type": "cidr", "about": "gateway", "environment": "GATEWAY"},
        }))
        .unwrap()
    }

    #[test]
    fn values_are_set_or_default_or_missing() {
        let set = |pairs: &[(&str, &str)]| {
            resolve(&declared(), &pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect())
        };
        let values = set(&[("gateway", "10.100.0.1/24")]).unwrap();
        assert_eq!(values["vfs"], "8");
        assert_eq!(set(&[]).unwrap_err().to_string(), "input gateway must be set");
        assert_eq!(set(&[("vf", "1")]).unwrap_err().to_string(), "unknown input vf");
        let bad = set(&[("gateway", "10.100.0.1")]).unwrap_err().to_string();
        assert!(bad.starts_with("input gateway: not an address with"), "{bad}");
    }

    #[test]
    fn a_secret_that_is_missing_or_in_plain_text_has_its_own_code() {
        let mut declared = declared();
        declared.get_mut("gateway").unwrap().secret = true;
        let code = |error: InputError| (error.code(), error.to_string().contains("gateway"));
        let missing = resolve(&declared, &Inputs::new()).unwrap_err();
        assert_eq!(code(missing), ("bundle_secret_missing", true));
        let set: Inputs = [("gateway".to_owned(), "hush".to_owned())].into();
        let misplaced = refuse_secrets(&declared, &set).unwrap_err();
        assert_eq!(code(misplaced), ("bundle_secret_in_open", true));
        assert!(!resolve(&declared, &set).unwrap_err().to_string().contains("hush"));
        refuse_secrets(&declared, &[("vfs".to_owned(), "1".to_owned())].into()).unwrap();
    }

    #[test]
    fn placeholders_become_values() {
        let set = [("gateway".to_owned(), "10.100.0.1/24".to_owned())].into();
        let values = resolve(&declared(), &set).unwrap();
        let document =
            serde_json::json!([{"count": "{vfs}", "text": "on {gateway}, {vfs}", "n": 1}]);
        let filled = fill_placeholders(&document, &declared(), &values).unwrap();
        assert_eq!(
            filled,
            serde_json::json!([{"count": 8, "text": "on 10.100.0.1/24, 8", "n": 1}])
        );
        assert!(fill_placeholders(&serde_json::json!("{nosuch}"), &declared(), &values).is_err());
        assert!(fill_placeholders(&serde_json::json!("a {open"), &declared(), &values).is_err());
    }

    #[test]
    fn a_port_is_taken_out_of_its_socket() {
        let mut declared = declared();
        declared.get_mut("gateway").unwrap().kind = InputType::Socket;
        let filled = |socket: &str| {
            let values = [("gateway".to_owned(), socket.to_owned())].into();
            fill_placeholders(
                &serde_json::json!(["{gateway:port}", "on {gateway:port};"]),
                &declared,
                &values,
            )
        };
        assert_eq!(filled("0.0.0.0:29999").unwrap(), serde_json::json!([29999, "on 29999;"]));
        assert_eq!(filled("[::1]:80").unwrap(), serde_json::json!([80, "on 80;"]));
        let error = filled("10.0.0.1/24").unwrap_err();
        assert_eq!(
            error.to_string(),
            "input gateway: the value has no port: expected ADDRESS:PORT"
        );
        let unknown = fill_text("{gateway:host}", &[("gateway".to_owned(), "h".to_owned())].into());
        assert_eq!(unknown.unwrap_err().code(), "bundle_input_unknown");
    }
}
