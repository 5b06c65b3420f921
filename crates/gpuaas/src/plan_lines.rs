//! Lines that plans for people have in common.

use std::fmt::Write as _;

use gpuaas_types::api::PlannedStep;

/// Adds a line for each thing that is lost.
pub(crate) fn write_losses(text: &mut String, destroys: &[String]) {
    write_named(text, "destroys", destroys.iter());
}

/// Adds a line for each step, with what it changes in MAAS.
pub(crate) fn write_steps(text: &mut String, steps: &[PlannedStep]) {
    let line = |step: &PlannedStep| {
        let calls: Vec<&str> = step.maas_calls.iter().map(|call| call.as_str()).collect();
        if calls.is_empty() {
            step.step.to_string()
        } else {
            format!("{}  MAAS: {}", step.step, calls.join(", "))
        }
    };
    write_named(text, "steps", steps.iter().map(line));
}

/// Adds lines, the first of which has the name before it.
fn write_named(text: &mut String, name: &str, lines: impl Iterator<Item = impl std::fmt::Display>) {
    for (index, line) in lines.enumerate() {
        // Writing to a String cannot fail.
        writeln!(text, "{:<9} {line}", if index == 0 { name } else { "" }).ok();
    }
}
