//! `gpuaas serve` under a service manager, and the units that are shipped for systemd.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuaas_testkit::processes::{Server, agent};

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/systemd")
}

#[test]
fn a_service_manager_hears_that_it_serves_lives_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let socket = UnixDatagram::bind(path("notify")).unwrap();
    socket.set_read_timeout(Some(test_report::patience(60.0))).unwrap();
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

/// A service manager passes sockets on from descriptor 3, to a process of this identifier.
const ACTIVATE: &str = r#"exec 3<&0 4<&2 </dev/null 2>>"$1"
shift
LISTEN_FDS=2 LISTEN_PID=$$ exec "$@""#;

/// Starts a control plane on sockets that this process holds, under these names.
fn activated(listeners: [&TcpListener; 2], names: &str, dir: &Path) -> Command {
    let [stdin, stderr] = listeners.map(|one| Stdio::from(OwnedFd::from(one.try_clone().unwrap())));
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let mut command = Command::new("sh");
    command
        .args(["-c", ACTIVATE, "sh", &path("serve.log"), env!("CARGO_BIN_EXE_gpuaas"), "serve"])
        .args(["--agent-binary", agent().to_str().unwrap(), "--data", &path("data")])
        .env("LISTEN_FDNAMES", names)
        .env_remove("GPUAAS_DATABASE")
        .stdin(stdin)
        .stderr(stderr);
    command
}

#[test]
fn nobody_is_refused_while_systemd_holds_the_ports_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let listeners = ["operators", "nodes"].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [0, 1].map(|index: usize| listeners[index].local_addr().unwrap());
    let start = || {
        let command = activated([&listeners[0], &listeners[1]], "operators:nodes", dir.path());
        Server::spawn(command, dir.path().join("serve.log"), "nodes")
    };
    let mut server = start();
    assert_eq!(server.value("listening"), format!("http://{}", addresses[0]));
    assert_eq!(server.value("nodes"), format!("https://{}", addresses[1]));
    assert!(server.stop().success(), "{}", server.log());

    let mut waiting =
        TcpStream::connect(addresses[0]).expect("nobody serves, and nobody is refused");
    waiting.set_read_timeout(Some(test_report::patience(60.0))).unwrap();
    waiting.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut server = start();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn sockets_that_nobody_knows_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for names in ["operators:console", "nodes:nodes", "operators"] {
        let log = dir.path().join("serve.log");
        std::fs::write(&log, "").unwrap();
        let mut command = activated([&listener, &listener], names, dir.path());
        assert_eq!(command.status().unwrap().code(), Some(2), "{names}");
        let said = std::fs::read_to_string(log).unwrap();
        assert!(said.contains("error socket_activation_invalid: "), "{names}: {said}");
    }
    assert!(!dir.path().join("data").exists(), "nothing was made");
}

/// The names of the shipped units are those that the control plane takes.
#[test]
fn the_socket_units_have_the_names_that_are_taken() {
    for name in ["operators", "nodes"] {
        let text = std::fs::read_to_string(units().join(format!("gpuaas-{name}.socket"))).unwrap();
        assert!(text.contains(&format!("\nFileDescriptorName={name}\nService=gpuaas.service\n")));
    }
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
    assert_eq!(files.len(), 5, "{files:?}");
    files
}

#[test]
fn the_units_are_what_systemd_takes() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        test_report::skip("systemd-analyze", "there is no systemd-analyze");
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
        let output =
            gpuaas_testkit::processes::gpuaas().args(words).arg("--help").output().unwrap();
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
