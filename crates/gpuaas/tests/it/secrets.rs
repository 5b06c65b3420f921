//! A bundle's secret, from a file of the operator's to the host, and in clear nowhere else.

use std::fs;
use std::path::{Path, PathBuf};

use gpuaas_testkit::processes::Rig;

const SECRET: &str = "h8sh-from-a-file";
pub(crate) const MANIFEST: &str = "\
name: vault
version: 1.0.0
kind: site_bootstrap
about: a secret in a file
inputs:
  token:
    type: string
    about: what the host keeps for itself
    environment: VAULT_TOKEN
    secret: true
phases:
  - {name: keep, run: keep.sh, timeout_seconds: 60}
expects:
  - {gates: [active], check: file_has_line, path: /etc/vault.conf, line: \"{token}\"}
";
pub(crate) const SCRIPT: &str = "#!/bin/bash\nset -euo pipefail\nmkdir -p \"$GPUAAS_HOST_ROOT/etc\"\n\
    echo \"$VAULT_TOKEN\" >\"$GPUAAS_HOST_ROOT/etc/vault.conf\"\necho \"changed $VAULT_TOKEN\"\n";

/// Every file below `folder` that holds the secret.
fn holding(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(holding(&path));
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            let holds = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            found.extend(holds.then_some(path));
        }
    }
    found
}

#[test]
fn a_secret_goes_from_a_file_to_its_host_and_nowhere_else() {
    let hosts = tempfile::tempdir().unwrap();
    let rig = Rig::with(&["--hosts-dir", hosts.path().to_str().unwrap()]);
    rig.add_site();
    let folder = rig.dir.path().join("vault");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("bundle.yaml"), MANIFEST).unwrap();
    fs::write(folder.join("keep.sh"), SCRIPT).unwrap();
    rig.good(&format!("bundle publish {}", folder.display()));
    rig.good("bundle approve vault@1.0.0 --site lab --reason test");
    rig.good("profile add vault --set site_bootstrap_bundle_ref=vault@1.0.0");
    let (mac, _) = rig.machine("j22u11");
    let onboard = format!("node onboard j22u11 --site lab --profile vault --mac {mac}");
    let refused = rig.bad(&onboard, 3, "bundle_secret_missing");
    assert!(refused.contains("gpuaas site secret set lab vault token --file"), "{refused}");

    let file = rig.path("token");
    let set = format!("site secret set lab vault token --actor ann --file {file}");
    rig.bad(&set, 2, "file_unreadable");
    fs::write(&file, "\n").unwrap();
    rig.bad(&set, 2, "secret_missing");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    rig.bad(&set.replace("token --actor", "nosuch --actor"), 3, "bundle_input_unknown");
    assert!(rig.good(&set).contains("vault"));
    let listed = rig.json("site secret list lab -o json");
    assert_eq!(
        (&listed["items"][0]["input"], &listed["items"][0]["set_by"]),
        (&"token".into(), &"admin (ann)".into())
    );
    assert!(rig.good("site secret list lab").contains("token"));
    let open = "profile set vault --input token=open";
    assert!(rig.bad(open, 3, "bundle_secret_in_open").contains("site secret set SITE vault token"));
    rig.good(&format!("{onboard} --wait --timeout 120"));

    let conf = holding(hosts.path()).into_iter().find(|path| path.ends_with("etc/vault.conf"));
    let conf = conf.unwrap();
    assert_eq!(fs::read_to_string(&conf).unwrap(), format!("{SECRET}\n"));
    fs::remove_file(&conf).unwrap();
    let repaired = rig.good("node task j22u11 repair-drift --wait --timeout 120 -o json");
    assert!(repaired.contains("bundle vault@1.0.0"), "{repaired}");
    assert_eq!(fs::read_to_string(&conf).unwrap(), format!("{SECRET}\n"));
    let shown = [
        repaired,
        rig.good("node show j22u11 -o yaml"),
        rig.good("node tasks j22u11 -o yaml"),
        rig.good("node task j22u11 diagnostics --wait --timeout 120 -o json"),
        rig.good("bundle list -o json"),
        rig.good("profile show vault -o json"),
        rig.good("site show lab -o json"),
        rig.sim.log(),
        rig.control_plane.log(),
    ];
    assert!(shown.iter().all(|text| !text.contains("h8sh")), "{shown:#?}");
    let data = holding(&rig.dir.path().join("data"));
    assert!(data.is_empty(), "{data:?}");
    let mut left: Vec<String> = holding(hosts.path())
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    left.sort();
    left.dedup();
    assert_eq!(left, ["bootstrap.json", "vault.conf", "vault.secrets"], "what is root's alone");

    let gone = rig.json("site secret delete lab vault token --actor bob -o json");
    assert_eq!(gone["items"], serde_json::json!([]));
    rig.bad("site secret delete lab vault token", 3, "secret_not_found");
    rig.bad("profile secret list nosuch", 3, "profile_not_found");
}
