//! The Debian package in a Debian with systemd.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::dist::{self, Form};
use crate::metadata::Workspace;
use crate::{proc, real_host, setup};

/// Packs the executables in `bin`, boots a system with the package, and prints its checks.
///
/// # Errors
/// A tool is missing, or a check failed.
pub(super) fn run(workspace: &Workspace, bin: &Path) -> Result<(), String> {
    setup::have(setup::REAL_HOST)?;
    if !proc::status(&mut real_host::make_rootfs(workspace)?)?.success() {
        return Err("the system was not made; see above".to_owned());
    }
    let out = workspace.target.join("parity-nspawn");
    fs::remove_dir_all(&out).ok();
    let package = dist::one_form(Form::Deb, bin, &out)?;
    let system = real_host::system("real-host", &real_host::own_release()?)?;
    let mut boot = Command::new(workspace.root.join("ops/parity/nspawn.sh"));
    boot.arg(system).arg(out.join("system")).arg(package);
    if proc::status(&mut boot)?.success() {
        return Ok(());
    }
    Err(format!("a check failed; {} has the console", out.join("system/console").display()))
}
