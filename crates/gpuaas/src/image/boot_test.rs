//! `gpuaas image boot-test`: a finished archive as a container, and as a machine.

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_image::boot_test::{BootTestError, BootTestOutcome, BootTestRequest, boot_test};
use gpuaas_image::lineage::BOOT_TEST_PREDICATE;
use gpuaas_types::codes::CommandCode;
use serde_json::Value;

use super::report::json;
use super::statement::write_statement;
use crate::args::ImageBootTestArgs;

/// Boots an archive.
///
/// # Errors
/// [`BootTestError`]; `image_not_bootable` where something was wrong.
pub(super) fn run(args: &ImageBootTestArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let request = BootTestRequest {
        file: args.file.clone(),
        scratch: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
        kernel_arguments: args.kernel_arguments.clone(),
    };
    terminal.message("booting a container and an emulated machine; this takes some minutes");
    let begun = RealClock.now();
    let mut outcome = boot_test(&request).map_err(|error| failure(&error))?;
    outcome.wall_seconds = RealClock.now().seconds_since(begun);
    if args.json {
        terminal.data(&json(&outcome)?)?;
    } else {
        print(&outcome, terminal)?;
    }
    if let Some(key) = &args.sign_key {
        let predicate = statement_of(&outcome);
        let kind = ("boot-test", BOOT_TEST_PREDICATE);
        let written = write_statement(&args.file, kind, key, (&outcome.digest, &predicate))?;
        terminal.message(&format!("wrote the signed statement {}", written.display()));
    }
    if outcome.passed {
        return Ok(());
    }
    let codes: Vec<&str> = outcome.problems.iter().map(|problem| problem.code).collect();
    let detail = format!("{}: {}", args.file.display(), codes.join(", "));
    Err(Failure::local(CommandCode::ImageNotBootable, detail).hint(
        "fix the problems above; run `gpuaas image lint FILE` to find their causes in the archive",
    ))
}

/// What was seen, without the ends of consoles.
fn statement_of(outcome: &BootTestOutcome) -> Value {
    let mut predicate = serde_json::to_value(outcome).unwrap_or_default();
    let codes: Vec<&str> = outcome.problems.iter().map(|problem| problem.code).collect();
    predicate["problems"] = codes.into();
    predicate
}

fn print(outcome: &BootTestOutcome, terminal: &mut Terminal) -> Result<(), Failure> {
    let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
    terminal.data(&output::fields(&[
        ("passed", yes(outcome.passed)),
        ("firmware", outcome.firmware.clone()),
        ("boot entry", outcome.boot_entry.clone()),
        ("kernel", outcome.kernel.clone()),
        ("arguments", outcome.cmdline.clone()),
        ("root", outcome.root_source.clone()),
        ("ESP mounted", yes(outcome.esp_mounted)),
        ("identity new", yes(outcome.machine_id_new)),
        ("failed units", outcome.failed_units.join(" ")),
        (
            "multi-user",
            format!(
                "{:.1} s, {:.1} s in the container",
                outcome.seconds_to_multi_user, outcome.container_seconds_to_multi_user
            ),
        ),
        ("took", format!("{:.0} s", outcome.wall_seconds)),
    ]))?;
    for problem in &outcome.problems {
        terminal.data(&format!("{}: {}", problem.code, problem.detail))?;
    }
    Ok(())
}

fn failure(error: &BootTestError) -> Failure {
    Failure::coded(Exit::Local, error.code(), "The boot test could not run", error.to_string())
        .hint(error.hint())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gpuaas_image::boot_test::check_host;
    use gpuaas_image::lint_benchmark::{FaultPlant, faults};

    use super::*;
    use crate::args::{Cli, Command, ImageCommand, parse};

    fn run_line(line: &str) -> Failure {
        let Cli { command: Command::Image(ImageCommand::BootTest(args)), .. } =
            parse(line.split_whitespace()).unwrap()
        else {
            panic!("{line}")
        };
        let (mut terminal, _) = Terminal::captured();
        run(&args, &mut terminal).unwrap_err()
    }

    /// What is no archive, and an archive with a kernel that nothing could start, are told apart from a
    /// host that cannot test.
    #[test]
    fn what_cannot_be_booted_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image.tgz");
        fs::write(&file, "no archive").unwrap();
        let failure = run_line(&format!("gpuaas image boot-test {}", file.display()));
        if let Err(error) = check_host() {
            assert_eq!(failure.code(), "image_boot_test_impossible_here", "{failure}");
            assert!(!failure.problem.hint.is_empty());
            return test_report::skip("tool", format!("{error}"));
        }
        assert_eq!(failure.code(), "image_boot_test_failed", "{failure}");
        assert!(failure.problem.hint.contains("image lint"), "{failure}");
        let fault = faults().find(|fault| fault.code == "initrd_missing");
        let fault = fault.unwrap();
        assert!(matches!(fault.plant, FaultPlant::Tree(_)));
        fs::write(&file, fault.planted().unwrap().0).unwrap();
        let failure = run_line(&format!("gpuaas image boot-test {}", file.display()));
        assert!(failure.problem.detail.contains("0 kernels"), "{failure}");
        let failure = run_line("gpuaas image boot-test /nowhere.tgz");
        assert!(failure.problem.hint.contains("--scratch"), "{failure}");
    }
}
