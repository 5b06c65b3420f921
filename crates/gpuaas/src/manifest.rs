//! Manifests: machines as an operator writes them down, JSON or YAML.
//!
//! A mistake names its line where the reader of the file found it, and the host whose machine it is
//! where the control plane did. A BMC password may stand in a file of its own beside the manifest
//! (`bmc_pass_file`), so that the manifest can be kept with other texts.

use std::path::Path;

use gpuaas_client::failure::Failure;
use gpuaas_types::batch::{BatchMachine, BatchSpec};
use gpuaas_types::codes::CommandCode;
use serde::Deserialize;
use serde_json::Value;

use crate::input_file::{read_file, read_secret};

const FORM: &str =
    "write site, profile and machines into the manifest; each machine needs at least a hostname";

/// A batch.
///
/// # Errors
/// `file_unreadable`, `secret_missing`, `manifest_unreadable`.
pub(crate) fn batch(path: &Path) -> Result<BatchSpec, Failure> {
    let text = read_file(path)?;
    refuse_csv(path, &text)?;
    let with_files = serde_saphyr::from_str::<Value>(&text).ok().filter(has_password_files);
    match with_files {
        Some(mut value) => {
            read_passwords(path, &mut value)?;
            serde_json::from_value(value).map_err(|error| unreadable(path, &error))
        }
        // Read as text, an error says in which line it is.
        None => serde_saphyr::from_str(&text).map_err(|error| unreadable(path, &error)),
    }
}

/// The machines of a batch, or of a file that has only these.
///
/// # Errors
/// `file_unreadable`, `secret_missing`, `manifest_unreadable`.
pub(crate) fn machines(path: &Path) -> Result<Vec<BatchMachine>, Failure> {
    #[derive(Deserialize)]
    struct Machines {
        machines: Vec<BatchMachine>,
    }
    let text = read_file(path)?;
    refuse_csv(path, &text)?;
    let mut value: Value =
        serde_saphyr::from_str(&text).map_err(|error| unreadable(path, &error))?;
    read_passwords(path, &mut value)?;
    let file: Machines = serde_json::from_value(value).map_err(|error| unreadable(path, &error))?;
    Ok(file.machines)
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    let detail = format!("{}: {error}", path.display());
    Failure::usage(CommandCode::ManifestUnreadable, detail).hint(FORM)
}

/// Spreadsheets lose leading zeros and turn addresses into dates: a list of machines as CSV is no
/// manifest, whatever its columns are called.
fn refuse_csv(path: &Path, text: &str) -> Result<(), Failure> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let is_named = path.extension().is_some_and(|name| name.eq_ignore_ascii_case("csv"));
    let begins_otherwise = first.trim_start().starts_with(['{', '[', '-', '#']);
    if !is_named && (begins_otherwise || first.contains(':') || !first.contains([',', ';'])) {
        return Ok(());
    }
    let detail = format!("{} is a CSV file: expected YAML or JSON", path.display());
    Err(Failure::usage(CommandCode::ManifestUnreadable, detail).hint(
        "write YAML, one line per machine, since CSV has no types or lists: - {hostname: j22u11, \
         bmc_address: 10.0.0.11, mac_addresses: [\"52:54:00:00:00:11\"]}",
    ))
}

fn machine_list(value: &Value) -> &[Value] {
    value.get("machines").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn has_password_files(value: &Value) -> bool {
    machine_list(value).iter().any(|machine| machine.get("bmc_pass_file").is_some())
}

/// Puts the content of each `bmc_pass_file` in its place; the file is sought beside the manifest.
fn read_passwords(path: &Path, value: &mut Value) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let machines = value.get_mut("machines").and_then(Value::as_array_mut);
    for machine in machines.into_iter().flatten().filter_map(Value::as_object_mut) {
        let Some(file) = machine.remove("bmc_pass_file") else { continue };
        let host = machine.get("hostname").and_then(Value::as_str).unwrap_or("a machine");
        let wrong = |why: &str| unreadable(path, &format!("{host}: bmc_pass_file {why}"));
        let file = file.as_str().ok_or_else(|| wrong("is not a path"))?.to_owned();
        if machine.contains_key("bmc_password") {
            return Err(wrong("conflicts with bmc_password: use only one of them"));
        }
        let password = read_secret(&folder.join(file))?;
        machine.insert("bmc_password".to_owned(), Value::from(password.expose()));
    }
    Ok(())
}

/// Adds to a refusal which host each field belongs to, and its line in the manifest.
pub(crate) fn name_hosts(mut failure: Failure, path: &Path, spec: &BatchSpec) -> Failure {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    for error in &mut failure.problem.errors {
        let digits = error.field.split("machines").nth(1).unwrap_or_default();
        let digits = digits.trim_start_matches(['.', '[']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let machine = digits[..end].parse().ok().and_then(|at: usize| spec.machines.get(at));
        let Some(BatchMachine { hostname, .. }) = machine else { continue };
        let is_word = |line: &&str| {
            line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|w| w == hostname)
        };
        let line = text.lines().position(|line| is_word(&line));
        let place = line.map(|at| format!(", line {}", at + 1)).unwrap_or_default();
        error.message = format!("{hostname}{place}: {}", error.message);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::Problem;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    const BATCH: &str = "name: r\nsite: s\nprofile: p\nmachines:\n- hostname: a\n- hostname: b\n";

    #[test]
    fn csv_is_refused_with_the_reason() {
        for (name, text) in [("m.csv", "a: 1"), ("m", "hostname,mac\na,52:54:00:00:00:01\n")] {
            let (_dir, path) = file(name, text);
            let failure = batch(&path).unwrap_err();
            assert_eq!(failure.code(), "manifest_unreadable");
            assert!(failure.problem.detail.contains("CSV"), "{failure}");
            assert!(failure.problem.hint.contains("YAML"), "{failure}");
        }
        let (_dir, path) = file("m.yaml", BATCH);
        assert_eq!(batch(&path).unwrap().machines.len(), 2);
        assert_eq!(machines(&path).unwrap()[1].hostname, "b");
    }

    #[test]
    fn a_mistake_in_the_file_names_its_line() {
        let (_dir, path) = file("m.yaml", &BATCH.replace("- hostname: b", "- hostnam: b"));
        let failure = batch(&path).unwrap_err();
        assert!(failure.problem.detail.contains("line 6"), "{failure}");
    }

    #[test]
    fn passwords_come_from_files_beside_the_manifest() {
        let text = BATCH.replace("hostname: b", "{hostname: b, bmc_pass_file: b.pass}");
        let (dir, path) = file("m.yaml", &text);
        assert_eq!(batch(&path).unwrap_err().code(), "file_unreadable");
        std::fs::write(dir.path().join("b.pass"), "secret\n").unwrap();
        let spec = batch(&path).unwrap();
        assert_eq!(spec.machines[1].bmc_password, Some("secret".into()));
        assert_eq!(spec.machines[0].bmc_password, None);
    }

    #[test]
    fn a_refusal_names_the_host_and_its_line() {
        let (_dir, path) = file("m.yaml", BATCH);
        let spec = batch(&path).unwrap();
        let problem = Problem::new(422, "invalid_field", "t")
            .with_field("spec.machines.1.mac_addresses.0", "expected six pairs");
        let failure = name_hosts(Failure::refused(problem), &path, &spec);
        assert!(failure.to_string().contains("b, line 6: expected six pairs"), "{failure}");
    }
}
