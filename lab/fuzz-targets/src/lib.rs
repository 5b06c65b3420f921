//! What the parsers of foreign bytes have to hold to, whatever they are given.
//!
//! A target is a function of bytes: it reads them as its parser does, and asserts what has to be true
//! of any input, such as that what was read and is written reads back as the same, that no secret gets
//! into a text, and that nothing counts which nobody signed. A panic is a finding.
//!
//! The targets know no fuzzer. `cargo fuzz` calls them from `lab/fuzz`, outside of the workspace, with the
//! inputs that its instrumentation invents; the tests of this crate call them with the corpus,
//! `lab/fuzz/corpus/TARGET/*`, and with what a seed makes of it, so that every change replays what was once
//! found. CONTRIBUTING.md has the commands.

mod cloud_init;
mod filter;
mod maas_answers;
mod manifest;
mod round_trip;
mod signature;
mod sse;
mod token;

pub use cloud_init::cloud_init;
pub use filter::filter;
pub use maas_answers::maas_answers;
pub use manifest::manifest;
pub use signature::signature;
pub use sse::sse;
pub use token::token;

/// A target, and the folder of its corpus.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Name of the target: its binary in `lab/fuzz`, its folder in `lab/fuzz/corpus`.
    pub name: &'static str,
    /// Judges one input; panics where it finds something.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "token", run: token },
    FuzzTarget { name: "signature", run: signature },
    FuzzTarget { name: "manifest", run: manifest },
    FuzzTarget { name: "maas_answers", run: maas_answers },
    FuzzTarget { name: "cloud_init", run: cloud_init },
    FuzzTarget { name: "sse", run: sse },
    FuzzTarget { name: "filter", run: filter },
];
