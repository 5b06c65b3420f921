//! Packages of two small executables, which take no build.

use super::*;
use crate::oci;

/// Writes packages whose executables are the system's `true`.
fn deliver(out: &Path) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
    let source = Source {
        root,
        version: "0.1.0~git1".to_owned(),
        commit: "84172c27aa00".to_owned(),
        clean: true,
        seconds: 1_700_000_000,
        architecture: "amd64",
    };
    let request = Request { quick: true, ..Request::default() };
    let folder = stage::Folder::create(out).unwrap();
    let copies = EXECUTABLES.map(|(name, ..)| folder.path().join(name)).to_vec();
    for copy in &copies {
        stage::copy(Path::new("/bin/true"), copy).unwrap();
        debug_info::split(copy).unwrap();
    }
    let programs = describe(&request, &source, copies, folder.path()).unwrap();
    write_all(&request, &source, &programs, folder.path(), out).unwrap()
}

#[test]
fn two_builds_give_the_same_bytes() {
    if let Some((tool, _)) = TOOLS.iter().find(|(tool, _)| proc::find(tool).is_none()) {
        eprintln!("SKIPPED: there is no {tool}");
        return;
    }
    let outs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [first, second] = outs.each_ref().map(|out| deliver(out.path()));
    assert_eq!(first.len(), 15, "{first:?}");
    for (one, other) in first.iter().zip(&second) {
        assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{}", one.display());
    }
    let left: Vec<_> = fs::read_dir(outs[0].path()).unwrap().collect();
    assert_eq!(left.len(), first.len(), "only what is delivered is left");
    let sums = Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(outs[0].path())
        .status();
    assert!(sums.unwrap().success());
}

/// A name and a version for each crate of the bill `file`, sorted.
fn components(file: &Path) -> Vec<(String, String)> {
    let bill: serde_json::Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(bill["serialNumber"].as_str().unwrap().starts_with("urn:uuid:"));
    let crates = bill["components"].as_array().unwrap().iter();
    let crates = crates.filter(|one| one["purl"].as_str().unwrap().starts_with("pkg:cargo/"));
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let mut found: Vec<_> = crates.map(|one| (text(&one["name"]), text(&one["version"]))).collect();
    found.sort();
    found
}

#[test]
fn each_packaged_executable_carries_the_list_of_its_bill() {
    if let Some((tool, _)) = TOOLS.iter().find(|(tool, _)| proc::find(tool).is_none()) {
        eprintln!("SKIPPED: there is no {tool}");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let files = deliver(out.path());
    let root = out.path().join("root");
    let is_beside = |file: &&PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy();
        name.ends_with(".deb") && !name.starts_with("gpuaas-node-agent_")
    };
    for package in files.iter().filter(is_beside) {
        let mut dpkg = Command::new("dpkg-deb");
        proc::quiet(dpkg.arg("--extract").arg(package).arg(&root)).unwrap();
    }
    for (name, ..) in EXECUTABLES {
        let program = root.join("usr/lib/gpuaas").join(name);
        let list = dependencies::tests::embedded(&program, out.path());
        let mut listed: Vec<_> = list
            .packages
            .into_iter()
            .filter(|one| !one.root)
            .map(|one| (one.name, one.version))
            .collect();
        listed.sort();
        assert!(listed.len() > 100, "{name}: {}", listed.len());
        let bill = out.path().join(bill_name(name));
        assert_eq!(components(&bill), listed);
        let packaged = root.join("usr/share/gpuaas").join(bill_name(name));
        assert_eq!(fs::read(packaged).unwrap(), fs::read(&bill).unwrap());
        assert!(Command::new(program).status().unwrap().success());
    }
}

#[test]
fn the_image_is_whole_and_its_user_has_no_rights() {
    if let Some((tool, _)) = TOOLS.iter().find(|(tool, _)| proc::find(tool).is_none()) {
        eprintln!("SKIPPED: there is no {tool}");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let files = deliver(out.path());
    let archive = files.iter().find(|file| file.to_string_lossy().ends_with(".oci.tar")).unwrap();
    let layout = out.path().join("layout");
    fs::create_dir(&layout).unwrap();
    let (config, lines) = oci::tests::read(archive, &layout);
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/gpuaas");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.version"], "0.1.0~git1");
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    let modes = [
        ("drwxr-xr-x 0/0", "var/lib/"),
        ("drwx------ 65532/65532", "var/lib/gpuaas/"),
        ("drwxrwxrwt 0/0", "tmp/"),
        ("-rwxr-xr-x 0/0", "usr/lib/gpuaas/gpuaas"),
        ("-rwxr-xr-x 0/0", "usr/lib/gpuaas/gpuaas-node-agent"),
        ("-rw-r--r-- 0/0", "usr/share/gpuaas/gpuaas.cdx.json"),
        ("lrwxrwxrwx 0/0", "usr/bin/gpuaas -> ../lib/gpuaas/gpuaas"),
    ];
    for (mode, path) in modes {
        let last = lines.iter().rfind(|line| line.ends_with(&format!(" {path}")));
        assert!(last.is_some_and(|line| line.starts_with(mode)), "{mode} {path}: {last:?}");
    }
    assert!(lines.iter().all(|line| line.contains(" 2023-11-14 22:13:20 ")), "{lines:?}");
}

/// The agent's unit of the package is that of the node bootstrap, with other paths.
#[test]
fn the_agent_has_the_same_sandbox_in_both_units() {
    let service = |unit: &str| {
        let (_, rest) = unit.split_once("[Service]\n").unwrap();
        let lines = rest.lines().filter(|line| !line.starts_with("Exec"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let script = include_str!("../../../crates/gpuaas-artifact/scripts/60-node-bootstrap.sh");
    let (_, bootstrap) = script.split_once("<<'UNIT_FILE'\n").unwrap();
    let (bootstrap, _) = bootstrap.split_once("UNIT_FILE\n").unwrap();
    let packaged = include_str!("../../../ops/deb/gpuaas-node-agent/gpuaas-node-agent.service");
    assert_eq!(service(packaged), service(bootstrap));
}
