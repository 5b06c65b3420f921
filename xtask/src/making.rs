//! A system for tests, made while something else is built.

use std::process::{Child, Command, Stdio};

use crate::proc;
use crate::setup::{self, Tool};

/// It, on its way.
pub(crate) struct Making {
    what: &'static str,
    child: Option<Child>,
}

impl Making {
    /// Begins where this machine can; its tests skip where there is none.
    pub(crate) fn begin(what: &'static str, tools: &[Tool], make: Result<Command, String>) -> Self {
        if !proc::is_root() {
            return Self { what, child: None };
        }
        let begun = make.and_then(|mut make| {
            setup::have(tools)?;
            make.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            make.spawn().map_err(|error| error.to_string())
        });
        match begun {
            Ok(child) => Self { what, child: Some(child) },
            Err(why) => {
                skipped(what, &why);
                Self { what, child: None }
            }
        }
    }

    /// Waits for it, and says why where there is none.
    pub(crate) fn end(self) {
        let Some(child) = self.child else { return };
        match child.wait_with_output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                skipped(self.what, &proc::tail(&String::from_utf8_lossy(&output.stderr), 3));
            }
            Err(error) => skipped(self.what, &error.to_string()),
        }
    }
}

fn skipped(what: &str, why: &str) {
    eprintln!("note: no {what}; its tests are skipped: {why}");
}
