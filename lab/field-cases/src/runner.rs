//! One case: its input is made, its commands run, their output is compared.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;

use crate::case::{Case, CaseInput, FileInput, Step, Variant};
use crate::expected_text::contains;
use crate::region_lab::RegionLab;
use crate::shell::{Ended, Shell, tail};
use crate::{host_tree, image_archive};

/// What cases run.
#[derive(Debug)]
pub(crate) struct Executables {
    /// Folder of gpuaas and gpuaas-node-agent.
    pub(crate) bin: PathBuf,
    /// The repository, whose bundles and fixtures cases use.
    pub(crate) repository: PathBuf,
}

/// Why a case did not pass.
#[derive(Debug, Serialize)]
pub(crate) struct CaseFailure {
    /// Its name.
    pub(crate) case: String,
    /// The variant; empty where the case has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    variant: String,
    /// Its situation.
    about: String,
    /// The command; empty where the input could not be made.
    #[serde(skip_serializing_if = "String::is_empty")]
    command: String,
    /// What was expected.
    expected: String,
    /// The end of its output.
    output: String,
}

/// Runs a case, in all its variants. Empty: it passed.
pub(crate) fn run(case: &Case, executables: &Executables, is_kept: bool) -> Vec<CaseFailure> {
    let plain = [None];
    let variants: Vec<Option<&Variant>> = case.spec.variants.iter().map(Some).collect();
    let variants = if variants.is_empty() { plain.to_vec() } else { variants };
    let failures = variants.into_iter().filter_map(|variant| {
        let failed = |(command, expected, output): (String, String, String)| CaseFailure {
            case: case.name.clone(),
            variant: variant.map(|one| one.name.clone()).unwrap_or_default(),
            about: case.spec.about.trim().to_owned(),
            command,
            expected,
            output,
        };
        run_variant(case, variant, executables, is_kept).err().map(failed)
    });
    failures.collect()
}

/// Command, expectation and output.
type Mismatch = (String, String, String);

fn run_variant(
    case: &Case,
    variant: Option<&Variant>,
    executables: &Executables,
    is_kept: bool,
) -> Result<(), Mismatch> {
    let unmade = |text: String| (String::new(), "the case's input".to_owned(), text);
    let folder = tempfile::Builder::new().prefix("gpuaas-case-").tempdir();
    let mut folder = folder.map_err(|error| unmade(error.to_string()))?;
    if is_kept {
        folder.disable_cleanup(true);
    }
    let own = case.spec.input();
    let input = variant.map_or_else(|| own.clone(), |one| own.with(&one.input()));
    let shell = Shell {
        folder: folder.path(),
        bin: &executables.bin,
        case: &case.folder,
        repository: &executables.repository,
    };
    let (variables, _lab) = prepare(&input, case, executables, &shell).map_err(unmade)?;
    let last = case.spec.steps.len().saturating_sub(1);
    for (index, step) in case.spec.steps.iter().enumerate() {
        let ended = shell.run(&step.run, step.seconds, &variables).map_err(unmade)?;
        let of_variant = variant.filter(|_| index == last);
        if let Some(expected) = mismatch(step, of_variant, &ended) {
            let kept =
                if is_kept { format!("\n(in {})", folder.path().display()) } else { String::new() };
            let output = format!("exit {}\n{}{kept}", ended.code, tail(&ended.output));
            return Err((step.run.trim().to_owned(), expected, output));
        }
    }
    Ok(())
}

type Prepared = (std::collections::BTreeMap<String, String>, Option<RegionLab>);

/// Makes what the commands find.
fn prepare(
    input: &CaseInput,
    case: &Case,
    executables: &Executables,
    shell: &Shell<'_>,
) -> Result<Prepared, String> {
    let folder = shell.folder;
    let mut variables = input.env.clone();
    for (name, file) in &input.files {
        write_file(&folder.join(name), file, &case.folder)?;
    }
    if let Some(image) = &input.image {
        image_archive::write(image, &folder.join("image.tgz"))?;
    }
    if let Some(host) = &input.host {
        variables.extend(host_tree::make(host, folder, executables, shell)?);
    }
    let Some(region) = &input.region else { return Ok((variables, None)) };
    let lab = RegionLab::start(region, folder, shell)?;
    variables.extend(lab.variables.clone());
    // What the case says counts.
    variables.extend(input.env.clone());
    Ok((variables, Some(lab)))
}

fn write_file(path: &Path, file: &FileInput, case: &Path) -> Result<(), String> {
    let fault = |error: &dyn std::fmt::Display| format!("file {}: {error}", path.display());
    let bytes = match (&file.content, &file.base64, &file.from) {
        (Some(text), None, None) => text.clone().into_bytes(),
        (None, Some(text), None) => {
            let text: String = text.split_whitespace().collect();
            BASE64.decode(text).map_err(|error| fault(&error))?
        }
        (None, None, Some(name)) => fs::read(case.join(name)).map_err(|error| fault(&error))?,
        _ => return Err(fault(&"expected exactly one of content, base64 or from")),
    };
    if let Some(above) = path.parent() {
        fs::create_dir_all(above).map_err(|error| fault(&error))?;
    }
    fs::write(path, bytes).map_err(|error| fault(&error))
}

/// What the output lacks, or has and may not.
fn mismatch(step: &Step, variant: Option<&Variant>, ended: &Ended) -> Option<String> {
    if let Some(code) = step.exit.filter(|code| *code != ended.code) {
        return Some(format!("exit {code}"));
    }
    let output = ended.output.as_str();
    let of_variant = |texts: fn(&Variant) -> &Vec<String>| variant.into_iter().flat_map(texts);
    let mut wanted = step.has.iter().chain(of_variant(|one| &one.has));
    if let Some(text) = wanted.find(|text| !contains(output, text)) {
        return Some(format!("the output contains {text:?}"));
    }
    let mut unwanted = step.has_not.iter().chain(of_variant(|one| &one.has_not));
    if let Some(text) = unwanted.find(|text| contains(output, text)) {
        return Some(format!("the output does not contain {text:?}"));
    }
    let any = &step.has_one_of;
    let has_any = any.is_empty() || any.iter().any(|text| contains(output, text));
    (!has_any).then(|| format!("the output contains one of {any:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(text: &str) -> Step {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn the_output_is_compared_with_each_expectation() {
        let ended = Ended { code: 1, output: "error  fstab_left\n".to_owned() };
        for (text, wanted) in [
            ("run: x\nhas: [fstab_left, error*fstab]\nhas_not: [nothing found]\nexit: 1", None),
            ("run: x\nhas: [swap_left]", Some("contains \"swap_left\"")),
            ("run: x\nhas_not: [fstab]", Some("does not contain \"fstab\"")),
            ("run: x\nexit: 0", Some("exit 0")),
            ("run: x\nhas_one_of: [a1, fstab]", None),
            ("run: x\nhas_one_of: [a1, b1]", Some("one of")),
        ] {
            let found = mismatch(&step(text), None, &ended).unwrap_or_default();
            assert!(
                wanted.map_or(found.is_empty(), |wanted| found.contains(wanted)),
                "{text}: {found}"
            );
        }
    }
}
