//! `gpuaas image lint`: a finished archive against what is done with it.

use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_image::lineage::LINT_PREDICATE;
use gpuaas_image::lint::{
    ImageFileType, ImageFinding, ImageVerdict, LintOptions, LintSeverity, lint, rules,
};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::image::ImageVerdictRequest;
use serde::Serialize;
use serde_json::json;

use super::report::json as printed;
use super::statement::{archive_digest, write_statement};
use crate::args::ImageLintArgs;

/// Findings that a statement names.
const MOST_STATED: usize = 40;
/// Codes that a verdict names.
const MOST_CODES: usize = 100;

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
    /// What is wrong there.
    pub(super) reason: String,
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
            reason: finding.reason(),
            breaks: finding.rule.breaks,
            fix: finding.rule.fix,
        }
    }
}

/// Judges an archive, and tells a site where one is named.
///
/// # Errors
/// As [`run`]; the site's control plane refused the verdict.
pub(super) async fn run_and_record(
    args: &ImageLintArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let Some(site) = &args.record else { return run(args, terminal) };
    let before = archive_digest(&args.file)?;
    let verdict = judged(&args.file, &options(args))?;
    if archive_digest(&args.file)? != before {
        let detail = format!("{} changed during the check", args.file.display());
        return Err(Failure::local(CommandCode::ImageChanged, detail)
            .hint("make sure that nothing writes to the file, and repeat the command"));
    }
    let request = verdict_request(site, &before, (&verdict, args.file_type), &args.who.actor);
    ApiClient::connect(&args.connection)?.record_image_verdict(&request).await?;
    terminal.message(&format!("recorded the verdict on sha256 {before} at site {site}"));
    report(args, &before, &verdict, terminal)
}

/// The verdict as a site is told.
pub(super) fn verdict_request(
    site: &str,
    sha256: &str,
    (verdict, file_type): (&ImageVerdict, ImageFileType),
    actor: &str,
) -> ImageVerdictRequest {
    let count = |severity: LintSeverity| {
        let of = verdict.findings.iter().filter(|one| one.rule.severity == severity);
        u32::try_from(of.count()).unwrap_or(u32::MAX)
    };
    let mut codes: Vec<String> =
        verdict.findings.iter().map(|one| one.rule.code.to_owned()).collect();
    codes.dedup();
    codes.truncate(MOST_CODES);
    ImageVerdictRequest {
        site: site.to_owned(),
        sha256: sha256.to_owned(),
        errors: count(LintSeverity::Error),
        warnings: count(LintSeverity::Warning),
        codes,
        file_type: file_type.name().to_owned(),
        linted_by: format!("gpuaas {}", env!("CARGO_PKG_VERSION")),
        actor: actor.to_owned(),
    }
}

/// Applies every rule.
///
/// # Errors
/// `image_unreadable`.
pub(super) fn judged(file: &Path, options: &LintOptions) -> Result<ImageVerdict, Failure> {
    lint(file, options).map_err(|error| {
        let detail = format!("{}: {error}", file.display());
        Failure::local(CommandCode::ImageUnreadable, detail).hint(
            "use an existing archive, such as one packed with `gpuaas image pack DIR --to FILE`",
        )
    })
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
    let verdict = judged(&args.file, &options(args))?;
    report(args, &tried, &verdict, terminal)
}

/// Prints a verdict, and signs it where a key is named.
fn report(
    args: &ImageLintArgs,
    tried: &str,
    verdict: &ImageVerdict,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let findings: Vec<ImageLintFinding> = verdict.findings.iter().map(Into::into).collect();
    if args.json {
        terminal.data(&printed(&ImageLintReport { passed: verdict.passed(), findings })?)?;
    } else {
        print(verdict, terminal)?;
    }
    if let Some(key) = &args.sign_key {
        sign(args, key, (tried, verdict), terminal)?;
    }
    faulty(&args.file, verdict)
}

/// Refuses an archive with errors.
///
/// # Errors
/// `image_faulty`.
pub(super) fn faulty(file: &Path, verdict: &ImageVerdict) -> Result<(), Failure> {
    if verdict.passed() {
        return Ok(());
    }
    let is_error = |finding: &&ImageFinding| finding.rule.severity == LintSeverity::Error;
    let errors = verdict.findings.iter().filter(is_error).count();
    let detail = format!("{}: {errors} errors", file.display());
    Err(Failure::local(CommandCode::ImageFaulty, detail)
        .hint("apply the fix of each finding; run `gpuaas explain CODE` to see what a code means"))
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
    terminal.message(&format!("wrote the signed statement {}", written.display()));
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
        terminal.message("no problems found");
    }
    for finding in &verdict.findings {
        let ImageFinding { rule, path, .. } = finding;
        terminal.data(&output::fields(&[
            (rule.severity.as_str(), rule.code.to_owned()),
            ("path", path.clone()),
            ("reason", finding.reason()),
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

    use gpuaas_image::lint_benchmark::{FaultPlant, faults};
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
        let fault = faults().find(|fault| fault.code == "fstab_left").unwrap();
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
            ["breaks", "code", "fix", "path", "reason", "severity"]
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
