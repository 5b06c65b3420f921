//! How an effect is carried from its intent to a known outcome.
//!
//! An intent whose outcome nobody knows is *probed*: what the effect would show in is read, and
//! compared with what was asked. See [`crate::effect`] for why it is never just repeated.
//!
//! "It did not happen" needs proof: MAAS refused the call, or it never left, or it was given up so long
//! ago that neither the region nor a proxy can still carry it out ([`Intent::doubt_seconds`]), and a
//! read after that shows no trace of it. "It happened" is proven by one read that shows it; also by one
//! after a refusal, where an earlier try of the same call had no answer: MAAS refuses what it has done
//! already.

use gpuaas_types::Timestamp;
use gpuaas_types::api::Owner;
use gpuaas_types::codes::{ParkCode, WaitCode};

use super::decisions::{advised, park, read, region_wait, wait, wait_for_region};
use crate::effect::{Effect, Intent, Outcome, Probe, ProbeTarget};
use crate::snapshot::{Decision, Read, Snapshot};

/// Tries of one effect in one visit of a step before the run parks.
const MAX_TRIES: u32 = 4;
/// Seconds after which a call that never left is tried again, unless the region comes back before.
const UNSENT_SECONDS: f64 = 5.0;
/// Seconds between two reads while an unknown outcome is open, at first and at most. Later ones are
/// further apart: a region that does not answer has enough to do.
const PROBE_SECONDS: f64 = 5.0;
const LONGEST_PROBE_SECONDS: f64 = 30.0;

/// Carries `effect` from intent to a known outcome.
///
/// `Ok(intent)` once MAAS took it; otherwise the decision that brings it closer. Callers check
/// their goal first, so an effect whose result is already there is never asked for.
pub(crate) fn drive_effect<'a>(s: &Snapshot<'a>, effect: Effect) -> Result<&'a Intent, Decision> {
    let Some(intent) = s.run.state.intent.as_ref().filter(|i| i.effect == effect) else {
        return Err(Decision::Do(effect));
    };
    match &intent.outcome {
        Some(Outcome::Accepted) if was_undone(s, intent) => Err(Decision::Do(effect)),
        Some(Outcome::Accepted) => Ok(intent),
        Some(Outcome::NotSent { code, text }) => Err(retry_unsent(s, intent, effect, code, text)),
        Some(Outcome::Rejected { text, conflict, code }) => {
            Err(after_rejection(s, intent, effect, code, text, *conflict))
        }
        None | Some(Outcome::Unknown { .. }) => Err(probe_intent(s, intent)),
    }
}

/// Whether a setting that MAAS took does not show although an operator had the run look again since:
/// somebody took it back meanwhile, and the run is to go on from what is there.
fn was_undone(s: &Snapshot<'_>, intent: &Intent) -> bool {
    let ended = intent.ended_at.unwrap_or(intent.at);
    intent.effect.is_setting() && s.run.state.resumed_at.is_some_and(|at| at > ended)
}

/// Tries again what never left or was refused for its moment, with growing pauses. What never left
/// is no try, and waits for the region as long as that takes.
fn retry_unsent(
    s: &Snapshot<'_>,
    intent: &Intent,
    effect: Effect,
    code: &str,
    text: &str,
) -> Decision {
    let ended = intent.ended_at.unwrap_or(intent.at);
    let since = s.now.seconds_since(ended);
    let name = effect.kind();
    if intent.never_left() {
        if s.answers_since(ended) || since >= UNSENT_SECONDS {
            return Decision::Do(effect);
        }
        let text = format!("{name} not sent: {text}");
        let left = UNSENT_SECONDS - since;
        return match region_wait(code) {
            Some(code) => wait_for_region(s, code, text, left),
            None => wait(s, WaitCode::MaasUnavailable, text, left),
        };
    }
    if intent.number >= MAX_TRIES {
        return never_took_effect(s, intent);
    }
    let pause = f64::from(2u32.saturating_pow(intent.number)) * 2.0;
    if since < pause {
        let text = format!("{name} failed and will be retried: {text}");
        return wait(s, WaitCode::MaasUnavailable, text, pause - since);
    }
    Decision::Do(effect)
}

/// MAAS refused: reads what may explain it, tries a conflict again, parks otherwise.
fn after_rejection(
    s: &Snapshot<'_>,
    intent: &Intent,
    effect: Effect,
    code: &str,
    text: &str,
    conflict: bool,
) -> Decision {
    let ended = intent.ended_at.unwrap_or(intent.at);
    let reread = last_read_at(s, &effect).is_some_and(|at| at > ended);
    let doubtful = intent.may_have_been_done_before();
    if !reread && (doubtful || effect.probe_target() != ProbeTarget::Candidates) {
        return read(s, read_that_shows(&effect));
    }
    if doubtful {
        if took_effect(s, intent) || is_in_requested_state(s, &effect) {
            return Decision::Settle { happened: true };
        }
        if s.run.state.resumed_at.is_some_and(|at| at > ended) {
            return Decision::Do(effect);
        }
    }
    if conflict && intent.number < MAX_TRIES {
        return retry_unsent(s, intent, effect, code, text);
    }
    let code = ParkCode::from_code(code).unwrap_or(ParkCode::MaasRefused);
    let what = match code {
        ParkCode::EffectNotPrepared => format!("cannot prepare {}", effect.kind()),
        _ => format!("MAAS refused {}", effect.kind()),
    };
    park(s, code, format!("{what}: {text}"))
}

/// What to read to find out what became of an effect.
fn read_that_shows(effect: &Effect) -> Read {
    if let Effect::WriteTag { name, .. } = effect {
        return Read::Tag { name: name.clone() };
    }
    match effect.probe_target() {
        ProbeTarget::Candidates => Read::FindMachine,
        ProbeTarget::Scripts => Read::RegionScripts,
        ProbeTarget::Machine | ProbeTarget::Tag => Read::Machine,
    }
}

/// When that was last read from MAAS.
fn last_read_at(s: &Snapshot<'_>, effect: &Effect) -> Option<Timestamp> {
    let state = &s.run.state;
    match effect.probe_target() {
        ProbeTarget::Candidates => state.found.as_ref().map(|found| found.asked_at),
        ProbeTarget::Scripts => state.region_scripts.as_ref().map(|region| region.asked_at),
        ProbeTarget::Tag => match effect {
            Effect::WriteTag { name, .. } => state.tag_of_name(name).map(|tag| tag.asked_at),
            _ => None,
        },
        ProbeTarget::Machine => s.observation.map(|o| o.read_at),
    }
}

/// Whether the latest read shows the effect.
fn took_effect(s: &Snapshot<'_>, intent: &Intent) -> bool {
    match &intent.effect {
        Effect::CreateMachine => {
            s.run.state.found.as_ref().is_some_and(|found| !found.candidates.is_empty())
        }
        Effect::RegisterScript { name, digest, .. } => {
            let region = s.run.state.region_scripts.as_ref();
            region.is_some_and(|region| region.digests.get(name) == Some(digest))
        }
        Effect::WriteTag { name, kernel_opts, .. } => {
            let tag = s.run.state.tag_of_name(name);
            tag.is_some_and(|tag| tag.kernel_opts.as_ref() == Some(kernel_opts))
        }
        effect => s.observation.is_some_and(|o| {
            effect.probe(intent.before, o) == Probe::Happened && !is_of_another_owner(s, effect)
        }),
    }
}

/// Whether the machine is where the effect brings it, and nobody else's.
fn is_in_requested_state(s: &Snapshot<'_>, effect: &Effect) -> bool {
    let seen = s.observation.filter(|_| effect.probe_target() == ProbeTarget::Machine);
    let machine = seen.and_then(|seen| Some((seen.machine.as_ref()?, seen)));
    machine.is_some_and(|(machine, seen)| effect.is_shown_by(machine, seen))
        && !is_of_another_owner(s, effect)
}

/// Whether what the machine shows is another user's: who deploys or commissions a machine owns it.
fn is_of_another_owner(s: &Snapshot<'_>, effect: &Effect) -> bool {
    let machine = s.observation.and_then(|seen| seen.machine.as_ref());
    let owner = machine.and_then(|machine| machine.owner.as_deref());
    let other = |owner| !s.maas_user.is_empty() && owner != s.maas_user;
    effect.takes_machine() && owner.is_some_and(other)
}

/// What to do about a BMC that MAAS cannot reach.
const BMC_ADVICE: &str = "check that the BMC answers and that MAAS has the right address, user and \
                          password, then `gpuaas run retry RUN --reason WHY`";

/// Whether MAAS' text says that the machine's BMC is the cause.
fn names_bmc(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["bmc", "power"].iter().any(|word| text.contains(word))
}

fn never_took_effect(s: &Snapshot<'_>, intent: &Intent) -> Decision {
    let kind = intent.effect.kind();
    let code = ParkCode::UnknownOutcomeUnresolved;
    let tried = format!("{kind} was attempted {MAX_TRIES} times and never took effect");
    match intent.given_up.as_ref().map(|given_up| given_up.text.as_str()) {
        Some(text) if names_bmc(text) => {
            let text = format!("MAAS cannot reach the machine's BMC: {text}; {tried}");
            advised(park(s, code, text), Owner::InfraOperator, BMC_ADVICE.to_owned())
        }
        Some(text) => park(s, code, format!("{tried}: {text}")),
        None => park(s, code, tried),
    }
}

/// What brings an intent of unknown outcome closer to a known one.
pub(crate) fn probe_intent(s: &Snapshot<'_>, intent: &Intent) -> Decision {
    let known_at = intent.given_up_at();
    let Some(asked_at) = last_read_at(s, &intent.effect).filter(|at| *at > known_at) else {
        return read(s, read_that_shows(&intent.effect));
    };
    if took_effect(s, intent) {
        return Decision::Settle { happened: true };
    }
    if asked_at.seconds_since(known_at) >= intent.doubt_seconds() {
        if intent.number >= MAX_TRIES {
            return never_took_effect(s, intent);
        }
        return Decision::Settle { happened: false };
    }
    let since = s.now.seconds_since(asked_at);
    let age = asked_at.seconds_since(known_at);
    let pause = (age / 4.0).clamp(PROBE_SECONDS, LONGEST_PROBE_SECONDS);
    if since < pause {
        let until = known_at.plus_seconds(intent.doubt_seconds());
        let text = format!(
            "MAAS to show whether it carried out {}: the call got no answer and may still take \
             effect until {until}",
            intent.effect.kind()
        );
        return wait_for_region(s, WaitCode::UnknownOutcome, text, pause - since);
    }
    read(s, read_that_shows(&intent.effect))
}
