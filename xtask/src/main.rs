//! Developer commands. `cargo xtask --help` lists them.
//!
//! What a newcomer, a developer and the CI type is the same few words, and the
//! set-up behind those words is code with tests rather than a page of prose.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line speaks on stdout and stderr"
)]

mod affected;
mod agent;
mod api_check;
mod cases;
mod console;
mod debug_info;
mod decisions;
mod dist;
mod first_hour;
mod fixed_ports;
mod graph;
mod lab;
mod lint;
mod machine_speed;
mod making;
mod metadata;
mod node_packages;
mod oci;
mod orphans;
mod outcome;
mod parity;
mod postgres;
mod proc;
mod python;
mod ratchet;
mod real_host;
mod scratch;
mod screenshots;
mod seeded_lab;
mod setup;
mod slow_tests;
mod source_lints;
#[path = "../../crates/gpuaas/src/args/source_texts.rs"]
mod source_texts;
mod static_build;
mod strings;
mod suite;
mod test_report;
mod third_party;
mod vm;

use std::process::ExitCode;

use crate::outcome::Outcome;

const HELP: &str = "\
Developer commands of GPUaaS.

Usage: cargo xtask COMMAND [ARGS]

Commands:
  lab [ARGS]    Build the two executables in the profile `lab`, which compiles quickly,
                and run `gpuaas lab ARGS`
  test [ARGS]   Set up what the tests need, then run the whole suite;
                ARGS go to cargo-nextest (or to cargo test where it is missing)
  affected      Run the tests of the crates that a change touches and of their dependents
  slow-tests    Print the tests of the last run that took longest
  lint [PART]   Check the sources; parts: sources, graph, deny, fmt, clippy
                (default: all)
  agent         Build the node agent as nodes get it: one static executable
  dist          Build packages, archives and the container image of the control plane and the agent
  parity        Run what runs in production on this machine: containers, or a check of the manifests
  real-host     Boot a real host in namespaces of its own, and run the bundles on it
  vm            Boot a machine of software, and run the slice host's units and the agent on it
  first-hour    Run the README's blocks in a fresh clone, then 60 mistakes, and say how
                they were answered
  cases         Run cases from the field (docs/cases.md): a small input, commands, and what they print
  console       Test the console in a browser: accessibility, keyboard, policy, reflow
  screenshots   Draw the README's pictures of the console from a seeded lab
  api-check     Hold a running control plane to its OpenAPI document with Schemathesis, as each role
  strings       Print texts that people read, drawn at random, with their places
  graph         Print the crate graph and check it against the rules

`cargo xtask COMMAND --help` says more. Exit code 0 means that everything asked for passed.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Outcome {
    let Some((command, rest)) = args.split_first() else {
        eprintln!("{HELP}");
        return Ok(ExitCode::from(2));
    };
    let help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    match command.as_str() {
        "lab" => lab::run(rest),
        "agent" if help => print_help(agent::HELP),
        "agent" => agent::run(rest),
        "dist" if help => print_help(dist::HELP),
        "dist" => dist::run(rest),
        "parity" if help => print_help(parity::HELP),
        "parity" => parity::run(rest),
        "test" if help => print_help(suite::HELP),
        "test" => suite::run(rest),
        "affected" if help => print_help(affected::HELP),
        "affected" => affected::run(rest),
        "slow-tests" if help => print_help(slow_tests::HELP),
        "slow-tests" => slow_tests::run(),
        "lint" if help => print_help(lint::HELP),
        "lint" => lint::run(rest),
        "real-host" if help => print_help(real_host::HELP),
        "real-host" => real_host::run(rest),
        "first-hour" if help => print_help(first_hour::HELP),
        "first-hour" => first_hour::run(rest),
        "vm" if help => print_help(vm::HELP),
        "vm" => vm::run(rest),
        "cases" if help => print_help(cases::HELP),
        "cases" => cases::run(rest),
        "console" if help => print_help(console::HELP),
        "console" => console::run(rest),
        "strings" if help => print_help(strings::HELP),
        "strings" => strings::run(rest),
        "screenshots" if help => print_help(screenshots::HELP),
        "screenshots" => screenshots::run(rest),
        "api-check" if help => print_help(api_check::HELP),
        "api-check" => api_check::run(rest),
        "graph" if help => print_help(graph::HELP),
        "graph" => graph::run(),
        "help" | "--help" | "-h" => print_help(HELP),
        other => Err(format!("there is no command `{other}`; `cargo xtask --help` lists them")),
    }
}

fn print_help(text: &str) -> Outcome {
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}
