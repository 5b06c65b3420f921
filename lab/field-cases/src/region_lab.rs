//! A simulated region, the proxy in front of it, and a control plane that knows the proxy as site `lab`.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::case::RegionInput;
use crate::maas_proxy;
use crate::shell::{PROGRAM, Shell, tail};

/// Looks at a server that starts, and the time between two.
const LOOKS: u32 = 600;
const BETWEEN: Duration = Duration::from_millis(100);

/// The servers of a case, which end with it.
pub(crate) struct RegionLab {
    servers: Vec<Child>,
    /// Variables of commands.
    pub(crate) variables: BTreeMap<String, String>,
}

impl Drop for RegionLab {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // It may have ended.
            server.kill().ok();
            server.wait().ok();
        }
    }
}

impl RegionLab {
    /// Starts them, and makes site and profile.
    ///
    /// # Errors
    /// What a server or a command said.
    pub(crate) fn start(
        input: &RegionInput,
        folder: &Path,
        shell: &Shell<'_>,
    ) -> Result<Self, String> {
        let ports = free_ports().map_err(|error| format!("cannot find a free port: {error}"))?;
        let [region, control, nodes] = ports;
        let key = folder.join("api-key");
        let mut lab = Self { servers: Vec::new(), variables: BTreeMap::new() };
        let mut simulator = shell.program("gpuaas", &BTreeMap::new());
        simulator.args(["maas-sim", "--listen", &region.to_string(), "--speed", "600"]);
        simulator.args(["--write-api-key", "api-key", "--write-hosts", "hosts.json"]);
        simulator.args(["--hosts-dir", "hosts"]);
        if !input.simulator.iter().any(|arg| arg == "--hosts") {
            simulator.args(["--hosts", "fleet"]);
        }
        lab.spawn(simulator.args(&input.simulator), folder, "maas-sim.log")?;
        let mut serve = shell.program("gpuaas", &BTreeMap::new());
        serve.args([
            "serve",
            "--loopback-targets",
            "--listen",
            &control.to_string(),
            "--node-listen",
            &nodes.to_string(),
        ]);
        lab.spawn(serve.args(["--data", "gpuaas-data"]).args(&input.serve), folder, "serve.log")?;
        let proxy = maas_proxy::start(region, &input.rules);
        let proxy = proxy.map_err(|error| format!("cannot start the proxy: {error}"))?;
        lab.variables = BTreeMap::from([
            ("GPUAAS_SERVER".to_owned(), format!("http://{control}")),
            (
                "GPUAAS_TOKEN_FILE".to_owned(),
                folder.join("gpuaas-data/admin-token").display().to_string(),
            ),
            ("REGION".to_owned(), format!("http://{proxy}/MAAS")),
            ("API_KEY_FILE".to_owned(), key.display().to_string()),
        ]);
        lab.wait(folder, shell)?;
        let profile: Vec<String> = input.profile.iter().map(|arg| quoted(arg)).collect();
        let script = format!(
            "set -e\n{PROGRAM} site add lab --url \"$REGION\" --api-key-file api-key\n\
             {PROGRAM} profile add p1 {}\n",
            profile.join(" ")
        );
        shell.must("create the site and the profile", &script, &lab.variables)?;
        Ok(lab)
    }

    fn spawn(&mut self, command: &mut Command, folder: &Path, log: &str) -> Result<(), String> {
        let file = File::create(folder.join(log)).and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) = file.map_err(|error| format!("{log}: {error}"))?;
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
        self.servers.push(child.map_err(|error| format!("cannot start gpuaas: {error}"))?);
        Ok(())
    }

    /// Waits until the control plane answers, and the region has written its key.
    fn wait(&mut self, folder: &Path, shell: &Shell<'_>) -> Result<(), String> {
        for _ in 0..LOOKS {
            for server in &mut self.servers {
                if let Ok(Some(status)) = server.try_wait() {
                    let said =
                        |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
                    let said = said("maas-sim.log") + &said("serve.log");
                    return Err(format!("a server exited ({status}): {}", tail(&said)));
                }
            }
            let is_written = folder.join("api-key").is_file()
                && folder.join("gpuaas-data/admin-token").is_file();
            if is_written && shell.run("gpuaas site list", 20, &self.variables)?.code == 0 {
                return Ok(());
            }
            pause(BETWEEN);
        }
        Err("the control plane did not answer in time".to_owned())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a server is another process, and tells nobody when it is up"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Three that were free a moment ago.
fn free_ports() -> std::io::Result<[SocketAddr; 3]> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0"));
    let [first, second, third] = listeners;
    Ok([first?.local_addr()?, second?.local_addr()?, third?.local_addr()?])
}
