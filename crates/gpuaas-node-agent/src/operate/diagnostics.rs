//! The operation `collect_diagnostics`: one archive with what a person needs to find a fault.
//!
//! Every section has a time limit and a share of the size. A section that cannot be collected is a
//! finding, never a failure of the whole. Secrets are redacted before anything is written. A small
//! archive is returned in the result; a larger one stays on the host under the name of its digest,
//! and only the newest few stay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use gpuaas_bundle::Digest;
use gpuaas_types::agent::{Finding, TaskArchive};

use super::operation::{OperationContext, OperationError, OperationOutcome};
use crate::bundle::gate;
use crate::command::CommandRunner;
use crate::redact::redact_all;
use crate::{atomic_file, facts};

/// Longest time of a query, in seconds.
const QUERY_SECONDS: u64 = 30;
/// Bytes of the largest archive that is returned in the result.
const INLINE_BYTES: usize = 1 << 20;
/// Number of archives that stay on the host.
const MAX_ARCHIVES: usize = 4;
/// Largest overhead of a file in a tar, in bytes: its header and its padding.
const TAR_BYTES: usize = 1024;

/// Sections of every archive: name, and the query whose output it is.
const SECTIONS: [(&str, &[&str]); 12] = [
    ("units.txt", &["systemctl", "list-units", "--all", "--no-pager", "--plain", "--no-legend"]),
    ("units-failed.txt", &["systemctl", "--failed", "--no-pager", "--plain"]),
    ("dmesg.txt", &["dmesg", "--decode", "--nopager"]),
    ("lspci.txt", &["lspci", "-nnk"]),
    ("links.json", &["ip", "-json", "-details", "link"]),
    ("addresses.json", &["ip", "-json", "address"]),
    ("routes.json", &["ip", "-json", "route"]),
    ("disks.txt", &["lsblk", "-o", "NAME,SIZE,TYPE,FSTYPE,MOUNTPOINT,MODEL"]),
    ("space.txt", &["df", "-hT"]),
    ("processes.txt", &["ps", "-eo", "pid,ppid,stat,rss,etime,comm"]),
    ("nvidia-smi.txt", &["nvidia-smi", "-q"]),
    ("packages.txt", &["dpkg-query", "-W"]),
];

struct Section {
    name: String,
    text: String,
}

/// What an operator asks for beside the sections of every archive.
pub(super) struct DiagnosticsRequest<'a> {
    /// Units whose state and journal are collected.
    pub(super) units: &'a [String],
    /// Lines of each journal.
    pub(super) journal_lines: u32,
    /// Largest unpacked size of the archive, in bytes.
    pub(super) max_bytes: u32,
}

pub(super) async fn run(
    context: &OperationContext<'_>,
    request: &DiagnosticsRequest<'_>,
) -> Result<OperationOutcome, OperationError> {
    let runner = CommandRunner::for_host(context.host)?;
    let queries = queries(request);
    if context.dry_run {
        let finding = |(name, words): &(String, Vec<String>)| Finding {
            name: name.clone(),
            passed: None,
            seen: words.join(" "),
        };
        let findings = queries.iter().map(finding).collect();
        let message = "would run these commands and archive their output".to_owned();
        return Ok(OperationOutcome { findings, message, ..OperationOutcome::default() });
    }
    let mut outcome = OperationOutcome::default();
    let mut sections = Vec::new();
    for (name, words) in &queries {
        let (program, arguments) =
            words.split_first().map_or(("", &[][..]), |(p, a)| (p.as_str(), a));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match runner.query(program, &arguments, QUERY_SECONDS).await {
            Ok(output) => sections.push(Section { name: name.clone(), text: output.stdout }),
            Err(error) => outcome.findings.push(Finding {
                name: name.clone(),
                passed: Some(false),
                seen: error.to_string(),
            }),
        }
    }
    for (name, value) in [
        ("facts.json", serde_json::to_string_pretty(&facts::collect(context.host).await)),
        ("gates.json", serde_json::to_string_pretty(&gate::evaluate_all(context.host).await)),
    ] {
        sections.push(Section { name: name.to_owned(), text: value.unwrap_or_default() });
    }
    for section in &mut sections {
        section.text = redact_all(&section.text, &context.env.secrets);
    }
    let archive = pack(&sections, request.max_bytes as usize, &mut outcome.findings)
        .map_err(|error| OperationError::new("archive_failed", error.to_string()))?;
    outcome.archive = Some(deliver(context, &archive, &mut outcome)?);
    Ok(outcome)
}

fn queries(request: &DiagnosticsRequest<'_>) -> Vec<(String, Vec<String>)> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let mut all: Vec<(String, Vec<String>)> =
        SECTIONS.iter().map(|(name, words)| ((*name).to_owned(), owned(words))).collect();
    let lines = request.journal_lines.to_string();
    let journal = ["journalctl", "--no-pager", "--output=short-iso", "--lines", &lines];
    all.push(("journal.txt".to_owned(), owned(&journal)));
    let own = "gpuaas-node-agent.service".to_owned();
    for unit in request.units.iter().chain([&own]) {
        let status = ["systemctl", "show", "--no-pager", "--", unit];
        all.push((format!("unit/{unit}.txt"), owned(&status)));
        let journal = [&journal[..], &["--unit", unit]].concat();
        all.push((format!("journal/{unit}.txt"), owned(&journal)));
    }
    all
}

/// A compressed tar of the sections, which unpacked is no larger than `max_bytes`: the longest are
/// cut, at their beginning, because what happened last stands at the end.
fn pack(
    sections: &[Section],
    max_bytes: usize,
    findings: &mut Vec<Finding>,
) -> io::Result<Vec<u8>> {
    let heads = (sections.len() + 2) * TAR_BYTES;
    let share = share(sections, max_bytes.saturating_sub(heads));
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let mut index = String::new();
    for Section { name, text } in sections {
        let whole = text.len();
        let text = tail(text, share);
        let cut = if text.len() < whole {
            format!(", last {} of {whole} bytes", text.len())
        } else {
            String::new()
        };
        index.push_str(&format!("{name}: {} bytes{cut}\n", text.len()));
        if !cut.is_empty() {
            let seen = format!("cut to {} of {whole} bytes", text.len());
            findings.push(Finding { name: name.clone(), passed: None, seen });
        }
        append(&mut tar, name, text.as_bytes())?;
    }
    append(&mut tar, "sections.txt", index.as_bytes())?;
    tar.into_inner()?.finish()
}

fn append(tar: &mut tar::Builder<impl io::Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(0);
    tar.append_data(&mut header, format!("diagnostics/{name}"), bytes)
}

/// How long a section may be, so that all of them fit: shorter ones leave room for longer ones.
fn share(sections: &[Section], room: usize) -> usize {
    let mut lengths: Vec<usize> = sections.iter().map(|section| section.text.len()).collect();
    lengths.sort_unstable();
    let mut left = room;
    for (index, length) in lengths.iter().enumerate() {
        let each = left / (lengths.len() - index);
        if *length > each {
            return each;
        }
        left -= length;
    }
    usize::MAX
}

/// The last `max_bytes` of a text, from the beginning of a line on where there is one.
fn tail(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let mut from = text.len() - max_bytes;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let end = text.get(from..).unwrap_or_default();
    end.split_once('\n').map_or(end, |(_, rest)| rest)
}

fn deliver(
    context: &OperationContext<'_>,
    archive: &[u8],
    outcome: &mut OperationOutcome,
) -> Result<TaskArchive, OperationError> {
    let digest = Digest::sha256(archive).to_string();
    let size_bytes = archive.len() as u64;
    if archive.len() <= INLINE_BYTES {
        let data = Some(BASE64.encode(archive));
        outcome.message = format!("{size_bytes} bytes, attached to this result");
        return Ok(TaskArchive { size_bytes, digest, path: None, data });
    }
    let Some(state) = &context.env.state_dir else {
        let message = "the archive is too large to attach, and the agent has no state folder";
        return Err(OperationError::new("archive_too_large", message));
    };
    let folder = state.join("diagnostics");
    let path = folder.join(format!("{digest}.tar.gz"));
    atomic_file::replace(&path, archive).map_err(|error| {
        OperationError::unwritable(&format!("archive of {size_bytes} bytes"), &error)
    })?;
    remove_old_archives(&folder, &path);
    outcome.message = format!("{size_bytes} bytes, stored on the host: {}", path.display());
    Ok(TaskArchive { size_bytes, digest, path: Some(path.display().to_string()), data: None })
}

/// Removes all but the newest archives.
fn remove_old_archives(folder: &Path, newest: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut old: Vec<(std::time::SystemTime, PathBuf)> = entries
        .flatten()
        .filter(|entry| entry.path() != newest)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    old.sort();
    let many = old.len().saturating_sub(MAX_ARCHIVES - 1);
    for (_, path) in old.iter().take(many) {
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(%error, path = %path.display(), "cannot remove an old archive");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use gpuaas_types::agent::{Operation, TaskResult};

    use super::*;
    use crate::env::AgentEnv;
    use crate::operate::test_host::{commands_run, emulated, operate};

    /// A host that says a little of everything, has no nvidia-smi, and logs a password.
    const HOST: &str = r#"
case "$2" in
  nvidia-smi) echo 'No devices' >&2; exit 6 ;;
  journalctl) [ -f "$D/long" ] && base64 <"$D/long"; echo 'api_key=hunter2 and s3cr3t-s3cr3t h8sh-h8sh'; echo end ;;
  *) echo "$2 says" ;;
esac
"#;

    async fn collect(dir: &Path, most_bytes: u32, dry_run: bool) -> TaskResult {
        let host = emulated(dir, HOST);
        let env = AgentEnv {
            state_dir: Some(dir.join("state")),
            secrets: vec!["s3cr3t-s3cr3t".to_owned()],
            ..AgentEnv::default()
        };
        let context = OperationContext { host: &host, env: &env, dry_run };
        let units = vec!["nginx.service".to_owned()];
        let operation = Operation::CollectDiagnostics { units, journal_lines: 9, most_bytes };
        operate(&context, &operation).await
    }

    fn unpacked(bytes: &[u8]) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(GzDecoder::new(bytes)).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            files.insert(name, text);
        }
        files
    }

    #[tokio::test]
    async fn a_small_archive_travels_without_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let markers = dir.path().join("root/var/lib/gpuaas/site-bootstrap");
        fs::create_dir_all(&markers).unwrap();
        fs::write(markers.join("vault.secrets"), r#"{"token":"h8sh-h8sh"}"#).unwrap();
        let dry = collect(dir.path(), 1 << 20, true).await;
        assert!(dry.succeeded && dry.archive.is_none() && dry.findings.len() > 12);
        assert!(!dir.path().join("calls").exists());
        let done = collect(dir.path(), 1 << 20, false).await;
        assert!(done.succeeded, "{done:?}");
        let archive = done.archive.unwrap();
        let bytes = BASE64.decode(archive.data.unwrap()).unwrap();
        assert_eq!(archive.digest, Digest::sha256(&bytes).to_string());
        let files = unpacked(&bytes);
        assert_eq!(files["diagnostics/lspci.txt"], "lspci says\n");
        let journal = &files["diagnostics/journal/nginx.service.txt"];
        assert_eq!(journal, "api_key=[redacted] and [redacted] [redacted]\nend\n");
        assert!(files.contains_key("diagnostics/facts.json"));
        assert!(files.values().all(|text| !text.contains("h8sh")));
        assert!(
            done.findings
                .iter()
                .any(|f| f.name == "nvidia-smi.txt" && f.seen.contains("No devices"))
        );
        assert!(commands_run(dir.path()).is_empty(), "it changes nothing");
    }

    #[tokio::test]
    async fn a_large_archive_is_cut_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        // What nothing can compress (xorshift64).
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let noise = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let noise: Vec<u8> = noise.take((5 << 19) / 8).flatten().collect();
        std::fs::write(dir.path().join("long"), noise).unwrap();
        let most = 2 << 20;
        let mut seen = Vec::new();
        for most in [most, most + 4096, most + 8192, most + 12288, most + 16384] {
            let done = collect(dir.path(), most, false).await;
            let archive = done.archive.unwrap();
            assert!(archive.size_bytes <= u64::from(most), "{}", archive.size_bytes);
            assert!(archive.data.is_none());
            let path = archive.path.unwrap();
            let bytes = fs::read(&path).unwrap();
            assert_eq!(archive.digest, Digest::sha256(&bytes).to_string());
            assert!(unpacked(&bytes)["diagnostics/journal.txt"].ends_with("end\n"));
            assert!(done.findings.iter().any(|finding| finding.seen.starts_with("cut to")));
            seen.push(path);
        }
        assert_eq!(
            fs::read_dir(dir.path().join("state/diagnostics")).unwrap().count(),
            MAX_ARCHIVES
        );
        assert!(Path::new(seen.last().unwrap()).exists());
    }
}
