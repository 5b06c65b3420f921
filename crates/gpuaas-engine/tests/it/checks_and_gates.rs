//! Each check before a deployment and each completion gate, made red by a fault from outside: in the
//! region, in what an operator wrote, in the control plane's files or database, or by what the node
//! says. The run stops there and goes on once that is mended. The two tables name every check and
//! every gate, so that a new one without a row fails here.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::sync::Arc;

use crate::common::Harness;
use crate::common::played_node::{enrollment, heartbeat};
use gpuaas_artifact::BootstrapInputs;
use gpuaas_core::decide::preparation::PREDEPLOY_CHECKS;
use gpuaas_core::gates::COMPLETION_GATES;
use gpuaas_core::record::RunRecord;
use gpuaas_engine::Engine;
use gpuaas_store::{
    CertificateEnding, NewAgentCredential, NewCertificate, NewEnrollment, NewToken, StoreError,
    TokenPurpose, sha256,
};
use gpuaas_types::agent::{BootstrapPhase, ProgressStatus};
use gpuaas_types::api::OnboardAccepted;
use gpuaas_types::machine::maas_status;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{RandomIds, RunId, RunKind, RunStatus, Step, Timestamp, TokenId};
use maas_sim::{HumanAction, SimOptions, ZERO};
use sqlx::Connection as _;

/// A certificate authority that ended on 1 January 2021 (`openssl ca -enddate 20210101000000Z`).
const EXPIRED_CA: &str = include_str!("expired-ca.pem");
/// One that ends in 2126.
const CA: &str = include_str!("../../../gpuaas-artifact/src/tests/ca.pem");
/// An image that the region does not have at first.
const IMAGE: &str = "h200-image";

/// What makes a check before a deployment fail.
#[derive(Debug, Clone, Copy)]
enum Unready {
    /// Nodes are told an address that is none.
    NoAddress,
    /// The agent's file is gone.
    AgentGone,
    /// The site's certificate authority has ended.
    CaEnded,
    /// A token that an earlier deployment of the run was given is honoured.
    OldToken,
    /// The validation bundle gets a value that it cannot take.
    BadInput,
    /// Nobody uploaded the image.
    NoImage,
}

/// Check, and what makes it fail.
const CHECKS: &[(&str, Unready)] = &[
    ("bootstrap_endpoint_reachable", Unready::NoAddress),
    ("artifacts_fetchable", Unready::AgentGone),
    ("ca_bundle_valid", Unready::CaEnded),
    ("token_store_consistent", Unready::OldToken),
    ("inputs_resolve", Unready::BadInput),
    ("image_available_and_approved", Unready::NoImage),
];

/// What makes a completion gate fail.
#[derive(Debug, Clone, Copy)]
enum Unconfirmed {
    /// A person takes the machine into rescue mode.
    RescueMode,
    /// The boot scripts ran again, and this phase failed.
    PhaseFails(BootstrapPhase),
    /// A row of the database is not as it was, as after a restore: what does it, what undoes it.
    Row(&'static str, &'static str),
}

/// Gate, and what makes it fail.
const GATES: &[(&str, Unconfirmed)] = &[
    ("gate_maas_deployed", Unconfirmed::RescueMode),
    ("gate_site_bootstrap", Unconfirmed::PhaseFails(BootstrapPhase::SiteBootstrap)),
    ("gate_node_bootstrap", Unconfirmed::PhaseFails(BootstrapPhase::NodeBootstrap)),
    (
        "gate_agent_started",
        Unconfirmed::Row(
            "UPDATE report SET at = 0 WHERE kind = 'first_heartbeat'",
            "UPDATE report SET at = (SELECT MAX(at) FROM report) WHERE at = 0",
        ),
    ),
    (
        "gate_first_enrollment",
        Unconfirmed::Row(
            "UPDATE report SET at = 0 WHERE kind = 'enrolled'",
            "UPDATE report SET at = (SELECT MAX(at) FROM report) WHERE at = 0",
        ),
    ),
    (
        "gate_node_row",
        Unconfirmed::Row(
            "UPDATE node SET state = 'quarantined'",
            "UPDATE node SET state = 'enrolling'",
        ),
    ),
    (
        "gate_current_run",
        Unconfirmed::Row(
            "UPDATE node SET run_id = NULL",
            "UPDATE node SET run_id = (SELECT id FROM run)",
        ),
    ),
];

#[test]
fn the_tables_name_every_check_and_every_gate() {
    let checks: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(checks, PREDEPLOY_CHECKS);
    let gates: Vec<&str> = GATES.iter().map(|(name, _)| *name).collect();
    assert_eq!(gates, COMPLETION_GATES);
}

/// Names of those of `names` that the run notes as failed, in their order.
fn red<'a>(run: &RunRecord, names: &[&'a str]) -> Vec<&'a str> {
    let failed = |name: &&&str| run.state.checks.get(**name).is_some_and(|check| !check.passed);
    names.iter().filter(failed).copied().collect()
}

/// The run is parked with `code` for `name` alone, and its first advice is to let it go on.
fn assert_stopped(run: &RunRecord, code: &str, names: &[&str], name: &str) {
    let park = run.park.as_ref().unwrap();
    assert_eq!((run.status, park.code.as_str()), (RunStatus::Parked, code), "{name}: {park:?}");
    assert_eq!(red(run, names), [name], "{:?}", run.state.checks);
    assert!(park.text.contains(name), "{park:?}");
    let advised = format!("gpuaas run resume {} ", run.id);
    assert!(park.actions[0].command.starts_with(&advised), "{park:?}");
}

async fn in_database(harness: &Harness, sql: &str) {
    let url = harness.kit.url.clone();
    if url.starts_with("postgres") {
        let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
        let statement = sqlx::AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    } else {
        let connection = rusqlite::Connection::open(url).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        connection.execute_batch(sql).unwrap();
    }
}

/// The control plane of a harness, stopped, with the fault made, and a run that begins.
async fn unready(fault: Unready) -> (Harness, Arc<Engine>, RunId) {
    let mut profile = ProfileSpec::default();
    match fault {
        Unready::NoImage => profile.distro_series = format!("custom/{IMAGE}"),
        Unready::BadInput => {
            profile.post_deploy_validation_bundle_ref =
                gpuaas_types::built_in_bundle!("validate-h200").to_owned();
        }
        _ => {}
    }
    // What is looked for while it lasts gets more of the wall's time.
    let factor = if matches!(fault, Unready::OldToken) { 2.0 } else { 20.0 };
    let options = SimOptions { machines: 1, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    let harness = Harness::with(options, profile, factor).await;
    harness.engine.stop().await;
    let accepted = harness.onboard(&harness.hosts[0]).await;
    let mut kit = harness.kit.clone();
    match fault {
        Unready::NoAddress => {
            kit.config.advertise_url = kit.config.advertise_url.replace("127.0.0.1", "0.0.0.0");
        }
        Unready::AgentGone => fs::rename(kit.agent_file(), harness.path("agent")).unwrap(),
        Unready::CaEnded => set_ca(&harness, EXPIRED_CA).await,
        Unready::OldToken => leave_token(&harness, &accepted).await,
        Unready::BadInput => set_disk_count(&harness, "many").await,
        // Approved before anybody uploads it.
        Unready::NoImage => {
            harness.change_site(|spec| spec.approved_images = vec![IMAGE.to_owned()]).await;
        }
    }
    let engine = kit.engine(harness.store.clone());
    (harness, engine, accepted.run_id)
}

/// What is named is corrected, as the park says. A control plane that is told something else is
/// started again.
async fn repair(harness: &Harness, fault: Unready) {
    match fault {
        Unready::NoAddress | Unready::OldToken => {}
        Unready::AgentGone => fs::rename(harness.path("agent"), harness.kit.agent_file()).unwrap(),
        Unready::CaEnded => set_ca(harness, CA).await,
        Unready::BadInput => set_disk_count(harness, "1").await,
        Unready::NoImage => harness.sim.with(|region| region.upload_image(IMAGE)),
    }
}

async fn set_ca(harness: &Harness, pem: &str) {
    harness.change_site(|spec| spec.node_ca_pem = Some(pem.to_owned())).await;
}

async fn set_disk_count(harness: &Harness, count: &str) {
    let value = [("disk_count".to_owned(), count.to_owned())].into();
    harness
        .change_site(|spec| drop(spec.bundle_inputs.insert("validate-h200".to_owned(), value)))
        .await;
}

const OLD_TOKEN: &str = "gpe_old";

/// As a version left it that did not withdraw what a released deployment was given.
async fn leave_token(harness: &Harness, accepted: &OnboardAccepted) {
    let token = NewToken {
        id: TokenId::new(&RandomIds, harness.now()),
        hash: sha256(OLD_TOKEN),
        purpose: TokenPurpose::Enrollment,
        node_id: Some(accepted.node_id),
        run_id: Some(accepted.run_id),
        single_use: true,
        usable_from: Timestamp::EPOCH,
        expires_at: None,
    };
    harness.store.add_token(harness.now(), token).await.unwrap();
}

/// Why a token is refused; none: it is honoured.
async fn refusal(harness: &Harness, token: &str, purpose: TokenPurpose) -> Option<&'static str> {
    let checked = harness.store.check_token(harness.now(), sha256(token), purpose).await;
    checked.err().map(|error| error.code())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_check_before_a_deployment_stops_the_run_until_its_cause_is_mended() {
    for (name, fault) in CHECKS {
        let (harness, mut engine, run_id) = unready(*fault).await;
        let host = harness.hosts[0].name.clone();
        if matches!(fault, Unready::OldToken) {
            until_withdrawn(&harness, run_id, name).await;
        } else {
            let run = harness.rest(run_id).await;
            assert_stopped(&run, "predeploy_checks_failed", &PREDEPLOY_CHECKS, name);
            let deploys = harness.sim.with(|region| region.stats().machines[&host].deploys);
            assert_eq!(deploys, 0, "{name}");
            repair(&harness, *fault).await;
        }
        if matches!(fault, Unready::NoAddress) {
            engine.stop().await;
            engine = harness.kit.engine(harness.store.clone());
        }
        // It may have looked again by itself by now.
        harness.store.resume_run(harness.now(), run_id, "ann", "corrected").await.ok();
        let passed =
            async || harness.codes(run_id).await.contains(&"predeploy_checks_passed".to_owned());
        harness.until(passed).await;
        let run = harness.store.run(run_id).await.unwrap();
        assert_eq!(red(&run, &PREDEPLOY_CHECKS), [""; 0], "{name}");
        if !matches!(fault, Unready::BadInput) {
            assert_eq!(harness.rest(run_id).await.status, RunStatus::Succeeded, "{name}");
        }
        engine.stop().await;
    }
}

/// The check fails once, withdraws the token, and passes by itself.
async fn until_withdrawn(harness: &Harness, run_id: RunId, name: &str) {
    let waits = async || {
        let run = harness.store.run(run_id).await.unwrap();
        run.wait.is_some_and(|wait| wait.code == "predeploy_checks_failing")
    };
    harness.until(waits).await;
    let run = harness.store.run(run_id).await.unwrap();
    assert_eq!(red(&run, &PREDEPLOY_CHECKS), [name]);
    let refused = refusal(harness, OLD_TOKEN, TokenPurpose::Enrollment).await;
    assert_eq!(refused, Some("token_revoked"));
    let codes = harness.codes(run_id).await;
    assert_eq!(codes.iter().filter(|code| *code == "tokens_withdrawn").count(), 1, "{codes:?}");
}

/// What the host was told at its latest boot, once that is another than `before`.
async fn boot_inputs(harness: &Harness, before: Option<&BootstrapInputs>) -> BootstrapInputs {
    let host = &harness.hosts[0].name;
    let latest = || harness.told.lock().unwrap().get(host).cloned();
    let old = before.map(|inputs| inputs.enrollment_token.clone());
    harness
        .until(async || latest().is_some_and(|inputs| Some(inputs.enrollment_token) != old))
        .await;
    latest().unwrap()
}

/// The deployed system comes up: its scripts, its agent's enrollment and, where it is heard, its
/// first heartbeat.
async fn come_up(
    harness: &Harness,
    accepted: &OnboardAccepted,
    inputs: &BootstrapInputs,
    heard: bool,
) {
    use BootstrapPhase::{NodeBootstrap, SiteBootstrap};
    use ProgressStatus::{Started, Succeeded};
    for (phase, status) in
        [(SiteBootstrap, Started), (SiteBootstrap, Succeeded), (NodeBootstrap, Started)]
    {
        harness.call_back(accepted.run_id, phase, status).await;
    }
    enroll(harness, accepted.run_id, inputs).await.unwrap();
    if heard {
        let beat = heartbeat(accepted.node_id, accepted.run_id);
        harness.store.record_heartbeat(harness.now(), beat).await.unwrap();
    }
}

/// Of the certificate that the agent gets for its enrollment.
fn fingerprint(inputs: &BootstrapInputs) -> [u8; 32] {
    sha256(&format!("certificate for {}", inputs.enrollment_token))
}

/// The certificate of the agent that was told `inputs` ended when its system was released.
async fn assert_released(harness: &Harness, inputs: &BootstrapInputs) {
    let known = harness.store.certificate(fingerprint(inputs)).await.unwrap().unwrap();
    let (how, _, why) = known.ended.unwrap();
    assert_eq!((how, why.as_str()), (CertificateEnding::Superseded, "its system was released"));
}

async fn enroll(
    harness: &Harness,
    run_id: RunId,
    inputs: &BootstrapInputs,
) -> Result<(), StoreError> {
    let asked = NewEnrollment {
        credential: NewAgentCredential::Certificate(NewCertificate {
            fingerprint: fingerprint(inputs),
            serial: inputs.enrollment_token.clone(),
            not_before: harness.now(),
            not_after: harness.now().plus_seconds(86_400.0),
            authority: 1,
        }),
        ..enrollment(run_id, inputs, harness.now())
    };
    harness.store.use_enrollment_token(harness.now(), asked).await.map(drop)
}

/// A run that waits for the node bootstrap's last word, and nothing else.
async fn all_but_confirmed() -> (Harness, OnboardAccepted) {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    harness.silence(&harness.hosts[0].name);
    let accepted = harness.onboard(&harness.hosts[0]).await;
    let inputs = boot_inputs(&harness, None).await;
    come_up(&harness, &accepted, &inputs, true).await;
    harness.answer_task(accepted.node_id, true).await;
    harness.until_waiting(accepted.run_id, Step::Confirmation).await;
    (harness, accepted)
}

/// A person asks something of the machine, and the control plane sees its status.
async fn person(harness: &Harness, accepted: &OnboardAccepted, op: &str, status: i64) {
    let id = harness.store.node(accepted.node_id).await.unwrap().system_id.unwrap();
    let (path, form) = (format!("machines/{id}/"), format!("op={op}"));
    harness.sim.with(|region| region.call_as_person(0, "POST", &path, &form)).unwrap();
    let seen = async || {
        let seen = harness.store.observation(accepted.node_id).await.unwrap();
        seen.is_some_and(|seen| seen.status == status)
    };
    harness.until(seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_completion_gate_stops_the_run_until_its_cause_is_mended() {
    use ProgressStatus::{Failed, Succeeded};
    const CODE: &str = "completion_gate_failed";
    const LAST: BootstrapPhase = BootstrapPhase::NodeBootstrap;
    for (name, fault) in GATES {
        let (harness, accepted) = all_but_confirmed().await;
        let run_id = accepted.run_id;
        // The run stops by the one gate that it waited for, and each other one fails alone after it.
        harness.call_back(run_id, LAST, Failed).await;
        let run = harness.rest(run_id).await;
        assert_stopped(&run, CODE, &COMPLETION_GATES, "gate_node_bootstrap");
        match fault {
            Unconfirmed::PhaseFails(LAST) => {}
            Unconfirmed::PhaseFails(phase) => {
                // In this order: a node bootstrap that goes on after a failure shows that it was mended.
                harness.call_back(run_id, LAST, Succeeded).await;
                harness.call_back(run_id, *phase, Failed).await;
            }
            Unconfirmed::RescueMode => {
                person(&harness, &accepted, "rescue_mode", maas_status::RESCUE_MODE).await;
            }
            Unconfirmed::Row(damage, _) => in_database(&harness, damage).await,
        }
        if !matches!(fault, Unconfirmed::PhaseFails(LAST)) {
            if !matches!(fault, Unconfirmed::PhaseFails(_)) {
                harness.call_back(run_id, LAST, Succeeded).await;
            }
            harness.resume(run_id).await;
            if let Unconfirmed::PhaseFails(phase) = fault {
                // A failure from before the resume is no verdict on what was mended since: the run
                // waits for the phase to run again.
                let waits = async || {
                    let run = harness.store.run(run_id).await.unwrap();
                    run.wait.is_some_and(|wait| wait.code == "bootstrap_rerun")
                };
                harness.until(waits).await;
                harness.call_back(run_id, *phase, Failed).await;
            }
            assert_stopped(&harness.rest(run_id).await, CODE, &COMPLETION_GATES, name);
        }
        match fault {
            Unconfirmed::PhaseFails(phase) => harness.call_back(run_id, *phase, Succeeded).await,
            Unconfirmed::RescueMode => {
                person(&harness, &accepted, "exit_rescue_mode", maas_status::DEPLOYED).await;
            }
            Unconfirmed::Row(_, repair) => in_database(&harness, repair).await,
        }
        if matches!(fault, Unconfirmed::RescueMode) {
            // MAAS' feed tells of the end of the rescue mode as well, and may wake the run first.
            harness.store.resume_run(harness.now(), run_id, "operator", "corrected").await.ok();
        } else {
            harness.resume(run_id).await;
        }
        let ended = async || harness.store.run(run_id).await.unwrap().status != RunStatus::Parked;
        harness.until(ended).await;
        let run = harness.rest(run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{name}: {:?}", run.park);
        let gates = run.state.checks.keys().filter(|key| key.starts_with("gate_")).count();
        assert_eq!((gates, red(&run, &COMPLETION_GATES)), (COMPLETION_GATES.len(), Vec::new()));
        harness.engine.stop().await;
    }
}

/// Somebody releases the machine in MAAS after its agent enrolled. The run deploys it once more: what
/// the first system was given is worth nothing from then on, used or not, and the second one's first
/// heartbeat counts as the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_released_system_is_honoured_and_the_next_one_is_heard() {
    for heard in [false, true] {
        let harness = Harness::start(1, ProfileSpec::default()).await;
        let host = harness.hosts[0].name.clone();
        harness.silence(&host);
        let accepted = harness.onboard(&harness.hosts[0]).await;
        let run_id = accepted.run_id;
        let first = boot_inputs(&harness, None).await;
        come_up(&harness, &accepted, &first, heard).await;
        let step = if heard { Step::PrereqChecks } else { Step::Enrollment };
        harness.until_waiting(run_id, step).await;
        harness.human(&HumanAction::Release { machine: host });
        assert_eq!(harness.rest(run_id).await.park.unwrap().code, "machine_taken");
        harness.resume(run_id).await;

        let second = boot_inputs(&harness, Some(&first)).await;
        for (token, purpose) in [
            (&first.bootstrap_token, TokenPurpose::Bootstrap),
            (&first.enrollment_token, TokenPurpose::Enrollment),
        ] {
            assert_eq!(
                refusal(&harness, token, purpose).await,
                Some("token_revoked"),
                "{purpose:?}"
            );
        }
        let again = enroll(&harness, run_id, &first).await;
        assert_eq!(again.unwrap_err().code(), "token_revoked");
        // The certificate of its agent ended with the release, and not with the next deployment.
        assert_released(&harness, &first).await;
        let codes = harness.codes(run_id).await;
        assert!(!codes.contains(&"tokens_withdrawn".to_owned()), "the release did it: {codes:?}");

        harness.until_waiting(run_id, Step::BootstrapFetch).await;
        come_up(&harness, &accepted, &second, true).await;
        harness.answer_task(accepted.node_id, true).await;
        harness.until_waiting(run_id, Step::Confirmation).await;
        harness.call_back(run_id, BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded).await;
        let run = harness.rest(run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{heard}: {:?}", run.park);
        harness.engine.stop().await;
    }
}

/// Between a release and the next deployment a machine is commissioned, or stands there for as long as
/// a park lasts: nobody is its agent then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_ends_the_certificate_of_the_agent_that_was_there() {
    for kind in [RunKind::Reimage, RunKind::Decommission] {
        let (harness, accepted) = all_but_confirmed().await;
        let run_id = accepted.run_id;
        harness.call_back(run_id, BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded).await;
        assert_eq!(harness.rest(run_id).await.status, RunStatus::Succeeded);
        let inputs = boot_inputs(&harness, None).await;
        let known = harness.store.certificate(fingerprint(&inputs)).await.unwrap().unwrap();
        assert_eq!(known.ended, None);
        let next = harness.begin(accepted.node_id, kind).await;
        if kind == RunKind::Reimage {
            harness.until_waiting(next, Step::BootstrapFetch).await;
            // The next deployment finds it ended.
            assert_released(&harness, &inputs).await;
        } else {
            assert_eq!(harness.rest(next).await.status, RunStatus::Succeeded);
            let known = harness.store.certificate(fingerprint(&inputs)).await.unwrap().unwrap();
            assert!(known.ended.is_some());
        }
        harness.engine.stop().await;
    }
}
