//! `gpuaas serve` and `gpuaas maas-sim` as separate processes, and the command line as their client.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;

use serde_json::Value;
use test_report::patience;

use crate::wait::wait_at_most;

/// Seconds on the reference machine within which a process serves or a level is reached.
const PATIENCE_SECONDS: f64 = 60.0;

/// An executable of the workspace, which lies beside the folder of the running test.
///
/// # Panics
/// It was not built: the test was started without the package that it belongs to.
#[must_use]
pub fn executable(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let path = test.ancestors().nth(2).expect("a test lies in target/PROFILE/deps").join(name);
    assert!(path.exists(), "{} is missing: cargo build -p {name}", path.display());
    path
}

/// The agent's executable.
#[must_use]
pub fn agent() -> PathBuf {
    executable("gpuaas-node-agent")
}

/// The executable `gpuaas`, without the variables and contexts of the person who runs the tests.
#[must_use]
pub fn gpuaas() -> Command {
    let mut command = Command::new(executable("gpuaas"));
    for name in ["GPUAAS_SERVER", "GPUAAS_TOKEN", "GPUAAS_TOKEN_FILE", "GPUAAS_DATABASE"] {
        command.env_remove(name);
    }
    command.env_remove("GPUAAS_CONTEXT").env("XDG_CONFIG_HOME", "/no/contexts");
    command
}

/// Waits until `reached`.
pub fn until(what: &str, reached: impl FnMut() -> bool) {
    wait_at_most(PATIENCE_SECONDS, what, reached);
}

/// A process that serves until it is dropped.
pub struct Server {
    child: Child,
    /// Lines `NAME: VALUE` of its stdout.
    said: Vec<(String, String)>,
    stderr: PathBuf,
}

impl Server {
    /// Starts it and waits until its stdout has a line `last: VALUE`.
    pub fn start(arguments: &[&str], stderr: PathBuf, last: &str) -> Self {
        let mut command = gpuaas();
        command.args(arguments).stderr(std::fs::File::create(&stderr).unwrap());
        Self::spawn(command, stderr, last)
    }

    /// The same with a command whose stderr goes to that file already.
    pub fn spawn(mut command: Command, stderr: PathBuf, last: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        let mut server = Self { child, said: Vec::new(), stderr };
        while server.said.last().is_none_or(|(name, _)| name != last) {
            let line = lines.recv_timeout(patience(PATIENCE_SECONDS)).unwrap_or_else(|_| {
                panic!("{command:?} said too little: {}", server.log());
            });
            // A test's executable says more than that.
            let said =
                line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
            server.said.extend(said);
        }
        server
    }

    /// What it said of `name`.
    pub fn value(&self, name: &str) -> &str {
        let said = self.said.iter().find(|(known, _)| known == name);
        said.map_or_else(|| panic!("no {name} in {:?}", self.said), |(_, value)| value)
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// What it wrote to stderr.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `KILL`.
    pub fn signal(&self, name: &str) {
        let (signal, pid) = (format!("-{name}"), self.child.id().to_string());
        assert!(Command::new("kill").args([&signal, &pid]).status().unwrap().success());
    }

    /// Ends it at once, where it runs.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Asks it to stop and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A region and a control plane, both served.
pub struct Rig {
    /// Everything that both keep, and the files of the tests.
    pub dir: tempfile::TempDir,
    /// The simulated region.
    pub sim: Server,
    /// The control plane.
    pub control_plane: Server,
}

impl Rig {
    /// Three machines without hardware, and a control plane for them.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// The same, with more to say to the region.
    pub fn with(region: &[&str]) -> Self {
        Self::both(region, &[])
    }

    /// The same, with more to say to the control plane.
    pub fn serving(options: &[&str]) -> Self {
        Self::both(&[], options)
    }

    /// The same, with more to say to both.
    pub fn both(region: &[&str], options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let zero = ["maas-sim", "--listen", "127.0.0.1:0", "--machines", "3", "--class", "zero"];
        let sim = Server::start(&[&zero[..], region].concat(), path("sim.log"), "api-key");
        let control_plane = serve(dir.path(), ANY, &agent(), "serve.log", options);
        std::fs::write(path("maas.key"), sim.value("api-key")).unwrap();
        std::fs::write(path("bad.key"), "a:b:c").unwrap();
        std::fs::write(path("bmc.pass"), "secret\n").unwrap();
        Self { dir, sim, control_plane }
    }

    /// Starts the control plane again, at the addresses that its nodes know, with another agent.
    pub fn restart(&mut self, agent: &Path) {
        let addresses = self.addresses();
        assert!(self.control_plane.stop().success(), "{}", self.control_plane.log());
        let addresses = [addresses[0].as_str(), addresses[1].as_str()];
        self.control_plane = serve(self.dir.path(), addresses, agent, "again.log", &[]);
    }

    /// Starts a control plane that was stopped again, at the addresses that its nodes know.
    pub fn start_again(&mut self, log: &str, options: &[&str]) {
        let addresses = self.addresses();
        let addresses = [addresses[0].as_str(), addresses[1].as_str()];
        self.control_plane = serve(self.dir.path(), addresses, &agent(), log, options);
    }

    /// Kills the control plane, and starts another one at its addresses, with the data folder in the
    /// folder `other`.
    pub fn replace(&mut self, other: &str) {
        let addresses = self.addresses();
        self.control_plane.kill();
        let addresses = [addresses[0].as_str(), addresses[1].as_str()];
        let dir = self.dir.path().join(other);
        self.control_plane = serve(&dir, addresses, &agent(), "serve.log", &[]);
    }

    /// Where operators and nodes reach the control plane.
    fn addresses(&self) -> [String; 2] {
        let host = |url: &str| url.rsplit_once('/').map(|(_, host)| host.to_owned()).unwrap();
        ["listening", "nodes"].map(|name| host(self.control_plane.value(name)))
    }

    /// Path of a file in the folder of the rig.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs one command line as an operator would; `--timeout` is for the reference machine.
    pub fn run(&self, line: &str) -> Output {
        gpuaas()
            .args(scaled(line))
            .env("GPUAAS_SERVER", self.control_plane.value("listening"))
            .env("GPUAAS_TOKEN_FILE", self.path("data/admin-token"))
            .output()
            .unwrap()
    }

    /// Runs a command line that has to succeed; returns its standard output.
    ///
    /// # Panics
    /// The command fails.
    pub fn good(&self, line: &str) -> String {
        let output = self.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{line}\n{stderr}\nserve: {}\nsim: {}",
            self.control_plane.log(),
            self.sim.log()
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, with the output parsed as JSON.
    ///
    /// # Panics
    /// The command fails, or prints something else.
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.good(line)).unwrap()
    }

    /// Asserts that a line ends with `exit` and an error of `code`, and leaves stdout empty.
    pub fn bad(&self, line: &str, exit: i32, code: &str) -> String {
        let output = self.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{line}\n{stderr}");
        assert!(stderr.contains(&format!("error {code}: ")), "{line}\n{stderr}");
        assert!(output.stdout.is_empty(), "{line}");
        stderr
    }

    /// What Prometheus would read.
    pub fn metrics(&self) -> String {
        let token = std::fs::read_to_string(self.path("data/admin-token")).unwrap();
        let (url, header) = (self.control_plane.value("listening"), token.trim());
        let header = format!("Authorization: Bearer {header}");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "-H", &header, &format!("{url}/metrics")]);
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    }

    /// Adds the region as the site `lab`.
    pub fn add_site(&self) {
        let (url, key) = (self.sim.value("listening"), self.path("maas.key"));
        self.good(&format!("site add lab --url {url} --api-key-file {key}"));
    }

    /// MAC and BMC address of a racked machine, from the table that the simulator prints.
    pub fn machine(&self, name: &str) -> (String, String) {
        let log = self.sim.log();
        let line = log.lines().find(|line| line.starts_with(name)).unwrap();
        let mut words = line.split_whitespace().skip(1).map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    }
}

/// The words of a command line, with the seconds after `--timeout` scaled to this machine.
#[must_use]
pub fn scaled(line: &str) -> Vec<String> {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    for index in 1..words.len() {
        if words[index - 1] == "--timeout"
            && let Ok(seconds) = words[index].parse()
        {
            words[index] = patience(seconds).as_secs().to_string();
        }
    }
    words
}

/// Any free ports.
const ANY: [&str; 2] = ["127.0.0.1:0"; 2];

fn serve(
    dir: &Path,
    [listen, nodes]: [&str; 2],
    agent: &Path,
    log: &str,
    options: &[&str],
) -> Server {
    let (data, agent) = (dir.join("data"), agent.to_str().unwrap());
    let line = [
        "serve",
        "--loopback-targets",
        "--listen",
        listen,
        "--node-listen",
        nodes,
        "--agent-binary",
        agent,
    ];
    let line = [&line[..], &["--data", data.to_str().unwrap()], options].concat();
    Server::start(&line, dir.join(log), "nodes")
}
