use std::collections::BTreeMap;

use gpuaas_bundle::{Archive, Digest, Gate, Inputs, SigningKey, TrustedKey};
use gpuaas_types::Timestamp;
use gpuaas_types::agent::HostCheck;
use gpuaas_types::api::BundlePin;

use super::*;
use crate::source::read_files;
use crate::store::ArtifactStore;

const NOW: Timestamp = Timestamp::from_micros(1_795_190_400_000_000);

struct Fixture {
    _dir: tempfile::TempDir,
    store: ArtifactStore,
    key: SigningKey,
    catalog: BundleCatalog,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        let key = SigningKey::generate().unwrap();
        let catalog = BundleCatalog::with_built_in(&store, &key, NOW).unwrap();
        Self { _dir: dir, store, key, catalog }
    }

    fn publish(&self, manifest: &str) -> Digest {
        let script = b"#!/bin/bash\nset -euo pipefail\n".to_vec();
        let files = [("p.sh".to_owned(), script)].into();
        let bytes = read_files(manifest, files, Vec::new()).unwrap().write().unwrap();
        let bundle = CheckedBundle::read(&bytes).unwrap();
        let (digest, envelope) = (bundle.digest, self.key.sign(&bundle.statement(NOW)).unwrap());
        let published_by = "ann".to_owned();
        let one =
            CatalogBundle { bundle, envelope, built_in: false, published_by, published_at: NOW };
        self.catalog.add(&bytes, one).unwrap();
        digest
    }
}

fn manifest(name: &str, more: &str) -> String {
    format!(
        "name: {name}\nversion: 1.0.0\nkind: site_bootstrap\nabout: a test\n{more}\n\
         phases: [{{name: p, run: p.sh, timeout_seconds: 1}}]\n"
    )
}

const INPUTS: &str = "inputs:
  uplink: {type: interface, about: the uplink, environment: UPLINK}
  token: {type: string, about: a secret, environment: TOKEN, default: '', secret: true}";

fn inputs(pairs: &[(&str, &str)]) -> Inputs {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn code<T: std::fmt::Debug>(result: Result<T, CatalogError>) -> &'static str {
    result.unwrap_err().code()
}

#[test]
fn the_bundles_of_this_repository_are_built_in_and_signed() {
    let fixture = Fixture::new();
    let names: Vec<String> = fixture.catalog.list().iter().map(|b| b.bundle.reference()).collect();
    for name in ["h200-ib@", "h200-slice-vm@", "site-base@", "validate-base@", "validate-h200@"] {
        assert!(names.iter().any(|one| one.starts_with(name)), "{names:?}");
    }
    let pins = fixture.catalog.pins(gpuaas_types::built_in_bundle!("h200-slice-vm")).unwrap();
    let order: Vec<&str> = pins.iter().map(|pin| pin.bundle.as_str()).collect();
    assert_eq!(
        order,
        [
            gpuaas_types::built_in_bundle!("h200-ib"),
            gpuaas_types::built_in_bundle!("h200-slice-vm")
        ]
    );
    let set = inputs(&[("fabric_subnet", "10.9.0.0/16")]);
    let delivery =
        fixture.catalog.delivery(&pins, set.clone(), Inputs::new(), &[], NOW).unwrap().unwrap();
    assert_eq!((delivery.bundles.len(), &delivery.inputs), (2, &set));
    let digest = delivery.bundles[1].artifact.digest;
    assert_eq!(delivery.bundles[1].artifact.url, ArtifactStore::url_path(&digest));
    assert!(fixture.catalog.has_gate(&pins, Gate::SliceReady));
    assert!(
        !fixture
            .catalog
            .has_gate(&fixture.catalog.pins("site-base@1.0.0").unwrap(), Gate::SliceReady)
    );
    let ask = |reference, set| fixture.catalog.validation(reference, &set);
    assert!(!ask("validate-base@1.0.1", BTreeMap::new()).unwrap().is_empty());
    let of_site = inputs(&[("ports_active", "4"), ("package_stack", "0")]);
    let asked = ask(
        gpuaas_types::built_in_bundle!("validate-h200"),
        BTreeMap::from([("validate-h200".to_owned(), of_site)]),
    );
    let asked = asked.unwrap();
    assert!(
        asked.iter().any(|check| {
            matches!(check, HostCheck::InfinibandPortsActive { count: 4, link_layer, .. }
            if link_layer == "InfiniBand")
        }),
        "{asked:?}"
    );
    assert!(!asked.iter().any(|check| matches!(check, HostCheck::PackageInstalled { .. })));
    let wrong = inputs(&[("ports_active", "four")]);
    let wrong = ask(
        gpuaas_types::built_in_bundle!("validate-h200"),
        BTreeMap::from([("validate-h200".to_owned(), wrong)]),
    );
    assert_eq!(code(wrong), "bundle_input_invalid");
    let scripts = fixture.catalog.commissioning("commissioning-base@1.0.0").unwrap();
    let labels: Vec<&str> = scripts.iter().map(|s| s.script.label.as_str()).collect();
    assert_eq!(labels, ["fabric-ports", "gpu-presence", "nvme-health"]);
}

#[test]
fn bare_metal_is_asked_for_its_gpus_and_a_slice_host_for_its_fabric() {
    let fixture = Fixture::new();
    let pins = |reference| fixture.catalog.pins(reference).unwrap();
    let (metal, slices) = (
        pins(gpuaas_types::built_in_bundle!("h200-ib")),
        pins(gpuaas_types::built_in_bundle!("h200-slice-vm")),
    );
    assert!(!fixture.catalog.has_gate(&metal, Gate::SliceReady));
    assert!(fixture.catalog.has_gate(&slices, Gate::SliceReady));
    let asked = |pins: &[BundlePin], pairs, gate| {
        let checks = fixture.catalog.gate_checks(pins, &inputs(pairs), gate).unwrap();
        checks.iter().map(HostCheck::name).collect::<Vec<_>>()
    };
    let set = inputs(&[("gpu_count", "4"), ("require_hw_sync", "1")]);
    let active = fixture.catalog.gate_checks(&metal, &set, Gate::Active).unwrap();
    assert!(active.contains(&HostCheck::NvidiaGpus { count: 4, model: "H200".to_owned() }));
    let fabric = [
        "infiniband",
        "address 192.168.0.0/16 on any InfiniBand link",
        "route 192.168.0.0/16 on any InfiniBand link",
    ];
    let login = ["sshd passwordauthentication", "sshd permitrootlogin", "sshd authorizedkeysfile"];
    let rest =
        ["unit docker.service", "nvidia-smi", "nvidia fabric", "unit maas_hardware_sync.timer"];
    let names: Vec<String> = active.iter().map(HostCheck::name).collect();
    assert_eq!(names, [&fabric[..], &login, &rest].concat());
    assert_eq!(asked(&slices, &[], Gate::Active), login);
    assert_eq!(asked(&metal, &[], Gate::SliceReady), [""; 0]);
    let ready = asked(&slices, &[], Gate::SliceReady);
    for name in ["file /etc/netplan/60-ipoib.yaml", "unit libvirtd.service"] {
        assert_eq!(ready.iter().filter(|one| *one == name).count(), 1, "{ready:?}");
    }
}

#[test]
fn a_reference_is_a_name_or_a_digest_and_of_the_kind_that_is_wanted() {
    let fixture = Fixture::new();
    let digest = fixture.publish(&manifest("site-net", ""));
    for reference in ["site-net@1.0.0".to_owned(), digest.to_string(), format!("sha256:{digest}")] {
        assert_eq!(fixture.catalog.find(&reference).unwrap().bundle.digest, digest, "{reference}");
        assert_eq!(fixture.catalog.pins(&reference).unwrap().len(), 1);
    }
    let error = fixture.catalog.commissioning("site-base@1.0.0").unwrap_err();
    assert_eq!(error.code(), "bundle_not_found");
    assert!(error.hint().contains("commissioning-base@1.0.0"), "{}", error.hint());
    assert!(!error.hint().contains("site-base@1.0.0"), "{}", error.hint());
    for bad in ["", "site-base", "@1", "a@", "../x@1", "A@1", "a@../1", "a@1@2", "a@1/2"] {
        assert_eq!(code(fixture.catalog.find(bad)), "bundle_ref_invalid", "{bad}");
    }
}

#[test]
fn pins_outlive_a_newer_bundle_of_the_same_name() {
    let fixture = Fixture::new();
    let old = fixture.catalog.pins("site-base@1.0.0").unwrap();
    let new = fixture.publish(&manifest("site-base", ""));
    assert_eq!(fixture.catalog.find("site-base@1.0.0").unwrap().bundle.digest, new);
    let pinned = fixture.catalog.pinned(&old).unwrap();
    assert_ne!(pinned[0].bundle.digest, new);
    assert!(
        fixture.catalog.delivery(&old, Inputs::new(), Inputs::new(), &[], NOW).unwrap().is_some()
    );
}

#[test]
fn inputs_are_checked_when_they_are_set_and_missed_when_they_are_needed() {
    let fixture = Fixture::new();
    fixture.publish(&manifest("site-net", INPUTS));
    fixture.publish(&manifest(
        "above",
        "inputs: {link: {type: string, about: x, environment: LINK, default: a/b}}\n\
         requires: [{bundle: site-net@1.0.0, with: {uplink: '{link}'}}]",
    ));
    let pins = fixture.catalog.pins("site-net@1.0.0").unwrap();
    let check = |pairs| fixture.catalog.check_inputs(&pins, &inputs(pairs));
    check(&[]).unwrap();
    check(&[("uplink", "eno1")]).unwrap();
    assert_eq!(code(check(&[("uplink", "a/b")])), "bundle_input_invalid");
    assert_eq!(code(check(&[("uplnik", "eno1")])), "bundle_input_unknown");
    let open = check(&[("token", "s")]).unwrap_err();
    assert_eq!(open.code(), "bundle_secret_in_open");
    assert!(open.hint().contains("secret set SITE site-net token --file"), "{}", open.hint());
    let deliver = |pins: &[BundlePin], pairs| {
        fixture.catalog.delivery(pins, inputs(pairs), Inputs::new(), &[], NOW).map(drop)
    };
    assert_eq!(code(deliver(&pins, &[])), "bundle_input_missing");
    deliver(&pins, &[("uplink", "eno1")]).unwrap();
    let above = fixture.catalog.pins("above@1.0.0").unwrap();
    let error = deliver(&above, &[]).unwrap_err();
    assert_eq!(error.to_string(), "site-net@1.0.0: input uplink: not an interface name");
    deliver(&above, &[("link", "eno1")]).unwrap();
}

#[test]
fn secrets_travel_apart_from_what_may_be_shown() {
    let fixture = Fixture::new();
    fixture.publish(&manifest("below", &INPUTS.replace("default: '', ", "")));
    fixture.publish(&manifest(
        "site-net",
        &format!(
            "{INPUTS}\nrequires: [{{bundle: below@1.0.0, \
             with: {{uplink: '{{uplink}}', token: '{{token}}'}}}}]"
        ),
    ));
    let deliver = |bundle: &str, open, secret| {
        let pins = fixture.catalog.pins(bundle).unwrap();
        fixture.catalog.delivery(&pins, inputs(open), inputs(secret), &[], NOW)
    };
    let (open, secret) = ([("uplink", "eno1")], [("token", "h8sh-<x>-{{"), ("uplink", "eno9")]);
    let given = deliver("site-net@1.0.0", &open, &secret).unwrap().unwrap();
    assert_eq!((given.inputs.len(), given.secrets.len()), (1, 1), "what is no secret is none");
    assert_eq!(given.values(), inputs(&[("uplink", "eno1"), ("token", "h8sh-<x>-{{")]));
    assert!(!format!("{given:?}").contains("h8sh"));
    assert_eq!(code(deliver("below@1.0.0", &open, &[])), "bundle_secret_missing");
    let requires = "requires: [{bundle: below@1.0.0, with: {uplink: '{token}'}}]";
    fixture.publish(&manifest("gives", &format!("{INPUTS}\n{requires}")));
    assert_eq!(code(deliver("gives@1.0.0", &open, &secret)), "bundle_secret_given_away");
    let in_open = deliver("below@1.0.0", &[("uplink", "eno1"), ("token", "h8sh")], &[]);
    assert_eq!(code(in_open), "bundle_secret_in_open");
}

#[test]
fn what_holds_a_secret_is_looked_at_by_the_host_alone() {
    let fixture = Fixture::new();
    let secret = INPUTS.replace("string", "integer").replace("default: '', ", "");
    let expects = "expects: [{gates: [active], check: file_exists, path: '/{uplink}'}, \
                   {gates: [active], check: file_has_line, path: /x, line: 'x{token}'}]";
    fixture.publish(&manifest("below", &format!("{secret}\n{expects}")));
    let with = "with: {uplink: '{uplink}', token: '{token}'}";
    let requires = format!("requires: [{{bundle: below@1.0.0, {with}}}]");
    fixture.publish(&manifest("site-net", &format!("{secret}\n{requires}")));
    let pins = fixture.catalog.pins("site-net@1.0.0").unwrap();
    let checks = fixture.catalog.gate_checks(&pins, &inputs(&[("uplink", "eno1")]), Gate::Active);
    let path = "/eno1".to_owned();
    assert_eq!(checks.unwrap(), [HostCheck::FileExists { path }]);
    let missing = fixture.catalog.gate_checks(&pins, &Inputs::new(), Gate::Active);
    assert_eq!(code(missing), "bundle_input_missing");
}

#[test]
fn a_signature_that_does_not_count_any_more_stops_a_delivery() {
    let fixture = Fixture::new();
    let other = SigningKey::generate().unwrap();
    let elsewhere = BundleCatalog::new(fixture.store.clone(), &other);
    for one in fixture.catalog.list() {
        elsewhere.add(&[], (*one).clone()).unwrap();
    }
    let pins = elsewhere.pins("site-base@1.0.0").unwrap();
    let none = Inputs::new;
    let deliver = |trusted: &[TrustedKey]| elsewhere.delivery(&pins, none(), none(), trusted, NOW);
    assert_eq!(code(deliver(&[])), "signature_key_unknown");
    let mut key = TrustedKey { name: "old".to_owned(), key: fixture.key.public(), until: None };
    assert_eq!(deliver(&[key.clone()]).unwrap().unwrap().trusted_keys.len(), 2);
    key.until = Some(NOW);
    assert_eq!(code(deliver(&[key])), "signature_key_retired");
}

#[test]
fn what_a_gate_asks_follows_the_inputs_down_to_what_is_required() {
    let fixture = Fixture::new();
    let pins = fixture.catalog.pins(gpuaas_types::built_in_bundle!("h200-slice-vm")).unwrap();
    let asked = |pairs: &[(&str, &str)]| {
        let checks = fixture.catalog.gate_checks(&pins, &inputs(pairs), Gate::Telemetry).unwrap();
        checks
            .into_iter()
            .filter_map(|check| match check {
                HostCheck::HttpAnswers { port, .. } => Some(port),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(asked(&[]), [19998, 19999]);
    assert_eq!(asked(&[("netdata_edge_listen", "0.0.0.0:29999")]), [19998, 29999]);
    assert_eq!(asked(&[("netdata_bind", "127.0.0.1:20000")]), [20000, 19999]);
    assert!(asked(&[("enable_netdata", "0")]).is_empty());
    assert!(fixture.catalog.gate_checks(&[], &Inputs::new(), Gate::Telemetry).unwrap().is_empty());
}

#[test]
fn what_no_build_would_write_is_refused() {
    assert_eq!(code(CheckedBundle::read(b"no tar")), "bundle_malformed");
    let script = b"#!/bin/sh\ntrue\n".to_vec();
    let entry = gpuaas_bundle::Entry { bytes: script, executable: true };
    let manifest = serde_saphyr::from_str(&manifest("site-net", "")).unwrap();
    let archive = Archive { manifest, files: [("p.sh".to_owned(), entry)].into() };
    let error = CheckedBundle::read(&archive.write().unwrap()).unwrap_err();
    assert_eq!(error.code(), "bundle_invalid");
    assert!(error.to_string().contains("a phase must start with #!/bin/bash"), "{error}");
}

#[test]
fn bundles_that_require_each_other_are_named() {
    let fixture = Fixture::new();
    fixture.publish(&manifest("a", "requires: [{bundle: b@1.0.0}]"));
    fixture.publish(&manifest("b", "requires: [{bundle: a@1.0.0}]"));
    assert_eq!(code(fixture.catalog.pins("a@1.0.0")), "bundle_circle");
    let a = fixture.catalog.find("a@1.0.0").unwrap();
    fixture.catalog.check_requires(&a.bundle.manifest).unwrap();
    let missing = manifest("c", "requires: [{bundle: d@1.0.0}]");
    fixture.publish(&missing);
    assert_eq!(code(fixture.catalog.pins("c@1.0.0")), "bundle_not_found");
}

#[test]
fn values_for_a_required_bundle_reach_it_where_they_are_handed_on() {
    let fixture = Fixture::new();
    let slices = fixture.catalog.pins(gpuaas_types::built_in_bundle!("h200-slice-vm")).unwrap();
    let set = |bundle: &str, pairs| (bundle.to_owned(), inputs(pairs));
    let both = BTreeMap::from([
        set(
            "h200-ib",
            &[("fabric_links", "8"), ("telemetry_deny", "10.9.0.0/16"), ("ofed", "inbox")],
        ),
        set("h200-slice-vm", &[("ofed", "none"), ("bridge", "br0")]),
        set("site-base", &[("anything", "else")]),
    ]);
    let (values, lost) = fixture.catalog.values_of_site_bundle(&slices, &both).unwrap();
    let pairs = [
        ("bridge", "br0"),
        ("fabric_links", "8"),
        ("ofed", "none"),
        ("telemetry_deny", "10.9.0.0/16"),
    ];
    assert_eq!(values, inputs(&pairs));
    assert!(lost.is_none(), "{lost:?}");
    let checks = fixture.catalog.gate_checks(&slices, &values, Gate::SliceReady).unwrap();
    assert!(
        checks.iter().any(|check| matches!(check, HostCheck::InfinibandUp { count: 8, .. })),
        "{checks:?}"
    );
    // What a slice host decides by itself is of bare metal alone.
    let decided = BTreeMap::from([set("h200-ib", &[("host_role", "baremetal")])]);
    let (values, lost) = fixture.catalog.values_of_site_bundle(&slices, &decided).unwrap();
    assert!(values.is_empty());
    assert_eq!(lost.unwrap().code(), "bundle_input_not_passed_on");
    let metal = fixture.catalog.pins(gpuaas_types::built_in_bundle!("h200-ib")).unwrap();
    let (values, lost) = fixture.catalog.values_of_site_bundle(&metal, &decided).unwrap();
    assert_eq!((values, lost.is_none()), (inputs(&[("host_role", "baremetal")]), true));
}
