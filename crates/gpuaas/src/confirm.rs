//! The question before something is taken away.

use std::io::{BufRead as _, IsTerminal as _};

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;

/// Asks for the name of what is taken away, which says more than a yes. `what` is the action, such
/// as `removal`.
///
/// # Errors
/// `not_confirmed` where nobody is there, or another text came.
pub(crate) fn confirm(name: &str, what: &str, terminal: &mut Terminal) -> Result<(), Failure> {
    let refused = |detail: String| {
        Failure::usage(CommandCode::NotConfirmed, detail)
            .hint("check the plan with --dry-run, then repeat with --yes")
    };
    if !std::io::stdin().is_terminal() || !terminal.interactive() {
        return Err(refused(format!("cannot confirm the {what}: no interactive terminal")));
    }
    terminal.message(&format!("Type {name} to confirm:"));
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| refused(error.to_string()))?;
    if line.trim() == name { Ok(()) } else { Err(refused("the typed name does not match".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_away_where_nobody_can_be_asked() {
        let (mut terminal, captured) = Terminal::captured();
        let failure = confirm("j22u11", "removal", &mut terminal).unwrap_err();
        assert_eq!(failure.code(), "not_confirmed");
        assert!(failure.problem.hint.contains("--yes"));
        assert_eq!(captured.stderr(), "");
    }
}
