//! `gpuaas-node-agent`: the agent on a GPU host.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use gpuaas_bundle::{Archive, Digest, Envelope, Gate, Inputs, TrustedKey};
use gpuaas_node_agent::agent::{self, AgentError};
use gpuaas_node_agent::bundle::boot::{self, BootError};
use gpuaas_node_agent::bundle::{self, BundleError, Setting};
use gpuaas_node_agent::clock::{AgentClock as _, HostClock};
use gpuaas_node_agent::config::{AgentFile, ConfigError};
use gpuaas_node_agent::operate::{self, Started};
use gpuaas_node_agent::tasks::Host;
use host_facts::HostRoot;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Exit code of a refused enrollment; the systemd unit does not restart on it.
const EXIT_REFUSED: u8 = 3;
/// Exit code of a bundle that did not end well, and of a gate that is shut.
const EXIT_NOT_DONE: u8 = 4;

#[derive(Parser)]
#[command(name = "gpuaas-node-agent", version, about = "The GPUaaS agent of a GPU host")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Enroll, send heartbeats, carry out tasks; until SIGTERM
    Run {
        /// Only get one heartbeat through, with the identity that is there, and end
        #[arg(long)]
        trial: bool,
        /// The process that systemd started; what it starts in turn has the same in its environment
        #[arg(long, env = "SYSTEMD_EXEC_PID", hide = true)]
        systemd_exec_pid: Option<String>,
        /// Configuration that the node bootstrap wrote
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Folder that is the host's /
        #[arg(long, value_name = "DIR", default_value = "/", value_parser = absolute())]
        host_root: PathBuf,
        /// Where sysfs is, when not below the root
        #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
        sysfs: Option<PathBuf>,
    },
    /// Put the previous executable back where the one in its place does not last
    Guard {
        /// Folder of what the agent keeps
        #[arg(long, value_name = "DIR", default_value = "/var/lib/gpuaas/agent")]
        state_dir: PathBuf,
        /// The agent's place
        #[arg(long, value_name = "FILE", default_value = "/usr/local/bin/gpuaas-node-agent")]
        executable: PathBuf,
    },
    /// Print what the host is
    Facts {
        /// Folder that is the host's /
        #[arg(long, value_name = "DIR", default_value = "/", value_parser = absolute())]
        root: PathBuf,
        /// Where sysfs is, when not below the root
        #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
        sysfs: Option<PathBuf>,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Json)]
        output: Output,
    },
    /// Run bundles
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Say whether a gate is open on this host; exit code 4 when it is not
    Check {
        /// active, slice_ready or telemetry
        #[arg(long, value_name = "GATE")]
        gate: Gate,
        /// Folder that is the host's /
        #[arg(long, value_name = "DIR", default_value = "/", value_parser = absolute())]
        root: PathBuf,
        /// Where sysfs is, when not below the root
        #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
        sysfs: Option<PathBuf>,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Json)]
        output: Output,
    },
    /// Print the version
    Version,
}

#[derive(Subcommand)]
enum BundleCommand {
    /// Run the bundle in a folder, and what it requires; exit code 4 when a phase failed
    Run(BundleRun),
    /// Fetch, verify, install and run what the user-data names; exit code 4 when a phase failed
    Boot(BundleBoot),
    /// Verify a bundle's file and its signature, and take it apart
    Unpack(BundleUnpack),
}

#[derive(Args)]
struct BundleRun {
    /// The bundle's folder
    #[arg(value_name = "DIR", value_parser = absolute())]
    folder: PathBuf,
    /// Folder that is the host's /
    #[arg(long, value_name = "DIR", default_value = "/", value_parser = absolute())]
    root: PathBuf,
    /// Where required bundles are [default: beside the bundle]
    #[arg(long, value_name = "DIR", value_parser = absolute())]
    bundles: Option<PathBuf>,
    /// Where sysfs is, when not below the root
    #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
    sysfs: Option<PathBuf>,
    /// The site's name [default: what the host was deployed with]
    #[arg(long, env = "GPUAAS_SITE")]
    site: Option<String>,
    /// The host's name [default: what the host was deployed with, else /etc/hostname]
    #[arg(long, env = "GPUAAS_HOSTNAME")]
    hostname: Option<String>,
    /// The run that deployed the host [default: what the host was deployed with]
    #[arg(long, env = "GPUAAS_RUN_ID")]
    run_id: Option<String>,
    /// A value for one of its inputs, which stays; without one it is what the host ran it with
    /// before, else its default
    #[arg(long, value_name = "INPUT=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// File with values for its inputs, a JSON object of texts
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
}

#[derive(Args)]
struct BundleBoot {
    /// What cloud-init wrote
    #[arg(long, value_name = "FILE", default_value = "/etc/gpuaas/bootstrap.json")]
    config: PathBuf,
    /// Folder that is the host's /
    #[arg(long, value_name = "DIR", default_value = "/", value_parser = absolute())]
    root: PathBuf,
    /// Where sysfs is, when not below the root
    #[arg(long, value_name = "DIR", env = "GPUAAS_SYSFS", value_parser = absolute())]
    sysfs: Option<PathBuf>,
}

#[derive(Args)]
struct BundleUnpack {
    /// The bundle's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder to make
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// name@version that it has to be
    #[arg(long)]
    bundle: String,
    /// SHA-256 that it has to have
    #[arg(long)]
    digest: Digest,
    /// Its signature
    #[arg(long, value_name = "FILE", requires = "trust")]
    signature: Option<PathBuf>,
    /// File with the keys that count, a JSON list; with it a signature is demanded
    #[arg(long, value_name = "FILE", requires = "signature")]
    trust: Option<PathBuf>,
}

/// A phase runs in its bundle's folder, where a relative path would be another one.
fn absolute() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write INPUT=VALUE")?;
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
    #[error("the bundle is refused: {0}")]
    Refused(String),
    #[error("{0}")]
    NotDone(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run { config, host_root, sysfs, trial: true, .. } => {
            trial(&config, &host(host_root, sysfs))
        }
        Command::Run { config, host_root, sysfs, systemd_exec_pid, .. } => {
            let me = std::process::id().to_string();
            let under_systemd = systemd_exec_pid.is_some_and(|pid| pid == me);
            run(&config, &host(host_root, sysfs), under_systemd)
        }
        Command::Guard { state_dir, executable } => guard(&state_dir, &executable),
        Command::Facts { root, sysfs, output: Output::Json } => facts(host(root, sysfs)),
        Command::Bundle(BundleCommand::Run(run)) => run_bundle(run),
        Command::Bundle(BundleCommand::Boot(args)) => boot(&args),
        Command::Bundle(BundleCommand::Unpack(unpack)) => unpack_bundle(&unpack),
        Command::Check { gate, root, sysfs, output: Output::Json } => {
            check(gate, host(root, sysfs))
        }
        Command::Version => say(gpuaas_node_agent::VERSION),
    };
    let Err(failure) = result else { return ExitCode::SUCCESS };
    // When standard error is closed, the exit code is all that is left to say it with.
    drop(writeln!(io::stderr(), "gpuaas-node-agent: {failure}"));
    match failure {
        Failure::Agent(AgentError::EnrollmentRefused(_)) => ExitCode::from(EXIT_REFUSED),
        Failure::Agent(AgentError::NotEnrolled | AgentError::NoKey(_) | AgentError::Proof(_)) => {
            ExitCode::FAILURE
        }
        Failure::NotDone(_) => ExitCode::from(EXIT_NOT_DONE),
        Failure::Config(_)
        | Failure::Bundle(_)
        | Failure::Boot(_)
        | Failure::Refused(_)
        | Failure::Io(_) => ExitCode::FAILURE,
    }
}

fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
}

/// How this process was started. A name is kept as it was given, so that it stays the name of the
/// agent's place when another file has it.
fn started() -> io::Result<Started> {
    let mut words = std::env::args_os();
    let name = words.next().map(PathBuf::from).filter(|name| name.is_absolute());
    let executable = name.map_or_else(std::env::current_exe, Ok)?;
    Ok(Started { executable, arguments: words.collect() })
}

#[tokio::main(flavor = "current_thread")]
async fn trial(config: &Path, root: &HostRoot) -> Result<(), Failure> {
    log();
    let (config, control_plane) = AgentFile::read(config)?.open(root, None)?;
    Ok(agent::trial(config, control_plane, Arc::new(HostClock)).await?)
}

fn guard(state_dir: &Path, executable: &Path) -> Result<(), Failure> {
    log();
    if operate::guard(state_dir, executable)? {
        say("the previous version of the agent is back in its place")?;
    }
    Ok(())
}

fn run(config: &Path, root: &HostRoot, under_systemd: bool) -> Result<(), Failure> {
    log();
    let started = started()?;
    if live(config, root, started.clone())? {
        operate::give_way(&started, under_systemd)?;
    }
    Ok(())
}

/// Answers whether the agent has to give way to what has its place now.
#[tokio::main(flavor = "current_thread")]
async fn live(config: &Path, root: &HostRoot, started: Started) -> Result<bool, Failure> {
    let (mut config, control_plane) =
        AgentFile::read(config)?.open(root, bundle::player(&std::env::vars().collect()))?;
    config.workplace.started = Some(started);
    let restart = config.workplace.restart.clone();
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
    let known = Setting::of_host(&host(args.root, args.sysfs));
    let told =
        |told: Option<String>, known: String| told.filter(|text| !text.is_empty()).unwrap_or(known);
    let setting = Setting {
        bundles: args.bundles.unwrap_or(beside),
        site: told(args.site, known.site),
        hostname: told(args.hostname, known.hostname),
        run_id: told(args.run_id, known.run_id),
        values,
        environment: std::env::vars().collect(),
        root: known.root,
        sysfs: known.sysfs,
        kept: known.kept,
        ended: None,
    };
    let report = bundle::run(&folder, &setting).await?;
    say(&serde_json::to_string_pretty(&report).map_err(io::Error::from)?)?;
    if report.ended_well() { Ok(()) } else { Err(Failure::NotDone(report.summary())) }
}

#[tokio::main(flavor = "current_thread")]
async fn boot(args: &BundleBoot) -> Result<(), Failure> {
    let environment = std::env::vars().collect();
    let place = boot::Place { root: args.root.clone(), sysfs: args.sysfs.clone() };
    let booted = boot::boot(&args.config, place, environment, &HostClock).await?;
    match booted {
        None => say("no bundle is named"),
        Some(report) if report.ended_well() => say(&report.summary()),
        Some(report) => Err(Failure::NotDone(report.summary())),
    }
}

fn unpack_bundle(args: &BundleUnpack) -> Result<(), Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::Refused(error.to_string());
    let bytes = std::fs::read(&args.file)?;
    let seen = Digest::of(&bytes);
    if seen != args.digest {
        return Err(refused(&format!("its digest is {seen}, not {}", args.digest)));
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
        return Err(refused(&format!("it is {reference}, not {}", args.bundle)));
    }
    Ok(archive.unpack(&args.into)?)
}

#[tokio::main(flavor = "current_thread")]
async fn check(gate: Gate, root: HostRoot) -> Result<(), Failure> {
    let host = Host::at(root, bundle::player(&std::env::vars().collect()));
    let report = bundle::gate::evaluate(gate, &host).await?;
    say(&serde_json::to_string_pretty(&report).map_err(io::Error::from)?)?;
    if report.passed {
        return Ok(());
    }
    let shut = report.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str());
    let shut: Vec<&str> = shut.collect();
    let text =
        if shut.is_empty() { "nothing on this host says so".to_owned() } else { shut.join(", ") };
    Err(Failure::NotDone(format!("{} is shut: {text}", gate.as_str())))
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
    let host = Host::at(root, bundle::player(&std::env::vars().collect()));
    let facts = gpuaas_node_agent::facts::whole(&host).await;
    say(&serde_json::to_string_pretty(&facts).map_err(io::Error::from)?)
}

fn say(text: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stdout(), "{text}")?)
}
