//! The MAAS tag of a profile's machines, and the kernel's arguments that it carries.
//!
//! A slice host needs arguments of its kernel (docs/hosts.md#slice-hosts) that a stock image does not
//! have. MAAS adds the kernel options of a machine's tags to what it boots, and a deployment takes them
//! into the installed system (docs/maas.md#tags). So the first boot has them already, and the host
//! needs no second one. Whether that came about the host says itself: nothing here trusts it.

use gpuaas_types::codes::{ParkCode, TimelineCode};
use gpuaas_types::spec::SLICE_TAG;

use super::decisions::{park, read};
use super::drive::drive_effect;
use super::preparation::known_machine;
use crate::effect::Effect;
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// Name of the check that the machine has the profile's tag: condition 1 of
/// docs/hosts.md#slice-hosts.
pub const MACHINE_TAG_CHECK: &str = "machine_tag";

/// Name and kernel options of the tag that the machine is to have; none: the profile asks for none.
///
/// # Errors
/// Why the kernel's arguments are not known.
pub fn wanted_tag(s: &Snapshot<'_>) -> Result<Option<(String, String)>, String> {
    let arguments = s.kernel_arguments?;
    let name = match s.profile.machine_tag.as_str() {
        "" if arguments.is_empty() => return Ok(None),
        "" => SLICE_TAG,
        name => name,
    };
    Ok(Some((name.to_owned(), arguments.join(" "))))
}

/// Sees to it that the tag has the kernel options, and the machine the tag.
#[must_use]
pub fn machine_tag(s: &Snapshot<'_>) -> Decision {
    let (name, wanted) = match wanted_tag(s) {
        Err(why) => return park(s, ParkCode::HostChecksUnknown, why),
        Ok(None) => return super::decisions::next(s.now, Vec::new()),
        Ok(Some(tag)) => tag,
    };
    let known = s.run.state.tag.as_ref().filter(|tag| tag.name == name);
    let Some(tag) = known.filter(|tag| tag.asked_at >= s.effort_since()) else {
        return read(s, Read::Tag { name });
    };
    if tag.kernel_opts.as_ref() != Some(&wanted) {
        let effect = written_tag(s, &name, &wanted).unwrap_or_else(|| Effect::WriteTag {
            name: name.clone(),
            kernel_opts: wanted.clone(),
            replaces: tag.kernel_opts.clone(),
        });
        return match drive_effect(s, effect) {
            Err(decision) => decision,
            Ok(intent) if tag.asked_at <= intent.ended_at.unwrap_or(intent.at) => {
                read(s, Read::Tag { name })
            }
            Ok(_) => park(
                s,
                ParkCode::TagNotAsAsked,
                format!("MAAS took the kernel options of tag {name} but shows others"),
            ),
        };
    }
    tag_machine(s, name, &wanted)
}

/// The writing of these kernel options that the run asked for since an operator last let it go on:
/// the same call whatever the tag shows meanwhile.
fn written_tag(s: &Snapshot<'_>, name: &str, wanted: &str) -> Option<Effect> {
    let intent = s.run.state.intent.as_ref()?;
    let ended = intent.ended_at.unwrap_or(intent.at);
    let is_old = s.run.state.resumed_at.is_some_and(|at| at > ended);
    match &intent.effect {
        Effect::WriteTag { name: n, kernel_opts, .. } if n == name && kernel_opts == wanted => {
            (!is_old).then(|| intent.effect.clone())
        }
        _ => None,
    }
}

fn tag_machine(s: &Snapshot<'_>, name: String, kernel_opts: &str) -> Decision {
    let machine = match known_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return decision,
    };
    let read_here = s.observation.is_some_and(|seen| seen.read_at >= s.effort_since());
    if machine.tags.contains(&name) && read_here {
        let evidence = format!("MAAS lists {name} at the machine, kernel options: {kernel_opts}");
        let note = Note::new(TimelineCode::MachineTagged, evidence.clone());
        let checks = vec![s.check(MACHINE_TAG_CHECK, true, evidence)];
        return Decision::Next { at: s.now, notes: vec![note], checks };
    }
    if !read_here {
        return read(s, Read::Machine);
    }
    match drive_effect(s, Effect::TagMachine { name: name.clone() }) {
        Err(decision) => decision,
        Ok(intent) if s.observation.is_none_or(|seen| seen.read_at <= intent.at) => {
            read(s, Read::Machine)
        }
        Ok(_) => park(
            s,
            ParkCode::TagNotAsAsked,
            format!("MAAS took tag {name} for the machine but does not list it there"),
        ),
    }
}
