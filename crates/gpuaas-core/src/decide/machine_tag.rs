//! The MAAS tags of a machine: the one that carries its kernel's arguments, and the profile's own.
//!
//! A slice host needs arguments of its kernel (docs/hosts.md#slice-hosts) that a stock image does not
//! have. MAAS adds the kernel options of a machine's tags to what it boots, and a deployment takes them
//! into the installed system (docs/maas.md#tags). So the first boot has them already, and the host
//! needs no second one. The host itself reports whether they are in effect: nothing here trusts it.
//!
//! MAAS reads a tag when the machine boots, which may be hours after the tag was written. A tag that
//! several profiles share would then carry the arguments of the last one. So the tag is named by the
//! digest of its arguments ([ADR 0052](../../../../docs/adr/0052-kernel-tags.md)): its content never
//! changes, and two profiles with the same arguments may share it. A machine has one such tag at most;
//! it loses the others before its deployment, and the last one when it leaves.

use gpuaas_types::codes::{ParkCode, TimelineCode};
use gpuaas_types::machine::MachineView;
use gpuaas_types::spec::{KERNEL_TAG_PREFIX, SLICE_TAG};
use gpuaas_types::{EffectKind, Step};
use sha2::{Digest as _, Sha256};

use super::decisions::{advance_to, next, park, read};
use super::drive::drive_effect;
use super::preparation::known_machine;
use crate::effect::Effect;
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// Name of the check that the machine has the tag of its kernel's arguments: condition 1 of
/// docs/hosts.md#slice-hosts.
pub const MACHINE_TAG_CHECK: &str = "machine_tag";
/// Hexadecimal digits of the digest in a tag's name.
const DIGEST_DIGITS: usize = 16;

/// A tag that the machine is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTag {
    /// Its name.
    pub name: String,
    /// Its kernel options.
    pub kernel_opts: String,
}

/// Name of the tag that carries these kernel arguments.
///
/// ```
/// use gpuaas_core::decide::machine_tag::kernel_tag;
///
/// let name = kernel_tag("intel_iommu=on iommu=pt");
/// assert_eq!(name, kernel_tag("intel_iommu=on iommu=pt"));
/// assert_ne!(name, kernel_tag("iommu=pt intel_iommu=on"));
/// assert!(name.starts_with("gpuaas-kernel-"));
/// ```
#[must_use]
pub fn kernel_tag(arguments: &str) -> String {
    let digest = Sha256::digest(arguments.as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{KERNEL_TAG_PREFIX}{}", &digits[..DIGEST_DIGITS])
}

/// The tags that the machine is to have: the profile's own, then the one of its kernel's arguments.
///
/// # Errors
/// Why the kernel's arguments are not known.
pub fn wanted_tags(s: &Snapshot<'_>) -> Result<Vec<WantedTag>, String> {
    let arguments = s.kernel_arguments?.join(" ");
    let own = WantedTag { name: s.profile.machine_tag.clone(), kernel_opts: String::new() };
    let kernel = WantedTag { name: kernel_tag(&arguments), kernel_opts: arguments };
    let mut tags = Vec::new();
    if !own.name.is_empty() {
        tags.push(own);
    }
    if !kernel.kernel_opts.is_empty() {
        tags.push(kernel);
    }
    Ok(tags)
}

/// Tags of the machine with kernel arguments that it is not to have: of another set of arguments, or
/// the one that slice profiles shared earlier.
fn stale_tags<'a>(
    machine: &'a MachineView,
    wanted: &'a [WantedTag],
) -> impl Iterator<Item = &'a String> {
    machine.tags.iter().filter(|tag| {
        let carries_arguments = tag.starts_with(KERNEL_TAG_PREFIX) || *tag == SLICE_TAG;
        carries_arguments && !wanted.iter().any(|one| one.name == **tag)
    })
}

/// Makes the tags and gives them to the machine, and removes those of other kernel arguments.
#[must_use]
pub fn machine_tag(s: &Snapshot<'_>) -> Decision {
    let wanted = match wanted_tags(s) {
        Ok(wanted) => wanted,
        Err(why) => return park(s, ParkCode::HostChecksUnknown, why),
    };
    let unwritten = wanted.iter().find_map(|tag| write_tag(s, tag));
    unwritten.unwrap_or_else(|| tag_machine(s, &wanted))
}

/// Writes the tag where MAAS does not have it with these kernel options; none: it does.
fn write_tag(s: &Snapshot<'_>, wanted: &WantedTag) -> Option<Decision> {
    let WantedTag { name, kernel_opts } = wanted;
    let read_tag = || Some(read(s, Read::Tag { name: name.clone() }));
    let known = s.run.state.tag_of_name(name);
    let Some(tag) = known.filter(|tag| tag.asked_at >= s.effort_since()) else {
        return read_tag();
    };
    if tag.kernel_opts.as_ref() == Some(kernel_opts) {
        return None;
    }
    let effect = written_tag(s, wanted).unwrap_or_else(|| Effect::WriteTag {
        name: name.clone(),
        kernel_opts: kernel_opts.clone(),
        replaces: tag.kernel_opts.clone(),
    });
    match drive_effect(s, effect) {
        Err(decision) => Some(decision),
        Ok(intent) if tag.asked_at <= intent.ended_at.unwrap_or(intent.at) => read_tag(),
        Ok(_) => Some(park(
            s,
            ParkCode::TagNotAsAsked,
            format!("MAAS accepted the kernel options of tag {name} but shows different ones"),
        )),
    }
}

/// The writing of these kernel options that the run asked for since an operator last let it go on:
/// the same call whatever the tag shows meanwhile.
fn written_tag(s: &Snapshot<'_>, wanted: &WantedTag) -> Option<Effect> {
    let intent = s.run.state.intent.as_ref()?;
    let ended = intent.ended_at.unwrap_or(intent.at);
    let is_old = s.run.state.resumed_at.is_some_and(|at| at > ended);
    match &intent.effect {
        Effect::WriteTag { name, kernel_opts, .. }
            if *name == wanted.name && *kernel_opts == wanted.kernel_opts =>
        {
            (!is_old).then(|| intent.effect.clone())
        }
        _ => None,
    }
}

fn tag_machine(s: &Snapshot<'_>, wanted: &[WantedTag]) -> Decision {
    let machine = match known_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return decision,
    };
    if wanted.is_empty() && stale_tags(machine, wanted).next().is_none() {
        let removed = s.run.state.intended_at.get(&EffectKind::UntagMachine);
        let text = "the machine no longer has a tag with kernel arguments in MAAS";
        let note = Note::new(TimelineCode::KernelTagRemoved, text);
        let is_news = removed.is_some_and(|at| *at >= s.run.step_since);
        return next(s.now, is_news.then_some(note).into_iter().collect());
    }
    if s.observation.is_none_or(|seen| seen.read_at < s.effort_since()) {
        return read(s, Read::Machine);
    }
    if let Some(missing) = wanted.iter().find(|tag| !machine.tags.contains(&tag.name)) {
        let effect = Effect::TagMachine { name: missing.name.clone() };
        let unseen =
            format!("MAAS accepted tag {} for the machine but does not list it", missing.name);
        return change_tags(s, effect, unseen);
    }
    if let Some(decision) = remove_tags(s, machine, wanted) {
        return decision;
    }
    let names: Vec<&str> = wanted.iter().map(|tag| tag.name.as_str()).collect();
    let arguments = wanted.iter().map(|tag| tag.kernel_opts.as_str()).find(|opts| !opts.is_empty());
    let evidence = format!(
        "the machine has tag {} in MAAS, kernel options: {}",
        names.join(" and "),
        arguments.unwrap_or("none")
    );
    let note = Note::new(TimelineCode::MachineTagged, evidence.clone());
    let checks = vec![s.check(MACHINE_TAG_CHECK, true, evidence)];
    Decision::Next { at: s.now, notes: vec![note], checks }
}

/// Removes a tag with kernel arguments that the machine is not to have; none: it has none.
fn remove_tags(s: &Snapshot<'_>, machine: &MachineView, wanted: &[WantedTag]) -> Option<Decision> {
    let stale = stale_tags(machine, wanted).next()?;
    let unseen =
        format!("MAAS accepted the removal of tag {stale} from the machine but still lists it");
    Some(change_tags(s, Effect::UntagMachine { name: stale.clone() }, unseen))
}

/// Carries out the change of the machine's tags and reads the machine after it; parks with `unseen`
/// where that does not show it.
fn change_tags(s: &Snapshot<'_>, effect: Effect, unseen: String) -> Decision {
    match drive_effect(s, effect) {
        Err(decision) => decision,
        Ok(intent) if s.observation.is_none_or(|seen| seen.read_at <= intent.at) => {
            read(s, Read::Machine)
        }
        Ok(_) => park(s, ParkCode::TagNotAsAsked, unseen),
    }
}

/// Removes every tag with kernel arguments from a machine that leaves; none: it has none.
pub(super) fn untag_leaving(s: &Snapshot<'_>, machine: &MachineView) -> Option<Decision> {
    remove_tags(s, machine, &[])
}

/// Goes back to the tags where the machine is not tagged as it is to be deployed. Hours may pass between
/// the tags and the deployment: a person may have changed them, the run may have got another revision
/// of its profile, or an earlier version of this program may have given it the shared tag.
pub(super) fn tag_again(s: &Snapshot<'_>) -> Option<Decision> {
    let machine = s.observation?.machine.as_ref()?;
    let wanted = wanted_tags(s).ok()?;
    let lost = wanted.iter().map(|tag| &tag.name).find(|name| !machine.tags.contains(name));
    let text = match (lost, stale_tags(machine, &wanted).next()) {
        (Some(name), _) => format!("the machine lost tag {name} in MAAS: adding it again"),
        (None, Some(name)) => {
            format!("the machine has the unwanted tag {name} in MAAS: removing it")
        }
        (None, None) => return None,
    };
    let note = Note::new(TimelineCode::MachineTaggedAgain, text);
    Some(advance_to(Step::MachineTag, s.now, vec![note]))
}

/// Whether this run gave the machine a tag, which a run that ends early removes.
pub(super) fn was_given(s: &Snapshot<'_>) -> bool {
    let machine = s.observation.and_then(|seen| seen.machine.as_ref());
    s.run.state.intended_at.contains_key(&EffectKind::TagMachine)
        && machine.is_some_and(|machine| stale_tags(machine, &[]).next().is_some())
}
