//! `gpuaas serve` under a service manager, and the units that are shipped for systemd.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::rig::{Server, agent};

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/systemd")
}

#[test]
fn a_service_manager_hears_that_it_serves_lives_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let socket = UnixDatagram::bind(path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let receive = || {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let until = |begin: &str| loop {
        let said = receive();
        if said.starts_with(begin) {
            return said;
        }
    };
    let (agent, data, notify) = (agent(), path("data"), path("notify"));
    let line = ["serve", "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0"];
    let rest = ["--agent-binary", agent.to_str().unwrap(), "--data", &data];
    let manager = ["--notify-socket", &notify, "--watchdog-usec", "40000"];
    let line = [&line[..], &rest, &manager].concat();
    let mut server = Server::start(&line, dir.path().join("serve.log"), "nodes");
    assert!(until("READY=1").contains(server.value("listening")));
    until("WATCHDOG=1");
    until("WATCHDOG=1");
    server.signal("TERM");
    until("STOPPING=1");
    assert!(server.wait().success(), "{}", server.log());
}

/// The units with the executables of this build in the place of the installed ones.
fn built_units(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(units()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("/usr/bin/gpuaas", env!("CARGO_BIN_EXE_gpuaas"));
        std::fs::write(dir.join(&name), text).unwrap();
        if name != *"gpuaas.sysusers" {
            files.push(dir.join(name));
        }
    }
    assert_eq!(files.len(), 3, "{files:?}");
    files
}

#[test]
fn the_units_are_what_systemd_takes() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let files = built_units(dir.path());
    let mut verify = Command::new("systemd-analyze");
    let output = verify.args(["verify", "--man=no"]).args(&files).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("gpuaas")).collect();
    assert!(output.status.success() && ours.is_empty(), "{said}");
    for unit in files.iter().filter(|file| file.extension().is_some_and(|end| end == "service")) {
        let mut security = Command::new("systemd-analyze");
        let options = ["security", "--offline=true", "--no-pager", "--threshold=20"];
        let output = security.args(options).arg(unit).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "more exposed than 2.0:\n{said}");
    }
}

#[test]
fn a_unit_s_command_line_is_one_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    built_units(dir.path());
    let help = |words: &[&str]| {
        let output = crate::rig::gpuaas().args(words).arg("--help").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for (unit, command) in [("gpuaas.service", "serve"), ("gpuaas-backup.service", "backup")] {
        let text = std::fs::read_to_string(dir.path().join(unit)).unwrap();
        let line = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        let help = help(&[command]);
        let options = line.split_whitespace().filter(|word| word.starts_with("--"));
        let unknown: Vec<&str> = options.filter(|option| !help.contains(option)).collect();
        assert!(line.contains(command) && unknown.is_empty(), "{unit}: {unknown:?}");
    }
}
