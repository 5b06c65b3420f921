//! Changes that show their plan before they are made.

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use serde::Serialize;

use crate::args::{Format, PlannedArgs};
use crate::confirm::confirm;

/// How a plan is shown, and what is asked about it.
pub(crate) struct Planned<P> {
    /// What the change is called, such as `removal`.
    pub(crate) what: &'static str,
    /// Name of what it changes, which an operator types to go on.
    pub(crate) name: fn(&P) -> &str,
    /// The plan, as the question shows it.
    pub(crate) question: fn(&P, Style) -> String,
    /// The plan, and what became of it.
    pub(crate) draw: fn(&P, Style) -> String,
}

impl<P: Serialize> Planned<P> {
    /// Asks for the plan, shows it, lets the operator confirm it, and has it carried out. Answers
    /// what became of it; none: it was only shown. `ask` is told whether it is a dry run.
    ///
    /// # Errors
    /// Those of `ask`; `not_confirmed`.
    pub(crate) async fn carry_out(
        &self,
        args: &PlannedArgs,
        format: Format,
        terminal: &mut Terminal,
        ask: impl AsyncFn(bool) -> Result<P, Failure>,
    ) -> Result<Option<P>, Failure> {
        let plan = ask(true).await?;
        if args.dry_run {
            output::print(terminal, format, &plan, self.draw)?;
            return Ok(None);
        }
        terminal.message(&(self.question)(&plan, terminal.style()));
        if !args.yes {
            confirm((self.name)(&plan), self.what, terminal)?;
        }
        ask(false).await.map(Some)
    }
}
