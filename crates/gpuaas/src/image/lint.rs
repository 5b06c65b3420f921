//! `gpuaas image lint`: a finished archive against what is done with it.

use std::path::Path;

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_image::lineage::LINT_PREDICATE;
use gpuaas_image::lint::{ImageFinding, ImageVerdict, LintOptions, LintSeverity, lint, rules};
use gpuaas_types::codes::CommandCode;
use serde::Serialize;
use serde_json::json;

use super::report::json as printed;
use super::statement::{archive_digest, write_statement};
use crate::args::ImageLintArgs;

/// Findings that a statement names.
const MOST_STATED: usize = 40;

/// What `gpuaas image lint --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ImageLintReport {
    /// Whether there is no error.
    pub(super) passed: bool,
    /// What was found, errors first.
    pub(super) findings: Vec<ImageLintFinding>,
}

/// A finding as it is printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ImageLintFinding {
    /// Code of the rule.
    pub(super) code: &'static str,
    /// `error` or `warning`.
    pub(super) severity: &'static str,
    /// What is meant, as a deployed host has it, or the archive itself.
    pub(super) path: String,
    /// The step that fails, and how.
    pub(super) breaks: &'static str,
    /// What to do about it.
    pub(super) fix: &'static str,
}

impl From<&ImageFinding> for ImageLintFinding {
    fn from(finding: &ImageFinding) -> Self {
        Self {
            code: finding.rule.code,
            severity: finding.rule.severity.as_str(),
            path: finding.path.clone(),
            breaks: finding.rule.breaks,
            fix: finding.rule.fix,
        }
    }
}

/// Judges an archive.
///
/// # Errors
/// `image_unreadable`; `image_faulty` where there is an error.
pub(super) fn run(args: &ImageLintArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let tried = match &args.sign_key {
        Some(_) => archive_digest(&args.file)?,
        None => String::new(),
    };
    let verdict = lint(&args.file, &options(args)).map_err(|error| {
        let detail = format!("{}: {error}", args.file.display());
        Failure::local(CommandCode::ImageUnreadable, detail)
            .hint("name an archive that is there, such as one of `gpuaas image pack DIR --to FILE`")
    })?;
    let findings: Vec<ImageLintFinding> = verdict.findings.iter().map(Into::into).collect();
    if args.json {
        terminal.data(&printed(&ImageLintReport { passed: verdict.passed(), findings })?)?;
    } else {
        print(&verdict, terminal)?;
    }
    if let Some(key) = &args.sign_key {
        sign(args, key, (&tried, &verdict), terminal)?;
    }
    if verdict.passed() {
        return Ok(());
    }
    let is_error = |finding: &&ImageFinding| finding.rule.severity == LintSeverity::Error;
    let errors = verdict.findings.iter().filter(is_error).count();
    let detail = format!("{}: {errors} errors", args.file.display());
    Err(Failure::local(CommandCode::ImageFaulty, detail)
        .hint("each finding names its fix; `gpuaas explain CODE` says what a code means"))
}

/// Writes what was found as a signed statement beside the archive.
fn sign(
    args: &ImageLintArgs,
    key: &Path,
    (tried, verdict): (&str, &ImageVerdict),
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let findings = verdict.findings.iter().take(MOST_STATED);
    let findings = findings.map(|finding| json!({"code": finding.rule.code, "path": finding.path}));
    let predicate = json!({
        "passed": verdict.passed(),
        "rules": rules().count(),
        "findings": verdict.findings.len(),
        "first_findings": findings.collect::<Vec<_>>(),
        "file_type": args.file_type.name(),
        "storage_layout": args.storage_layout,
    });
    let written = write_statement(&args.file, ("lint", LINT_PREDICATE), key, (tried, &predicate))?;
    terminal.message(&format!("{} says so", written.display()));
    Ok(())
}

fn options(args: &ImageLintArgs) -> LintOptions {
    LintOptions {
        file_type: args.file_type,
        storage_layout: args.storage_layout.clone(),
        architecture: args.architecture.clone(),
        boot_disk_bytes: args.boot_disk,
        rack_cache_bytes: args.rack_cache,
        excused_sources: args.allowed_sources.clone(),
        kernel_arguments: args.kernel_arguments.clone(),
    }
}

fn print(verdict: &ImageVerdict, terminal: &mut Terminal) -> Result<(), Failure> {
    if verdict.findings.is_empty() {
        terminal.message("nothing found that a deploy would fail on");
    }
    for ImageFinding { rule, path } in &verdict.findings {
        terminal.data(&output::fields(&[
            (rule.severity.as_str(), rule.code.to_owned()),
            ("path", path.clone()),
            ("reason", rule.reason.to_owned()),
            ("breaks", rule.breaks.to_owned()),
            ("fix", rule.fix.to_owned()),
        ]))?;
        terminal.data("")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gpuaas_image::lint_benchmark::{FAULTS, FaultPlant};
    use serde_json::Value;

    use super::*;
    use crate::args::{Cli, Command, ImageCommand, parse};

    fn args(line: &str) -> ImageLintArgs {
        let Cli { command: Command::Image(ImageCommand::Lint(args)), .. } =
            parse(line.split_whitespace()).unwrap()
        else {
            panic!("{line}")
        };
        args
    }

    #[test]
    fn findings_are_printed_and_end_the_command_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image.tgz");
        let fault = FAULTS.iter().find(|fault| fault.code == "fstab_left").unwrap();
        assert!(matches!(fault.plant, FaultPlant::Tree(_)));
        fs::write(&file, fault.planted().unwrap().0).unwrap();
        let line = format!("gpuaas image lint {} --json", file.display());
        let (mut terminal, captured) = Terminal::captured();
        let failure = run(&args(&line), &mut terminal).unwrap_err();
        assert_eq!((failure.code(), failure.exit as u8), ("image_faulty", 1));
        let report: Value = serde_json::from_str(&captured.stdout()).unwrap();
        assert_eq!(report["passed"], false);
        let finding = report["findings"][0].as_object().unwrap();
        assert_eq!(
            finding.keys().collect::<Vec<_>>(),
            ["breaks", "code", "fix", "path", "severity"]
        );
        assert_eq!(
            (&finding["code"], &finding["path"]),
            (&"fstab_left".into(), &"/etc/fstab".into())
        );
        let (mut terminal, captured) = Terminal::captured();
        run(&args(line.trim_end_matches(" --json")), &mut terminal).unwrap_err();
        assert!(captured.stdout().contains("fstab_left"), "{}", captured.stdout());
    }

    #[test]
    fn an_archive_that_is_not_there_is_no_finding() {
        let (mut terminal, captured) = Terminal::captured();
        let failure =
            run(&args("gpuaas image lint /nowhere/image.tgz"), &mut terminal).unwrap_err();
        assert_eq!((failure.code(), captured.stdout().as_str()), ("image_unreadable", ""));
    }
}
