//! Where an image comes from, in the forms that others read: an SPDX document of its packages, and an
//! in-toto statement with SLSA provenance.
//!
//! Both are made of the archive and the record in it, so that whoever has the archive can make them
//! again and compare. No level of SLSA is claimed: who builds could also have signed something else.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::inventory::{ImageInventory, InventoryPackage};

/// Type of the payload of a signed statement (in-toto's attestation framework, DSSE).
pub const STATEMENT_PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// Type of a statement of what `gpuaas image lint` found, with its version.
pub const LINT_PREDICATE: &str = "urn:gpuaas:image-lint:v1";
/// Type of a statement of how an archive booted, with its version.
pub const BOOT_TEST_PREDICATE: &str = "urn:gpuaas:image-boot-test:v1";
/// Type of a statement of an upload that was read back, with its version.
pub const UPLOAD_PREDICATE: &str = "urn:gpuaas:image-upload:v1";
/// Name of the build type in a provenance, with its version.
const BUILD_TYPE: &str = "urn:gpuaas:image-build:v1";

/// An SPDX 2.3 document of the image's binary and source packages. Equal archives give equal documents:
/// the time is that of the build's inputs.
#[must_use]
pub fn spdx_document(name: &str, inventory: &ImageInventory) -> Value {
    let mut packages = vec![json!({
        "SPDXID": "SPDXRef-image",
        "name": name,
        "versionInfo": inventory.record["version"].as_str().unwrap_or("unknown"),
        "packageFileName": file_name(name),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "primaryPackagePurpose": "OPERATING-SYSTEM",
        "checksums": [{"algorithm": "SHA256", "checksumValue": inventory.sha256}],
    })];
    let mut relationships = vec![json!({
        "spdxElementId": "SPDXRef-DOCUMENT",
        "relationshipType": "DESCRIBES",
        "relatedSpdxElement": "SPDXRef-image",
    })];
    let mut sources: Vec<(&str, &str)> = Vec::new();
    for package in &inventory.packages {
        let id = element_id("binary", &[&package.name, &package.version, &package.architecture]);
        packages.push(binary_package(&id, package, inventory));
        relationships.push(json!({
            "spdxElementId": "SPDXRef-image",
            "relationshipType": "CONTAINS",
            "relatedSpdxElement": id,
        }));
        relationships.push(json!({
            "spdxElementId": id,
            "relationshipType": "GENERATED_FROM",
            "relatedSpdxElement": element_id("source", &[&package.source, &package.source_version]),
        }));
        sources.push((&package.source, &package.source_version));
    }
    sources.sort_unstable();
    sources.dedup();
    for (source, version) in sources {
        packages.push(json!({
            "SPDXID": element_id("source", &[source, version]),
            "name": source,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "primaryPackagePurpose": "SOURCE",
        }));
    }
    json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": format!("urn:sha256:{}", inventory.sha256),
        "creationInfo": {
            "created": iso_time(built_at(inventory)),
            "creators": [format!("Tool: gpuaas-{}", env!("CARGO_PKG_VERSION"))],
        },
        "packages": packages,
        "relationships": relationships,
    })
}

/// The name of the archive's file: `name` where that is one, else with the end that a build gives it.
fn file_name(name: &str) -> String {
    let is_file = [".tgz", ".tar.gz", ".gz", ".xz", ".bz2"].iter().any(|end| name.ends_with(end));
    if is_file { name.to_owned() } else { format!("{name}.tar.gz") }
}

/// The package's address (purl-spec, type deb): scanners choose advisories by the namespace and the
/// release, so both are those of the image's `/etc/os-release`. What that does not say is left out.
fn package_url(package: &InventoryPackage, inventory: &ImageInventory) -> String {
    let InventoryPackage { name, version, architecture, .. } = package;
    let field = |name: &str| inventory.os_release.get(name).filter(|text| !text.is_empty());
    let id = field("ID").map(|id| id.to_ascii_lowercase());
    let namespace = id.as_ref().map_or_else(String::new, |id| format!("{}/", purl_text(id)));
    let release = field("VERSION_ID").or_else(|| field("VERSION_CODENAME"));
    let distribution = id.as_ref().zip(release).map_or_else(String::new, |(id, release)| {
        format!("&distro={}", purl_text(&format!("{id}-{release}")))
    });
    format!(
        "pkg:deb/{namespace}{}@{}?arch={}{distribution}",
        purl_text(name),
        purl_text(version),
        purl_text(architecture)
    )
}

fn binary_package(id: &str, package: &InventoryPackage, inventory: &ImageInventory) -> Value {
    let InventoryPackage { name, version, .. } = package;
    json!({
        "SPDXID": id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": package_url(package, inventory),
        }],
    })
}

/// An in-toto statement (v1) with SLSA provenance (v1) about the archive.
#[must_use]
pub fn provenance(name: &str, inventory: &ImageInventory, sbom: &Value) -> Value {
    let record = &inventory.record;
    let sbom_digest = hex::encode(Sha256::digest(sbom.to_string()));
    let dependencies: Vec<Value> = record["lineage"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter_map(|text| text.split_once(" sha256:"))
        .map(|(name, digest)| json!({"name": name, "digest": {"sha256": digest}}))
        .collect();
    let predicate = json!({
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "image": record["image"],
                "bundles": record["bundles"],
                "kernel_arguments": record["kernel_arguments"],
            },
            "internalParameters": {"input_digest": record["version"]},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": format!("urn:gpuaas:builder:{}", env!("CARGO_PKG_VERSION"))},
            "byproducts": [{"name": "sbom.spdx.json", "digest": {"sha256": sbom_digest}}],
        },
    });
    archive_statement(name, &inventory.sha256, "https://slsa.dev/provenance/v1", predicate)
}

/// An in-toto statement (v1) about an archive of that digest.
#[must_use]
pub fn archive_statement(
    name: &str,
    sha256: &str,
    predicate_type: &str,
    predicate: Value,
) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    })
}

/// Seconds since 1970 of the record's inputs; 0 where it says none.
fn built_at(inventory: &ImageInventory) -> i64 {
    inventory.record["built_at"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// An identifier of SPDX: letters, digits, dots and hyphens; the digest keeps apart what is written
/// with others.
fn element_id(kind: &str, parts: &[&str]) -> String {
    let text = parts.join("_");
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let digest = hex::encode(Sha256::digest(&text));
    format!("SPDXRef-{kind}-{}-{}", text.chars().map(plain).collect::<String>(), &digest[..8])
}

/// Text of a package URL: what is not plain is percent-encoded.
fn purl_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// `2026-11-23T10:11:12Z` of seconds since 1970.
fn iso_time(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The Gregorian calendar by eras of 400 years, each of 146,097 days; years begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory() -> ImageInventory {
        let package = |name: &str, source: &str| InventoryPackage {
            name: name.to_owned(),
            version: "1:2.36-9+deb12u1".to_owned(),
            architecture: "amd64".to_owned(),
            source: source.to_owned(),
            source_version: "2.36".to_owned(),
        };
        ImageInventory {
            sha256: "ab".repeat(32),
            packages: vec![package("libc6", "glibc"), package("libc-bin", "glibc")],
            os_release: [("ID", "debian"), ("VERSION_ID", "12")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            record: json!({
                "image": "host", "version": "inputs", "built_at": "1757152340",
                "lineage": ["index sha256:1234"], "bundles": ["h200-ib@1.0.0"],
            }),
            ..ImageInventory::default()
        }
    }

    #[test]
    fn every_package_is_there_once_with_its_source() {
        let document = spdx_document("host", &inventory());
        let packages = document["packages"].as_array().unwrap();
        assert_eq!(packages.len(), 4, "the image, two binaries, one source: {document:#}");
        let ids: Vec<&str> = packages.iter().map(|one| one["SPDXID"].as_str().unwrap()).collect();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        assert!(ids.iter().all(|id| id.chars().all(plain)), "{ids:?}");
        let relations = document["relationships"].as_array().unwrap();
        let is_known = |id: &Value| id == "SPDXRef-DOCUMENT" || ids.contains(&id.as_str().unwrap());
        assert!(relations.iter().all(|one| is_known(&one["relatedSpdxElement"])));
        let generated = relations.iter().filter(|one| one["relationshipType"] == "GENERATED_FROM");
        assert_eq!(generated.count(), 2);
        assert_eq!(document["creationInfo"]["created"], "2025-09-06T09:52:20Z");
        let purl = &packages[1]["externalRefs"][0]["referenceLocator"];
        assert_eq!(purl, "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12");
        assert_eq!(document, spdx_document("host", &inventory()));
    }

    #[test]
    fn package_addresses_name_the_images_own_distribution() {
        for (fields, wanted) in [
            (vec![("ID", "ubuntu"), ("VERSION_ID", "24.04")], ("ubuntu/", "&distro=ubuntu-24.04")),
            (
                vec![("ID", "debian"), ("VERSION_CODENAME", "sid")],
                ("debian/", "&distro=debian-sid"),
            ),
            (vec![("ID", "debian")], ("debian/", "")),
            (vec![], ("", "")),
        ] {
            let fields =
                fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
            let inventory = ImageInventory { os_release: fields.collect(), ..inventory() };
            let url = package_url(&inventory.packages[0], &inventory);
            let (namespace, distribution) = wanted;
            let text = "libc6@1%3A2.36-9%2Bdeb12u1?arch=amd64";
            assert_eq!(url, format!("pkg:deb/{namespace}{text}{distribution}"));
        }
        assert_eq!(file_name("x.tgz"), "x.tgz");
        assert_eq!(file_name("host"), "host.tar.gz");
    }

    #[test]
    fn the_statement_is_about_the_archive_and_names_its_inputs() {
        let inventory = inventory();
        let sbom = spdx_document("host", &inventory);
        let statement = provenance("host", &inventory, &sbom);
        assert_eq!(statement["subject"][0]["digest"]["sha256"], inventory.sha256.as_str());
        let definition = &statement["predicate"]["buildDefinition"];
        assert_eq!(definition["resolvedDependencies"][0]["digest"]["sha256"], "1234");
        assert_eq!(definition["internalParameters"]["input_digest"], "inputs");
        let digest = hex::encode(Sha256::digest(sbom.to_string()));
        let byproduct = &statement["predicate"]["runDetails"]["byproducts"][0];
        assert_eq!(byproduct["digest"]["sha256"], digest.as_str());
    }

    #[test]
    fn times_are_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(iso_time(seconds), text);
        }
    }
}
