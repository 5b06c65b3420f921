//! `gpuaas bench mend`: after something went wrong and a person mended it.
//!
//! For every park in the table a simulation makes its fault: in MAAS, on the host, on the way there,
//! or as a person who acts in MAAS; never by writing into the control plane's database. Then a
//! stand-in operator does in MAAS what the park's text says and runs the first of its commands, as
//! `gpuaas run show` prints it, through the executable's own parser and the admin API. The run has to
//! go on from there to its proper end without parking again. Where the table of parks says that the
//! run looks again by itself, the case is made once more, the cause is mended in MAAS, and nobody
//! tells us. All times are of the simulation's clock.

mod act;
mod case;
mod cases;
mod commands;
mod control;
mod report;
mod run_case;

pub use act::{CommandLine, Operators};
pub use case::RecoveryCase;
pub use cases::CASES;
pub use control::{YieldedRun, run_after_yielding};
pub use report::{RecoveryReport, run};
pub use run_case::{RecoveryOutcome, run_case, run_case_by_itself};
