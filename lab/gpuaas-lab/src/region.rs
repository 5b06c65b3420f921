//! `gpuaas maas-sim`: a simulated region with the software of its hosts.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use comfy_table::{Table, presets};
use gpuaas_client::failure::Failure;
use gpuaas_client::signals;
use gpuaas_client::terminal::Terminal;
use gpuaas_client::waterfall;
use gpuaas_types::batch::BatchMachine;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{IdSource as _, RandomIds, Timestamp};
use maas_sim::{
    ETHERNET, H200, HardwareClass, SharedRegion, SimHandle, SimOptions, SimServer, ZERO,
};
use maas_sim::{Fault, parse_faults};

use serde_json::json;

use crate::arguments::{MaasSimArgs, MachineClass};
use crate::clock::SharedClock;
use crate::hosts::Hosts;
use crate::hosts::options::HostMode;
use crate::hosts::options::{BootTimes, HostsOptions, PROCESS_HOSTS};

/// Machines of the first three racks, by the names that the documentation uses.
const NAMES: [&str; 3] = ["j22u11", "j22u15", "j27u15"];

/// A simulated region whose hosts run their software.
pub struct RunningRegion {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The administrator's API key.
    pub api_key: String,
    /// The region.
    pub region: Arc<SharedRegion>,
    server: SimHandle,
    hosts: Hosts,
}

impl RunningRegion {
    /// Starts the region of `options` and its hosts.
    ///
    /// # Errors
    /// `address_in_use` and `address_unusable`; those of [`Hosts::start`].
    pub async fn start(options: SimOptions, hosts: HostsOptions) -> Result<Self, Failure> {
        let listen = options.listen;
        let mut server = SimServer::start(options)
            .await
            .map_err(|error| Failure::cannot_listen(listen, &error))?;
        let (_, none) = tokio::sync::mpsc::unbounded_channel();
        let notices = std::mem::replace(&mut server.notices, none);
        let hosts = Hosts::start(hosts, notices)?;
        Ok(Self {
            addr: server.addr,
            api_key: server.api_key.clone(),
            region: Arc::clone(&server.region),
            server,
            hosts,
        })
    }

    /// Base URL of the region, as a site has it.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Ends the hosts' software, then the region.
    pub async fn stop(self) {
        self.hosts.stop().await;
        self.server.shutdown().await;
    }
}

/// Runs the command until it is told to stop.
///
/// # Errors
/// A fault file that cannot be read; what [`RunningRegion::start`] answers.
pub async fn run(args: MaasSimArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let temporary = match &args.hosts_dir {
        Some(_) => None,
        None => Some(temporary_dir()?),
    };
    let dir = args
        .hosts_dir
        .clone()
        .or_else(|| temporary.as_ref().map(|dir| dir.path().to_owned()))
        .unwrap_or_default();
    let (options, hosts) = plan(&args, dir)?;
    check_local(options.listen, &hosts)?;
    let mode = hosts.mode;
    let password = options.password.clone().unwrap_or_default();
    let stop = signals::stop()?;
    let sim = RunningRegion::start(options, hosts).await?;
    write_files(&args, &sim)?;
    terminal.message(&machines(&sim.region));
    terminal.message(&format!("hosts: {}", describe_host_mode(mode)));
    let (url, api_key) = (sim.url(), &sim.api_key);
    terminal.data(&format!("listening: {url}\npassword: {password}\napi-key: {api_key}"))?;
    tokio::select! {
        () = stop => {}
        () = until_idle(&sim.region, args.idle_exit) => terminal.message("stopping after the idle time without a request"),
    }
    sim.stop().await;
    Ok(())
}

/// What the next commands read: the key last, because it says that everything is there.
fn write_files(args: &MaasSimArgs, sim: &RunningRegion) -> Result<(), Failure> {
    if let Some(path) = &args.write_hosts {
        let hosts = sim.region.with(|region| region.hosts());
        let machines: Vec<BatchMachine> = hosts
            .into_iter()
            .map(|host| BatchMachine {
                hostname: host.name,
                bmc_address: Some(host.bmc_address),
                mac_addresses: vec![host.mac_address],
                ..BatchMachine::default()
            })
            .collect();
        let text = serde_json::to_string_pretty(&json!({ "machines": machines }));
        write_whole(path, &text.unwrap_or_default(), 0o644)?;
    }
    match &args.write_api_key {
        Some(path) => write_whole(path, &sim.api_key, 0o600),
        None => Ok(()),
    }
}

/// Writes a file whole or not at all, so that who waits for it reads no half of it.
pub(crate) fn write_whole(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = folder.unwrap_or(Path::new(".")).join(format!(".{name}.part"));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&part)
        .and_then(|mut file| writeln!(file, "{text}"))
        .and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| {
        Failure::usage(CommandCode::FileUnreadable, format!("{}: {error}", path.display()))
            .hint("choose a file in an existing folder that you can write to")
    })
}

/// Refuses to run hosts' software on this machine for whoever reaches it over a network: who
/// deploys a machine says what runs on it.
fn check_local(listen: SocketAddr, hosts: &HostsOptions) -> Result<(), Failure> {
    let runs_here = hosts.mode == HostMode::Process || !hosts.real_hosts.is_empty();
    if listen.ip().is_loopback() || !runs_here {
        return Ok(());
    }
    let detail = format!(
        "{listen} is not a loopback address, and hosts would run as processes on this machine"
    );
    Err(Failure::usage(CommandCode::HostsNotLocal, detail)
        .hint("listen on 127.0.0.1, or run the hosts with --hosts fleet"))
}

/// Words that nobody can guess, new at each start.
fn random_words<const N: usize>() -> [String; N] {
    std::array::from_fn(|_| RandomIds.uuid(Timestamp::EPOCH).simple().to_string())
}

/// Returns once the region was not asked anything for `seconds`; without them never.
async fn until_idle(region: &SharedRegion, seconds: Option<u64>) {
    let Some(seconds) = seconds else { return std::future::pending().await };
    let mut looks = tokio::time::interval(Duration::from_secs(seconds));
    looks.tick().await;
    let mut before = region.with(|region| region.stats().calls());
    loop {
        looks.tick().await;
        let now = region.with(|region| region.stats().calls());
        if now == before {
            return;
        }
        before = now;
    }
}

fn plan(args: &MaasSimArgs, dir: PathBuf) -> Result<(SimOptions, HostsOptions), Failure> {
    let class = class(args.class);
    let scale = 1.0 / args.speed;
    let clock = SharedClock::choose(&args.clock);
    let machines = args.machines.max(args.names.len());
    let default = if machines > PROCESS_HOSTS { HostMode::Fleet } else { HostMode::Process };
    let names: Vec<String> = if args.names.is_empty() {
        NAMES.iter().take(machines).map(|name| (*name).to_owned()).collect()
    } else {
        args.names.clone()
    };
    let options = SimOptions {
        listen: args.listen,
        machines,
        names: names.clone(),
        class,
        seed: args.seed,
        clock: Arc::new(clock.clone()),
        scale,
        api_key: Some(args.api_key.clone().unwrap_or_else(|| random_words::<3>().join(":"))),
        password: Some(random_words::<1>().concat()),
        faults: args.faults.as_deref().map(read_faults).transpose()?.unwrap_or_default(),
        images: Vec::new(),
    };
    let hosts = HostsOptions {
        mode: args.hosts.unwrap_or(default),
        real_hosts: names.iter().take(args.real_hosts).cloned().collect(),
        rootfs: args.rootfs.clone(),
        dir,
        pauses: args.clock.pauses().cloned(),
        clock,
        seed: args.seed,
        times: BootTimes::of_class(class, scale),
        lost: args.lose.clone(),
        any_scripts: args.run_any_scripts,
    };
    Ok((options, hosts))
}

/// The hardware of a class.
#[must_use]
pub fn class(class: MachineClass) -> &'static HardwareClass {
    match class {
        MachineClass::H200 => &H200,
        MachineClass::Ethernet => &ETHERNET,
        MachineClass::Zero => &ZERO,
    }
}

fn read_faults(path: &Path) -> Result<Vec<Fault>, Failure> {
    let refused = |detail: String| Failure::usage(CommandCode::FaultFileUnusable, detail);
    let text = std::fs::read_to_string(path)
        .map_err(|error| refused(format!("{}: {error}", path.display())))?;
    parse_faults(&text).map_err(|error| refused(error.to_string()))
}

/// A folder that goes with its handle.
///
/// # Errors
/// `hosts_dir_unwritable`.
pub fn temporary_dir() -> Result<tempfile::TempDir, Failure> {
    tempfile::Builder::new().prefix("gpuaas-hosts-").tempdir().map_err(|error| {
        Failure::local(CommandCode::HostsDirUnwritable, error.to_string())
            .hint("choose a folder with --hosts-dir")
    })
}

fn machines(region: &SharedRegion) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["MACHINE", "MAC", "BMC", "CLASS"]);
    let hosts = region.with(|region| region.hosts());
    let more = hosts.len().saturating_sub(64);
    for host in hosts.into_iter().take(64) {
        table.add_row([host.name, host.mac_address, host.bmc_address, host.class.to_owned()]);
    }
    let mut text = waterfall::trimmed(&table);
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

const fn describe_host_mode(mode: HostMode) -> &'static str {
    match mode {
        HostMode::Process => "processes that run the rendered bootstrap scripts and the real agent",
        HostMode::Fleet => "a fleet that runs the agent's protocol code inside this process",
        HostMode::None => "none: deployed systems run nothing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: MaasSimArgs,
    }

    fn planned(arguments: &[&str]) -> (SimOptions, HostsOptions) {
        let arguments = [&["maas-sim"], arguments].concat();
        plan(&Cli::try_parse_from(arguments).unwrap().args, PathBuf::from("/nowhere")).unwrap()
    }

    #[test]
    fn hosts_run_as_processes_only_for_whoever_is_on_this_machine() {
        for (arguments, is_refused) in [
            (&["--listen", "127.0.0.1:0"][..], false),
            (&["--listen", "[::1]:0", "--real-hosts", "1"], false),
            (&["--listen", "0.0.0.0:0"], true),
            (&["--listen", "10.0.0.1:0", "--hosts", "process"], true),
            (&["--listen", "[::]:0", "--hosts", "fleet", "--real-hosts", "1"], true),
            (&["--listen", "0.0.0.0:0", "--hosts", "fleet"], false),
            (&["--listen", "0.0.0.0:0", "--hosts", "none"], false),
            (&["--listen", "0.0.0.0:0", "--machines", "100"], false),
        ] {
            let (options, hosts) = planned(arguments);
            let checked = check_local(options.listen, &hosts);
            let code = checked.as_ref().err().map(Failure::code);
            assert_eq!(code, is_refused.then_some("hosts_not_local"), "{arguments:?}");
        }
    }

    #[test]
    fn a_region_has_a_key_and_a_password_of_its_own_at_each_start() {
        let start = || {
            let (options, _) = planned(&["--seed", "7"]);
            (options.api_key.unwrap(), options.password.unwrap())
        };
        let ((key, password), (other_key, other_password)) = (start(), start());
        assert_eq!(key.split(':').filter(|word| word.len() == 32).count(), 3, "{key}");
        assert!(password.len() == 32 && password != other_password && key != other_key);
        let (options, _) = planned(&["--api-key", "a:b:c"]);
        assert_eq!(options.api_key.as_deref(), Some("a:b:c"));
    }
}
