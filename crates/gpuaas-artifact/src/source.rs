//! Reads and checks the source of a bundle: a folder that a person wrote.
//!
//! ```text
//! NAME/bundle.yaml        the manifest
//! NAME/phases/*.sh        what runs on a node
//! NAME/scripts/*          of a commissioning bundle: what MAAS runs
//! NAME/files/...          what the scripts install
//! ```
//!
//! Every file of the folder belongs to the bundle, hidden files and `bundle.yaml` apart.
//! Whether a file may be executed is read from its first two bytes, not from its mode: a copy over
//! a file system without modes gives the same bundle.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_bundle::archive::check_path;
use gpuaas_bundle::manifest::{ARCHIVED_NAME, SOURCE_NAME};
use gpuaas_bundle::{Archive, BundleKind, Entry, Manifest, ManifestFault};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

use crate::lint::LintFinding;
use crate::scripts;

/// Deepest nesting of folders.
const MAX_DEPTH: usize = 8;

/// Why a folder is not a bundle.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The folder cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder can be read, and its content is not a valid bundle.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<LintFinding>),
}

/// Reads a bundle's folder.
///
/// # Errors
/// [`SourceError::Invalid`] with everything that is wrong, each with its file and line.
pub fn read_folder(folder: &Path) -> Result<Archive, SourceError> {
    let manifest_path = folder.join(SOURCE_NAME);
    let failed = |source| SourceError::Io { path: manifest_path.clone(), source };
    let text = fs::read_to_string(&manifest_path).map_err(failed)?;
    let mut findings = Vec::new();
    let mut files = BTreeMap::new();
    collect_files(folder, "", 0, &mut files, &mut findings)?;
    read_files(&text, files, findings).map_err(SourceError::Invalid)
}

/// A bundle from the YAML text of its manifest and its files.
///
/// # Errors
/// `findings` and everything else that is wrong.
pub(crate) fn read_files(
    manifest: &str,
    files: BTreeMap<String, Vec<u8>>,
    mut findings: Vec<LintFinding>,
) -> Result<Archive, Vec<LintFinding>> {
    let lines = ManifestLines::parse(manifest);
    let manifest: Manifest = serde_saphyr::from_str(manifest).map_err(|error| {
        vec![LintFinding {
            file: SOURCE_NAME.to_owned(),
            line: error.location().map(|location| location.line()),
            text: without_position(&error.to_string()),
        }]
    })?;
    let entry = |bytes: Vec<u8>| Entry { executable: bytes.starts_with(b"#!"), bytes };
    let files = files.into_iter().map(|(path, bytes)| (path, entry(bytes))).collect();
    let archive = Archive { manifest, files };
    let names = archive.files.keys().cloned().collect();
    findings.extend(archive.manifest.faults(&names).into_iter().map(|fault| LintFinding {
        file: SOURCE_NAME.to_owned(),
        line: lines.find(&fault),
        text: fault.to_string(),
    }));
    findings.extend(lint_scripts(&archive));
    if findings.is_empty()
        && let Err(error) = archive.write()
    {
        findings.push(LintFinding::of_file(SOURCE_NAME, error.to_string()));
    }
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    if findings.is_empty() { Ok(archive) } else { Err(findings) }
}

/// Checks the scripts of a bundle.
pub(crate) fn lint_scripts(archive: &Archive) -> Vec<LintFinding> {
    let phases = archive.manifest.phases.iter();
    let entries = phases.filter_map(|phase| archive.files.get_key_value(&phase.run));
    let mut findings: Vec<LintFinding> =
        entries.flat_map(|(path, e)| lint_phase_script(path, e)).collect();
    if archive.manifest.kind == BundleKind::Commissioning {
        findings.extend(scripts::commissioning_scripts(archive).err());
    }
    findings
}

/// The first line of a parser's message, without the position that it repeats.
fn without_position(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let text = line.strip_prefix("error: ").unwrap_or(line);
    match text.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, text)) => text.to_owned(),
        None => text.to_owned(),
    }
}

fn collect_files(
    folder: &Path,
    below: &str,
    depth: usize,
    files: &mut BTreeMap<String, Vec<u8>>,
    findings: &mut Vec<LintFinding>,
) -> Result<(), SourceError> {
    let failed = |source| SourceError::Io { path: folder.join(below), source };
    for entry in fs::read_dir(folder.join(below)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if name.starts_with('.') || path == SOURCE_NAME {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        if let Err(reason) = check_path(&path) {
            findings.push(LintFinding::of_file(&path, reason));
        } else if path == ARCHIVED_NAME {
            let text = "the name is reserved: the build writes this file";
            findings.push(LintFinding::of_file(&path, text));
        } else if kind.is_dir() && depth < MAX_DEPTH {
            collect_files(folder, &path, depth + 1, files, findings)?;
        } else if kind.is_file() {
            files.insert(path, fs::read(entry.path()).map_err(failed)?);
        } else {
            let text = "expected a plain file or a folder; a link would point elsewhere on a node";
            findings.push(LintFinding::of_file(&path, text));
        }
    }
    Ok(())
}

/// Checks that a phase is a bash script that ends at the first failure.
fn lint_phase_script(path: &str, entry: &Entry) -> Vec<LintFinding> {
    let at = |line, text: &str| LintFinding { file: path.to_owned(), line, text: text.to_owned() };
    let Ok(text) = std::str::from_utf8(&entry.bytes) else {
        return vec![at(None, "the file is not UTF-8 text")];
    };
    let mut findings = Vec::new();
    if !text.starts_with("#!/bin/bash\n") {
        findings.push(at(Some(1), "a phase must start with #!/bin/bash"));
    }
    if !text.lines().any(|line| line.trim() == "set -euo pipefail") {
        let text = "a phase must contain set -euo pipefail, so that it stops at the first failure";
        findings.push(at(None, text));
    }
    if let Some(number) = text.split('\n').position(|line| line.ends_with('\r')) {
        findings.push(at(Some(number as u64 + 1), "the line ends with a carriage return"));
    }
    findings
}

/// Lines of the parts of a manifest.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ManifestLines {
    inputs: BTreeMap<String, Spanned<IgnoredAny>>,
    phases: Vec<Spanned<IgnoredAny>>,
    expects: Vec<Spanned<IgnoredAny>>,
    #[serde(skip)]
    fields: BTreeMap<String, u64>,
}

impl ManifestLines {
    fn parse(text: &str) -> Self {
        let fields: BTreeMap<String, Spanned<IgnoredAny>> =
            serde_saphyr::from_str(text).unwrap_or_default();
        let mut lines: Self = serde_saphyr::from_str(text).unwrap_or_default();
        lines.fields = fields.into_iter().map(|(name, at)| (name, at.referenced.line())).collect();
        lines
    }

    /// The line of the part that a fault names: `inputs.NAME`, `phases[3]`, or a field.
    fn find(&self, fault: &ManifestFault) -> Option<u64> {
        let field = fault.at.split(['.', '[']).next().unwrap_or_default();
        let inner = fault.at.get(field.len() + 1..).unwrap_or_default();
        let index = inner.trim_end_matches(']').parse::<usize>().unwrap_or(usize::MAX);
        let part = match field {
            "inputs" => self.inputs.get(inner),
            "phases" => self.phases.get(index),
            "expects" => self.expects.get(index),
            _ => None,
        };
        part.map(|at| at.referenced.line()).or_else(|| self.fields.get(field).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "\
name: site-net
version: 1.0.0
kind: site_bootstrap
about: network of a site
inputs:
  uplink:
    type: interface
    about: the uplink
    default: eno1
    environment: SITE_UPLINK
phases:
  - name: net
    run: phases/net.sh
    timeout_seconds: 60
expects:
  - check: link_up
    interface: \"{uplink}\"
";
    const SCRIPT: &str = "#!/bin/bash\nset -euo pipefail\ntrue\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn wrong(files: &[(&str, &str)]) -> String {
        read_folder(folder(files).path()).unwrap_err().to_string()
    }

    #[test]
    fn two_copies_give_one_digest_whatever_their_modes() {
        use std::os::unix::fs::PermissionsExt as _;
        let files = [("bundle.yaml", MANIFEST), ("phases/net.sh", SCRIPT), (".git/x", "y")];
        let (one, two) = (folder(&files), folder(&files));
        let script = two.path().join("phases/net.sh");
        fs::set_permissions(script, fs::Permissions::from_mode(0o600)).unwrap();
        let digest = |dir: &tempfile::TempDir| read_folder(dir.path()).unwrap().digest().unwrap();
        assert_eq!(digest(&one), digest(&two));
        fs::write(two.path().join("phases/net.sh"), format!("{SCRIPT}\n")).unwrap();
        assert_ne!(digest(&one), digest(&two));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let manifest = MANIFEST.replace("default: eno1", "default: a/b").replace("60", "0");
        let crlf = SCRIPT.replace('\n', "\r\n");
        let text =
            wrong(&[("bundle.yaml", &manifest), ("phases/net.sh", &crlf), ("manifest.json", "")]);
        insta::assert_snapshot!(text, @r"
        bundle.yaml:7: inputs.uplink: invalid default: not an interface name
        bundle.yaml:12: phases[0]: timeout_seconds must be from 1 to 14400
        manifest.json: the name is reserved: the build writes this file
        phases/net.sh:1: a phase must start with #!/bin/bash
        phases/net.sh:1: the line ends with a carriage return
        ");
    }

    #[test]
    fn a_manifest_that_cannot_be_read_says_where() {
        let unknown = MANIFEST.replace("kind:", "kinds:");
        let text = wrong(&[("bundle.yaml", &unknown)]);
        assert!(text.starts_with("bundle.yaml:3: unknown field `kinds`"), "{text}");
        let broken = MANIFEST.replace("about: network", "about: [network");
        assert!(wrong(&[("bundle.yaml", &broken)]).starts_with("bundle.yaml:"));
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read_folder(dir.path()), Err(SourceError::Io { .. })));
    }

    #[test]
    fn a_link_is_refused() {
        let dir = folder(&[("bundle.yaml", MANIFEST), ("phases/net.sh", SCRIPT)]);
        std::os::unix::fs::symlink("/etc/shadow", dir.path().join("secret")).unwrap();
        let text = read_folder(dir.path()).unwrap_err().to_string();
        assert!(text.starts_with("secret: expected a plain file"), "{text}");
    }
}
