//! What `gpuaas image sign` and `--sign-key` write, read by implementations that share no code with ours:
//! DSSE by Python's securesystemslib, which in-toto uses, and SPDX by spdx-tools.
//!
//! `cargo xtask test` installs both where it can, and names the interpreter by `GPUAAS_TEST_PYTHON`; where
//! that is unset the system's is asked. A test whose package is missing says so.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuaas_image::lint_benchmark::good_debian_archive;
use serde_json::Value;

/// Verifies each file of argv[2:] with the public key argv[1], 32 bytes in base64; prints what is signed.
const VERIFY: &str = r#"
import base64, json, sys
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

public = base64.b64decode(sys.argv[1])
for path in sys.argv[2:]:
    envelope = Envelope.from_dict(json.load(open(path)))
    keyid = json.load(open(path))["signatures"][0]["keyid"]
    key = SSlibKey(keyid, "ed25519", "ed25519", {"public": public.hex()})
    envelope.verify([key], 1)
    print(envelope.payload.decode())
"#;

/// Reads the document argv[1] and prints what is wrong with it.
const VALIDATE: &str = r#"
import sys
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

document = parse_file(sys.argv[1])
for message in validate_full_spdx_document(document):
    print(message.validation_message)
print("packages", len(document.packages))
"#;

/// An interpreter that has the module.
#[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
fn python(module: &str) -> Option<PathBuf> {
    let named = std::env::var_os("GPUAAS_TEST_PYTHON").map(PathBuf::from);
    let known = ["/usr/bin/python3", "python3"].map(PathBuf::from);
    named.into_iter().chain(known).find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", &format!("import {module}")]);
        command.output().is_ok_and(|output| output.status.success())
    })
}

fn run_script(python: &Path, script: &str, arguments: &[&str]) -> Output {
    Command::new(python).args(["-c", script]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn gpuaas(line: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gpuaas")).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// An archive that is well, its statements and its document, and the public key of their signer.
fn signed() -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (archive, key) = (path("host.tar.gz"), path("key.pem"));
    fs::write(&archive, good_debian_archive().unwrap()).unwrap();
    let public = gpuaas(&format!("bundle key {key}"));
    let public = public.split_whitespace().last().unwrap().to_owned();
    gpuaas(&format!("image sign {archive} --key {key}"));
    gpuaas(&format!("image lint {archive} --sign-key {key}"));
    (folder, archive, public)
}

#[test]
fn another_implementation_verifies_the_statements() {
    let Some(python) = python("securesystemslib.dsse") else {
        return test_report::skip("network", "Python has no securesystemslib.dsse");
    };
    let (_folder, archive, public) = signed();
    let files = ["", ".lint"].map(|kind| format!("{archive}{kind}.intoto.json"));
    let asked = [public.as_str(), &files[0], &files[1]];
    let output = run_script(&python, VERIFY, &asked);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let statements = text(&output.stdout);
    let statements: Vec<Value> =
        statements.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Value =
        serde_json::from_str(&gpuaas(&format!("image show {archive} --json"))).unwrap();
    for statement in &statements {
        assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
        assert_eq!(statement["subject"][0]["digest"]["sha256"], shown["digest"]);
    }
    assert_eq!(statements[1]["predicateType"], "urn:gpuaas:image-lint:v1");
    assert_eq!(statements[1]["predicate"]["passed"], true);
    // One byte of what is signed, and it is refused there as well.
    let mut envelope: Value =
        serde_json::from_str(&fs::read_to_string(&files[1]).unwrap()).unwrap();
    let payload = envelope["payload"].as_str().unwrap().to_owned();
    let first = if payload.starts_with('e') { "f" } else { "e" };
    envelope["payload"] = format!("{first}{}", &payload[1..]).into();
    fs::write(&files[1], envelope.to_string()).unwrap();
    let output = run_script(&python, VERIFY, &[&public, &files[1]]);
    assert!(text(&output.stderr).contains("VerificationError"), "{}", text(&output.stderr));
}

#[test]
fn another_implementation_accepts_the_document_of_packages() {
    let Some(python) = python("spdx_tools") else {
        return test_report::skip("network", "Python has no spdx_tools");
    };
    let (_folder, archive, _) = signed();
    let output = run_script(&python, VALIDATE, &[&format!("{archive}.spdx.json")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let (faults, count) = said.trim().rsplit_once('\n').unwrap_or(("", said.trim()));
    assert_eq!(faults, "");
    let count: usize = count.strip_prefix("packages ").unwrap().parse().unwrap();
    assert!(count > 4, "{said}");
}
