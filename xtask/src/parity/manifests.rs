//! The manifests of `ops/kubernetes`: built by Kustomize, and read with the API server's schemas.

use std::fs;
use std::process::Command;

use crate::metadata::Workspace;
use crate::proc;
use crate::python::KUBERNETES;

/// What is built: the base alone, and with what a site changes.
const FOLDERS: [&str; 2] = ["ops/kubernetes/base", "ops/kubernetes/overlays/example"];

/// Builds and reads the manifests.
///
/// # Errors
/// A tool is missing, or says what is wrong.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    KUBERNETES.make()?;
    let validate = KUBERNETES.program("kubernetes-validate").ok_or("there is no home folder")?;
    let mut lines = Vec::new();
    for folder in FOLDERS {
        let built = proc::quiet(build()?.arg(workspace.root.join(folder)))
            .map_err(|said| format!("{folder}: {}", proc::tail(&said, 5)))?;
        let file = workspace.target.join("parity-manifests.yaml");
        fs::write(&file, &built).map_err(|error| format!("{}: {error}", file.display()))?;
        let said = proc::quiet(Command::new(&validate).args(["--strict", "--quiet"]).arg(&file))
            .map_err(|said| format!("{folder}: {}", proc::tail(&said, 20)))?;
        if !said.trim().is_empty() {
            return Err(format!("{folder}: {said}"));
        }
        let objects = built.lines().filter(|line| line.starts_with("kind: ")).count();
        lines.push(format!("{folder}: {objects} objects are valid"));
    }
    Ok(lines)
}

fn build() -> Result<Command, String> {
    if proc::find("kustomize").is_some() {
        let mut kustomize = Command::new("kustomize");
        kustomize.arg("build");
        return Ok(kustomize);
    }
    if proc::find("kubectl").is_none() {
        return Err(
            "kustomize and kubectl are missing: apt-get install kubernetes-client".to_owned()
        );
    }
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("kustomize");
    Ok(kubectl)
}
