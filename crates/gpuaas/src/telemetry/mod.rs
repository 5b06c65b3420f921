//! `gpuaas node converge-telemetry`: a host's telemetry edge, repaired in place.
//!
//! What repairs it are the phases of the bundle h200-ib, the very files, sent over ssh with the
//! values that the host was set up with; so a host that was repaired and one that was deployed
//! cannot differ. `converge.sh` around them names what is wrong before, and looks at the effects
//! afterwards. Nothing stays on the host but what the bundle would have left.

mod diagnose;

use std::fmt::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use gpuaas_bundle::{Inputs, Manifest};
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::args::ConvergeTelemetryArgs;

pub use diagnose::run as diagnose;

macro_rules! bundled {
    ($($path:literal),+ $(,)?) => {
        [$(($path, include_str!(concat!("../../../../bundles/h200-ib/", $path)))),+]
    };
}

const MANIFEST: &str = include_str!("../../../../bundles/h200-ib/bundle.yaml");
const LIBRARY: &str = include_str!("../../../gpuaas-node-agent/src/bundle/host.sh");
const DRIVER: &str = include_str!("converge.sh");
const FILES: [(&str, &str); 7] = bundled![
    "phases/netdata.sh",
    "phases/telemetry-edge.sh",
    "files/gpuaas-netdata-edge",
    "files/netdata/go.d.conf",
    "files/netdata/nvidia_smi.conf",
    "files/netdata/docker.conf",
    "files/netdata/systemdunits.conf",
];
/// A line that no file holds.
const END: &str = "GPUAAS-END-OF-FILE-b7c1";
/// A shell as root. A host that is a folder (`host.sh`) needs no root.
const REMOTE: &str = "sh -c 'if [ -n \"${GPUAAS_HOST_ROOT:-}\" ] || [ \"$(id -u)\" = 0 ]; \
                      then exec bash -s; else exec sudo -n -- bash -s; fi'";
/// ssh's own failures.
const SSH_FAILED: i32 = 255;

/// What became of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConvergeReport {
    /// The host.
    pub host: String,
    /// Whether nothing was to be changed.
    pub dry_run: bool,
    /// Whether the edge is as it should be now.
    pub converged: bool,
    /// What was wrong, or `none`.
    pub diagnoses: Vec<ConvergeDiagnosis>,
    /// Each file, link and unit.
    pub items: Vec<ConvergeItem>,
}

/// Something that was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConvergeDiagnosis {
    /// Stable code, such as `wrong_listener`.
    pub code: String,
    /// What was seen.
    pub text: String,
}

/// Something that has to be so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConvergeItem {
    /// `changed`, `unchanged`, `would change`, `would run`, `seen` or `warning`.
    pub outcome: &'static str,
    /// The part of the telemetry edge that is spoken of.
    pub item: String,
}

const OUTCOMES: [&str; 6] =
    ["changed", "unchanged", "would change", "would run", "seen", "warning"];

/// Runs the command.
///
/// # Errors
/// `ssh_missing`; `host_unreachable`; `sudo_refused`; `telemetry_not_converged` with the host's last
/// words; `took_too_long`.
pub async fn run(args: &ConvergeTelemetryArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let mut ssh = Command::new("ssh");
    for option in &args.ssh_options {
        ssh.args(["-o", option]);
    }
    // ssh takes the first value of an option, so those above win.
    for option in
        ["BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4"]
    {
        ssh.args(["-o", option]);
    }
    ssh.args(["-T", "-l", &args.user, "--", &args.host, REMOTE]);
    let output = send(ssh, &script(args)?, Duration::from_secs(args.timeout)).await?;
    let mut report = read(&String::from_utf8_lossy(&output.stdout));
    report.host.clone_from(&args.host);
    report.dry_run = args.dry_run;
    let failed = failure(&output, &report, args);
    if failed.as_ref().is_none_or(|failure| failure.code() == "telemetry_not_converged") {
        output::print(terminal, args.output, &report, |report, _| report.table())?;
    }
    failed.map_or(Ok(()), Err)
}

/// Everything that the host needs, as one program for its shell.
fn script(args: &ConvergeTelemetryArgs) -> Result<String, Failure> {
    let broken = |error: &dyn std::fmt::Display| {
        Failure::local(CommandCode::BundleBroken, error.to_string())
    };
    let manifest: Manifest = serde_saphyr::from_str(MANIFEST).map_err(|e| broken(&e))?;
    let mut set = Inputs::new();
    if !args.allow.is_empty() {
        set.insert("telemetry_allow".to_owned(), args.allow.join(" "));
    }
    let values = manifest.resolve(&set).map_err(|error| {
        Failure::usage(CommandCode::NetworkInvalid, error.to_string())
            .hint("use a network such as 10.177.0.0/16")
    })?;
    let mut text = "set -euo pipefail\nwork=$(mktemp -d)\ntrap 'rm -rf -- \"$work\"' EXIT\n\
                    mkdir -p -- \"$work/phases\" \"$work/files/netdata\"\n"
        .to_owned();
    let mut inputs = String::new();
    for (name, value) in &values {
        let Some(input) = manifest.inputs.get(name) else { continue };
        line(&mut text, &format!("export {}={}", input.environment, quoted(value)));
        // What the operator says wins over what the host was set up with.
        if !set.contains_key(name) && !input.secret {
            line(&mut inputs, &format!("{name} {}", input.environment));
        }
    }
    line(&mut text, &format!("export GPUAAS_BUNDLE={}", quoted(&manifest.reference())));
    line(&mut text, &format!("export GPUAAS_DRY_RUN={}", u8::from(args.dry_run)));
    let own = [("host.sh", LIBRARY), ("converge.sh", DRIVER), ("inputs", inputs.as_str())];
    for (path, content) in own.into_iter().chain(FILES) {
        line(&mut text, &format!("cat >\"$work/{path}\" <<'{END}'"));
        text.push_str(content);
        line(&mut text, END);
    }
    line(&mut text, "bash \"$work/converge.sh\" </dev/null");
    Ok(text)
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// As one word of a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

async fn send(mut command: Command, script: &str, limit: Duration) -> Result<Output, Failure> {
    let spawned = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|error| {
        Failure::local(CommandCode::SshMissing, error.to_string()).hint("install an OpenSSH client")
    })?;
    let mut input = child.stdin.take();
    let ended = async {
        if let Some(input) = &mut input {
            // A host that refuses closes its end early, and says why.
            input.write_all(script.as_bytes()).await.ok();
        }
        drop(input);
        child.wait_with_output().await
    };
    let ended = timeout(limit, ended).await.map_err(|_| {
        let text = format!("the host did not finish within {} s", limit.as_secs());
        Failure::new(Exit::TimedOut, CommandCode::TookTooLong, text).hint(
            "repeat the command, which resumes where it stopped; use --timeout SECONDS to wait \
             longer",
        )
    })?;
    ended.map_err(|error| Failure::local(CommandCode::SshMissing, error.to_string()))
}

fn read(output_text: &str) -> ConvergeReport {
    let mut report = ConvergeReport::default();
    for line in output_text.lines() {
        if let Some(rest) = line.strip_prefix("diagnosis ") {
            let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
            report
                .diagnoses
                .push(ConvergeDiagnosis { code: code.to_owned(), text: text.to_owned() });
        } else if line == "converged" || line.starts_with("converged ") {
            report.converged = true;
        } else if let Some((outcome, rest)) =
            OUTCOMES.iter().find_map(|outcome| Some((*outcome, line.strip_prefix(outcome)?)))
            && let Some(item) = rest.strip_prefix([' ', ':'])
        {
            report.items.push(ConvergeItem { outcome, item: item.trim().to_owned() });
        }
    }
    report
}

fn failure(
    output: &Output,
    report: &ConvergeReport,
    args: &ConvergeTelemetryArgs,
) -> Option<Failure> {
    if output.status.success() && report.converged {
        return None;
    }
    let output_text = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = output_text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = last[last.len().saturating_sub(3)..].join(" | ");
    let at = format!("{}@{}: {last}", args.user, args.host);
    if output.status.code() == Some(SSH_FAILED) && report.diagnoses.is_empty() {
        return Some(
            Failure::new(Exit::Unreachable, CommandCode::HostUnreachable, at)
                .hint("use --ssh-option StrictHostKeyChecking=accept-new to accept a new host key"),
        );
    }
    if last.contains("sudo:") {
        return Some(
            Failure::local(CommandCode::SudoRefused, at)
                .hint("log in as root, or allow the user to run sudo without a password"),
        );
    }
    Some(Failure::local(CommandCode::TelemetryNotConverged, at).hint(
        "fix the problem that the host reports, and repeat the command; changes made so far stay",
    ))
}

impl ConvergeReport {
    fn table(&self) -> String {
        let mut text = String::new();
        for diagnosis in &self.diagnoses {
            // Writing to a String cannot fail.
            writeln!(text, "{:<14}{}: {}", "diagnosis", diagnosis.code, diagnosis.text).ok();
        }
        for item in &self.items {
            writeln!(text, "{:<14}{}", item.outcome, item.item).ok();
        }
        text
    }
}

#[cfg(test)]
mod tests;
