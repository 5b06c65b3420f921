//! Commissioning bundles: scripts that MAAS runs on a machine while it commissions it.
//!
//! A script is a file with MAAS' metadata in its head (docs/maas.md#scripts), so what an operator
//! tries by hand in MAAS is what a bundle holds. In MAAS a script's name is region-wide and its
//! text can be replaced under every profile that uses it; therefore the name that is registered is
//! not the one in the file but `gpuaas-LABEL-DIGEST`, and only the name line of the head is
//! changed for it. What would reach beyond the profile is refused here: a commissioning script
//! that MAAS would run on every machine of the region, and a test that joins the default ones.

use gpuaas_types::scripts::{MaasScript, ScriptKind};
use serde::Deserialize;
use serde_json::Value;

use gpuaas_bundle::manifest::is_name;
use gpuaas_bundle::{Archive, Digest};

use crate::lint::LintFinding;

/// Folder of the scripts in a commissioning bundle.
const SCRIPTS_FOLDER: &str = "scripts/";
const BEGIN: &str = "# --- Start MAAS 1.0 script metadata ---";
const END: &str = "# --- End MAAS 1.0 script metadata ---";
/// Largest script, in bytes.
const MAX_SCRIPT_BYTES: usize = 256 * 1024;
/// Hexadecimal digits of the digest in a name.
const NAME_DIGITS: usize = 12;
/// Longest label, in characters: with prefix and digest it is still a readable name.
const MAX_LABEL_CHARS: usize = 40;

/// A script as it is registered in MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommissioningScript {
    /// Its names and its digest.
    pub script: MaasScript,
    /// Its text, with the registered name in its head.
    pub text: String,
}

/// Fields of MAAS' metadata that a script may have. `for_hardware` is refused: on other hardware the
/// script would have no result, and a run waits for one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "parsed so that other fields are refused; MAAS parses them again")]
struct ScriptMetadata {
    name: String,
    script_type: ScriptKind,
    timeout: String,
    title: Option<String>,
    description: Option<String>,
    tags: Option<Value>,
    hardware_type: Option<Value>,
    parallel: Option<Value>,
    packages: Option<Value>,
    results: Option<Value>,
    may_reboot: Option<bool>,
    recommission: Option<bool>,
    apply_configured_networking: Option<bool>,
}

/// Parses one script.
///
/// # Errors
/// A sentence: the text is no script, its metadata cannot be parsed, or MAAS would run it beyond its
/// profile.
pub fn parse_script(text: &str) -> Result<CommissioningScript, String> {
    if text.len() > MAX_SCRIPT_BYTES {
        return Err(format!(
            "the script has {} bytes; the limit is {MAX_SCRIPT_BYTES}",
            text.len()
        ));
    }
    if !text.starts_with("#!/") {
        return Err("the first line names no interpreter, such as #!/bin/sh".to_owned());
    }
    let metadata = parse_metadata(text)?;
    let label = &metadata.name;
    if !is_name(label) || label.len() > MAX_LABEL_CHARS {
        return Err(format!(
            "invalid name {label:?}: expected 1 to {MAX_LABEL_CHARS} characters of a-z, 0-9 and -"
        ));
    }
    if !is_timeout(&metadata.timeout) {
        return Err(format!(
            "invalid timeout {:?}: expected HH:MM:SS greater than zero",
            metadata.timeout
        ));
    }
    let tags = parse_tags(metadata.tags.as_ref())?;
    let has = |tag: &str| tags.iter().any(|other| other == tag);
    match metadata.script_type {
        ScriptKind::Commissioning if !has("noauto") => {
            return Err(
                "the tag noauto is missing: MAAS would run the script on every machine".to_owned()
            );
        }
        ScriptKind::Testing if has("commissioning") => {
            return Err("the tag commissioning would make the script a default test".to_owned());
        }
        _ => {}
    }
    let source_digest = Digest::sha256(text.as_bytes()).to_string();
    let name =
        format!("gpuaas-{label}-{}", source_digest.get(..NAME_DIGITS).unwrap_or(&source_digest));
    let text = with_registered_name(text, &name);
    let digest = Digest::sha256(text.as_bytes()).to_string();
    let script = MaasScript { label: label.clone(), name, kind: metadata.script_type, digest };
    Ok(CommissioningScript { script, text })
}

fn parse_metadata(text: &str) -> Result<ScriptMetadata, String> {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines.iter().position(|line| *line == BEGIN);
    let end = lines.iter().position(|line| *line == END);
    let (Some(begin), Some(end)) = (begin, end) else {
        return Err(format!("no MAAS metadata between {BEGIN:?} and {END:?}"));
    };
    let inside = lines.get(begin + 1..end).unwrap_or_default();
    let yaml: Option<Vec<&str>> = inside.iter().map(|line| line.strip_prefix('#')).collect();
    let yaml = yaml.ok_or("a metadata line does not start with #")?;
    serde_saphyr::from_str(&yaml.join("\n")).map_err(|error| format!("invalid metadata: {error}"))
}

/// The script with another name in its metadata.
fn with_registered_name(text: &str, name: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len() + name.len());
    for line in text.split_inclusive('\n') {
        inside = (inside || line.trim_end() == BEGIN) && line.trim_end() != END;
        let key = line.strip_prefix('#').map_or("", str::trim_start);
        if inside && key.starts_with("name:") {
            out.push_str(&format!("# name: {name}\n"));
        } else {
            out.push_str(line);
        }
    }
    out
}

fn is_timeout(text: &str) -> bool {
    let parts: Vec<Option<u32>> = text
        .split(':')
        .map(|part| (part.len() == 2).then(|| part.parse().ok()).flatten())
        .collect();
    matches!(parts.as_slice(), [Some(h), Some(m), Some(s)] if *m < 60 && *s < 60 && h + m + s > 0)
}

/// Tags, written as a list or with commas, as MAAS parses them.
fn parse_tags(value: Option<&Value>) -> Result<Vec<String>, String> {
    let tags: Option<Vec<&str>> = match value {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => text.split(',').map(|tag| Some(tag.trim())).collect(),
        Some(Value::Array(items)) => items.iter().map(Value::as_str).collect(),
        Some(_) => None,
    };
    let tags = tags.ok_or("invalid tags: expected a list or comma-separated words")?;
    Ok(tags.into_iter().filter(|tag| !tag.is_empty()).map(str::to_owned).collect())
}

/// The scripts of a commissioning bundle: every file below [`SCRIPTS_FOLDER`], sorted by name.
pub(crate) fn commissioning_scripts(
    archive: &Archive,
) -> Result<Vec<CommissioningScript>, LintFinding> {
    let wrong = |file: &str, text: String| LintFinding { file: file.to_owned(), line: None, text };
    let mut scripts: Vec<CommissioningScript> = Vec::new();
    for (path, entry) in archive.files.iter().filter(|(path, _)| path.starts_with(SCRIPTS_FOLDER)) {
        let text = std::str::from_utf8(&entry.bytes);
        let text = text.map_err(|_| wrong(path, "the file is not UTF-8".to_owned()))?;
        let script = parse_script(text).map_err(|reason| wrong(path, reason))?;
        if scripts.iter().any(|other| other.script.label == script.script.label) {
            return Err(wrong(
                path,
                format!("another script is also named {}", script.script.label),
            ));
        }
        scripts.push(script);
    }
    if scripts.is_empty() {
        return Err(wrong(SCRIPTS_FOLDER, "the folder contains no script".to_owned()));
    }
    Ok(scripts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(metadata: &str) -> String {
        format!("#!/bin/sh\n{BEGIN}\n{metadata}\n{END}\nname: not in the head\nexit 0\n")
    }

    const GOOD: &str =
        "# name: x\n# script_type: commissioning\n# timeout: 00:02:00\n# tags: [noauto, a]";

    #[test]
    fn the_registered_name_changes_with_the_text_and_is_in_the_metadata() {
        let first = parse_script(&script(GOOD)).unwrap();
        assert!(first.script.name.starts_with("gpuaas-x-"), "{}", first.script.name);
        assert_eq!(first.script.check_name(), "script_x");
        assert!(first.text.contains(&format!("\n# name: {}\n", first.script.name)));
        assert!(first.text.contains("\nname: not in the head\n"));
        assert_eq!(first.script.digest, Digest::sha256(first.text.as_bytes()).to_string());
        let second = parse_script(&script(GOOD).replace("exit 0", "exit 1")).unwrap();
        assert_ne!(first.script.name, second.script.name);
    }

    #[test]
    fn what_maas_would_not_take_or_run_everywhere_is_refused() {
        for (metadata, part) in [
            (GOOD.replace("noauto, ", ""), "noauto"),
            (GOOD.replace("[noauto, a]", "7"), "tags"),
            (GOOD.replace("name: x", "name: X y"), "name"),
            (GOOD.replace("00:02:00", "00:00:00"), "timeout"),
            (GOOD.replace("00:02:00", "120"), "timeout"),
            (GOOD.replace("# tags", "tags"), "start with #"),
            (format!("{GOOD}\n# for_hardware: pci:10de:2330"), "for_hardware"),
            (GOOD.replace("commissioning", "release"), "release"),
        ] {
            let error = parse_script(&script(&metadata)).unwrap_err();
            assert!(error.contains(part), "{metadata}: {error}");
        }
        let default = GOOD.replace("commissioning", "testing").replace(", a]", ", commissioning]");
        assert!(parse_script(&script(&default)).unwrap_err().contains("default test"));
        assert!(parse_script("exit 0\n").unwrap_err().contains("interpreter"));
        assert!(parse_script("#!/bin/sh\nexit 0\n").unwrap_err().contains("no MAAS metadata"));
    }
}
