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

use crate::source::Finding;

/// Where a commissioning bundle has its scripts.
const FOLDER: &str = "scripts/";
const BEGIN: &str = "# --- Start MAAS 1.0 script metadata ---";
const END: &str = "# --- End MAAS 1.0 script metadata ---";
/// Largest text that is taken, in bytes.
const MOST_BYTES: usize = 256 * 1024;
/// Hexadecimal digits of the digest in a name.
const NAME_DIGITS: usize = 12;
/// Longest label; with prefix and digest it stays a readable name.
const LONGEST_LABEL: usize = 40;

/// A script as it goes to MAAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommissioningScript {
    /// Which one it is.
    pub script: MaasScript,
    /// Its text, with the registered name in its head.
    pub text: String,
}

/// What the head may say. Hardware that a script is for is not among it: elsewhere it would have
/// no result, and a run waits for one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read so that nothing else is taken; MAAS reads them again")]
struct Head {
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

/// Reads one script; answers what is wrong with it as a sentence.
///
/// # Errors
/// The text is no script, its head cannot be read, or it would reach beyond its profile.
pub fn parse(text: &str) -> Result<CommissioningScript, String> {
    if text.len() > MOST_BYTES {
        return Err(format!("it has {} bytes; {MOST_BYTES} are allowed", text.len()));
    }
    if !text.starts_with("#!/") {
        return Err("its first line is no interpreter such as #!/bin/sh".to_owned());
    }
    let head = head(text)?;
    let label = &head.name;
    if !is_name(label) || label.len() > LONGEST_LABEL {
        return Err(format!("the name {label:?} is not 1 to {LONGEST_LABEL} of a-z, 0-9 and -"));
    }
    if !is_timeout(&head.timeout) {
        return Err(format!("the timeout {:?} is not HH:MM:SS above zero", head.timeout));
    }
    let tags = words(head.tags.as_ref())?;
    let has = |tag: &str| tags.iter().any(|other| other == tag);
    match head.script_type {
        ScriptKind::Commissioning if !has("noauto") => {
            return Err("it has no tag noauto: MAAS would run it on every machine".to_owned());
        }
        ScriptKind::Testing if has("commissioning") => {
            return Err("its tag commissioning would make it a default test".to_owned());
        }
        _ => {}
    }
    let source = Digest::of(text.as_bytes()).to_string();
    let name = format!("gpuaas-{label}-{}", source.get(..NAME_DIGITS).unwrap_or(&source));
    let text = renamed(text, &name);
    let digest = Digest::of(text.as_bytes()).to_string();
    let script = MaasScript { label: label.clone(), name, kind: head.script_type, digest };
    Ok(CommissioningScript { script, text })
}

fn head(text: &str) -> Result<Head, String> {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines.iter().position(|line| *line == BEGIN);
    let end = lines.iter().position(|line| *line == END);
    let (Some(begin), Some(end)) = (begin, end) else {
        return Err(format!("MAAS' metadata is missing between {BEGIN:?} and {END:?}"));
    };
    let inside = lines.get(begin + 1..end).unwrap_or_default();
    let yaml: Option<Vec<&str>> = inside.iter().map(|line| line.strip_prefix('#')).collect();
    let yaml = yaml.ok_or("a line of its metadata does not begin with #")?;
    serde_saphyr::from_str(&yaml.join("\n")).map_err(|error| format!("its metadata: {error}"))
}

/// The text with another name in its head.
fn renamed(text: &str, name: &str) -> String {
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

/// The words of a list, given as a list or with commas, as MAAS reads them.
fn words(value: Option<&Value>) -> Result<Vec<String>, String> {
    let words = match value {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => text.split(',').map(|tag| Some(tag.trim())).collect(),
        Some(Value::Array(items)) => items.iter().map(Value::as_str).collect(),
        Some(_) => None,
    };
    let words: Option<Vec<&str>> = words;
    let words = words.ok_or("its tags are neither a list of words nor words with commas")?;
    Ok(words.into_iter().filter(|tag| !tag.is_empty()).map(str::to_owned).collect())
}

/// The scripts of a commissioning bundle: every file below [`FOLDER`], sorted by name.
pub(crate) fn of_archive(archive: &Archive) -> Result<Vec<CommissioningScript>, Finding> {
    let wrong = |file: &str, text: String| Finding { file: file.to_owned(), line: None, text };
    let mut scripts: Vec<CommissioningScript> = Vec::new();
    for (path, entry) in archive.files.iter().filter(|(path, _)| path.starts_with(FOLDER)) {
        let text = std::str::from_utf8(&entry.bytes);
        let text = text.map_err(|_| wrong(path, "it is not UTF-8".to_owned()))?;
        let script = parse(text).map_err(|reason| wrong(path, reason))?;
        if scripts.iter().any(|other| other.script.label == script.script.label) {
            return Err(wrong(path, format!("another script is called {}", script.script.label)));
        }
        scripts.push(script);
    }
    if scripts.is_empty() {
        return Err(wrong(FOLDER, "there is no script in it".to_owned()));
    }
    Ok(scripts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(head: &str) -> String {
        format!("#!/bin/sh\n{BEGIN}\n{head}\n{END}\nname: not in the head\nexit 0\n")
    }

    const GOOD: &str =
        "# name: x\n# script_type: commissioning\n# timeout: 00:02:00\n# tags: [noauto, a]";

    #[test]
    fn the_registered_name_changes_with_the_text_and_stands_in_the_head() {
        let first = parse(&script(GOOD)).unwrap();
        assert!(first.script.name.starts_with("gpuaas-x-"), "{}", first.script.name);
        assert_eq!(first.script.check_name(), "script_x");
        assert!(first.text.contains(&format!("\n# name: {}\n", first.script.name)));
        assert!(first.text.contains("\nname: not in the head\n"));
        assert_eq!(first.script.digest, Digest::of(first.text.as_bytes()).to_string());
        let second = parse(&script(GOOD).replace("exit 0", "exit 1")).unwrap();
        assert_ne!(first.script.name, second.script.name);
    }

    #[test]
    fn what_maas_would_not_take_or_run_everywhere_is_refused() {
        for (head, word) in [
            (GOOD.replace("noauto, ", ""), "noauto"),
            (GOOD.replace("[noauto, a]", "7"), "tags"),
            (GOOD.replace("name: x", "name: X y"), "name"),
            (GOOD.replace("00:02:00", "00:00:00"), "timeout"),
            (GOOD.replace("00:02:00", "120"), "timeout"),
            (GOOD.replace("# tags", "tags"), "begin with #"),
            (format!("{GOOD}\n# for_hardware: pci:10de:2330"), "for_hardware"),
            (GOOD.replace("commissioning", "release"), "release"),
        ] {
            let error = parse(&script(&head)).unwrap_err();
            assert!(error.contains(word), "{head}: {error}");
        }
        let default = GOOD.replace("commissioning", "testing").replace(", a]", ", commissioning]");
        assert!(parse(&script(&default)).unwrap_err().contains("default test"));
        assert!(parse("exit 0\n").unwrap_err().contains("interpreter"));
        assert!(parse("#!/bin/sh\nexit 0\n").unwrap_err().contains("metadata is missing"));
    }
}
