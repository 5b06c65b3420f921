//! `gpuaas serve` and `gpuaas maas-sim` as separate processes, and the command line as their client.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

const GPUAAS: &str = env!("CARGO_BIN_EXE_gpuaas");
const PATIENCE: Duration = Duration::from_secs(60);

/// The agent's executable, built where a test of this crate alone did not.
pub(crate) fn agent() -> PathBuf {
    let path = Path::new(GPUAAS).with_file_name("gpuaas-node-agent");
    if !path.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "gpuaas-node-agent"]);
        assert!(build.status().unwrap().success(), "the agent does not build");
    }
    assert!(path.exists(), "{} is missing", path.display());
    path
}

/// The executable, which nothing of the environment tells where to ask.
pub(crate) fn gpuaas() -> Command {
    let mut command = Command::new(GPUAAS);
    for name in ["GPUAAS_SERVER", "GPUAAS_TOKEN", "GPUAAS_TOKEN_FILE", "GPUAAS_DATABASE"] {
        command.env_remove(name);
    }
    // Nor the contexts of whoever runs this.
    command.env_remove("GPUAAS_CONTEXT").env("XDG_CONFIG_HOME", "/no/contexts");
    command
}

/// Waits until `reached`.
pub(crate) fn until(what: &str, reached: impl FnMut() -> bool) {
    crate::replicas::wait_at_most(PATIENCE.as_secs_f64(), what, reached);
}

/// A process that serves until it is dropped.
pub(crate) struct Server {
    child: Child,
    /// Lines `NAME: VALUE` of its stdout.
    said: Vec<(String, String)>,
    stderr: PathBuf,
}

impl Server {
    /// Starts it and waits until its stdout has a line `last: VALUE`.
    pub(crate) fn start(arguments: &[&str], stderr: PathBuf, last: &str) -> Self {
        let mut command = gpuaas();
        command.args(arguments).stderr(std::fs::File::create(&stderr).unwrap());
        Self::spawn(command, stderr, last)
    }

    /// The same with a command whose stderr goes to that file already.
    pub(crate) fn spawn(mut command: Command, stderr: PathBuf, last: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        let mut server = Self { child, said: Vec::new(), stderr };
        while server.said.last().is_none_or(|(name, _)| name != last) {
            let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| {
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
    pub(crate) fn value(&self, name: &str) -> &str {
        let said = self.said.iter().find(|(known, _)| known == name);
        said.map_or_else(|| panic!("no {name} in {:?}", self.said), |(_, value)| value)
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// What it wrote to stderr.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `KILL`.
    pub(crate) fn signal(&self, name: &str) {
        let (signal, pid) = (format!("-{name}"), self.child.id().to_string());
        assert!(Command::new("kill").args([&signal, &pid]).status().unwrap().success());
    }

    /// Ends it at once, where it runs.
    pub(crate) fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Asks it to stop and waits for the end.
    pub(crate) fn stop(&mut self) -> std::process::ExitStatus {
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
pub(crate) struct Rig {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) sim: Server,
    pub(crate) control_plane: Server,
}

impl Rig {
    /// Three machines without hardware, and a control plane for them.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// The same, with more to say to the region.
    pub(crate) fn with(region: &[&str]) -> Self {
        Self::both(region, &[])
    }

    /// The same, with more to say to the control plane.
    pub(crate) fn serving(options: &[&str]) -> Self {
        Self::both(&[], options)
    }

    /// The same, with more to say to both.
    pub(crate) fn both(region: &[&str], options: &[&str]) -> Self {
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
    pub(crate) fn restart(&mut self, agent: &Path) {
        let addresses = self.addresses();
        assert!(self.control_plane.stop().success(), "{}", self.control_plane.log());
        let addresses = [addresses[0].as_str(), addresses[1].as_str()];
        self.control_plane = serve(self.dir.path(), addresses, agent, "again.log", &[]);
    }

    /// Starts a control plane that was stopped again, at the addresses that its nodes know.
    pub(crate) fn start_again(&mut self, log: &str, options: &[&str]) {
        let addresses = self.addresses();
        let addresses = [addresses[0].as_str(), addresses[1].as_str()];
        self.control_plane = serve(self.dir.path(), addresses, &agent(), log, options);
    }

    /// Kills the control plane, and starts another one at its addresses, with the data folder in the
    /// folder `other`.
    pub(crate) fn replace(&mut self, other: &str) {
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

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs one command line as an operator would.
    pub(crate) fn run(&self, line: &str) -> Output {
        gpuaas()
            .args(line.split_whitespace())
            .env("GPUAAS_SERVER", self.control_plane.value("listening"))
            .env("GPUAAS_TOKEN_FILE", self.path("data/admin-token"))
            .output()
            .unwrap()
    }

    pub(crate) fn good(&self, line: &str) -> String {
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

    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.good(line)).unwrap()
    }

    /// Asserts that a line ends with `exit` and an error of `code`, and leaves stdout empty.
    pub(crate) fn bad(&self, line: &str, exit: i32, code: &str) -> String {
        let output = self.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{line}\n{stderr}");
        assert!(stderr.contains(&format!("error {code}: ")), "{line}\n{stderr}");
        assert!(output.stdout.is_empty(), "{line}");
        stderr
    }

    /// What Prometheus would read.
    pub(crate) fn metrics(&self) -> String {
        let token = std::fs::read_to_string(self.path("data/admin-token")).unwrap();
        let (url, header) = (self.control_plane.value("listening"), token.trim());
        let header = format!("Authorization: Bearer {header}");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "-H", &header, &format!("{url}/metrics")]);
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    }

    pub(crate) fn add_site(&self) {
        let (url, key) = (self.sim.value("listening"), self.path("maas.key"));
        self.good(&format!("site add lab --url {url} --api-key-file {key}"));
    }

    /// MAC and BMC address of a racked machine, from the table that the simulator prints.
    pub(crate) fn machine(&self, name: &str) -> (String, String) {
        let log = self.sim.log();
        let line = log.lines().find(|line| line.starts_with(name)).unwrap();
        let mut words = line.split_whitespace().skip(1).map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    }
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
    let line = ["serve", "--listen", listen, "--node-listen", nodes, "--agent-binary", agent];
    let line = [&line[..], &["--data", data.to_str().unwrap()], options].concat();
    Server::start(&line, dir.join(log), "nodes")
}
