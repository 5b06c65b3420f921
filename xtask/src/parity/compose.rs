//! The stack of `ops/parity/compose.yaml` in Docker.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::images::Made;
use super::scenario;
use crate::metadata::Workspace;
use crate::proc;

const PROJECT: &str = "gpuaas-parity";
const FILE: &str = "ops/parity/compose.yaml";
const MISSING: &str = "Docker Compose is missing: apt-get install docker.io docker-compose";

/// A stack, running or not.
#[derive(Debug)]
pub(super) struct Stack {
    /// Docker's plugin, or the program of Debian 12.
    program: &'static [&'static str],
    file: PathBuf,
    /// Folder with the secrets.
    state: PathBuf,
    password: String,
}

impl Stack {
    fn new(workspace: &Workspace, state: PathBuf, password: String) -> Result<Self, String> {
        let plugin = proc::works(Command::new("docker").args(["compose", "version"]));
        let program: &[&str] = match plugin {
            true => &["docker", "compose"],
            false if proc::find("docker-compose").is_some() => &["docker-compose"],
            false => return Err(MISSING.to_owned()),
        };
        Ok(Self { program, file: workspace.root.join(FILE), state, password })
    }

    /// A command of Compose for this stack.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut compose = Command::new(self.program[0]);
        compose
            .args(&self.program[1..])
            .args(["--project-name", PROJECT, "--file"])
            .arg(&self.file)
            .args(args)
            .env("PARITY_STATE", &self.state)
            .env("PARITY_DATABASE_PASSWORD", &self.password)
            .env("COMPOSE_HTTP_TIMEOUT", "600");
        compose
    }

    fn quiet(&self, args: &[&str]) -> Result<String, String> {
        proc::quiet(&mut self.command(args))
    }
}

/// Checks the file without Docker's daemon.
///
/// # Errors
/// Compose is missing, or says what is wrong.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    let stack = Stack::new(workspace, workspace.target.join("parity"), "none".to_owned())?;
    stack.quiet(&["config", "--quiet"]).map_err(|said| format!("{FILE}: {said}"))?;
    Ok(vec![format!("{FILE}: {} takes it", stack.program.join(" "))])
}

/// Loads the images, starts the stack, and runs the scenario.
///
/// # Errors
/// Docker cannot be used, or a step failed.
pub(super) fn run(workspace: &Workspace, images: &[Made], keep: bool) -> Result<(), String> {
    proc::quiet(Command::new("docker").arg("info"))
        .map_err(|said| format!("Docker cannot be used: {}", proc::tail(&said, 2)))?;
    for image in images {
        load(image)?;
    }
    let state = workspace.target.join("parity/secrets");
    let [key, password] = [random()?, random()?];
    write_secrets(&state, &[("master-key", &key), ("database-password", &password)])?;
    let stack = Stack::new(workspace, state, password)?;
    let ran = stack
        .quiet(&["up", "--detach"])
        .map_err(|said| proc::tail(&said, 20))
        .and_then(|_| scenario::run(&stack));
    if let Err(said) = &ran {
        eprintln!("{said}");
        let logs = stack.quiet(&["logs", "--no-color", "--tail", "25"]);
        eprintln!("{}", logs.unwrap_or_else(|said| said));
    }
    if keep {
        let folder = stack.state.display();
        println!(
            "running: docker ps --filter label=com.docker.compose.project={PROJECT}\n\
             stop it: PARITY_STATE={folder} PARITY_DATABASE_PASSWORD=none {} --project-name \
             {PROJECT} --file {FILE} down --volumes",
            stack.program.join(" ")
        );
    } else {
        let down =
            ["--profile", "tools", "down", "--volumes", "--remove-orphans", "--timeout", "5"];
        stack.quiet(&down).map_err(|said| proc::tail(&said, 5))?;
    }
    ran.map_err(|_| "the scenario failed; see above".to_owned())
}

/// Gives an archive to Docker, which reads no OCI layout before version 25.
fn load(image: &Made) -> Result<(), String> {
    if proc::find("skopeo").is_none() {
        return Err("skopeo is missing: apt-get install skopeo".to_owned());
    }
    let mut copy = Command::new("skopeo");
    copy.args(["copy", "--quiet"]);
    if let Some(host) = proc::env("DOCKER_HOST") {
        copy.arg("--dest-daemon-host").arg(host);
    }
    copy.arg(format!("oci-archive:{}", image.archive.display()));
    proc::quiet(copy.arg(format!("docker-daemon:{}", image.name)))?;
    // skopeo 1.9 succeeds although Docker refuses an image.
    proc::quiet(Command::new("docker").args(["image", "inspect", image.name])).map(drop)
}

/// 32 random bytes as hexadecimal digits.
fn random() -> Result<String, String> {
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Files that the containers' user reads, in a folder for this user alone.
fn write_secrets(folder: &Path, secrets: &[(&str, &str)]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    for (name, text) in secrets {
        let file = folder.join(name);
        fs::write(&file, text).map_err(failed)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).map_err(failed)?;
    }
    Ok(())
}
