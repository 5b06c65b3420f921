//! Packages of two small executables, which take no build.

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn arguments_are_checked_before_anything_is_built() {
    let request = Request::parse(&words("--only deb --bin target/lab --out x --quick")).unwrap();
    assert!(request.wants(Form::Deb) && !request.wants(Form::Tar) && request.quick);
    let request = Request::parse(&[]).unwrap();
    assert!(request.wants(Form::Deb) && request.wants(Form::Tar));
    for wrong in ["--only rpm", "--out", "--static", "--bin x --profile dev"] {
        Request::parse(&words(wrong)).unwrap_err();
    }
}

/// Writes packages whose executables are the system's `true`.
fn deliver(out: &Path) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
    let source = Source {
        root,
        version: "0.1.0~git1".to_owned(),
        seconds: 1_700_000_000,
        architecture: "amd64",
    };
    let request = Request { quick: true, ..Request::default() };
    let folder = stage::Folder::create(out).unwrap();
    let copies = EXECUTABLES.map(|(name, _)| folder.path().join(name));
    for copy in &copies {
        stage::copy(Path::new("/bin/true"), copy).unwrap();
        debug_info::split(copy).unwrap();
    }
    let programs = Programs::new(&copies).unwrap();
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
    assert_eq!(first.len(), 7, "{first:?}");
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
