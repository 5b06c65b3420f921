//! `cargo xtask vm`: the slice host's functions on a kernel that really has them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{agent, proc, real_host, setup};

pub(crate) const HELP: &str = "\
Boot a machine of software, and run the slice host's units and the agent on it.

Usage: cargo xtask vm [--image-only | --slices --image-only | --guest [--image-only]]

QEMU emulates the machine, so it needs nothing of this one's processor: an IOMMU, two NUMA nodes,
a controller with SR-IOV, two endpoints for vfio-pci. Its system is made once from where this
machine's apt gets its own, some 0.4 GB, in ~/.cache/gpuaas/vm/NAME, which
every checkout uses. The agent's facts are compared
with lspci and the rest, the bundle's phases run twice, and one effect after the other is
broken. Prints the verdict as one JSON object, and ends with 1 where anything differs.

With --slices the system is that of a slice host, with libvirt, QEMU and Open vSwitch in it, some 0.7 GB in
~/.cache/gpuaas/vm-slices/NAME; a test of the suite (slots_follow_the_kernel) boots it.

With --guest it makes a tenant's disk, Debian with its own cloud-init, 0.4 GB in
~/.cache/gpuaas/vm-guest/NAME, and leases it a slot of a host that is played: QEMU boots it,
cloud-init reads the agent's seed, runs its user-data and calls the agent, and it is taken back
(`gpuaas bench slices --guest FILE`). Some two minutes.

As root on Debian or Ubuntu, what is missing of qemu-system-x86, mmdebstrap and e2fsprogs is
installed; elsewhere it says what is missing, and ends with 1.";

/// Kinds of systems: the machine's, and a tenant's.
const MACHINE: &str = "vm";
const GUEST: &str = "vm-guest";
/// The test that does it (lab/gpuaas-systems/tests/it/slice_units).
const TEST: [&str; 6] = ["test", "--package", "gpuaas-systems", "--test", "it", "slice_units::"];

pub(crate) fn run(args: &[String]) -> Outcome {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let workspace = Workspace::load(Depth::Own)?;
    let image_only = match words[..] {
        [] => false,
        ["--image-only"] => true,
        ["--slices", "--image-only"] | ["--image-only", "--slices"] => {
            setup::have(setup::MACHINE)?;
            return Ok(proc::exit_code(proc::status(&mut make_slices_image(&workspace)?)?));
        }
        ["--guest"] => return lease_to_guest(&workspace),
        ["--guest", "--image-only"] | ["--image-only", "--guest"] => {
            setup::have(setup::MACHINE)?;
            return Ok(proc::exit_code(proc::status(&mut make_guest_image(&workspace)?)?));
        }
        ["--slices"] => return Err("--slices goes with --image-only; see --help".to_owned()),
        [unknown, ..] => return Err(format!("there is no argument `{unknown}`; see --help")),
    };
    setup::have(setup::MACHINE)?;
    let made = proc::status(&mut make_image(&workspace)?)?;
    if !made.success() || image_only {
        return Ok(proc::exit_code(made));
    }
    let agent = agent::build(&workspace)?;
    let verdict = workspace.target.join("vm/verdict.json");
    std::fs::remove_file(&verdict).ok();
    let mut test = proc::cargo();
    test.args(TEST).args(["--", "--nocapture"]).current_dir(&workspace.root);
    let environment: [(&str, OsString); 3] = [
        ("GPUAAS_VM_IMAGE", image()?.into()),
        ("GPUAAS_VM_AGENT", agent.into()),
        ("GPUAAS_VM_VERDICT", verdict.clone().into()),
    ];
    // What it prints is for people, and stdout is the verdict's.
    let said = proc::quiet(test.envs(environment));
    let text = std::fs::read_to_string(&verdict);
    if let Ok(text) = &text {
        println!("{text}");
    }
    match (said, text) {
        (Ok(_), Ok(_)) => Ok(ExitCode::SUCCESS),
        (Ok(said), Err(_)) => Err(format!("it gave no verdict: {}", proc::tail(&said, 5))),
        (Err(said), _) => {
            Err(format!("the machine is not as it should be:\n{}", proc::tail(&said, 60)))
        }
    }
}

/// Makes a tenant's disk, and leases it a slot of a host that is played.
fn lease_to_guest(workspace: &Workspace) -> Outcome {
    setup::have(setup::MACHINE)?;
    setup::have(setup::GUEST)?;
    let made = proc::status(&mut make_guest_image(workspace)?)?;
    if !made.success() {
        return Ok(proc::exit_code(made));
    }
    let mut bench = proc::cargo();
    bench.args(["run", "--quiet", "--package", "gpuaas", "--features", "bench", "--"]);
    bench.args(["bench", "slices", "--json"]);
    bench.args(["--hosts", "1", "--guest"]).arg(system(GUEST)?.join("guest.raw"));
    Ok(proc::exit_code(proc::status(bench.current_dir(&workspace.root))?))
}

/// Where the machine's system is, beside those of real hosts.
fn image() -> Result<PathBuf, String> {
    system(MACHINE)
}

fn system(kind: &str) -> Result<PathBuf, String> {
    real_host::system(kind, &real_host::own_release()?)
}

/// What makes a system of a kind, of this machine's own release, unless it is there.
fn make(workspace: &Workspace, kind: &str) -> Result<Command, String> {
    let mut make = Command::new(workspace.root.join("bundles/vm/make-image.sh"));
    make.arg(system(kind)?);
    Ok(make)
}

/// Makes the machine's system, unless it is there.
///
/// # Errors
/// There is no place for it.
pub(crate) fn make_image(workspace: &Workspace) -> Result<Command, String> {
    make(workspace, MACHINE)
}

/// Makes the system of the slice host of software, unless it is there.
///
/// # Errors
/// There is no place for it.
pub(crate) fn make_slices_image(workspace: &Workspace) -> Result<Command, String> {
    let mut make = make(workspace, "vm-slices")?;
    make.arg("slices");
    Ok(make)
}

/// Makes the disk of a tenant with cloud-init, unless it is there.
///
/// # Errors
/// There is no place for it.
pub(crate) fn make_guest_image(workspace: &Workspace) -> Result<Command, String> {
    let mut make = make(workspace, GUEST)?;
    make.arg("guest");
    Ok(make)
}
