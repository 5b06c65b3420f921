//! The images of the parity stack, written without a daemon.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::dist::{self, Entry, Source, write_tree};
use crate::metadata::Workspace;
use crate::oci::{self, Part};
use crate::{proc, real_host};

/// The executable that has the simulated region.
const SIMULATOR: &str = "gpuaas";
/// Its folder in the image. `ops/parity/compose.yaml` has the command.
const SIMULATOR_FOLDER: &str = "usr/lib/gpuaas-lab";

/// An image, and what Docker calls it.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) name: &'static str,
    pub(super) archive: PathBuf,
}

/// Writes both images below the target folder, with the executables in `bin`.
///
/// # Errors
/// A tool is missing or said why it failed.
pub(super) fn make(workspace: &Workspace, bin: &Path) -> Result<Vec<Made>, String> {
    let out = workspace.target.join("parity");
    fs::remove_dir_all(&out).ok();
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let control_plane = Made {
        name: "gpuaas/control-plane:parity",
        archive: dist::one_form(dist::Form::Oci, bin, &out.join("control-plane"))?,
    };
    let services =
        Made { name: "gpuaas/parity-services:parity", archive: services(workspace, bin, &out)? };
    Ok(vec![control_plane, services])
}

fn system() -> Result<PathBuf, String> {
    real_host::system("parity", &real_host::own_release()?)
}

/// Makes the system of the services, unless it is there.
///
/// # Errors
/// There is no place for it.
pub(crate) fn make_services(workspace: &Workspace) -> Result<Command, String> {
    let mut make = Command::new(workspace.root.join("ops/parity/make-services.sh"));
    make.arg(system()?);
    Ok(make)
}

/// Debian's PostgreSQL, NATS, registry and Prometheus, and the simulator.
fn services(workspace: &Workspace, bin: &Path, out: &Path) -> Result<PathBuf, String> {
    if !proc::status(&mut make_services(workspace)?)?.success() {
        return Err("the system of the services was not made; see above".to_owned());
    }
    let source = Source::read(workspace)?;
    let tree = out.join("simulator");
    let entries = [SIMULATOR, "gpuaas-node-agent"]
        .map(|name| Entry::copy(format!("{SIMULATOR_FOLDER}/{name}"), 0o755, bin.join(name)));
    write_tree(&tree, &entries)?;
    for entry in &entries {
        let program = tree.join(&entry.path);
        proc::quiet(Command::new("strip").arg(program))?;
    }
    let layer = out.join("simulator.tar");
    oci::tar(&[Part::all(&tree)?], source.seconds, &layer)?;
    // gzip keeps the original beside what it writes, and other checkouts use it.
    let base = out.join("services.tar");
    fs::copy(system()?.join("root.tar"), &base).map_err(|error| error.to_string())?;
    let image = oci::Image {
        tag: "parity".to_owned(),
        created: source.time()?,
        architecture: source.architecture,
        config: json!({
            "User": "65532:65532",
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/var/lib/parity"],
            "WorkingDir": "/var/lib/parity",
            "StopSignal": "SIGINT",
        }),
        labels: BTreeMap::from([
            ("org.opencontainers.image.title", "gpuaas parity services".to_owned()),
            ("org.opencontainers.image.version", source.version.clone()),
        ]),
        layers: vec![base, layer],
    };
    let layout = out.join("services");
    let archive = out.join("parity-services.oci.tar");
    oci::write(&image, source.seconds, true, &layout, &archive)?;
    for folder in [&layout, &tree] {
        fs::remove_dir_all(folder).map_err(|error| error.to_string())?;
    }
    Ok(archive)
}
