//! Effects: one call each, and an outcome that is never guessed.

use gpuaas_artifact::render_user_data;
use gpuaas_core::effect::{Effect, Intent, MAAS_SERVER_ERROR, Outcome};
use gpuaas_core::run_state::{MachineSearch, PowerFacts};
use gpuaas_store::{ExposeSecret as _, NewToken, TokenPurpose};
use gpuaas_types::codes::ParkCode;
use gpuaas_types::{Timestamp, TokenId};
use maas_client::{AuthCause, Client, Error as MaasError, RefusalKind, UnknownCause};

use crate::node::inputs::{NodeTokens, bootstrap_inputs};
use crate::node::maas_view::{disk_view, machine_view, nic_view};
use crate::node::machine_search::candidate;
use crate::node::scripts;
use crate::node::tokens;
use crate::run::lease::Lease;
use crate::run::maas_request::{MaasAnswer, MaasRequest, Prepared};
use crate::run::session::RunSession;
use crate::shared::Shared;
use crate::site::{CallError, Site};

/// Gets ready for `effect`.
///
/// # Errors
/// A sentence when it cannot be: no call is made then.
pub(crate) async fn prepare_effect(
    shared: &Shared,
    session: &mut RunSession,
    effect: &Effect,
) -> Result<Prepared, String> {
    match effect {
        Effect::CreateMachine => {
            let password = shared.store.bmc_password(session.node.id).await;
            let password = password.map_err(|e| e.to_string())?;
            Ok(Prepared::Bmc(password.map(|secret| secret.expose_secret().to_owned())))
        }
        Effect::RegisterScript { name, .. } => {
            let scripts = session.context.bundles.commissioning.as_ref().map_err(Clone::clone)?;
            let reference = &session.profile().commissioning_bundle_ref;
            let script = scripts.iter().find(|script| script.script.name == *name);
            let script =
                script.ok_or_else(|| format!("bundle {reference} has no script {name}"))?;
            Ok(Prepared::Script(Box::new(scripts::maas_script(script, session.run.id))))
        }
        Effect::Deploy { .. } => {
            let bootstrap = tokens::generate_token("gpb").map_err(|e| e.to_string())?;
            let enrollment = tokens::generate_token("gpe").map_err(|e| e.to_string())?;
            let both = NodeTokens { bootstrap: bootstrap.clone(), enrollment: enrollment.clone() };
            let inputs = bootstrap_inputs(shared, session, both).await?;
            let user_data = render_user_data(&inputs).map_err(|e| e.to_string())?;
            let now = shared.clock.now();
            let token = |secret: &str, purpose, single_use| NewToken {
                id: TokenId::new(&*shared.ids, now),
                hash: gpuaas_store::sha256(secret),
                purpose,
                node_id: Some(session.node.id),
                run_id: Some(session.run.id),
                single_use,
                usable_from: Timestamp::EPOCH,
                expires_at: None,
            };
            let minted = vec![
                token(&bootstrap, TokenPurpose::Bootstrap, false),
                token(&enrollment, TokenPurpose::Enrollment, true),
            ];
            session.add_tokens(minted);
            Ok(Prepared::UserData(user_data.bytes))
        }
        _ => Ok(Prepared::Plain),
    }
}

/// Makes the call of `intent` and notes what came of it.
pub(crate) async fn perform_effect(
    shared: &Shared,
    site: &Site,
    session: &mut RunSession,
    lease: &Lease,
    intent: &Intent,
    prepared: Prepared,
) {
    let asked_at = shared.clock.now();
    if let Some(outcome) = handed_off(session, asked_at) {
        return session.end_intent(outcome, asked_at);
    }
    let request = MaasRequest::new(session, &intent.effect, prepared);
    let result = match request {
        Ok(request) => {
            let send = |client: Client| async move {
                if lease.holds(shared.clock.now()) {
                    return request.send(&client).await.map(Some);
                }
                Ok(None)
            };
            site.change(send).await
        }
        Err(text) => Err(CallError::Site(text)),
    };
    let outcome = match result {
        Ok(None) => Outcome::NotSent {
            code: "lease_over".to_owned(),
            text: "this worker lost its lease on the run".to_owned(),
        },
        Ok(Some(answer)) => {
            apply_answer(session, &intent.effect, answer, asked_at, shared.clock.now());
            Outcome::Accepted
        }
        Err(error) => {
            if is_database_conflict(&error) {
                site.forget_bmcs().await;
            }
            outcome_of(&error)
        }
    };
    session.end_intent(outcome, shared.clock.now());
}

/// The one place through which every mutation goes: a machine that was handed over is never
/// touched again, whatever a decision says.
fn handed_off(session: &RunSession, now: Timestamp) -> Option<Outcome> {
    session.snapshot(now).is_handed_off().then(|| Outcome::Rejected {
        code: "machine_handed_off".to_owned(),
        text:
            "the profile hands the machine over (release_mode=handoff): GPUaaS will not change it"
                .to_owned(),
        conflict: false,
    })
}

fn apply_answer(
    session: &mut RunSession,
    effect: &Effect,
    answer: MaasAnswer,
    asked_at: Timestamp,
    answered_at: Timestamp,
) {
    match answer {
        MaasAnswer::Machine(machine) => {
            if *effect == Effect::CreateMachine {
                let power = PowerFacts {
                    power_type: machine.power_type.clone(),
                    bmc_address: session.node.hardware.bmc_address.clone(),
                };
                let candidate = candidate(&machine, vec!["created".to_owned()], None, Some(power));
                session.run.state.found = Some(MachineSearch {
                    asked_at: answered_at,
                    candidates: vec![candidate],
                    unclaimed_new: Vec::new(),
                });
            }
            session.observe(machine_view(&machine), asked_at);
        }
        MaasAnswer::Interface(interface) => {
            let nic = nic_view(&interface);
            if let Some(mut seen) = session.observation.clone()
                && let Some(machine) = seen.machine.as_mut()
                && let Some(old) = machine.nics.iter_mut().find(|n| n.id == nic.id)
            {
                *old = nic;
                session.set_observation(seen);
            }
        }
        MaasAnswer::Disk(device) => {
            let disk = disk_view(&device);
            if let Some(mut seen) = session.observation.clone()
                && let Some(machine) = seen.machine.as_mut()
                && let Some(old) = machine.disks.iter_mut().find(|d| d.id == disk.id)
            {
                *old = disk;
                session.set_observation(seen);
            }
        }
        MaasAnswer::Nothing => {
            if let Effect::SetBootDisk { block_device_id } = effect
                && let Some(mut seen) = session.observation.clone()
                && let Some(machine) = seen.machine.as_mut()
            {
                machine.boot_disk_id = Some(*block_device_id);
                session.set_observation(seen);
            }
        }
    }
}

/// As MAAS answers a create with the BMC of another machine (docs/maas.md#duplicate-bmc).
fn is_database_conflict(error: &CallError) -> bool {
    matches!(error, CallError::Maas(MaasError::Refused { kind: RefusalKind::DatabaseConflict, .. }))
}

fn outcome_of(error: &CallError) -> Outcome {
    let code = error.code().to_owned();
    let text = error.to_string();
    match error {
        // The nonce of this very call was used: a copy of it came before, and may have been carried out.
        CallError::Maas(MaasError::Refused {
            kind: RefusalKind::Unauthorized { cause: AuthCause::NonceReplay },
            ..
        }) => Outcome::Unknown { code, text },
        CallError::Maas(MaasError::UnknownOutcome { cause: UnknownCause::ServerError, .. }) => {
            Outcome::Unknown { code: MAAS_SERVER_ERROR.to_owned(), text }
        }
        CallError::Away(_)
        | CallError::Key(_)
        | CallError::Site(_)
        | CallError::Maas(
            MaasError::Unavailable { sent: false, .. }
            | MaasError::Refused { kind: RefusalKind::Unauthorized { .. }, .. },
        ) => Outcome::NotSent { code, text },
        CallError::Maas(MaasError::Refused { kind, .. }) => {
            let conflict =
                matches!(kind, RefusalKind::StateConflict | RefusalKind::DatabaseConflict);
            Outcome::Rejected { code, text, conflict }
        }
        CallError::Maas(MaasError::Invalid { .. }) => {
            // Nothing left: what the call is about cannot be put into a request.
            let code = ParkCode::EffectNotPrepared.as_str().to_owned();
            Outcome::Rejected { code, text, conflict: false }
        }
        CallError::Maas(_) | CallError::GivenUp => Outcome::Unknown { code, text },
    }
}
