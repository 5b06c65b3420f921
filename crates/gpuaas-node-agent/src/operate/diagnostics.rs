//! What a person needs to see what is wrong with a host, in one archive.
//!
//! Every section has a time limit and a share of the size; what cannot be had is a line in
//! `sections.txt`, never a failure of the whole. Secrets are taken out before anything is written.
//! An archive that is small travels with the result; a larger one stays on the host, where its
//! digest names it, and only the newest few are kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use gpuaas_bundle::Digest;
use gpuaas_types::agent::{Finding, KeptArchive};

use super::{Fault, Outcome, Work};
use crate::redact::redact;
use crate::tools::Tools;
use crate::{facts, files};

const ASK_SECONDS: u64 = 30;
/// Bytes of an archive that travel with a result.
const TRAVELS_BYTES: usize = 1 << 20;
/// Archives that stay on the host.
const KEPT: usize = 4;
/// What tar adds to each file at most: its head, and the padding of its end.
const TAR_BYTES: usize = 1024;

/// What is asked of every host: name of the section, and the program that says it.
const ALWAYS: [(&str, &[&str]); 12] = [
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

/// What an operator wants beside what is always collected.
pub(super) struct Wanted<'a> {
    pub(super) units: &'a [String],
    pub(super) journal_lines: u32,
    pub(super) most_bytes: u32,
}

pub(super) async fn carry_out(work: &Work<'_>, wanted: &Wanted<'_>) -> Result<Outcome, Fault> {
    let tools = Tools::of(work.host)?;
    let questions = questions(wanted);
    if work.dry_run {
        let finding = |(name, words): &(String, Vec<String>)| Finding {
            name: name.clone(),
            passed: None,
            seen: words.join(" "),
        };
        let findings = questions.iter().map(finding).collect();
        let message = "it would ask these and pack up what they say".to_owned();
        return Ok(Outcome { findings, message, ..Outcome::default() });
    }
    let mut outcome = Outcome::default();
    let mut sections = Vec::new();
    for (name, words) in &questions {
        let (program, arguments) =
            words.split_first().map_or(("", &[][..]), |(p, a)| (p.as_str(), a));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match tools.ask(program, &arguments, ASK_SECONDS).await {
            Ok(said) => sections.push(Section { name: name.clone(), text: said.out }),
            Err(error) => outcome.findings.push(Finding {
                name: name.clone(),
                passed: Some(false),
                seen: error.to_string(),
            }),
        }
    }
    for (name, value) in [
        ("facts.json", serde_json::to_string_pretty(&facts::whole(work.host).await)),
        ("gates.json", serde_json::to_string_pretty(&crate::bundle::gate::all(work.host).await)),
    ] {
        sections.push(Section { name: name.to_owned(), text: value.unwrap_or_default() });
    }
    for section in &mut sections {
        section.text = redact(&section.text, &work.place.secrets);
    }
    let archive = pack(&sections, wanted.most_bytes as usize, &mut outcome.findings)
        .map_err(|error| Fault::new("archive_failed", error.to_string()))?;
    outcome.archive = Some(hand_over(work, &archive, &mut outcome)?);
    Ok(outcome)
}

fn questions(wanted: &Wanted<'_>) -> Vec<(String, Vec<String>)> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let mut all: Vec<(String, Vec<String>)> =
        ALWAYS.iter().map(|(name, words)| ((*name).to_owned(), owned(words))).collect();
    let lines = wanted.journal_lines.to_string();
    let journal = ["journalctl", "--no-pager", "--output=short-iso", "--lines", &lines];
    all.push(("journal.txt".to_owned(), owned(&journal)));
    let own = "gpuaas-node-agent.service".to_owned();
    for unit in wanted.units.iter().chain([&own]) {
        let status = ["systemctl", "show", "--no-pager", "--", unit];
        all.push((format!("unit/{unit}.txt"), owned(&status)));
        let journal = [&journal[..], &["--unit", unit]].concat();
        all.push((format!("journal/{unit}.txt"), owned(&journal)));
    }
    all
}

/// A compressed tar of the sections, which unpacked is no larger than `most` bytes: the longest are
/// cut, at their beginning, because what happened last stands at the end.
fn pack(sections: &[Section], most: usize, findings: &mut Vec<Finding>) -> io::Result<Vec<u8>> {
    let heads = (sections.len() + 2) * TAR_BYTES;
    let share = share(sections, most.saturating_sub(heads));
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let mut index = String::new();
    for Section { name, text } in sections {
        let whole = text.len();
        let text = tail(text, share);
        let cut = if text.len() < whole {
            format!(", the last {} of {whole} bytes", text.len())
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

/// The end of a text, from the beginning of a line on where there is one.
fn tail(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let mut from = text.len() - most;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let end = text.get(from..).unwrap_or_default();
    end.split_once('\n').map_or(end, |(_, rest)| rest)
}

fn hand_over(work: &Work<'_>, archive: &[u8], outcome: &mut Outcome) -> Result<KeptArchive, Fault> {
    let digest = Digest::of(archive).to_string();
    let size_bytes = archive.len() as u64;
    if archive.len() <= TRAVELS_BYTES {
        let data = Some(BASE64.encode(archive));
        outcome.message = format!("{size_bytes} bytes, with this result");
        return Ok(KeptArchive { size_bytes, digest, path: None, data });
    }
    let failed = |error: &io::Error| {
        let code = if files::is_full(error) { "disk_full" } else { "file_unwritable" };
        Fault::new(code, format!("the archive of {size_bytes} bytes: {error}"))
    };
    let Some(state) = &work.place.state_dir else {
        return Err(Fault::new("archive_too_large", "it has no folder to stay in"));
    };
    let folder = state.join("diagnostics");
    let path = folder.join(format!("{digest}.tar.gz"));
    files::replace(&path, archive).map_err(|error| failed(&error))?;
    sweep(&folder, &path);
    outcome.message = format!("{size_bytes} bytes stay on the host: {}", path.display());
    Ok(KeptArchive { size_bytes, digest, path: Some(path.display().to_string()), data: None })
}

/// Removes all but the newest archives.
fn sweep(folder: &Path, newest: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut old: Vec<(std::time::SystemTime, PathBuf)> = entries
        .flatten()
        .filter(|entry| entry.path() != newest)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    old.sort();
    let many = old.len().saturating_sub(KEPT - 1);
    for (_, path) in old.iter().take(many) {
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(%error, path = %path.display(), "an old archive stays");
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
    use crate::operate::{Workplace, carry_out as operate, played};

    /// A host that says a little of everything, has no nvidia-smi, and logs a password.
    const HOST: &str = r#"
case "$2" in
  nvidia-smi) echo 'No devices' >&2; exit 6 ;;
  journalctl) [ -f "$D/long" ] && base64 <"$D/long"; echo 'api_key=hunter2 and s3cr3t-s3cr3t h8sh-h8sh'; echo end ;;
  *) echo "$2 says" ;;
esac
"#;

    async fn collect(dir: &Path, most_bytes: u32, dry_run: bool) -> TaskResult {
        let host = played::host(dir, HOST);
        let place = Workplace {
            state_dir: Some(dir.join("state")),
            secrets: vec!["s3cr3t-s3cr3t".to_owned()],
            ..Workplace::default()
        };
        let work = Work { host: &host, place: &place, dry_run };
        let units = vec!["nginx.service".to_owned()];
        let operation = Operation::CollectDiagnostics { units, journal_lines: 9, most_bytes };
        operate(&work, &operation).await
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
        assert_eq!(archive.digest, Digest::of(&bytes).to_string());
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
        assert!(played::ran(dir.path()).is_empty(), "it changes nothing");
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
            assert_eq!(archive.digest, Digest::of(&bytes).to_string());
            assert!(unpacked(&bytes)["diagnostics/journal.txt"].ends_with("end\n"));
            assert!(done.findings.iter().any(|finding| finding.seen.starts_with("cut to")));
            seen.push(path);
        }
        assert_eq!(fs::read_dir(dir.path().join("state/diagnostics")).unwrap().count(), KEPT);
        assert!(Path::new(seen.last().unwrap()).exists());
    }
}
