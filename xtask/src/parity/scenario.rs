//! What the parity stack has to do.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::compose::Stack;
use crate::proc;

/// What a step runs.
#[derive(Debug)]
enum Run {
    /// `gpuaas` at the second control plane.
    Operator(&'static [&'static str]),
    /// A program in a running container.
    Inside(&'static str, &'static [&'static str]),
    /// A command of Compose.
    Compose(&'static [&'static str]),
}

#[derive(Debug)]
struct Step {
    /// One line for people.
    what: &'static str,
    run: Run,
    /// Part of what is printed.
    expected: &'static str,
    /// Seconds in which it may fail.
    seconds: u64,
}

const fn step(what: &'static str, run: Run, expected: &'static str, seconds: u64) -> Step {
    Step { what, run, expected, seconds }
}

const HOSTS: &str = "/var/lib/region/hosts.json";
const BUNDLE: &str = "/var/lib/gpuaas/parity-bundle";
const REPOSITORY: &str = "http://registry:5000/gpuaas/parity-bundle";

use Run::{Compose, Inside, Operator};

const STEPS: [Step; 13] = [
    step("the second control plane answers", Operator(&["site", "list"]), "", 90),
    step(
        "it adds the region",
        Operator(&[
            "site",
            "add",
            "lab",
            "--url",
            "http://127.0.0.1:5240/MAAS",
            "--api-key-file",
            "/var/lib/region/api-key",
        ]),
        "lab",
        0,
    ),
    step(
        "it adds a profile",
        Operator(&["profile", "add", "h200", "--preset", "h200-bare-metal"]),
        "h200",
        0,
    ),
    step(
        "a node becomes active",
        Operator(&[
            "node",
            "onboard",
            "j22u11",
            "--site",
            "lab",
            "--profile",
            "h200",
            "--machines",
            HOSTS,
            "--wait",
            "--timeout",
            "300",
        ]),
        "succeeded",
        0,
    ),
    step("the first control plane is killed", Compose(&["kill", "control-plane-1"]), "", 0),
    step(
        "another node becomes active without it",
        Operator(&[
            "node",
            "onboard",
            "j22u15",
            "--site",
            "lab",
            "--profile",
            "h200",
            "--machines",
            HOSTS,
            "--wait",
            "--timeout",
            "300",
        ]),
        "succeeded",
        0,
    ),
    step("the first control plane starts again", Compose(&["start", "control-plane-1"]), "", 0),
    step(
        "it knows both nodes",
        Inside("control-plane-1", &["/usr/bin/gpuaas", "node", "list"]),
        "j22u15",
        60,
    ),
    step(
        "Prometheus gets a token",
        Operator(&[
            "token",
            "add",
            "prometheus",
            "--role",
            "viewer",
            "--to",
            "/var/lib/gpuaas/prometheus-token",
            "--reason",
            "parity",
        ]),
        "",
        0,
    ),
    step(
        "Prometheus scrapes both control planes",
        Inside(
            "prometheus",
            &["promtool", "query", "instant", "http://127.0.0.1:9090", "sum(up{job=\"gpuaas\"})"],
        ),
        "=> 2 @",
        60,
    ),
    step(
        "NATS has the stream of events",
        Inside("simulator", &["curl", "-sf", "http://nats:8222/jsz?streams=true"]),
        "GPUAAS_EVENTS",
        30,
    ),
    step("a bundle is written", Operator(&["bundle", "new", BUNDLE]), "", 0),
    step(
        "the registry takes it",
        Operator(&["bundle", "publish", BUNDLE, "--oci", REPOSITORY]),
        "",
        0,
    ),
];

/// Runs every step, and prints a line for each.
///
/// # Errors
/// What the first step that failed printed.
#[expect(clippy::disallowed_methods, reason = "containers start by the clock on the wall")]
pub(super) fn run(stack: &Stack) -> Result<(), String> {
    for step in &STEPS {
        let begin = Instant::now();
        let said = loop {
            let said = proc::quiet(&mut command(stack, &step.run));
            let good = said.as_ref().is_ok_and(|said| said.contains(step.expected));
            if good || begin.elapsed() >= Duration::from_secs(step.seconds) {
                break said.map(|said| (good, said));
            }
            thread::sleep(Duration::from_secs(1));
        };
        let failed = |said: &str| format!("FAILED {}: {}", step.what, proc::tail(said, 20));
        match said {
            Ok((true, _)) => {
                println!("ok  {:<42} {:>5.1} s", step.what, begin.elapsed().as_secs_f64());
            }
            Ok((false, said)) => {
                return Err(failed(&format!("expected {:?} in {said}", step.expected)));
            }
            Err(said) => return Err(failed(&said)),
        }
    }
    Ok(())
}

fn command(stack: &Stack, run: &Run) -> Command {
    let words = |first: &[&'static str], rest: &[&'static str]| [first, rest].concat();
    match run {
        Operator(args) => stack.command(&words(&["run", "--rm", "-T", "operator"], args)),
        Inside(service, args) => stack.command(&words(&["exec", "-T", service], args)),
        Compose(args) => stack.command(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_of_a_step_is_in_the_compose_file() {
        let file = include_str!("../../../ops/parity/compose.yaml");
        for step in &STEPS {
            let service = match step.run {
                Operator(_) => "operator",
                Inside(service, _) => service,
                Compose(args) => args[1],
            };
            assert!(file.contains(&format!("\n  {service}:\n")), "{service}");
        }
    }
}
