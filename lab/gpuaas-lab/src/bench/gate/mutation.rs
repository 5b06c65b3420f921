//! What a mutation of a ready host is: changes, the checks that have to be red, and who ends it.

use gpuaas_bundle::Gate;

/// One change of the host. Paths are the host's.
#[derive(Debug)]
pub(super) enum HostChange {
    /// A file or link is gone.
    Remove(&'static str),
    /// A file has this text.
    Write(&'static str, &'static str),
    /// In a file, one text stands for another.
    Replace(&'static str, &'static str, &'static str),
    /// A link points there.
    Link(&'static str, &'static str),
    /// One byte of a file.
    Byte(&'static str, usize, u8),
    /// A file ends so early.
    Cut(&'static str, usize),
    /// The program that plays the host does this.
    Play(&'static [&'static str]),
    /// The bundles run again.
    Bootstrap,
    /// MAAS lists these tags at the machine.
    Tags(&'static [&'static str]),
    /// A file or link is as on the ready host.
    Restore(&'static str),
    /// The agent restarts a unit, as an operator tells it to.
    Restart(&'static str),
}

/// What a person does where a repair does not help.
#[derive(Debug)]
pub(super) struct Otherwise {
    /// Part of what the repair, the gate or the node's problem says.
    pub(super) advice: &'static str,
    /// That, done.
    pub(super) cure: &'static [HostChange],
}

/// A check that has to be red.
#[derive(Debug)]
pub(super) struct ExpectedRed {
    /// Its gate.
    pub(super) gate: Gate,
    /// Its name.
    pub(super) check: &'static str,
    /// Begin of its reason.
    pub(super) reason: &'static str,
    /// Part of what was seen.
    pub(super) seen: &'static str,
}

/// A row.
#[derive(Debug)]
pub(super) struct Mutation {
    /// What happened to the host.
    pub(super) name: &'static str,
    /// How that is done.
    pub(super) changes: &'static [HostChange],
    /// What has to be red, and nothing else.
    pub(super) red: &'static [ExpectedRed],
    /// What a person does about it; none: `repair-drift` restores it.
    pub(super) otherwise: Option<Otherwise>,
}

impl Mutation {
    /// The same, of which a repair alone does not restore everything.
    pub(super) const fn otherwise(self, advice: &'static str, cure: &'static [HostChange]) -> Self {
        Self { otherwise: Some(Otherwise { advice, cure }), ..self }
    }
}

/// Of the agent itself.
pub(super) const AGENT: &str = "agent fault";
/// Of the bundle that the others require.
pub(super) const BASELINE: &str =
    concat!("host baseline incomplete: ", gpuaas_types::built_in_bundle!("h200-ib"));
/// Of the slice host's own bundle.
pub(super) const SETUP: &str =
    concat!("host setup incomplete: ", gpuaas_types::built_in_bundle!("h200-slice-vm"));
/// Of a marker: the slice host asks for it, and it is the baseline's.
pub(super) const MARKER: &str =
    concat!("host baseline incomplete: ", gpuaas_types::built_in_bundle!("h200-slice-vm"));

/// A red check of the gate `active`.
pub(super) const fn active(
    check: &'static str,
    reason: &'static str,
    seen: &'static str,
) -> ExpectedRed {
    ExpectedRed { gate: Gate::Active, check, reason, seen }
}

/// A row of the table.
pub(super) const fn row(
    name: &'static str,
    changes: &'static [HostChange],
    red: &'static [ExpectedRed],
) -> Mutation {
    Mutation { name, changes, red, otherwise: None }
}
