//! The bounds of operations: what may be asked of a host, and what may not.

use super::*;

fn read(text: &str) -> Result<Operation, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn refused(text: &str) -> String {
    read(text).unwrap().check().unwrap_err().field
}

#[test]
fn every_kind_is_known_by_name() {
    let error = read(r#"{"kind":"other"}"#).unwrap_err();
    let (_, expected) = error.split_once("expected one of ").unwrap();
    let expected = expected.split(" at line").next().unwrap().replace('`', "");
    assert_eq!(expected.split(", ").collect::<Vec<_>>(), Operation::KINDS);
}

#[test]
fn what_reaches_a_host_cannot_be_stopped() {
    for unit in ["ssh.service", "sshd.service", "gpuaas-node-agent.service", "network.target", "-x"]
    {
        assert_eq!(
            refused(&format!(r#"{{"kind":"service","action":"stop","unit":"{unit}"}}"#)),
            "unit"
        );
    }
    for unit in SERVICE_UNITS {
        let text = format!(r#"{{"kind":"service","action":"restart","unit":"{unit}"}}"#);
        assert!(read(&text).unwrap().check().is_ok());
        assert!(is_unit(unit));
    }
    assert!(read(r#"{"kind":"service","action":"mask","unit":"nginx.service"}"#).is_err());
    assert!(
        read(r#"{"kind":"service","action":"stop","unit":"nginx.service","shell":"x"}"#).is_err()
    );
    assert!(read(r#"{"kind":"shell","command":"true"}"#).is_err());
}

#[test]
fn every_bound_is_named() {
    let digest = "a".repeat(64);
    let cases = [
        (r#"{"kind":"refresh_trust","registries":[]}"#.to_owned(), "registries"),
        (
            r#"{"kind":"refresh_trust","registries":[{"host":"../etc","mirrors":["https://m"]}]}"#
                .to_owned(),
            "registries.0.host",
        ),
        (
            r#"{"kind":"refresh_trust","registries":[{"host":"r:0","mirrors":["https://m"]}]}"#
                .to_owned(),
            "registries.0.host",
        ),
        (
            r#"{"kind":"refresh_trust","registries":[{"host":"r"}]}"#.to_owned(),
            "registries.0.ca_pem",
        ),
        (
            r#"{"kind":"refresh_trust","registries":[{"host":"r","ca_pem":"PRIVATE KEY"}]}"#
                .to_owned(),
            "registries.0.ca_pem",
        ),
        (
            r#"{"kind":"refresh_trust","registries":[{"host":"r","mirrors":["https://m\"]\nx"]}]}"#
                .to_owned(),
            "registries.0.mirrors",
        ),
        (r#"{"kind":"update_packages","packages":[]}"#.to_owned(), "packages"),
        (r#"{"kind":"update_packages","packages":[{"name":"-y"}]}"#.to_owned(), "packages.0.name"),
        (
            r#"{"kind":"update_packages","packages":[{"name":"ab","version":"-o"}]}"#.to_owned(),
            "packages.0.version",
        ),
        (
            r#"{"kind":"update_packages","packages":[{"name":"ab"},{"name":"ab"}]}"#.to_owned(),
            "packages.1.name",
        ),
        (
            r#"{"kind":"update_packages","packages":[{"name":"ab"}],"hold":["ab"]}"#.to_owned(),
            "packages.0.name",
        ),
        (
            r#"{"kind":"update_packages","packages":[{"name":"ab"}],"along":["A"]}"#.to_owned(),
            "along.0",
        ),
        (
            r#"{"kind":"update_packages","packages":[{"name":"ab"}],"lock_seconds":9999}"#
                .to_owned(),
            "lock_seconds",
        ),
        (r#"{"kind":"collect_diagnostics","units":["x"]}"#.to_owned(), "units.0"),
        (r#"{"kind":"collect_diagnostics","journal_lines":0}"#.to_owned(), "journal_lines"),
        (r#"{"kind":"collect_diagnostics","most_bytes":1}"#.to_owned(), "most_bytes"),
        (r#"{"kind":"agent_update"}"#.to_owned(), "version"),
        (
            format!(
                r#"{{"kind":"agent_update","version":"1","digest":"{digest}","size_bytes":0,"url":"/a"}}"#
            ),
            "size_bytes",
        ),
        (
            format!(
                r#"{{"kind":"agent_update","version":"1","digest":"{digest}","size_bytes":1,"url":"file:///a"}}"#
            ),
            "url",
        ),
    ];
    for (text, field) in cases {
        assert_eq!(refused(&text), field, "{text}");
    }
}

/// An update to `version` from the control plane's store.
fn agent_update(digest: &str, version: &str, floor: &str) -> String {
    let url = format!("/bootstrap/v1/artifacts/sha256/{digest}");
    format!(
        r#"{{"kind":"agent_update","version":"{version}","digest":"{digest}","size_bytes":1,"url":"{url}","floor":"{floor}"}}"#
    )
}

#[test]
fn an_agent_is_updated_from_the_control_plane_and_not_downgraded() {
    let digest = "a".repeat(64);
    let foreign =
        agent_update(&digest, "1", "1").replace("/boot", "https://elsewhere.example/boot");
    for (text, field) in [
        (foreign, "url"),
        (agent_update(&digest, "1", ""), "floor"),
        (agent_update(&digest, "x", "1"), "version"),
        (agent_update(&digest, "1.9.0", "1.10.0"), "version"),
    ] {
        assert_eq!(refused(&text), field, "{text}");
    }
    for (version, floor) in [("1.0.0", "1"), ("1.10.0", "1.9.0"), ("1.0.0", "1.0.0-rc.1")] {
        let operation = read(&agent_update(&digest, version, floor)).unwrap();
        assert_eq!(operation.check(), Ok(()), "{version} over {floor}");
    }
}

#[test]
fn defaults_are_within_bounds() {
    for text in [
        r#"{"kind":"repair_drift"}"#,
        r#"{"kind":"collect_diagnostics"}"#,
        r#"{"kind":"update_packages","packages":[{"name":"libc6","version":"2.39-0ubuntu8.4"}]}"#,
        r#"{"kind":"refresh_trust","registries":[{"host":"registry.example:5000","mirrors":["https://mirror.example/v2"]}]}"#,
    ] {
        let operation = read(text).unwrap();
        assert_eq!(operation.check(), Ok(()));
        let again: Operation =
            serde_json::from_value(serde_json::to_value(&operation).unwrap()).unwrap();
        assert_eq!(again, operation);
    }
}
