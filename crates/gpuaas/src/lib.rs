//! The executable's library: command line, operator's commands, `serve` with its wiring, output.
//!
//! `main` only calls [`run`]. The features `lab` and `bench` add the laboratory and the benchmarks;
//! an operator's executable is built without them.

mod approval;
pub mod args;
mod audit;
mod audit_chain;
mod audit_sink;
mod authority;
mod backup;
pub mod batch;
#[cfg(feature = "bench")]
pub mod bench;
pub mod bundle;
pub mod certificates;
mod changes;
pub mod commands;
mod completion;
mod config_file;
mod confirm;
mod console;
mod contexts;
mod doctor;
pub mod events;
mod experiment;
pub mod follow;
pub mod image;
mod input_file;
mod key;
#[cfg(any(test, not(feature = "lab")))]
mod laboratory;
#[cfg(feature = "lab")]
pub mod launcher;
mod login;
mod manifest;
mod manual;
mod master_key;
mod migrate_store;
mod node_list;
pub mod node_task;
pub mod offboarding;
mod onboarding;
mod plan_lines;
mod planned;
mod private_file;
mod reference;
mod requests;
mod restore;
mod run_list;
pub mod secrets;
pub mod serve;
mod serve_command;
mod service_manager;
mod site_inputs;
mod slice;
mod syslog;
pub mod task_key;
pub mod telemetry;
pub mod token;
mod traces;
mod usage;
mod vault;
mod watch;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use gpuaas_client::failure::Failure;
use gpuaas_client::signals;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{Cli, Command};
use crate::traces::{SpanLayer, TraceExporter, is_traced};

/// Runs the command line `args`, the program's name included, on the process's own outputs.
pub fn run<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    completion::answer();
    let args = args.into_iter().map(Into::into).collect();
    let args = match config_file::expand(args) {
        Ok(args) => args,
        Err(failure) => return end(&failure, &mut Terminal::standard(false)),
    };
    let cli = match args::parse(args) {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error, &mut Terminal::standard(false)),
    };
    let mut terminal = Terminal::standard(cli.ascii);
    match execute(cli, &mut terminal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure, &mut terminal),
    }
}

fn end(failure: &Failure, terminal: &mut Terminal) -> ExitCode {
    terminal.message(&failure.to_string());
    ExitCode::from(failure.exit as u8)
}

/// Stack of each worker, of which the system gives only what is touched. In a simulated fleet one worker
/// polls an agent with its TLS and its tasks, which takes more than the usual 2 MiB in a build that is not
/// optimised.
const WORKER_STACK_BYTES: usize = 16 << 20;

fn execute(cli: Cli, terminal: &mut Terminal) -> Result<(), Failure> {
    #[cfg(not(feature = "lab"))]
    if let Some((word, args)) = match &cli.command {
        Command::Lab(args) => Some(("lab", args)),
        Command::MaasSim(args) => Some(("maas-sim", args)),
        Command::Bench(args) => Some(("bench", args)),
        _ => None,
    } {
        return Err(laboratory::start(word, &args.args, (&cli.log, cli.ascii)));
    }
    let traces = match &cli.command {
        Command::Serve(args) => args.traces()?,
        _ => None,
    };
    let (layer, exporter) = traces.map(|pipe| (pipe.layer, pipe.exporter)).unzip();
    start_log(&cli.log, layer)?;
    if matches!(cli.command, Command::Serve(_)) {
        signals::disable_core_dumps();
    }
    gpuaas_client::install_cryptography();
    signals::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(WORKER_STACK_BYTES)
        .enable_all()
        .build();
    let runtime = runtime
        .map_err(|error| Failure::local(CommandCode::RuntimeUnavailable, error.to_string()))?;
    runtime.block_on(dispatch(cli.command, exporter, terminal))
}

fn start_log(filter: &str, traces: Option<SpanLayer>) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage(CommandCode::LogFilterInvalid, error.to_string())
            .hint("use a filter such as info, or gpuaas_engine=debug,warn")
    })?;
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // A file of a log is read by programs; colours are for a terminal, unless NO_COLOR is set.
    let log = if std::io::stderr().is_terminal() { log } else { log.with_ansi(false) };
    let traces = traces.map(|layer| {
        layer.with_filter(filter_fn(is_traced).with_max_level_hint(LevelFilter::INFO))
    });
    let log = tracing_subscriber::registry().with(log.with_filter(filter)).with(traces);
    // A second start in one process keeps the first log.
    log.try_init().ok();
    Ok(())
}

async fn dispatch(
    command: Command,
    traces: Option<TraceExporter>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve_command::run(*args, traces, terminal).await,
        Command::Backup(args) => backup::run(args, terminal).await,
        Command::Restore(args) => restore::run(args, terminal).await,
        Command::Key(command) => key::run(command, terminal).await,
        Command::MigrateStore(args) => migrate_store::run(args, terminal).await,
        Command::Doctor(args) => doctor::run(args, terminal).await,
        Command::Context(command) => contexts::run(command, terminal),
        Command::Completion(args) => completion::print(args.shell, terminal),
        Command::Man(args) => manual::write(&args, terminal),
        #[cfg(feature = "lab")]
        Command::MaasSim(args) => gpuaas_lab::region::run(args, terminal).await,
        #[cfg(feature = "lab")]
        #[cfg(feature = "bench")]
        Command::Lab(args)
            if args.scenario.as_deref() == Some(gpuaas_lab::scenario::IMAGE_EXPERIMENT) =>
        {
            bench::run_image_experiment(args, terminal).await
        }
        #[cfg(feature = "lab")]
        Command::Lab(args) => gpuaas_lab::lab::run(args, &launcher::ServeLauncher, terminal).await,
        #[cfg(feature = "bench")]
        Command::Bench(command) => bench::run(command, terminal).await,
        command => requests::run(command, terminal).await,
    }
}
