//! How a delivery was made: an in-toto statement with the predicate of SLSA 1.0.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::Request;
use super::source::Source;
use crate::oci::sha256;
use crate::proc;

/// Name of the file.
const FILE: &str = "provenance.intoto.json";
/// Identifiers of this program: no service has these addresses.
const BUILDER: &str = "https://gpuaas.invalid/xtask-dist";
const BUILD_TYPE: &str = "https://gpuaas.invalid/xtask-dist/v1";

/// Writes the statement about `files` to the folder `out`, and returns its path.
///
/// # Errors
/// A file cannot be read or written, or what rustc said.
pub(super) fn write(
    request: &Request,
    source: &Source,
    inputs: &[(String, PathBuf)],
    files: &[PathBuf],
    out: &Path,
) -> Result<PathBuf, String> {
    let mut subjects = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        subjects.push(descriptor(&name, file)?);
    }
    subjects.sort_by_key(|subject| subject["name"].to_string());
    let mut materials = vec![
        json!({"name": "source", "digest": {"gitCommit": source.commit},
               "annotations": {"changedFiles": !source.clean}}),
        descriptor("Cargo.lock", &source.root.join("Cargo.lock"))?,
    ];
    for (name, file) in inputs {
        materials.push(descriptor(name, file)?);
    }
    let rustc = proc::quiet(Command::new("rustc").arg("--version"))?;
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"command": request.command()},
                "internalParameters": {
                    "SOURCE_DATE_EPOCH": source.seconds,
                    "rustc": rustc.trim(),
                },
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    });
    let text = serde_json::to_string_pretty(&statement).map_err(|error| error.to_string())?;
    let file = out.join(FILE);
    fs::write(&file, text + "\n").map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

fn descriptor(name: &str, file: &Path) -> Result<Value, String> {
    Ok(json!({"name": name, "digest": {"sha256": sha256(file)?}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_has_the_digests_of_files_and_materials() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        for (name, text) in [("Cargo.lock", "lock"), ("b.deb", "b"), ("a.deb", "a")] {
            fs::write(out.join(name), text).unwrap();
        }
        let source = Source {
            root: out.to_owned(),
            version: "0.1.0".to_owned(),
            commit: "84172c27aa00".to_owned(),
            clean: true,
            seconds: 7,
            architecture: "amd64",
        };
        let files = ["b.deb", "a.deb"].map(|name| out.join(name));
        let input = ("gpuaas".to_owned(), out.join("a.deb"));
        let request = Request { quick: true, ..Request::default() };
        let file = write(&request, &source, &[input], &files, out).unwrap();
        let said: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let sum = |name: &str| sha256(&out.join(name)).unwrap();
        assert_eq!(
            said["subject"],
            json!([{"name": "a.deb", "digest": {"sha256": sum("a.deb")}},
                   {"name": "b.deb", "digest": {"sha256": sum("b.deb")}}])
        );
        let build = &said["predicate"]["buildDefinition"];
        assert_eq!(build["externalParameters"]["command"], "cargo xtask dist --quick");
        let materials = build["resolvedDependencies"].as_array().unwrap();
        assert_eq!(materials[0]["digest"]["gitCommit"], "84172c27aa00");
        assert_eq!(materials[1]["digest"]["sha256"], sum("Cargo.lock").as_str());
        assert_eq!(materials[2], json!({"name": "gpuaas", "digest": {"sha256": sum("a.deb")}}));
    }
}
