//! `cargo xtask vm`: the slice host's functions on a kernel that really has them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use crate::metadata::{Depth, Workspace};
use crate::{Outcome, agent, proc, setup};

pub(crate) const HELP: &str = "\
Boot a machine of software, and run the slice host's units and the agent on it.

Usage: cargo xtask vm [--image-only]

QEMU emulates the machine, so it needs nothing of this one's processor: an IOMMU, two NUMA nodes,
a controller with SR-IOV, two endpoints for vfio-pci. Its system is made once from where this
machine's apt gets its own (below the target folder, some 0.4 GB). The agent's facts are compared
with lspci and the rest, the bundle's phases run twice, and one effect after the other is
broken. Prints the verdict as one JSON object, and ends with 1 where anything differs.

As root on Debian or Ubuntu, what is missing of qemu-system-x86, mmdebstrap and e2fsprogs is
installed; elsewhere it says what is missing, and ends with 1.";

/// The test that does it (crates/gpuaas-node-agent/tests/vm).
const TEST: [&str; 5] = ["test", "--package", "gpuaas-node-agent", "--test", "vm"];

pub(crate) fn run(args: &[String]) -> Outcome {
    let image_only = match args {
        [] => false,
        [only] if only == "--image-only" => true,
        [unknown, ..] => return Err(format!("there is no argument `{unknown}`; see --help")),
    };
    let workspace = Workspace::load(Depth::Own)?;
    let missing = setup::machine();
    if !missing.is_empty() {
        return Err(format!(
            "vm_tool_missing: there is no {}; apt-get install {}",
            missing.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", no "),
            missing.iter().map(|(_, package)| *package).collect::<Vec<_>>().join(" "),
        ));
    }
    let made = proc::status(&mut make_image(&workspace))?;
    if !made.success() || image_only {
        return Ok(proc::exit_code(made));
    }
    let agent = agent::build(&workspace)?;
    let verdict = workspace.target.join("vm/verdict.json");
    std::fs::remove_file(&verdict).ok();
    let mut test = proc::cargo();
    test.args(TEST).args(["--", "--nocapture"]).current_dir(&workspace.root);
    let environment: [(&str, OsString); 3] = [
        ("GPUAAS_VM_IMAGE", image(&workspace).into()),
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

fn image(workspace: &Workspace) -> PathBuf {
    workspace.target.join("vm/image")
}

fn make_image(workspace: &Workspace) -> Command {
    let mut make = Command::new(workspace.root.join("bundles/vm/make-image.sh"));
    make.arg(image(workspace));
    make
}

/// The image, made while something else is built.
pub(crate) struct Making(Option<Child>);

/// Begins to make the image where this machine can; its test skips where there is none.
pub(crate) fn begin(workspace: &Workspace) -> Making {
    if !setup::is_root() || !setup::machine().is_empty() {
        return Making(None);
    }
    let mut make = make_image(workspace);
    let child = make.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    Making(child.ok())
}

impl Making {
    /// Waits for it, and says why where there is none.
    pub(crate) fn end(self) {
        let Some(child) = self.0 else { return };
        match child.wait_with_output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                eprintln!(
                    "note: no emulated machine; its test is skipped: {}",
                    proc::tail(&said, 3)
                );
            }
            Err(error) => eprintln!("note: no emulated machine; its test is skipped: {error}"),
        }
    }
}
