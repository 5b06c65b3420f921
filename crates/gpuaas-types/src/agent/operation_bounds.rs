//! The bounds of an operation's parameters.

use super::agent_version::AgentVersion;
use super::gate::Gate;
use super::operation::{Operation, OperationFault, PackageTarget, Registry, SERVICE_UNITS};

/// Registries in one task.
const MOST_REGISTRIES: usize = 32;
/// Mirrors of a registry.
const MOST_MIRRORS: usize = 8;
/// Bytes of certificates of a registry.
const MOST_PEM_BYTES: usize = 64 << 10;
/// Names of packages in each list.
const MOST_PACKAGES: usize = 200;
/// Units whose journal is wanted.
const MOST_UNITS: usize = 32;
/// Last lines of a journal.
const MOST_JOURNAL_LINES: u32 = 20_000;
/// Bytes of an archive: least, and most.
const ARCHIVE_BYTES: (u32, u32) = (64 << 10, 64 << 20);
/// Longest wait for another one that installs packages, in seconds.
const MOST_LOCK_SECONDS: u32 = 1800;
/// Bytes of an agent's executable. One for nodes has some 10 MiB, one with debug information, as a
/// development build makes it, more than 64.
const MOST_AGENT_BYTES: u64 = 256 << 20;
/// Seconds in which a new agent has to be heard: least, and most.
const CONFIRM_SECONDS: (u32, u32) = (5, 900);

fn fault(field: impl Into<String>, reason: impl Into<String>) -> Result<(), OperationFault> {
    Err(OperationFault { field: field.into(), reason: reason.into() })
}

impl Operation {
    /// Checks that every parameter is within its bounds.
    ///
    /// # Errors
    /// The first parameter that is not, and why.
    pub fn check(&self) -> Result<(), OperationFault> {
        match self {
            Self::Service { unit, .. } => service(unit),
            Self::RepairDrift { gates } => {
                if gates.len() > Gate::ALL.len() {
                    return fault("gates", format!("there are {} gates", Gate::ALL.len()));
                }
                Ok(())
            }
            Self::RefreshTrust { registries } => trust(registries),
            Self::UpdatePackages { packages, along, hold, lock_seconds, .. } => {
                if *lock_seconds > MOST_LOCK_SECONDS {
                    return fault("lock_seconds", format!("expected at most {MOST_LOCK_SECONDS}"));
                }
                packages_of(packages, along, hold)
            }
            Self::CollectDiagnostics { units, journal_lines, most_bytes } => {
                diagnostics(units, *journal_lines, *most_bytes)
            }
            Self::DiscoverSlices {} => Ok(()),
            Self::AgentUpdate {
                version, digest, size_bytes, url, floor, confirm_seconds, ..
            } => {
                update(version, digest, *size_bytes, *confirm_seconds)?;
                source(digest, url)?;
                not_below(version, floor)
            }
        }
    }
}

fn service(unit: &str) -> Result<(), OperationFault> {
    if SERVICE_UNITS.contains(&unit) {
        return Ok(());
    }
    fault("unit", format!("expected one of: {}", SERVICE_UNITS.join(", ")))
}

fn trust(registries: &[Registry]) -> Result<(), OperationFault> {
    if registries.is_empty() || registries.len() > MOST_REGISTRIES {
        return fault("registries", format!("expected 1 to {MOST_REGISTRIES}"));
    }
    for (index, registry) in registries.iter().enumerate() {
        let field = |name: &str| format!("registries.{index}.{name}");
        let Registry { host, ca_pem, mirrors } = registry;
        if !is_host(host) {
            return fault(field("host"), "expected HOST or HOST:PORT");
        }
        if registries.iter().take(index).any(|other| other.host == *host) {
            return fault(field("host"), "listed twice");
        }
        if ca_pem.len() > MOST_PEM_BYTES {
            return fault(field("ca_pem"), format!("expected at most {MOST_PEM_BYTES} bytes"));
        }
        if !ca_pem.is_empty() && !ca_pem.contains("-----BEGIN CERTIFICATE-----") {
            return fault(field("ca_pem"), "contains no certificate");
        }
        if ca_pem.contains("PRIVATE KEY") {
            return fault(field("ca_pem"), "contains a private key; only certificates are allowed");
        }
        if mirrors.len() > MOST_MIRRORS {
            return fault(field("mirrors"), format!("expected at most {MOST_MIRRORS}"));
        }
        if mirrors.iter().any(|url| !is_url(url)) {
            return fault(field("mirrors"), "expected http or https URLs");
        }
        if ca_pem.is_empty() && mirrors.is_empty() {
            return fault(field("ca_pem"), "expected certificates, mirrors or both");
        }
    }
    Ok(())
}

fn packages_of(
    packages: &[PackageTarget],
    along: &[String],
    hold: &[String],
) -> Result<(), OperationFault> {
    if packages.is_empty() {
        return fault("packages", "expected at least one package");
    }
    for (field, length) in
        [("packages", packages.len()), ("along", along.len()), ("hold", hold.len())]
    {
        if length > MOST_PACKAGES {
            return fault(field, format!("expected at most {MOST_PACKAGES}"));
        }
    }
    for (index, package) in packages.iter().enumerate() {
        if !is_package(&package.name) {
            return fault(format!("packages.{index}.name"), "not a package name");
        }
        if package.version.as_deref().is_some_and(|version| !is_package_version(version)) {
            return fault(format!("packages.{index}.version"), "not a package version");
        }
        if packages.iter().take(index).any(|other| other.name == package.name) {
            return fault(format!("packages.{index}.name"), "listed twice");
        }
        if hold.contains(&package.name) {
            return fault(format!("packages.{index}.name"), "also listed in `hold`");
        }
    }
    for (field, names) in [("along", along), ("hold", hold)] {
        if let Some(index) = names.iter().position(|name| !is_package(name)) {
            return fault(format!("{field}.{index}"), "not a package name");
        }
    }
    Ok(())
}

fn diagnostics(units: &[String], lines: u32, bytes: u32) -> Result<(), OperationFault> {
    if units.len() > MOST_UNITS {
        return fault("units", format!("expected at most {MOST_UNITS}"));
    }
    if let Some(index) = units.iter().position(|unit| !is_unit(unit)) {
        return fault(format!("units.{index}"), "not a unit name");
    }
    if lines == 0 || lines > MOST_JOURNAL_LINES {
        return fault("journal_lines", format!("expected 1 to {MOST_JOURNAL_LINES}"));
    }
    let (least, most) = ARCHIVE_BYTES;
    if !(least..=most).contains(&bytes) {
        return fault("most_bytes", format!("expected {least} to {most}"));
    }
    Ok(())
}

fn update(
    version: &str,
    digest: &str,
    size_bytes: u64,
    confirm_seconds: u32,
) -> Result<(), OperationFault> {
    if let Err(reason) = version.parse::<AgentVersion>() {
        return fault("version", reason);
    }
    if digest.len() != 64
        || !digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        return fault("digest", "expected 64 hexadecimal digits");
    }
    if size_bytes == 0 || size_bytes > MOST_AGENT_BYTES {
        return fault("size_bytes", format!("expected 1 to {MOST_AGENT_BYTES}"));
    }
    let (least, most) = CONFIRM_SECONDS;
    if !(least..=most).contains(&confirm_seconds) {
        return fault("confirm_seconds", format!("expected {least} to {most}"));
    }
    Ok(())
}

/// Checks that an executable comes from the control plane's artifact store and from nowhere else.
fn source(digest: &str, url: &str) -> Result<(), OperationFault> {
    let wanted = format!("/bootstrap/v1/artifacts/sha256/{digest}");
    if url == wanted { Ok(()) } else { fault("url", format!("expected {wanted}")) }
}

/// Checks that `version` is not lower than `floor`, which has to be named.
fn not_below(version: &str, floor: &str) -> Result<(), OperationFault> {
    match (version.parse::<AgentVersion>(), floor.parse::<AgentVersion>()) {
        (Ok(version), Ok(floor)) if version >= floor => Ok(()),
        (_, Err(reason)) => fault("floor", reason),
        _ => fault("version", format!("lower than {floor}, the lowest version allowed")),
    }
}

/// `HOST` or `HOST:PORT`; also the name of a folder.
fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(h, p)| (h, Some(p)));
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    (1..=253).contains(&host.len())
        && host.split('.').all(label)
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// An URL that needs no quoting anywhere.
fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split('/').next().unwrap_or_default();
        text.len() <= 500
            && is_host(host)
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~/:%".contains(&b))
    })
}

/// Whether `text` is the name of a Debian package, as deb-control(5) says: at least two of a-z, 0-9 and `+-.`, the first no sign.
fn is_package(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (2..=128).contains(&text.len())
        && text.bytes().next().is_some_and(letter)
        && text.bytes().all(|b| letter(b) || b"+-.".contains(&b))
}

/// Whether `text` is a version of a Debian package, as deb-version(7) says.
fn is_package_version(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(|b| b.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".+-~:".contains(&b))
}

/// Whether `text` is the name of a systemd unit, as systemd.unit(5) says: letters, digits and `:-_.\@`, with a suffix.
#[must_use]
pub fn is_unit(text: &str) -> bool {
    (3..=255).contains(&text.len())
        && text.contains('.')
        && !text.starts_with(['-', '.'])
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b":-_.\\@".contains(&b))
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
