use super::*;

fn manifest(change: serde_json::Value) -> Manifest {
    let mut base = serde_json::json!({
        "name": "site-net", "version": "1.0.0", "kind": "site_bootstrap",
        "about": "network of a site",
        "inputs": {
            "netdata": {"type": "boolean", "about": "telemetry", "default": "1", "environment": "NETDATA"},
            "hcas": {"type": "integer", "about": "HCAs", "default": "8", "environment": "HCAS"},
        },
        "phases": [{"name": "net", "run": "phases/net.sh", "timeout_seconds": 60, "touches": ["/etc/netplan"]}],
        "expects": [
            {"check": "infiniband_up", "count": "{hcas}"},
            {"only_when": "netdata", "check": "unit_active", "unit": "netdata.service"},
        ],
    });
    for (name, value) in change.as_object().unwrap() {
        base[name] = value.clone();
    }
    serde_json::from_value(base).unwrap()
}

fn faults(change: serde_json::Value) -> Vec<String> {
    let files = ["phases/net.sh".to_owned()].into();
    manifest(change).faults(&files).iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_manifest_has_no_fault_and_its_checks_have_values() {
    assert_eq!(faults(serde_json::json!({})), [""; 0]);
    assert_eq!(faults(serde_json::json!({"format": 9})), ["format: expected 1 to 4"]);
    let manifest = manifest(serde_json::json!({}));
    let set = [("netdata".to_owned(), "no".to_owned()), ("hcas".to_owned(), "4".to_owned())];
    let values = manifest.resolve(&set.into()).unwrap();
    assert_eq!(
        manifest.checks(&values).unwrap(),
        [HostCheck::InfinibandUp { count: 4, interface: None }]
    );
    let values = manifest.resolve(&Inputs::new()).unwrap();
    assert_eq!(manifest.checks(&values).unwrap().len(), 2);
}

#[test]
fn every_fault_is_named_with_its_path() {
    let all = [
        serde_json::json!({"name": "Site"}),
        serde_json::json!({"about": ""}),
        serde_json::json!({"phases": []}),
        serde_json::json!({"kind": "post_deploy_validation"}),
        serde_json::json!({"kind": "post_deploy_validation", "phases": [], "inputs": {
            "token": {"type": "string", "about": "x", "environment": "TOKEN", "secret": true},
        }, "expects": [{"check": "file_exists", "path": "/x"}]}),
        serde_json::json!({"requires": [
            {"bundle": "site-net@1"}, {"bundle": "a@1", "with": {"x": "{nosuch}"}},
            {"bundle": "a@2"}, {"bundle": "b"},
        ]}),
        serde_json::json!({"inputs": {
            "Bad": {"type": "string", "about": "x", "environment": "lower"},
            "token": {"type": "string", "about": "x", "environment": "TOKEN", "default": "s", "secret": true},
            "twin": {"type": "integer", "about": "", "environment": "TOKEN", "default": "x"},
        }, "expects": []}),
        serde_json::json!({"phases": [
            {"name": "net", "run": "phases/net.sh", "timeout_seconds": 0, "only_when": "hcas"},
            {"name": "net", "run": "../x.sh", "timeout_seconds": 1, "only_when": "nosuch", "touches": ["etc"]},
        ]}),
        serde_json::json!({"packages": {"required": ["bash; rm"]}}),
        serde_json::json!({"expects": [{"check": "shell", "run": "true"}]}),
        serde_json::json!({"expects": [{"check": "unit_active", "unit": "{nosuch}"}]}),
        serde_json::json!({"expects": [{"check": "infiniband_up", "count": "{hcas:port}"}]}),
    ];
    let text: Vec<String> = all.into_iter().flat_map(faults).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn each_effect_of_a_new_bundle_names_the_phase_that_establishes_it() {
    let with = |by: &str| {
        faults(serde_json::json!({"format": 4, "requires": [{"bundle": "base@1.0.0"}], "expects": [
            {"check": "infiniband_up", "count": 8, "by": by},
        ]}))
    };
    for good in ["net", "base/net", "requires"] {
        assert_eq!(with(good), [""; 0], "{good}");
    }
    let neither = "is neither a phase of this bundle nor of a required bundle";
    for bad in ["nets", "other/net", "base/", ""] {
        assert_eq!(with(bad), [format!("expects[0]: by: {bad:?} {neither}")]);
    }
    let none = faults(serde_json::json!({"format": 4}));
    assert_eq!(none.len(), 2, "{none:?}");
    assert!(none[0].starts_with("expects[0]: by: name the phase"), "{none:?}");
    let old = faults(serde_json::json!({"format": 3, "expects": [
        {"check": "infiniband_up", "count": 8, "by": "net"}]}));
    assert_eq!(old, ["expects[0]: by: allowed only in site bootstraps of format 4 or later"]);
}

#[test]
fn packages_follow_their_switch() {
    let when = serde_json::json!({"required": ["a1"], "when": {"netdata": ["b1", "c1"]}});
    let manifest = manifest(serde_json::json!({"packages": when}));
    let switched = |value: &str, on: bool| {
        let values = [("netdata".to_owned(), value.to_owned())].into();
        manifest.packages.switched(&values, on).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        (switched("1", true), switched("1", false)),
        (vec!["b1".into(), "c1".into()], vec![])
    );
    assert_eq!(
        (switched("0", true), switched("0", false)),
        (vec![], vec!["b1".into(), "c1".into()])
    );
    let other = serde_json::json!({"packages": {"when": {"hcas": ["b1"], "nosuch": ["b1"]}}});
    let faults = faults(other);
    assert_eq!(faults[0], "packages.when: only_when: input hcas is not a boolean", "{faults:?}");
    assert_eq!(faults[1], "packages.when: only_when: unknown input nosuch", "{faults:?}");
}

#[test]
fn an_unknown_field_is_refused() {
    let text = r#"{"name":"a","version":"1","kind":"site_bootstrap","about":"x","phase":[]}"#;
    let error = serde_json::from_str::<Manifest>(text).unwrap_err().to_string();
    assert!(error.contains("unknown field `phase`"), "{error}");
}
