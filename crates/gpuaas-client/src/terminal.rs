//! Where text goes: data on stdout, everything for people on stderr.
//!
//! A reader that closes its end (`gpuaas node list | head`) has seen enough; that is no failure.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex};

use gpuaas_core::elapsed::relative_as_text;
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;

use crate::failure::Failure;
use crate::server_time;
use crate::wrap::{wrap_help, wrap_lines};

/// Where no terminal says how wide it is.
const DEFAULT_WIDTH: usize = 80;
const MIN_WIDTH: usize = 60;

/// How drawings are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// The terminal's width in columns.
    pub width: usize,
    /// Plain ASCII only.
    pub ascii: bool,
    /// Whether tables keep within the width; not where their reader is a pipe or a file.
    pub bounded: bool,
    /// What time it is for the control plane; none: moments are drawn as they are.
    pub now: Option<Timestamp>,
}

impl Style {
    /// The same without a width for tables.
    #[must_use]
    pub const fn unbounded(self) -> Self {
        Self { bounded: false, ..self }
    }

    /// A moment beside others: `3 min ago`.
    #[must_use]
    pub fn moment(self, at: Timestamp) -> String {
        self.now.map_or_else(|| whole_second(at), |now| relative_as_text(at, now))
    }

    /// A moment that may be looked for in a log: `3 min ago, 2026-11-20T16:00:01Z`.
    #[must_use]
    pub fn exact_moment(self, at: Timestamp) -> String {
        let exact = whole_second(at);
        self.now
            .map_or_else(|| exact.clone(), |now| format!("{}, {exact}", relative_as_text(at, now)))
    }
}

/// RFC 3339 without the fraction, which people do not read.
fn whole_second(at: Timestamp) -> String {
    at.to_chrono().format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Default for Style {
    fn default() -> Self {
        Self { width: DEFAULT_WIDTH, ascii: false, bounded: true, now: None }
    }
}

/// The two outputs of a command.
pub struct Terminal {
    data: Box<dyn Write + Send>,
    people: Box<dyn Write + Send>,
    interactive: bool,
    style: Style,
    now: fn() -> Option<Timestamp>,
}

impl Terminal {
    /// The process's own stdout and stderr.
    #[must_use]
    pub fn standard(ascii: bool) -> Self {
        let interactive = io::stderr().is_terminal();
        let bounded = io::stdout().is_terminal();
        let shown = if bounded { console::Term::stdout() } else { console::Term::stderr() };
        let width = shown
            .size_checked()
            .filter(|_| interactive || bounded)
            .map_or(DEFAULT_WIDTH, |(_, columns)| usize::from(columns).max(MIN_WIDTH));
        Self {
            data: Box::new(io::stdout()),
            people: Box::new(io::stderr()),
            interactive,
            style: Style { width, ascii, bounded, now: None },
            now: server_time::last,
        }
    }

    /// Outputs that are kept in memory.
    #[must_use]
    pub fn captured() -> (Self, Captured) {
        let captured = Captured::default();
        let terminal = Self {
            data: Box::new(captured.data.clone()),
            people: Box::new(captured.people.clone()),
            interactive: false,
            style: Style { width: DEFAULT_WIDTH, ascii: true, bounded: false, now: None },
            now: || None,
        };
        (terminal, captured)
    }

    /// How to draw.
    #[must_use]
    pub fn style(&self) -> Style {
        Style { now: (self.now)(), ..self.style }
    }

    /// Whether somebody watches stderr, so that lines may be redrawn.
    #[must_use]
    pub const fn interactive(&self) -> bool {
        self.interactive
    }

    /// Writes data and a line end to stdout.
    ///
    /// # Errors
    /// `stdout_unwritable`, unless the reader merely closed its end.
    pub fn data(&mut self, text: &str) -> Result<(), Failure> {
        let written =
            writeln!(self.data, "{}", text.trim_end_matches('\n')).and_then(|()| self.data.flush());
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::local(CommandCode::StdoutUnwritable, error.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Draws data over what was drawn before, as far as the terminal is high.
    ///
    /// # Errors
    /// See [`Terminal::data`].
    pub fn redraw(&mut self, text: &str) -> Result<(), Failure> {
        let rows = console::Term::stdout().size_checked().map_or(24, |(rows, _)| rows);
        self.data(&screen(text, usize::from(rows)))
    }

    /// Writes help to stdout, wrapped where that is a terminal.
    ///
    /// # Errors
    /// See [`Terminal::data`].
    pub fn help(&mut self, text: &str) -> Result<(), Failure> {
        match self.style.bounded {
            true => self.data(&wrap_help(text, self.style.width)),
            false => self.data(text),
        }
    }

    /// Writes a line for people to stderr. Losing it is no failure.
    pub fn message(&mut self, text: &str) {
        let text = text.trim_end_matches('\n');
        let wrapped = self.interactive.then(|| wrap_lines(text, self.style.width));
        writeln!(self.people, "{}", wrapped.as_deref().unwrap_or(text))
            .and_then(|()| self.people.flush())
            .ok();
    }
}

/// A screen of so many rows with the first lines of `text`, from the top; how many more there are is
/// its last line. Lines are cleared behind their end, and what is below them, so nothing flickers.
fn screen(text: &str, rows: usize) -> String {
    const HOME: &str = "\u{1b}[H";
    const CLEAR_LINE: &str = "\u{1b}[K";
    const CLEAR_BELOW: &str = "\u{1b}[J";
    let lines: Vec<&str> = text.trim_end_matches('\n').lines().collect();
    // The last row stays free for the cursor.
    let room = rows.saturating_sub(1).max(2);
    let shown = if lines.len() > room { room - 1 } else { lines.len() };
    let mut drawn = HOME.to_owned();
    for line in lines.iter().take(shown) {
        drawn.push_str(line);
        drawn.push_str(CLEAR_LINE);
        drawn.push('\n');
    }
    if lines.len() > shown {
        drawn.push_str(&format!("and {} more lines{CLEAR_LINE}\n", lines.len() - shown));
    }
    drawn + CLEAR_BELOW
}

/// What a [`Terminal::captured`] was given.
#[derive(Debug, Clone, Default)]
pub struct Captured {
    data: Buffer,
    people: Buffer,
}

impl Captured {
    /// Everything written to stdout.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.data.text()
    }

    /// Everything written to stderr.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.people.text()
    }
}

#[derive(Debug, Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        let bytes = self.0.lock().map(|bytes| bytes.clone()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut buffer = self.0.lock().map_err(|_| io::Error::other("a writer panicked"))?;
        buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_no_more_lines_than_rows() {
        let visible = |text: &str, rows| {
            let drawn = screen(text, rows);
            assert!(drawn.starts_with("\u{1b}[H") && drawn.ends_with("\u{1b}[J"));
            drawn.replace("\u{1b}[H", "").replace("\u{1b}[K", "").replace("\u{1b}[J", "")
        };
        assert_eq!(visible("a\nb\n", 24), "a\nb\n");
        assert_eq!(visible("a\nb\nc\nd\n", 4), "a\nb\nand 2 more lines\n");
        assert_eq!(visible("a\nb\nc\n", 4), "a\nb\nc\n");
        assert_eq!(visible("a\nb\nc\n", 0), "a\nand 2 more lines\n");
    }
}
