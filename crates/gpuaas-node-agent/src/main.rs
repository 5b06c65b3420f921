//! `gpuaas-node-agent`: the agent on a GPU host.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};
use gpuaas_node_agent::agent::{self, AgentError};
use gpuaas_node_agent::clock::HostClock;
use gpuaas_node_agent::config::{AgentFile, ConfigError};
use host_facts::HostRoot;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Exit code of a refused enrollment; the systemd unit does not restart on it.
const EXIT_REFUSED: u8 = 3;

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
        /// Configuration that the node bootstrap wrote
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Folder that is the host's /
        #[arg(long, value_name = "DIR", default_value = "/")]
        host_root: PathBuf,
    },
    /// Print what the host is
    Facts {
        /// Folder that is the host's /
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
        /// How to print
        #[arg(short, long, value_enum, default_value_t = Output::Json)]
        output: Output,
    },
    /// Print the version
    Version,
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
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run { config, host_root } => run(&config, &HostRoot::new(host_root)),
        Command::Facts { root, output: Output::Json } => facts(&HostRoot::new(root)),
        Command::Version => say(gpuaas_node_agent::VERSION),
    };
    let Err(failure) = result else { return ExitCode::SUCCESS };
    // When standard error is closed, the exit code is all that is left to say it with.
    drop(writeln!(io::stderr(), "gpuaas-node-agent: {failure}"));
    match failure {
        Failure::Agent(AgentError::EnrollmentRefused(_)) => ExitCode::from(EXIT_REFUSED),
        Failure::Config(_) | Failure::Io(_) => ExitCode::FAILURE,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(config: &std::path::Path, root: &HostRoot) -> Result<(), Failure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
    let (config, control_plane) = AgentFile::read(config)?.open(root)?;
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
    Ok(agent::run(config, control_plane, Arc::new(HostClock), shutdown).await?)
}

fn facts(root: &HostRoot) -> Result<(), Failure> {
    say(&serde_json::to_string_pretty(&root.read()).map_err(io::Error::from)?)
}

fn say(text: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stdout(), "{text}")?)
}
