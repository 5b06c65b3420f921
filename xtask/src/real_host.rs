//! `cargo xtask real-host`: the bundles on a host that is real but for its hardware.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{agent, proc, setup};

pub(crate) const HELP: &str = "\
Boot a real host, and run the bundles on it twice: those of a slice host, and those of bare metal.

Usage: cargo xtask real-host [--release NAME]... [--rootfs-only] [--suite-only]

--release NAME names another release of this machine's distribution than its own, and may be given
again. Of Debian: bullseye, bookworm, trixie, whose packages differ as those of Ubuntu 22.04, 24.04
and later do. First bundles/test.sh runs in the release, with its tools; then the hosts boot. What a
release has no package for is named and skipped.

The system is made once from where this machine's apt gets its own, some 900 MB, in
~/.cache/gpuaas/real-host/NAME; the host is booted by systemd-nspawn in
namespaces of its own, with PCI and InfiniBand from the bundles' fixture.

As root on Debian or Ubuntu, what is missing of systemd-container, mmdebstrap and e2fsprogs is
installed; elsewhere it says what is missing, and ends with 1.";

/// What the arguments ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    releases: Vec<String>,
    rootfs_only: bool,
    suite_only: bool,
}

impl Request {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--rootfs-only" => request.rootfs_only = true,
                "--suite-only" => request.suite_only = true,
                "--release" => match args.next() {
                    Some(name) if is_release(name) => request.releases.push(name.clone()),
                    _ => return Err("--release wants a name such as bullseye".to_owned()),
                },
                unknown => return Err(format!("there is no argument `{unknown}`; see --help")),
            }
        }
        Ok(request)
    }
}

fn is_release(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase())
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args)?;
    let workspace = Workspace::load(Depth::Own)?;
    setup::have(setup::REAL_HOST)?;
    let own = own_release()?;
    let named = !request.releases.is_empty();
    let releases = if named { request.releases } else { vec![own] };
    let mut built = None;
    for release in &releases {
        let made = proc::status(&mut make_rootfs_of(&workspace, release)?)?;
        if !made.success() {
            return Ok(proc::exit_code(made));
        }
        if request.rootfs_only {
            continue;
        }
        if named {
            let mut suite = Command::new(workspace.root.join("bundles/real-host/suite.sh"));
            let status = proc::status(suite.arg(rootfs(release)?))?;
            if !status.success() {
                return Ok(proc::exit_code(status));
            }
        }
        if request.suite_only {
            continue;
        }
        let (agent, archives) = match &built {
            Some(built) => built,
            None => built.insert((agent::build(&workspace)?, archives(&workspace)?)),
        };
        for role in ["slice", "baremetal"] {
            println!("{release}, {role}:");
            let mut prove = Command::new(workspace.root.join("bundles/real-host/prove.sh"));
            prove.arg(agent).arg(rootfs(release)?).arg(role).env("GPUAAS_ARCHIVES", archives);
            let status = proc::status(&mut prove)?;
            if !status.success() {
                return Ok(proc::exit_code(status));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The codename of this machine's release, as os-release(5) has it.
pub(crate) fn own_release() -> Result<String, String> {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.map(|name| name.trim_matches('"').to_owned()).filter(|name| is_release(name));
    name.ok_or_else(|| "/etc/os-release names no release of Debian or Ubuntu".to_owned())
}

/// Where the systems of a kind are. Not below the target folder: another checkout, and one that was
/// cleaned, would make them anew.
pub(crate) fn system(kind: &str, release: &str) -> Result<PathBuf, String> {
    let home = std::env::home_dir().ok_or("there is no home folder to keep systems in")?;
    Ok(home.join(".cache/gpuaas").join(kind).join(release))
}

fn rootfs(release: &str) -> Result<PathBuf, String> {
    system("real-host", release)
}

/// Makes the system of this machine's own release, unless it is there.
///
/// # Errors
/// There is no place for it.
pub(crate) fn make_rootfs(workspace: &Workspace) -> Result<Command, String> {
    make_rootfs_of(workspace, &own_release()?)
}

fn make_rootfs_of(workspace: &Workspace, release: &str) -> Result<Command, String> {
    let mut make = Command::new(workspace.root.join("bundles/real-host/make-rootfs.sh"));
    make.arg(rootfs(release)?).arg(release);
    Ok(make)
}

/// The bundles as a node gets them, `NAME.tar`.
fn archives(workspace: &Workspace) -> Result<PathBuf, String> {
    let archives = workspace.target.join("real-host/archives");
    let failed = |error: std::io::Error| format!("{}: {error}", archives.display());
    std::fs::create_dir_all(&archives).map_err(failed)?;
    for name in ["h200-ib", "h200-slice-vm"] {
        let mut build = proc::cargo();
        build.args(["run", "--quiet", "--package", "gpuaas", "--", "bundle", "build", "--out"]);
        build.arg(&archives).arg(workspace.root.join("bundles").join(name));
        proc::quiet(build.current_dir(&workspace.root))?;
        let manifest = workspace.root.join("bundles").join(name).join("bundle.yaml");
        let manifest = std::fs::read_to_string(manifest).map_err(failed)?;
        let version = manifest.lines().find_map(|line| line.strip_prefix("version: "));
        let built = archives.join(format!("{name}-{}.tar", version.unwrap_or_default()));
        std::fs::rename(built, archives.join(format!("{name}.tar"))).map_err(failed)?;
    }
    Ok(archives)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, String> {
        Request::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn releases_are_named_and_nothing_else_is_taken() {
        let two = parse("--release bullseye --release trixie --suite-only").unwrap();
        assert_eq!(two.releases, ["bullseye", "trixie"]);
        assert!(two.suite_only && !two.rootfs_only);
        assert_eq!(parse(""), Ok(Request::default()));
        for bad in ["--release", "--release ../x", "--release Jammy", "bullseye"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
