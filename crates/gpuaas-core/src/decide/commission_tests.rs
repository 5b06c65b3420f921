//! Tests of commissioning, with a bundle (one commissioning script and one test) and without.

use std::collections::BTreeMap;

use gpuaas_types::Step;
use gpuaas_types::api::{CheckResult, Owner};
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::scripts::{MaasScript, ScriptKind};

use super::fixture::{Case, at, machine, parked, unknown, waiting};
use crate::effect::{Effect, Outcome, ScriptSelection};
use crate::record::ReportKind;
use crate::run_state::{RegionScripts, ScriptOutcome, ScriptResults};
use crate::snapshot::{Decision, Read};

fn script(label: &str, kind: ScriptKind) -> MaasScript {
    let (name, digest) = (format!("gpuaas-{label}-1"), format!("digest of {label}"));
    MaasScript { label: label.to_owned(), name, kind, digest }
}

fn case(step: Step) -> Case {
    let mut case = Case::new(step);
    case.commissioning =
        Some(vec![script("gpu", ScriptKind::Commissioning), script("nvme", ScriptKind::Testing)]);
    case
}

/// The region at second `seconds`, with scripts of these labels as they should be.
fn region(case: &mut Case, seconds: f64, labels: &[&str]) {
    let of = |label: &&str| (format!("gpuaas-{label}-1"), format!("digest of {label}"));
    case.run.state.region_scripts = Some(RegionScripts {
        asked_at: at(seconds),
        digests: labels.iter().map(of).collect::<BTreeMap<_, _>>(),
        automatic: vec!["site-script".to_owned()],
        default_tests: true,
    });
}

fn register(label: &str, replace: bool) -> Effect {
    let (name, digest) = (format!("gpuaas-{label}-1"), format!("digest of {label}"));
    Effect::RegisterScript { name, digest, replace }
}

fn chosen(commissioning: &[&str], testing: &[&str]) -> Effect {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    let scripts = ScriptSelection { commissioning: words(commissioning), testing: words(testing) };
    Effect::Commission { scripts }
}

fn both() -> Effect {
    chosen(&["gpuaas-gpu-1", "site-script"], &["commissioning", "gpuaas-nvme-1"])
}

/// Results as read at second `seconds`: label, MAAS' number of the status.
fn script_results(case: &mut Case, seconds: f64, outcomes: &[(&str, i64)]) {
    let of = |(label, status): &(&str, i64)| ScriptOutcome {
        name: format!("gpuaas-{label}-1"),
        status: *status,
        status_name: if *status == 2 { "Passed" } else { "Failed" }.to_owned(),
        exit_status: Some(i64::from(*status != 2)),
        runtime: "0:00:03".to_owned(),
        last_line: if *status == 2 { String::new() } else { "no GPU".to_owned() },
    };
    let outcomes = outcomes.iter().map(of).collect();
    case.run.state.script_results = Some(ScriptResults { asked_at: at(seconds), outcomes });
}

fn skip(check: &str) -> ReportKind {
    ReportKind::CheckSkipped {
        check: check.to_owned(),
        actor: "ann".to_owned(),
        reason: "known".to_owned(),
        until: at(9000.0),
    }
}

fn checks(decision: &Decision) -> &[CheckResult] {
    match decision {
        Decision::Next { checks, .. } | Decision::Park { checks, .. } => checks,
        other => panic!("expected results of checks, got {other:?}"),
    }
}

#[test]
fn without_a_bundle_nothing_is_asked() {
    let case = Case::new(Step::RegisterScripts);
    assert_eq!(case.next(), (Step::Commission, 10.0));
    let mut gone = Case::new(Step::RegisterScripts);
    gone.commissioning = None;
    assert_eq!(parked(&gone.decide()), "commissioning_bundle_missing");
}

#[test]
fn scripts_are_registered_one_by_one_and_read_back() {
    let mut case = case(Step::RegisterScripts);
    assert_eq!(case.decide(), Decision::Read(Read::RegionScripts));
    region(&mut case, 1.0, &["gpu"]);
    assert_eq!(case.decide(), Decision::Do(register("nvme", false)));
    let mut case = case.intent(register("nvme", false), 2.0, Some(Outcome::Accepted));
    assert_eq!(case.decide(), Decision::Read(Read::RegionScripts));
    region(&mut case, 4.0, &["gpu", "nvme"]);
    assert_eq!(case.next().0, Step::Commission);
    let shown = case.run.state.region_scripts.as_mut().unwrap();
    shown.digests.insert("gpuaas-nvme-1".to_owned(), "edited".to_owned());
    assert_eq!(case.decide(), Decision::Do(register("nvme", true)));
}

#[test]
fn a_lost_answer_to_a_script_is_probed_among_the_scripts() {
    let mut case = case(Step::RegisterScripts);
    region(&mut case, 1.0, &["nvme"]);
    let mut case = case.intent(register("gpu", false), 2.0, unknown());
    assert_eq!(case.decide(), Decision::Read(Read::RegionScripts));
    region(&mut case, 5.0, &["nvme"]);
    case.now = at(6.0);
    assert_eq!(waiting(&case.decide()), "unknown_outcome");
    region(&mut case, 400.0, &["nvme"]);
    case.now = at(401.0);
    assert_eq!(case.decide(), Decision::Settle { happened: false });
    region(&mut case, 400.0, &["nvme", "gpu"]);
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    assert_eq!(case.accepted().next().0, Step::Commission);
}

#[test]
fn another_run_may_register_the_same_script_first() {
    let mut case = case(Step::RegisterScripts);
    region(&mut case, 1.0, &["nvme"]);
    let refused = Outcome::Rejected {
        code: "maas_validation".to_owned(),
        text: "Script with this Name already exists.".to_owned(),
        conflict: false,
    };
    let mut case = case.intent(register("gpu", false), 2.0, Some(refused));
    assert_eq!(case.decide(), Decision::Read(Read::RegionScripts));
    region(&mut case, 4.0, &["gpu", "nvme"]);
    assert_eq!(case.next().0, Step::Commission);
    region(&mut case, 4.0, &["nvme"]);
    assert!(!parked(&case.decide()).is_empty(), "refused, and not there");
}

#[test]
fn a_selection_keeps_what_maas_runs_by_itself() {
    let mut new = case(Step::Commission).read(machine(status::NEW), 1.0);
    assert_eq!(new.decide(), Decision::Read(Read::RegionScripts));
    region(&mut new, 1.0, &["gpu", "nvme"]);
    assert_eq!(new.decide(), Decision::Do(both()));
    new.run.state.region_scripts.as_mut().unwrap().default_tests = false;
    assert_eq!(
        new.decide(),
        Decision::Do(chosen(&["gpuaas-gpu-1", "site-script"], &["gpuaas-nvme-1"]))
    );
}

#[test]
fn a_ready_machine_without_results_is_commissioned_and_one_with_them_is_not() {
    let mut case = case(Step::Commission).read(machine(status::READY), 1.0);
    region(&mut case, 1.0, &["gpu", "nvme"]);
    assert_eq!(case.decide(), Decision::Read(Read::ScriptResults));
    script_results(&mut case, 2.0, &[]);
    assert_eq!(case.decide(), Decision::Do(both()));
    script_results(&mut case, 2.0, &[("gpu", 2), ("nvme", 2)]);
    let decision = case.decide();
    assert_eq!(case.next_of(&decision).0, Step::PxePreflight);
    let names: Vec<&str> = checks(&decision).iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["script_gpu", "script_nvme"]);
    assert_eq!(checks(&decision)[0].evidence, "gpuaas-gpu-1: Passed, exit code 0, ran 0:00:03");
}

/// The machine after a commissioning asked for at second 2 and failed at second 9.
fn after_failure(number: i64, outcomes: &[(&str, i64)]) -> Case {
    let mut case = case(Step::Commission);
    region(&mut case, 1.0, &["gpu", "nvme"]);
    let mut case = case.intent(both(), 2.0, Some(Outcome::Accepted)).read(machine(number), 9.0);
    script_results(&mut case, 9.5, outcomes);
    case
}

/// An operator lets the run go on at second 9.8; the machine, the scripts and their results are read
/// again, and are as they were.
fn resumed(mut case: Case, number: i64, outcomes: &[(&str, i64)]) -> Case {
    case.run.state.resume(at(9.8));
    assert_eq!(case.decide(), Decision::Read(Read::Machine), "what was known does not count");
    let mut case = case.read(machine(number), 9.85);
    assert_eq!(case.decide(), Decision::Read(Read::ScriptResults));
    script_results(&mut case, 9.9, outcomes);
    region(&mut case, 9.9, &["gpu", "nvme"]);
    case
}

#[test]
fn a_failed_script_parks_at_once_and_runs_again_after_a_resume() {
    let mut case = after_failure(status::FAILED_COMMISSIONING, &[("gpu", 3)]);
    let decision = case.decide();
    assert_eq!(parked(&decision), "commissioning_script_failed");
    let evidence = &checks(&decision)[0].evidence;
    assert_eq!(evidence, "gpuaas-gpu-1: Failed, exit code 1, ran 0:00:03: no GPU");
    case = resumed(case, status::FAILED_COMMISSIONING, &[("gpu", 3)]);
    assert_eq!(case.decide(), Decision::Do(both()));
    case.now = at(30.0);
    let mut lost = case.intent(both(), 12.0, unknown());
    lost.now = at(14.0);
    assert_eq!(lost.decide(), Decision::Read(Read::Machine), "probed, not judged by old results");
}

#[test]
fn a_skipped_script_is_left_out_of_the_next_commissioning() {
    let case = after_failure(status::FAILED_COMMISSIONING, &[("gpu", 3)]);
    let case = case.report(skip("script_gpu"), 9.7);
    let case = resumed(case, status::FAILED_COMMISSIONING, &[("gpu", 3)]);
    let without = chosen(&[], &["commissioning", "gpuaas-nvme-1"]);
    assert_eq!(case.decide(), Decision::Do(without.clone()));
    let mut case =
        case.intent(without, 9.8, Some(Outcome::Accepted)).read(machine(status::READY), 20.0);
    script_results(&mut case, 21.0, &[("nvme", 2)]);
    case.now = at(22.0);
    let decision = case.decide();
    assert_eq!(case.next_of(&decision).0, Step::PxePreflight);
    assert!(checks(&decision)[0].evidence.starts_with("skipped by ann"), "{decision:?}");
}

#[test]
fn a_failure_of_something_else_is_commissionings_own() {
    let case = after_failure(status::FAILED_COMMISSIONING, &[("gpu", 5)]);
    assert_eq!(case.decide(), Decision::Do(both()), "aborted with the rest: tried once more");
    let case = after_failure(status::FAILED_TESTING, &[("gpu", 2), ("other", 3), ("nvme", 2)]);
    assert_eq!(parked(&case.decide()), "hardware_test_failed");
}

#[test]
fn a_failed_test_of_the_bundle_is_overridden_once_somebody_answers_for_it() {
    let mut case = after_failure(status::FAILED_TESTING, &[("gpu", 2), ("nvme", 3)]);
    assert_eq!(parked(&case.decide()), "commissioning_script_failed");
    let resumed = resumed(case.clone(), status::FAILED_TESTING, &[("gpu", 2), ("nvme", 3)]);
    assert_eq!(resumed.decide(), Decision::Do(Effect::OverrideFailedTesting));
    let mut resumed = resumed
        .intent(Effect::OverrideFailedTesting, 9.9, Some(Outcome::Accepted))
        .read(machine(status::READY), 12.0);
    script_results(&mut resumed, 13.0, &[("gpu", 2), ("nvme", 3)]);
    resumed.now = at(14.0);
    assert_eq!(resumed.decide(), Decision::Do(both()), "the test is to run again");
    case = case.report(skip("script_nvme"), 9.7);
    assert_eq!(case.decide(), Decision::Do(Effect::OverrideFailedTesting));
    let mut case = case
        .intent(Effect::OverrideFailedTesting, 9.9, Some(Outcome::Accepted))
        .read(machine(status::READY), 12.0);
    script_results(&mut case, 13.0, &[("gpu", 2), ("nvme", 3)]);
    case.now = at(14.0);
    assert_eq!(case.next().0, Step::PxePreflight);
}

#[test]
fn an_effect_from_before_there_were_scripts_reads_as_without() {
    let stored: Effect = serde_json::from_str(r#"{"effect":"commission"}"#).unwrap();
    assert_eq!(stored, chosen(&[], &[]));
    assert_eq!(serde_json::to_string(&stored).unwrap(), r#"{"effect":"commission"}"#);
}

fn commission() -> Effect {
    Effect::Commission { scripts: ScriptSelection::default() }
}

#[test]
fn commission_waits_probes_and_gives_up() {
    let case = Case::new(Step::Commission).read(machine(status::NEW), 1.0);
    assert_eq!(case.decide(), Decision::Do(commission()));
    let case = case.intent(commission(), 2.0, unknown());
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let case = case.read(machine(status::COMMISSIONING), 5.0);
    assert_eq!(waiting(&case.decide()), "maas_commissioning");
    let case = case.read(machine(status::READY), 6.0);
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    assert_eq!(case.accepted().next().0, Step::PxePreflight);
    let mut late = Case::new(Step::Commission).read(machine(status::COMMISSIONING), 10_700.0);
    late.now = at(10_900.0);
    assert_eq!(parked(&late.decide()), "deadline_exceeded");
}

#[test]
fn a_crash_between_intent_and_answer_is_probed_like_a_lost_answer() {
    let case =
        Case::new(Step::Commission).read(machine(status::NEW), 1.0).intent(commission(), 2.0, None);
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let mut case = case.read(machine(status::NEW), 30.0);
    case.now = at(31.0);
    assert_eq!(waiting(&case.decide()), "unknown_outcome");
    let mut case = case.read(machine(status::NEW), 400.0);
    case.now = at(401.0);
    assert_eq!(case.decide(), Decision::Settle { happened: false });
}

/// MAAS names the BMC each time: that is the reason, and what is to be done about.
#[test]
fn commissioning_that_the_bmc_keeps_from_happening_names_the_bmc() {
    let text = "MAAS is unavailable: No rack controllers can access the BMC of node n128";
    let mut case = Case::new(Step::Commission).read(machine(status::NEW), 1.0);
    let away = Outcome::Unknown { code: "maas_unavailable".to_owned(), text: text.to_owned() };
    for second in [10.0, 100.0, 200.0, 300.0] {
        case = case.intent_after(commission(), second, away.clone());
        case = case.read(machine(status::NEW), second + 2.0);
        case.now = at(second + 3.0);
        assert_eq!(waiting(&case.decide()), "unknown_outcome", "it may have been committed");
        case = case.read(machine(status::NEW), second + 25.0);
        case.now = at(second + 26.0);
        if second < 300.0 {
            assert_eq!(case.decide(), Decision::Settle { happened: false }, "MAAS has answered");
            let none = Outcome::did_not_happen("as it was".to_owned());
            case.run.state.record_outcome(none, case.now);
        }
    }
    let Decision::Park { park, .. } = case.decide() else { panic!("{:?}", case.decide()) };
    assert_eq!(
        (park.code.as_str(), park.owner),
        ("unknown_outcome_unresolved", Owner::InfraOperator)
    );
    assert!(park.text.contains("cannot reach the machine's BMC") && park.text.contains("n128"));
    assert!(park.next_action.contains("the BMC answers"), "{}", park.next_action);
}

#[test]
fn failed_commissioning_is_tried_twice() {
    let case = Case::new(Step::Commission)
        .intent(commission(), 2.0, Some(Outcome::Accepted))
        .read(machine(status::FAILED_COMMISSIONING), 9.0);
    assert_eq!(case.decide(), Decision::Do(commission()));
    let case = case.intent(commission(), 9.5, Some(Outcome::Accepted));
    assert_eq!(parked(&case.decide()), "commissioning_failed");
}
