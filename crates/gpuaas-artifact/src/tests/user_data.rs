//! User-data against its inputs, shellcheck and the real cloud-init.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{
    Artifact, ArtifactStore, BootstrapInputs, BootstrapLimits, BundleCatalog, Digest, ParseError,
    RenderError, parse_user_data, render_user_data, unpack_user_data,
};
use base64::Engine as _;
use gpuaas_bundle::{Delivery, Inputs, SignedBundle, SigningKey, Statement, TrustedKey};
use gpuaas_types::{RunId, Timestamp};
use serde_json::Value;

const CA: &str = include_str!("ca.pem");

fn artifact(name: &str) -> Artifact {
    let digest = Digest::sha256(name.as_bytes());
    Artifact {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        digest,
        size_bytes: 7,
        url: ArtifactStore::url_path(&digest),
    }
}

/// A key that is the same in every test run (RFC 8032, section 7.1, test 1).
fn key() -> SigningKey {
    let pem = "-----BEGIN PRIVATE KEY-----\n\
               MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
               -----END PRIVATE KEY-----\n";
    SigningKey::from_pem(pem).unwrap()
}

const SECRET: &str = "h8sh-<x>-{{0123456789}}";

fn delivery() -> Delivery {
    let artifact = artifact("site-base");
    let statement = Statement {
        bundle: artifact.reference(),
        digest: artifact.digest,
        signed_at: Timestamp::EPOCH,
        expires_at: None,
    };
    let envelope = key().sign(&statement).unwrap();
    Delivery {
        bundles: vec![SignedBundle { artifact, envelope }],
        inputs: [("uplink".to_owned(), "eno1".to_owned())].into(),
        // A password may look like a placeholder.
        secrets: [("token".to_owned(), SECRET.to_owned())].into(),
        trusted_keys: vec![TrustedKey { name: "ops".to_owned(), key: key().public(), until: None }],
    }
}

fn catalog(store: &ArtifactStore) -> BundleCatalog {
    BundleCatalog::with_built_in(store, &key(), Timestamp::EPOCH).unwrap()
}

fn inputs() -> BootstrapInputs {
    BootstrapInputs {
        run_id: RunId(uuid::Uuid::from_u128(7)),
        hostname: "j22u11".to_owned(),
        site: "lab-1".to_owned(),
        control_plane_url: "https://gpuaas.example:8443/base".to_owned(),
        bootstrap_token: "bootstrap-token_0123456789".to_owned(),
        enrollment_token: "enrollment.token~+/0123==".to_owned(),
        bundle: Some(delivery()),
        agent: artifact("gpuaas-node-agent"),
        ca_pem: Some(CA.to_owned()),
        control_plane_ca_pem: None,
        deploy_user: Some("hpcadmin".to_owned()),
        limits: BootstrapLimits::default(),
    }
}

#[test]
fn equal_inputs_give_equal_bytes_and_come_back() {
    let rendered = render_user_data(&inputs()).unwrap();
    assert_eq!(rendered.bytes, render_user_data(&inputs()).unwrap().bytes);
    assert_eq!(rendered.digest, Digest::sha256(&rendered.bytes));
    let names: Vec<_> = rendered.parts.iter().map(|part| part.file_name.as_str()).collect();
    assert_eq!(names, ["10-gpuaas.cfg", "50-site-bootstrap.sh", "60-node-bootstrap.sh"]);

    let parsed = parse_user_data(&rendered.bytes).unwrap();
    assert_eq!(parsed.inputs, inputs());
    let scripts: Vec<_> = parsed.scripts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(scripts, ["50-site-bootstrap.sh", "60-node-bootstrap.sh"]);

    let mut bare = inputs();
    (bare.bundle, bare.ca_pem, bare.deploy_user) = (None, None, None);
    let parsed = parse_user_data(&render_user_data(&bare).unwrap().bytes).unwrap();
    assert_eq!((&parsed.inputs, parsed.files.len()), (&bare, 1));
}

#[test]
fn no_debug_text_holds_a_secret() {
    let rendered = render_user_data(&inputs()).unwrap();
    let parsed = parse_user_data(&rendered.bytes).unwrap();
    let told = format!("{:?}", delivery());
    for text in [format!("{:?}", inputs()), format!("{rendered:?}"), format!("{parsed:?}"), told] {
        assert!(!text.contains("token_0123") && !text.contains("token~"), "{text}");
        assert!(!text.contains("h8sh"), "{text}");
    }
}

#[test]
fn unpacking_does_what_cloud_init_does() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let parsed = parse_user_data(&render_user_data(&inputs()).unwrap().bytes).unwrap();
    let scripts = unpack_user_data(&parsed, dir.path()).unwrap();
    assert_eq!(scripts.len(), 2);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let json = dir.path().join("etc/gpuaas/bootstrap.json");
    assert_eq!((mode(&json), mode(&scripts[0])), (0o600, 0o700));
    assert_eq!(std::fs::read_to_string(dir.path().join("etc/gpuaas/ca.pem")).unwrap(), CA);
    unpack_user_data(&parsed, dir.path()).unwrap();

    let mut astray = parsed.clone();
    astray.files[0].0 = "/etc/../../outside".to_owned();
    assert!(unpack_user_data(&astray, dir.path()).is_err());
}

#[test]
fn what_is_not_ours_is_not_guessed_at() {
    assert_eq!(parse_user_data(b"#cloud-config\n{}\n"), Err(ParseError::NotMultipart));
    let rendered = String::from_utf8(render_user_data(&inputs()).unwrap().bytes).unwrap();
    let other = rendered.replace("text/cloud-config", "text/plain");
    assert!(matches!(parse_user_data(other.as_bytes()), Err(ParseError::CloudConfig(_))));
}

fn bundle(inputs: &mut BootstrapInputs) -> &mut Delivery {
    inputs.bundle.as_mut().unwrap()
}

fn value(inputs: &mut BootstrapInputs) -> &mut String {
    let inputs: &mut Inputs = &mut bundle(inputs).inputs;
    inputs.values_mut().next().unwrap()
}

type Change = fn(&mut BootstrapInputs);

#[test]
fn unfinished_and_hostile_inputs_are_refused() {
    let cases: [(&str, Change); 26] = [
        ("bootstrap_placeholder", |i| i.hostname = "{{ hostname }}".into()),
        ("bootstrap_placeholder", |i| i.site = "REPLACE_ME".into()),
        ("bootstrap_placeholder", |i| i.control_plane_url = "https://<CONTROL PLANE>".into()),
        ("bootstrap_placeholder", |i| i.bootstrap_token = "changeme-changeme-x".into()),
        ("bootstrap_input_invalid", |i| i.hostname = "a\u{1b}[31m".into()),
        ("bootstrap_input_invalid", |i| i.hostname = "$(reboot)".into()),
        ("bootstrap_input_invalid", |i| i.hostname = "node.example.org".into()),
        ("bootstrap_input_invalid", |i| i.site = "../x".into()),
        ("bootstrap_input_invalid", |i| i.control_plane_url = "ftp://x".into()),
        ("bootstrap_input_invalid", |i| i.control_plane_url = "http:///x".into()),
        ("bootstrap_input_invalid", |i| i.control_plane_url = "http://x/\" -o /etc/passwd".into()),
        ("bootstrap_input_invalid", |i| i.bootstrap_token = "short".into()),
        ("bootstrap_input_invalid", |i| i.bootstrap_token = "0123456789abcdef\n".into()),
        ("bootstrap_input_invalid", |i| i.enrollment_token = "0123456789 abcdef".into()),
        ("bootstrap_input_invalid", |i| i.deploy_user = Some("root".into())),
        ("bootstrap_input_invalid", |i| i.deploy_user = Some("a:b".into())),
        ("bootstrap_input_invalid", |i| bundle(i).bundles[0].artifact.name = "a/b".into()),
        ("bootstrap_input_invalid", |i| *value(i) = "a\nb".into()),
        ("bootstrap_placeholder", |i| *value(i) = "{{ uplink }}".into()),
        ("bootstrap_input_invalid", |i| {
            bundle(i).secrets.insert("token".into(), "0123456789\n".into());
        }),
        ("bootstrap_input_invalid", |i| i.agent.url = "file:///etc/shadow".into()),
        ("ca_bundle_invalid", |i| i.ca_pem = Some("<SITE CA>".into())),
        ("ca_bundle_invalid", |i| i.control_plane_ca_pem = Some("not a certificate".into())),
        ("ca_bundle_invalid", |i| i.ca_pem = Some("not a certificate".into())),
        ("ca_bundle_invalid", |i| i.ca_pem = Some(CA.replace("END", "FIN"))),
        ("bootstrap_input_invalid", |i| i.ca_pem = Some(format!("\0\n{CA}"))),
    ];
    for (code, change) in cases {
        let mut changed = inputs();
        change(&mut changed);
        let error: RenderError = render_user_data(&changed).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(!error.to_string().contains("0123456789"), "{error}");
    }
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        test_report::skip(program, "not installed");
    }
    found
}

#[test]
fn the_scripts_pass_shellcheck() {
    if !is_there("shellcheck") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let parsed = parse_user_data(&render_user_data(&inputs()).unwrap().bytes).unwrap();
    let scripts = unpack_user_data(&parsed, dir.path()).unwrap();
    let catalog = catalog(&ArtifactStore::open(dir.path()).unwrap());
    assert_eq!(scripts.len(), 2);
    let check = |shell: &str, scripts: &[PathBuf]| {
        let arguments = ["-s", shell, "-f", "gcc"];
        let output = Command::new("shellcheck").args(arguments).args(scripts).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    };
    check("bash", &scripts);
    let mut commissioning = Vec::new();
    for script in catalog.commissioning("commissioning-base@1.0.0").unwrap() {
        let file = dir.path().join(&script.script.name);
        std::fs::write(&file, &script.text).unwrap();
        commissioning.push(file);
    }
    assert_eq!(commissioning.len(), 3);
    check("sh", &commissioning);
}

/// What a commissioning script says of a host of which only these files are there.
fn commissioning(label: &str, files: &[(&str, &str)]) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let catalog = catalog(&ArtifactStore::open(&dir.path().join("artifacts")).unwrap());
    let scripts = catalog.commissioning("commissioning-base@1.0.0").unwrap();
    let script = scripts.iter().find(|script| script.script.label == label).unwrap();
    let file = dir.path().join("script");
    std::fs::write(&file, &script.text).unwrap();
    let output = Command::new("sh")
        .arg(&file)
        .env("GPUAAS_HOST_ROOT", dir.path())
        .env("GPUAAS_LINK_WAIT_SECONDS", "0")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.success(), said)
}

#[test]
fn commissioning_scripts_tell_good_hosts_from_bad_ones() {
    const GPU: &str = "sys/bus/pci/devices/0000:1b:00.0";
    const VGA: &str = "sys/bus/pci/devices/0000:03:00.0";
    let [class, vendor, revision] = ["class", "vendor", "revision"].map(|f| format!("{GPU}/{f}"));
    let [vga_class, vga_vendor] = ["class", "vendor"].map(|f| format!("{VGA}/{f}"));
    let gpu = [(class.as_str(), "0x030200\n"), (&vendor, "0x10de\n"), (&revision, "0xa1\n")];
    let (good, said) = commissioning("gpu-presence", &gpu);
    assert!(good && said.contains("1 GPUs, 0 of them"), "{said}");
    let lost = [gpu[0], gpu[1], (revision.as_str(), "0xff\n")];
    assert!(!commissioning("gpu-presence", &lost).0);
    let vga = [(vga_class.as_str(), "0x030000\n"), (&vga_vendor, "0x1a03\n")];
    let (good, said) = commissioning("gpu-presence", &vga);
    assert!(!good && said.contains("no GPU"), "{said}");

    let port = "sys/class/infiniband/mlx5_0/ports/1/phys_state";
    let other = "sys/class/infiniband/mlx5_0/ports/2/phys_state";
    assert!(commissioning("fabric-ports", &[]).0);
    assert!(commissioning("fabric-ports", &[(port, "5: LinkUp\n"), (other, "2: Polling\n")]).0);
    let (good, said) = commissioning("fabric-ports", &[(port, "2: Polling\n")]);
    assert!(!good && said.contains("mlx5_0 has no port with a physical link"), "{said}");

    let state = "sys/class/nvme/nvme0/state";
    let space = "sys/class/nvme/nvme0/nvme0n1/size";
    assert!(commissioning("nvme-health", &[(state, "live\n"), (space, "1\n")]).0);
    assert!(!commissioning("nvme-health", &[(state, "live\n")]).0);
    let (good, said) = commissioning("nvme-health", &[(state, "dead\n"), (space, "1\n")]);
    assert!(!good && said.contains("the controller is dead"), "{said}");
}

/// cloud-init's own Python interpreter, from the first line of its executable.
fn cloud_init_python() -> Option<PathBuf> {
    if !is_there("cloud-init") {
        return None;
    }
    let which = Command::new("sh").args(["-c", "command -v cloud-init"]).output().unwrap();
    let script = std::fs::read(String::from_utf8(which.stdout).unwrap().trim()).unwrap();
    let first = String::from_utf8_lossy(script.split(|&byte| byte == b'\n').next()?).into_owned();
    Some(PathBuf::from(first.strip_prefix("#!")?.split_whitespace().next()?))
}

fn check(python: &Path, mode: &str, content: &[u8]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("input");
    std::fs::write(&file, content).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/cloud_init_check.py");
    let output = Command::new(python).args([script, mode]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn cloud_init_reads_every_part_and_accepts_the_cloud_config() {
    let Some(python) = cloud_init_python() else { return };
    let rendered = render_user_data(&inputs()).unwrap();
    let seen = check(&python, "parts", &rendered.bytes);
    let parts = seen["parts"].as_array().unwrap();
    assert_eq!(parts.len(), rendered.parts.len());
    for (seen, part) in parts.iter().zip(&rendered.parts) {
        let payload = seen["payload"].as_str().unwrap();
        let payload = base64::engine::general_purpose::STANDARD.decode(payload).unwrap();
        assert_eq!(seen["content_type"], part.content_type.as_str());
        assert_eq!(seen["file_name"], part.file_name.as_str());
        assert_eq!(Digest::sha256(&payload), part.digest, "{}", part.file_name);
        if part.content_type == "text/cloud-config" {
            accepted_by_schema(&payload);
        }
    }
    let json = &seen["config"]["write_files"][0];
    assert_eq!(
        (&json["path"], &json["permissions"]),
        (&"/etc/gpuaas/bootstrap.json".into(), &"0600".into())
    );
    let read: BootstrapInputs = serde_json::from_str(json["content"].as_str().unwrap()).unwrap();
    assert_eq!(read, inputs());
    assert_eq!(seen["config"]["write_files"][1]["content"], CA);
    assert_eq!(seen["login"], "hpcadmin");
}

fn accepted_by_schema(cloud_config: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, cloud_config).unwrap();
    let output =
        Command::new("cloud-init").args(["schema", "--config-file"]).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Valid"), "{text}");
}

#[test]
fn login_users_that_look_like_other_types_stay_text() {
    let Some(python) = cloud_init_python() else { return };
    for user in ["no", "y", "on", "null", "true", "off"] {
        let mut named = inputs();
        named.deploy_user = Some(user.to_owned());
        let seen = check(&python, "parts", &render_user_data(&named).unwrap().bytes);
        assert_eq!((&seen["config"]["user"], &seen["login"]), (&user.into(), &user.into()));
    }
    let mut unnamed = inputs();
    unnamed.deploy_user = None;
    let seen = check(&python, "parts", &render_user_data(&unnamed).unwrap().bytes);
    assert_eq!(seen["login"], "ubuntu");
}

/// Strings that some YAML writer has let a YAML 1.1 reader take for something else.
const HOSTILE: &[&str] = &[
    "",
    " ",
    "  lead",
    "trail  ",
    "\t",
    "a\tb",
    "\n",
    "a\n",
    "\na",
    "a\nb",
    "a\n\nb\n\n",
    "  a\n b\n",
    "a\r\nb",
    "\r",
    "yes",
    "no",
    "Yes",
    "NO",
    "on",
    "off",
    "On",
    "y",
    "n",
    "Y",
    "N",
    "true",
    "False",
    "null",
    "Null",
    "~",
    "1",
    "-1",
    "+1",
    "0",
    "00",
    "007",
    "0o17",
    "0x1f",
    "0b11",
    "1_000",
    "1e3",
    "1.5",
    ".5",
    "5.",
    "1.5e+3",
    ".inf",
    "-.INF",
    ".nan",
    "12:30",
    "12:30:45",
    "190:20:30.15",
    "2001-12-14",
    "2001-12-14t21:59:43.10-05:00",
    "2001-12-14 21:59:43",
    "=",
    "<<",
    "-",
    "- a",
    "--",
    "---",
    "--- a",
    "...",
    "?",
    "? a",
    ":",
    ": a",
    "a:",
    "a: b",
    "a:b",
    "#",
    "# a",
    "a #b",
    "a#b",
    "!",
    "!!str a",
    "!tag",
    "&a",
    "*a",
    "@a",
    "`a`",
    "%a",
    "%YAML 1.1",
    "|",
    ">",
    "|-",
    ">+",
    "[",
    "]",
    "[a]",
    "{",
    "}",
    "{a: b}",
    ",",
    "a, b",
    "\"",
    "'",
    "\"a\"",
    "'a'",
    "it's",
    "\\",
    "\\n",
    "a\\",
    "${X}",
    "$(id)",
    "`id`",
    "{{ x }}",
    "é",
    "日本",
    "\u{1F600}",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
    "\u{2029}",
    "\u{feff}",
    "\u{7f}",
    "\u{1b}[31m",
    "\u{1}",
    "\u{fffd}",
    "a\u{85}b",
    "\u{e000}",
    "0.0.0.0",
    "fe80::1",
    "7c:c2:55:00:00:01",
    "00:11",
    "1:2",
    "0600",
    "0755",
    "1,000",
];

#[test]
fn cloud_init_reads_every_string_back_as_it_was() {
    let Some(python) = cloud_init_python() else { return };
    let keys: BTreeMap<&str, usize> =
        HOSTILE.iter().enumerate().map(|(n, &key)| (key, n)).collect();
    let values = serde_saphyr::to_string(&HOSTILE).unwrap();
    let seen = check(&python, "yaml", values.as_bytes());
    for (seen, hostile) in seen.as_array().unwrap().iter().zip(HOSTILE) {
        assert_eq!(seen.as_str(), Some(*hostile));
    }
    let seen = check(&python, "yaml", serde_saphyr::to_string(&keys).unwrap().as_bytes());
    assert_eq!(seen, serde_json::to_value(&keys).unwrap());
}

#[test]
fn text_around_certificates_reaches_the_host_as_it_was() {
    let Some(python) = cloud_init_python() else { return };
    let around: Vec<&str> = HOSTILE
        .iter()
        .copied()
        .filter(|text| {
            !text.contains("{{") && !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
        })
        .collect();
    for pem in
        [format!("{}\n{CA}", around.join("\n")), format!("\n\n  {CA}\t\n\n"), CA.trim().to_owned()]
    {
        let mut commented = inputs();
        commented.ca_pem = Some(pem.clone());
        let bytes = render_user_data(&commented).unwrap().bytes;
        let seen = check(&python, "parts", &bytes);
        assert_eq!(seen["config"]["write_files"][1]["content"], pem.as_str());
        assert_eq!(parse_user_data(&bytes).unwrap().files[1].2, pem);
    }
}

/// The agent's unit as the node bootstrap writes it.
fn agent_unit() -> String {
    let script = include_str!("../../scripts/60-node-bootstrap.sh");
    let (_, rest) = script.split_once("<<'UNIT_FILE'\n").unwrap();
    rest.split_once("UNIT_FILE\n").unwrap().0.to_owned()
}

#[test]
fn the_agents_unit_is_shut_as_far_as_its_tasks_allow() {
    let unit = agent_unit();
    let service = unit.split_once("[Service]\n").unwrap().1;
    let service: BTreeMap<&str, &str> =
        service.lines().filter_map(|line| line.split_once('=')).collect();
    for (directive, value) in [
        ("NoNewPrivileges", "yes"),
        ("LockPersonality", "yes"),
        ("RestrictRealtime", "yes"),
        ("SystemCallArchitectures", "native"),
    ] {
        assert_eq!(service.get(directive), Some(&value), "{directive}");
    }
    assert!(service["CapabilityBoundingSet"].starts_with('~'), "{service:?}");
    // What would break a phase of a bundle, or hide from the host what one mounts.
    let broken = [
        "ProtectSystem",
        "PrivateDevices",
        "PrivateTmp",
        "ProtectKernelModules",
        "PrivateMounts",
        "ProtectControlGroups",
        "ReadOnlyPaths",
        "RestrictNamespaces",
        "RestrictSUIDSGID",
    ];
    for directive in broken {
        assert!(!service.contains_key(directive), "{directive}");
    }

    // systemd knows every directive and value. The agent's path is nothing on this machine.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gpuaas-node-agent.service");
    let unit = unit.replace("/usr/local/bin/gpuaas-node-agent.previous", "/bin/true");
    std::fs::write(&file, unit.replace("/usr/local/bin/gpuaas-node-agent", "/bin/true")).unwrap();
    let Ok(verified) = Command::new("systemd-analyze").arg("verify").arg(&file).output() else {
        test_report::skip("systemd-analyze", "there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_it: Vec<&str> =
        said.lines().filter(|line| line.contains("gpuaas-node-agent.service")).collect();
    assert!(about_it.is_empty(), "{said}");
}
