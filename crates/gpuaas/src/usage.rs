//! A command line that is wrong, answered like every other failure: a code, what is wrong, what to do.

use std::process::ExitCode;

use clap::error::ErrorKind;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;

/// Prints help and versions on stdout, a mistake on stderr, and says how the process ends.
pub(crate) fn report(error: &clap::Error, terminal: &mut Terminal) -> ExitCode {
    let text = error.render().to_string();
    if !error.use_stderr() {
        // Whoever closed stdout has read enough.
        terminal.help(&text).ok();
        return ExitCode::SUCCESS;
    }
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => terminal.message(&text),
        _ => terminal.message(&failure(&text).to_string()),
    }
    ExitCode::from(Exit::Usage as u8)
}

/// The parser's text in parts: what is wrong, and as the next step its tips and the right form.
fn failure(text: &str) -> Failure {
    let (mut wrong, mut next) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            next.push(tip.to_owned());
        } else if let Some(form) = line.strip_prefix("Usage: ") {
            next.push(format!("use {form}"));
        } else if line.starts_with("For more information") {
            next.push("add `--help` to the command for details".to_owned());
        } else {
            wrong.push(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    Failure::usage(CommandCode::CommandLineInvalid, wrong.join(" ")).hint(next.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser as _;

    fn refusal(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        failure(&error.render().to_string()).to_string()
    }

    #[test]
    fn a_wrong_command_line_has_a_code_and_a_next_step() {
        let option = refusal("gpuaas node list --stat active");
        assert!(option.starts_with("error command_line_invalid: "), "{option}");
        assert!(option.contains("'--stat'") && option.contains("hint: "), "{option}");
        assert!(option.contains("--state"), "a similar one is named: {option}");
        let value = refusal("gpuaas node list --state activ");
        assert!(value.contains("active") && value.contains("--help"), "{value}");
        assert!(!value.contains('\u{1b}'), "{value:?}");
        let missing = refusal("gpuaas run resume");
        assert!(missing.contains("--reason") && missing.contains("use gpuaas run"), "{missing}");
    }
}
