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

#[cfg(test)]
mod tests {
    const DEPLOYMENT: &str = include_str!("../../../ops/kubernetes/base/deployment.yaml");

    #[test]
    fn probes_are_paths_of_the_api_without_a_token() {
        let api = include_str!("../../../docs/openapi.json");
        let api: serde_json::Value = serde_json::from_str(api).unwrap();
        let probes = DEPLOYMENT.lines().filter_map(|line| line.split_once("httpGet: {path: "));
        let paths: Vec<&str> =
            probes.filter_map(|(_, rest)| Some(rest.split_once(',')?.0)).collect();
        assert_eq!(paths, ["/healthz", "/healthz", "/readyz"]);
        for path in paths {
            assert_eq!(api["paths"][path]["get"]["security"], serde_json::json!([]), "{path}");
        }
    }

    #[test]
    fn pods_have_no_rights() {
        let rights = [
            "automountServiceAccountToken: false",
            "runAsNonRoot: true",
            "runAsUser: 65532",
            "seccompProfile: {type: RuntimeDefault}",
            "allowPrivilegeEscalation: false",
            "readOnlyRootFilesystem: true",
            "capabilities: {drop: [ALL]}",
        ];
        for line in rights {
            assert!(DEPLOYMENT.lines().any(|one| one.trim() == line), "{line}");
        }
        let namespace = include_str!("../../../ops/kubernetes/base/namespace.yaml");
        assert!(namespace.contains("pod-security.kubernetes.io/enforce: restricted"));
    }
}
