//! The bill of materials of an executable, as CycloneDX 1.5 has it in JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::dependencies::{Crate, Dependencies, Kind};
use super::source::Source;
use crate::oci::sha256;
use crate::{proc, static_build};

/// Writes the bill of the executable `program` to `file`.
///
/// # Errors
/// A tool is missing, or a file cannot be read or written.
pub(super) fn write(
    source: &Source,
    list: &Dependencies,
    (program, is_built_here): (&Path, bool),
    file: &Path,
) -> Result<(), String> {
    let mut bill = bill(source, list)?;
    // Another build may have had other features than the list is of.
    if let Some(properties) = bill["metadata"]["properties"].as_array_mut() {
        let value = is_built_here.to_string();
        properties.push(json!({"name": "gpuaas:built-here", "value": value}));
    }
    if !static_build::is_dynamic(program)?
        && let Some(glibc) = glibc()
        && let Some(components) = bill["components"].as_array_mut()
    {
        components.push(glibc);
    }
    let write = |bill: &Value| {
        let text = serde_json::to_string_pretty(bill).map_err(|error| error.to_string())?;
        fs::write(file, text + "\n").map_err(|error| format!("{}: {error}", file.display()))
    };
    // The number is of the content, so that the same content has the same number.
    write(&bill)?;
    bill["serialNumber"] = format!("urn:uuid:{}", uuid(&sha256(file)?)).into();
    write(&bill)
}

fn bill(source: &Source, list: &Dependencies) -> Result<Value, String> {
    let lock = source.root.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let checksums = checksums(&lock);
    let (own, others): (Vec<&Crate>, Vec<&Crate>) = list.packages.iter().partition(|one| one.root);
    let own = own.first().ok_or("cargo tree names no root")?;
    let mut main = json!({
        "type": "application",
        "bom-ref": purl(own),
        "name": own.name,
        "version": source.version,
        "purl": purl(own),
    });
    license(&mut main, own);
    let components = others.iter().map(|one| component(one, &checksums));
    let graph = list.packages.iter().map(|one| {
        let needs = one.dependencies.iter().filter_map(|place| list.packages.get(*place));
        json!({"ref": purl(one), "dependsOn": needs.map(purl).collect::<Vec<_>>()})
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": source.time()?,
            "tools": {"components": [{"type": "application", "name": "cargo xtask dist"}]},
            "component": main,
            "properties": [
                {"name": "gpuaas:commit", "value": source.commit},
                {"name": "gpuaas:changed-files", "value": (!source.clean).to_string()},
            ],
        },
        "components": components.collect::<Vec<_>>(),
        "dependencies": graph.collect::<Vec<_>>(),
    }))
}

fn component(one: &Crate, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(one),
        "name": one.name,
        "version": one.version,
        "purl": purl(one),
        // Build tools and procedural macros ran on the build host only.
        "scope": if one.kind == Kind::Runtime { "required" } else { "excluded" },
    });
    license(&mut component, one);
    if let Some(sum) = checksums.get(&(one.name.as_str(), one.version.as_str())) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

fn license(component: &mut Value, one: &Crate) {
    if !one.license.is_empty() {
        component["licenses"] = json!([{"expression": one.license}]);
    }
}

/// The package URL of a crate (github.com/package-url/purl-spec).
fn purl(one: &Crate) -> String {
    // In a version of a purl, a plus is encoded.
    format!("pkg:cargo/{}@{}", one.name, one.version.replace('+', "%2B"))
}

/// The C library that a static executable has in it, if dpkg knows its version.
fn glibc() -> Option<Value> {
    let mut dpkg = Command::new("dpkg-query");
    dpkg.args(["--show", "--showformat", "${source:Package} ${Version}", "libc6-dev"]);
    let said = proc::quiet(&mut dpkg).ok()?;
    let (name, version) = said.split_once(' ')?;
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let system = release.lines().find_map(|line| line.strip_prefix("ID="))?;
    let purl = format!("pkg:deb/{system}/{name}@{}", version.replace('+', "%2B"));
    Some(json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "scope": "required",
    }))
}

/// Name and version to the checksum of the crate's archive, from `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let tables = lock.split("[[package]]").filter_map(|table| {
        let value = |key: &str| {
            let line = table.lines().find_map(|line| line.strip_prefix(key))?;
            line.strip_prefix(" = \"")?.strip_suffix('"')
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    tables.collect()
}

/// Version 8 of RFC 9562: its other bits are the digest's.
fn uuid(sha256: &str) -> String {
    let part = |from: usize, to: usize| sha256.get(from..to).unwrap_or_default();
    let [a, b, c] = [part(0, 8), part(8, 12), part(13, 16)];
    format!("{a}-{b}-8{c}-8{}-{}", part(17, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serial_number_is_a_uuid_of_the_content() {
        let sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        assert_eq!(uuid(sum), "01234567-89ab-8def-8123-456789abcdef");
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"ab\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([(("a", "1.0.0"), "ab")]));
    }
}
