//! `cargo xtask parity`: what runs in production, on one machine.

mod compose;
mod images;
mod manifests;
mod nspawn;
mod scenario;

use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use self::images::make_services;
use crate::lab;
use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;

pub(crate) const HELP: &str = "\
Run on this machine what runs in production: two control planes, PostgreSQL, NATS, an OCI registry,
Prometheus and a simulated MAAS region.

Usage: cargo xtask parity images|compose|nspawn|check [--bin DIR] [--keep]

images      Write the container images to target/parity, without a daemon
compose     Load the images into Docker, start ops/parity/compose.yaml, and run a scenario:
            onboard a node, kill one control plane, onboard another node at the second one
nspawn      Install the Debian package in a Debian with systemd, boot it with systemd-nspawn, and
            check the service: start, restart, kill, backup, ports held by systemd
check       Check the compose file and the manifests of ops/kubernetes

--bin DIR   Take gpuaas (with the laboratory) and gpuaas-node-agent from there [default: build them
            as cargo xtask lab does]
--keep      Leave the stack running after the scenario, and print how to use and to stop it

Images need root on Debian or Ubuntu, mmdebstrap and skopeo; nothing is fetched from a container
registry. The services' image is made once, from where this machine's apt gets its packages.";

/// The arguments of the command.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    action: Action,
    bin: Option<PathBuf>,
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Images,
    Compose,
    Nspawn,
    Check,
}

const ACTIONS: [(&str, Action); 4] = [
    ("images", Action::Images),
    ("compose", Action::Compose),
    ("nspawn", Action::Nspawn),
    ("check", Action::Check),
];

impl Request {
    fn parse(args: &[String]) -> Result<Self, String> {
        let usage = "expected images, compose, nspawn or check; see cargo xtask parity --help";
        let (name, rest) = args.split_first().ok_or(usage)?;
        let action = ACTIONS.iter().find(|(known, _)| known == name);
        let (_, action) = action.ok_or_else(|| format!("unknown action `{name}`: {usage}"))?;
        let mut request = Self { action: *action, bin: None, keep: false };
        let mut rest = rest.iter();
        while let Some(arg) = rest.next() {
            match arg.as_str() {
                "--keep" => request.keep = true,
                "--bin" => request.bin = Some(rest.next().ok_or("--bin has no value")?.into()),
                other => return Err(format!("unknown argument `{other}`: {usage}")),
            }
        }
        Ok(request)
    }
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args)?;
    let workspace = Workspace::load(Depth::Own)?;
    if request.action == Action::Check {
        for line in [compose::check(&workspace)?, manifests::check(&workspace)?].concat() {
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let bin = match request.bin {
        Some(bin) => bin,
        None => match lab::build(&workspace)? {
            Ok(folder) => folder,
            Err(code) => return Ok(code),
        },
    };
    if request.action == Action::Nspawn {
        nspawn::run(&workspace, &bin)?;
        return Ok(ExitCode::SUCCESS);
    }
    let images = images::make(&workspace, &bin)?;
    for image in &images {
        println!("{}", image.archive.display());
    }
    if request.action == Action::Compose {
        compose::run(&workspace, &images, request.keep)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_comes_first() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Request::parse(&words)
        };
        let bin = Some(PathBuf::from("x"));
        let expected = Request { action: Action::Compose, bin, keep: true };
        assert_eq!(parse("compose --bin x --keep"), Ok(expected));
        for wrong in ["", "--keep", "kind", "images --bin", "check all"] {
            parse(wrong).unwrap_err();
        }
    }
}
