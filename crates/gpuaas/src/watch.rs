//! `--watch`: an answer that is asked for again whenever something happens.
//!
//! Level-triggered: an event of the stream only says that it is time to look, and every few seconds
//! it is time anyhow, so what makes no event shows, too, and a stream that breaks delays a change and
//! hides none. On a terminal the answer is drawn over the one before; elsewhere the lines are written
//! that the answer before did not have.

use std::collections::HashSet;
use std::time::Duration;

use gpuaas_client::arguments::{ApiArgs, Format};
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::signals;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_client::{ApiClient, EventStream};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

/// Longest time between two looks.
const REFRESH: Duration = Duration::from_secs(10);
/// Time for what belongs to an event to happen as well.
const SETTLE: Duration = Duration::from_millis(200);

/// What is watched, and how it is shown.
pub(crate) struct Watch<'a> {
    /// The control plane.
    pub(crate) client: &'a ApiClient,
    /// Which events say that it is time to look: parameters of `GET /api/v1/events`.
    pub(crate) events: Vec<(&'static str, Option<String>)>,
    /// How answers are printed.
    pub(crate) format: Format,
    /// Whether to look again; else one look is all.
    pub(crate) again: bool,
}

/// Prints a list, again whenever something happens where that is asked for.
///
/// # Errors
/// What the control plane refuses, or that it does not answer.
pub(crate) async fn print_list<T: Serialize>(
    (client, api): (&ApiClient, &ApiArgs),
    again: bool,
    terminal: &mut Terminal,
    ask: impl AsyncFnMut() -> Result<T, Failure>,
    draw: impl Fn(&T, Style) -> String,
) -> Result<(), Failure> {
    let watch = Watch { client, events: Vec::new(), format: api.format, again };
    watch.run(terminal, ask, draw, |_| false).await
}

impl Watch<'_> {
    /// Shows what `ask` answers whenever it changes, until `is_over` says that it does so no more, or
    /// somebody interrupts, which is how most watching ends and no failure.
    ///
    /// # Errors
    /// What the control plane refuses; that it does not answer is waited out.
    pub(crate) async fn run<T: Serialize>(
        &self,
        terminal: &mut Terminal,
        mut ask: impl AsyncFnMut() -> Result<T, Failure>,
        draw: impl Fn(&T, Style) -> String,
        is_over: impl Fn(&T) -> bool,
    ) -> Result<(), Failure> {
        if !self.again {
            return output::print(terminal, self.format, &ask().await?, draw);
        }
        let interrupted = signals::stop()?;
        tokio::select! {
            outcome = self.follow(terminal, ask, draw, is_over) => outcome,
            () = interrupted => Ok(()),
        }
    }

    async fn follow<T: Serialize>(
        &self,
        terminal: &mut Terminal,
        mut ask: impl AsyncFnMut() -> Result<T, Failure>,
        draw: impl Fn(&T, Style) -> String,
        is_over: impl Fn(&T) -> bool,
    ) -> Result<(), Failure> {
        let mut stream: Option<EventStream> = None;
        let mut shown = Shown::default();
        loop {
            if stream.is_none() {
                stream = self.stream(terminal).await?;
            }
            match ask().await {
                Ok(answer) => {
                    shown.show(terminal, self.format, &answer, &draw)?;
                    if is_over(&answer) {
                        return Ok(());
                    }
                }
                Err(failure) if is_passing(&failure) => {
                    terminal.message(&format!("looking again: {}", failure.problem.detail));
                    stream = None;
                }
                Err(failure) => return Err(failure),
            }
            if !wait(stream.as_mut()).await? {
                stream = None;
            }
        }
    }

    /// The events from now on; none: the control plane does not give them at the moment.
    async fn stream(&self, terminal: &mut Terminal) -> Result<Option<EventStream>, Failure> {
        let filter: Vec<(&str, Option<&str>)> =
            self.events.iter().map(|(name, value)| (*name, value.as_deref())).collect();
        match self.client.follow_events(&filter, None).await {
            Ok(stream) => Ok(Some(stream)),
            Err(failure) if is_passing(&failure) => {
                terminal.message(&format!("no events come: {}", failure.problem.detail));
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Waits until it is time to look. Answers whether the stream goes on.
async fn wait(stream: Option<&mut EventStream>) -> Result<bool, Failure> {
    let Some(stream) = stream else {
        timeout(REFRESH, std::future::pending::<()>()).await.ok();
        return Ok(false);
    };
    match timeout(REFRESH, stream.next()).await {
        Err(_) => return Ok(true),
        Ok(Ok(Some(_))) => {}
        Ok(Ok(None)) => return Ok(false),
        Ok(Err(failure)) if is_passing(&failure) => return Ok(false),
        Ok(Err(failure)) => return Err(failure),
    }
    let settled = Instant::now() + SETTLE;
    while let Ok(next) = timeout_at(settled, stream.next()).await {
        if !matches!(next, Ok(Some(_))) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the same request may well be answered a little later.
pub(crate) fn is_passing(failure: &Failure) -> bool {
    let is_away = failure.exit == Exit::Unreachable && failure.code() != "unexpected_answer";
    is_away || matches!(failure.problem.status, 429 | 502..=504)
}

/// What was written last.
#[derive(Default)]
struct Shown {
    lines: HashSet<String>,
}

impl Shown {
    fn show<T: Serialize>(
        &mut self,
        terminal: &mut Terminal,
        format: Format,
        answer: &T,
        draw: impl Fn(&T, Style) -> String,
    ) -> Result<(), Failure> {
        if matches!(format, Format::Table | Format::Wide) && terminal.style().bounded {
            let text = output::text(terminal.style(), format, answer, draw)?;
            return terminal.redraw(&text);
        }
        // How long ago something was is another text at each look.
        let style = Style { now: None, ..terminal.style() };
        let pieces = output::pieces(style, format, answer, draw)?;
        let same = |piece: &str| piece.split_whitespace().collect::<Vec<_>>().join(" ");
        for piece in &pieces {
            if !self.lines.contains(&same(piece)) {
                terminal.data(piece)?;
            }
        }
        self.lines = pieces.iter().map(|piece| same(piece)).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
