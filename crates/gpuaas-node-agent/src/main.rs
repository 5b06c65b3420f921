//! `gpuaas-node-agent`: the agent on a GPU host.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use gpuaas_bundle::{Archive, Digest, Envelope, Gate, Inputs, TrustedKey};
use gpuaas_node_agent::agent::{self, AgentError};
use gpuaas_node_agent::bundle::first_boot::{self, BootError, HostFolders};
use gpuaas_node_agent::bundle::{self, BundleContext, BundleError};
use gpuaas_node_agent::clock::{AgentClock as _, HostClock};
use gpuaas_node_agent::config::{AgentFile, ConfigError};
use gpuaas_node_agent::env::LaunchCommand;
use gpuaas_node_agent::host::{Host, emulator_from_env};
use gpuaas_node_agent::operate::{DiscoveryError, SliceDiscovery};
use gpuaas_node_agent::{operate, tpm};
use gpuaas_types::agent::Finding;
use host_facts::HostRoot;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Where a phase finds its host (`host.sh`).
const ROOT_VARIABLE: &str = "GPUAAS_HOST_ROOT";
/// Exit code of a refused enrollment; the systemd unit does not restart on it.
const EXIT_REFUSED: u8 = 3;
/// Exit code of a bundle of which a phase failed, and of a gate that is not open.
const EXIT_NOT_DONE: u8 = 4;

#[derive(Parser)]
#[command(name = "gpuaas-node-agent", version, about = "GPUaaS agent of a GPU host")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Enroll, send heartbeats and carry out tasks until SIGTERM
    Run {
        /// Send heartbeats with the existing identity until one is accepted, then exit
        #[arg(long)]
        trial: bool,
        /// ID of the process that systemd started; its children have the same in their environment
        #[arg(long, env = "SYSTEMD_EXEC_PID", hide = true)]
        systemd_exec_pid: Option<String>,
        /// Configuration that the node bootstrap wrote
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Root folder of the host [default: /]
        #[arg(long, value_name = "DIR", value_parser = absolute())]
        host_root: Option<PathBuf>,
        /// Folder of sysfs [default: sys below the root]
        #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
        sysfs: Option<PathBuf>,
    },
    /// Restore the previous executable if the new one started too often without a heartbeat
    Guard {
        /// State folder of the agent
        #[arg(long, value_name = "DIR", default_value = "/var/lib/gpuaas/agent")]
        state_dir: PathBuf,
        /// Executable of the agent
        #[arg(long, value_name = "FILE", default_value = "/usr/local/bin/gpuaas-node-agent")]
        executable: PathBuf,
    },
    /// Print the facts of the host
    Facts {
        #[command(flatten)]
        files: HostFiles,
        /// Output format
        #[arg(short, long, value_enum, default_value_t = Output::Json)]
        output: Output,
    },
    /// Print the host devices that slices use, as discovery reports them (read-only)
    Topology {
        #[command(flatten)]
        files: HostFiles,
        /// Output format
        #[arg(short, long, value_enum, default_value_t = Output::Json)]
        output: Output,
    },
    /// Run bundles
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Evaluate a gate of this host; exit code 4 if it is not open
    Check {
        /// active, slice_ready or telemetry
        #[arg(long, value_name = "GATE")]
        gate: Gate,
        #[command(flatten)]
        files: HostFiles,
        /// Output format
        #[arg(short, long, value_enum, default_value_t = Output::Json)]
        output: Output,
    },
    /// Print the version
    Version,
}

/// Where the files of the host are.
#[derive(Args)]
struct HostFiles {
    /// Root folder of the host [default: /]
    #[arg(long, value_name = "DIR", value_parser = absolute())]
    root: Option<PathBuf>,
    /// Folder of sysfs [default: sys below the root]
    #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
    sysfs: Option<PathBuf>,
}

impl HostFiles {
    fn host(self) -> Result<HostRoot, Failure> {
        Ok(host(root(self.root)?, self.sysfs))
    }
}

#[derive(Subcommand)]
enum BundleCommand {
    /// Run the bundle in a folder and the bundles it requires; exit code 4 if a phase failed
    Run(BundleRun),
    /// Download, verify, install and run the user-data bundle; exit code 4 if a phase failed
    Boot(BundleBoot),
    /// Verify a bundle file and its signature, and unpack it
    Unpack(BundleUnpack),
}

#[derive(Args)]
struct BundleRun {
    /// Bundle folder
    #[arg(value_name = "DIR", value_parser = absolute())]
    folder: PathBuf,
    /// Root folder of the host [default: /]
    #[arg(long, value_name = "DIR", value_parser = absolute())]
    root: Option<PathBuf>,
    /// Folder of required bundles [default: the bundle's parent folder]
    #[arg(long, value_name = "DIR", value_parser = absolute())]
    bundles: Option<PathBuf>,
    /// Folder of sysfs [default: sys below the root]
    #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
    sysfs: Option<PathBuf>,
    /// Site name [default: from the deployment]
    #[arg(long, env = "GPUAAS_SITE")]
    site: Option<String>,
    /// Short hostname [default: from the deployment, else from /etc/hostname]
    #[arg(long, env = "GPUAAS_HOSTNAME")]
    hostname: Option<String>,
    /// ID of the run that deployed the host [default: from the deployment]
    #[arg(long, env = "GPUAAS_RUN_ID")]
    run_id: Option<String>,
    /// Value for a bundle input, stored on the host [default: the stored value, else the input's
    /// default]
    #[arg(long, value_name = "INPUT=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// File with input values: a JSON object of strings
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
}

#[derive(Args)]
struct BundleBoot {
    /// Configuration that cloud-init wrote
    #[arg(long, value_name = "FILE", default_value = "/etc/gpuaas/bootstrap.json")]
    config: PathBuf,
    /// Root folder of the host [default: /]
    #[arg(long, value_name = "DIR", value_parser = absolute())]
    root: Option<PathBuf>,
    /// Folder of sysfs [default: sys below the root]
    #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
    sysfs: Option<PathBuf>,
}

#[derive(Args)]
struct BundleUnpack {
    /// Bundle file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder to create
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Expected name@version of the bundle
    #[arg(long)]
    bundle: String,
    /// Expected SHA-256 of the file
    #[arg(long)]
    digest: Digest,
    /// Signature of the bundle
    #[arg(long, value_name = "FILE", requires = "trust")]
    signature: Option<PathBuf>,
    /// File with trusted keys, a JSON list; requires --signature
    #[arg(long, value_name = "FILE", requires = "signature")]
    trust: Option<PathBuf>,
}

/// Parses a path and makes it absolute: a phase runs in its bundle's folder, not in this one.
fn absolute() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected INPUT=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Json,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error("rejected the bundle: {0}")]
    Refused(String),
    #[error(
        "{ROOT_VARIABLE} is set to {}, but this program ignores it: pass the folder with --root \
         (run: --host-root), or unset the variable to work on this machine", .0.display()
    )]
    OtherRoot(PathBuf),
    #[error("{0}")]
    NotDone(String),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Keeps the memory of this process out of core dumps and away from other processes of its user: it holds
/// the key of the node, tokens, and the secret inputs of bundles.
fn disable_core_dumps() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

fn main() -> ExitCode {
    if let Err(error) = disable_core_dumps() {
        // When standard error is closed, nobody can be told.
        drop(writeln!(io::stderr(), "gpuaas-node-agent: cannot disable core dumps: {error}"));
    }
    let result = match Arguments::parse().command {
        Command::Run { config, host_root, sysfs, trial: true, .. } => {
            root(host_root).and_then(|root| trial(&config, &host(root, sysfs)))
        }
        Command::Run { config, host_root, sysfs, systemd_exec_pid, .. } => {
            let own_pid = std::process::id().to_string();
            let under_systemd = systemd_exec_pid.is_some_and(|pid| pid == own_pid);
            root(host_root).and_then(|root| run(&config, &host(root, sysfs), under_systemd))
        }
        Command::Guard { state_dir, executable } => guard(&state_dir, &executable),
        Command::Facts { files, output: Output::Json } => files.host().and_then(facts),
        Command::Topology { files, output: Output::Json } => files.host().and_then(topology),
        Command::Bundle(BundleCommand::Run(run)) => run_bundle(run),
        Command::Bundle(BundleCommand::Boot(args)) => boot(&args),
        Command::Bundle(BundleCommand::Unpack(unpack)) => unpack_bundle(&unpack),
        Command::Check { gate, files, output: Output::Json } => {
            files.host().and_then(|root| check(gate, root))
        }
        Command::Version => print_line(gpuaas_node_agent::VERSION),
    };
    let Err(failure) = result else { return ExitCode::SUCCESS };
    // When standard error is closed, only the exit code is left.
    drop(writeln!(io::stderr(), "gpuaas-node-agent: {failure}"));
    match failure {
        Failure::Agent(AgentError::EnrollmentRefused(_)) => ExitCode::from(EXIT_REFUSED),
        Failure::Agent(
            AgentError::NotEnrolled | AgentError::NoKey(_) | AgentError::Credential(_),
        ) => ExitCode::FAILURE,
        Failure::NotDone(_) => ExitCode::from(EXIT_NOT_DONE),
        Failure::Config(_)
        | Failure::Bundle(_)
        | Failure::Boot(_)
        | Failure::Refused(_)
        | Failure::OtherRoot(_)
        | Failure::Discovery(_)
        | Failure::Io(_) => ExitCode::FAILURE,
    }
}

fn init_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
}

/// How this process was launched. The executable has the name that it was launched by, so that it
/// stays the agent's path when another file is installed there.
fn launch_command() -> io::Result<LaunchCommand> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().map(PathBuf::from).filter(|name| name.is_absolute());
    let executable = name.map_or_else(std::env::current_exe, Ok)?;
    Ok(LaunchCommand { executable, arguments: arguments.collect() })
}

#[tokio::main(flavor = "current_thread")]
async fn trial(config: &Path, root: &HostRoot) -> Result<(), Failure> {
    init_logging();
    let (config, control_plane) = AgentFile::read(config)?.open(root, None)?;
    Ok(agent::trial(config, control_plane, Arc::new(HostClock)).await?)
}

fn guard(state_dir: &Path, executable: &Path) -> Result<(), Failure> {
    init_logging();
    if operate::guard(state_dir, executable)? {
        print_line("restored the previous version of the agent")?;
    }
    Ok(())
}

fn run(config: &Path, root: &HostRoot, under_systemd: bool) -> Result<(), Failure> {
    init_logging();
    let launch = launch_command()?;
    if run_agent(config, root, launch.clone())? {
        operate::hand_over(&launch, under_systemd)?;
    }
    Ok(())
}

/// Runs the agent until it is told to stop; whether another executable has replaced this one.
#[tokio::main(flavor = "current_thread")]
async fn run_agent(config: &Path, root: &HostRoot, launch: LaunchCommand) -> Result<bool, Failure> {
    let (mut config, control_plane) =
        AgentFile::read(config)?.open(root, emulator_from_env(&std::env::vars().collect()))?;
    config.env.launch = Some(launch);
    config.env.tpm = tpm::of_host(root);
    let restart = config.env.restart.clone();
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    agent::run(config, control_plane, Arc::new(HostClock), shutdown).await?;
    Ok(restart.is_cancelled())
}

#[tokio::main(flavor = "current_thread")]
async fn run_bundle(args: BundleRun) -> Result<(), Failure> {
    let mut values: Inputs = match &args.inputs {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::from)?,
        None => Inputs::new(),
    };
    values.extend(args.set);
    let folder = args.folder;
    let beside = folder.parent().unwrap_or(&folder).to_owned();
    let deployed = BundleContext::from_host(&host(root(args.root)?, args.sysfs));
    let given = |argument: Option<String>, deployed: String| {
        argument.filter(|text| !text.is_empty()).unwrap_or(deployed)
    };
    let context = BundleContext {
        bundles: args.bundles.unwrap_or(beside),
        site: given(args.site, deployed.site),
        hostname: given(args.hostname, deployed.hostname),
        run_id: given(args.run_id, deployed.run_id),
        values,
        environment: std::env::vars().collect(),
        root: deployed.root,
        sysfs: deployed.sysfs,
        use_stored_inputs: deployed.use_stored_inputs,
        repairs: deployed.repairs,
        phase_events: None,
    };
    let report = bundle::run(&folder, &context).await?;
    print_line(&serde_json::to_string_pretty(&report).map_err(io::Error::from)?)?;
    if report.ended_well() { Ok(()) } else { Err(Failure::NotDone(report.summary())) }
}

#[tokio::main(flavor = "current_thread")]
async fn boot(args: &BundleBoot) -> Result<(), Failure> {
    let environment = std::env::vars().collect();
    let folders = HostFolders { root: root(args.root.clone())?, sysfs: args.sysfs.clone() };
    let booted = first_boot::boot(&args.config, folders, environment, &HostClock).await?;
    match booted {
        None => print_line("bootstrap.json names no bundle"),
        Some(report) if report.ended_well() => print_line(&report.summary()),
        Some(report) => Err(Failure::NotDone(report.summary())),
    }
}

fn unpack_bundle(args: &BundleUnpack) -> Result<(), Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::Refused(error.to_string());
    let bytes = std::fs::read(&args.file)?;
    let found = Digest::sha256(&bytes);
    if found != args.digest {
        return Err(refused(&format!("its digest is {found}, expected {}", args.digest)));
    }
    if let (Some(signature), Some(trust)) = (&args.signature, &args.trust) {
        let trusted: Vec<TrustedKey> =
            serde_json::from_slice(&std::fs::read(trust)?).map_err(io::Error::from)?;
        let envelope = Envelope::parse(&std::fs::read(signature)?).map_err(|e| refused(&e))?;
        let now = HostClock.now();
        let signer = envelope.verify(&trusted, &args.bundle, &bytes, now);
        let signer = signer.map_err(|e| refused(&e))?;
        writeln!(io::stderr(), "{} is signed by {signer}", args.bundle)?;
    }
    let archive = Archive::read(&bytes).map_err(|e| refused(&e))?;
    let reference = archive.manifest.reference();
    if reference != args.bundle {
        return Err(refused(&format!("it contains {reference}, expected {}", args.bundle)));
    }
    Ok(archive.unpack(&args.into)?)
}

#[tokio::main(flavor = "current_thread")]
async fn check(gate: Gate, root: HostRoot) -> Result<(), Failure> {
    let host = Host::at(root, emulator_from_env(&std::env::vars().collect()));
    let report = bundle::gate::evaluate(gate, &host).await?;
    print_line(&serde_json::to_string_pretty(&report).map_err(io::Error::from)?)?;
    if report.passed {
        return Ok(());
    }
    let failed =
        report.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str());
    let failed: Vec<&str> = failed.collect();
    let text = if failed.is_empty() {
        "no bundle on this host checks this gate".to_owned()
    } else {
        failed.join(", ")
    };
    Err(Failure::NotDone(format!("gate `{}` is not open: {text}", gate.as_str())))
}

/// Folder of the host: the one that was named, else /. A phase's own variable says that somebody means
/// another host, and without the argument this machine would be changed in its place.
#[expect(clippy::disallowed_methods, reason = "whether it is set; its value is never the root")]
fn root(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let variable = std::env::var_os(ROOT_VARIABLE).filter(|value| !value.is_empty());
    match (named, variable) {
        (Some(root), _) => Ok(root),
        (None, Some(other)) if Path::new(&other) != Path::new("/") => {
            Err(Failure::OtherRoot(PathBuf::from(other)))
        }
        (None, _) => Ok(PathBuf::from("/")),
    }
}

fn host(root: PathBuf, sysfs: Option<PathBuf>) -> HostRoot {
    let root = HostRoot::new(root);
    match sysfs {
        Some(sysfs) => root.with_sysfs(sysfs),
        None => root,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn facts(root: HostRoot) -> Result<(), Failure> {
    let host = Host::at(root, emulator_from_env(&std::env::vars().collect()));
    let facts = gpuaas_node_agent::facts::collect(&host).await;
    print_line(&serde_json::to_string_pretty(&facts).map_err(io::Error::from)?)
}

#[tokio::main(flavor = "current_thread")]
async fn topology(root: HostRoot) -> Result<(), Failure> {
    let host = Host::at(root, emulator_from_env(&std::env::vars().collect()));
    let SliceDiscovery { report, unanswered } = operate::discover(&host).await?;
    for Finding { name, seen, .. } in &unanswered {
        drop(writeln!(io::stderr(), "gpuaas-node-agent: {name} did not answer: {seen}"));
    }
    print_line(&serde_json::to_string_pretty(&report).map_err(io::Error::from)?)
}

fn print_line(text: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stdout(), "{text}")?)
}
