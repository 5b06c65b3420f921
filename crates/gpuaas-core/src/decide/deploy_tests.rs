//! Tests of deployments and their failures.

use gpuaas_types::Step;
use gpuaas_types::codes::{ParkCode, TimelineCode};
use gpuaas_types::machine::{MaasAlarm, maas_status as status};

use super::fixture::{Case, at, machine, parked, unknown, waiting};
use crate::effect::{Effect, LATE_EXECUTION_SECONDS, Outcome};
use crate::failure::FailureClass;
use crate::run_state::{DeployEvents, RunState};
use crate::snapshot::{Decision, Read};

fn deploy() -> Effect {
    Effect::Deploy { distro_series: "ubuntu/noble".to_owned(), enable_hw_sync: false }
}

fn deploying() -> Case {
    Case::new(Step::Deploy)
        .read(machine(status::READY), 1.0)
        .intent(deploy(), 2.0, Some(Outcome::Accepted))
        .read(machine(status::DEPLOYING), 3.0)
}

#[test]
fn a_deployment_is_asked_for_once_and_its_edges_are_maas_own() {
    let case = Case::new(Step::Deploy).read(machine(status::READY), 1.0);
    assert_eq!(case.decide(), Decision::Do(deploy()));
    let mut case = deploying();
    assert_eq!(waiting(&case.decide()), "maas_deploying");
    case.observation.as_mut().unwrap().rebooted_at = Some(at(7.0));
    assert_eq!(case.next(), (Step::FirstBoot, 7.0));
    case.run.step = Step::FirstBoot;
    case.observation.as_mut().unwrap().status = status::DEPLOYED;
    case.observation.as_mut().unwrap().status_at = at(9.0);
    assert_eq!(case.next(), (Step::BootstrapFetch, 9.0));
}

#[test]
fn the_feeds_word_alone_takes_no_machine_away() {
    for step in [Step::Deploy, Step::FirstBoot] {
        let mut case = deploying();
        case.run.step = step;
        // An event from before the last read, which came late.
        let seen = case.observation.as_mut().unwrap();
        (seen.status, seen.status_at) = (status::COMMISSIONING, at(4.0));
        assert_eq!(case.decide(), Decision::Read(Read::Machine), "{step}");
        let still = case.read(machine(status::COMMISSIONING), 5.0);
        assert_eq!(parked(&still.decide()), "machine_taken", "{step}");
    }
}

#[test]
fn an_unknown_deploy_is_never_repeated_while_it_may_have_happened() {
    let case =
        Case::new(Step::Deploy).read(machine(status::READY), 1.0).intent(deploy(), 2.0, unknown());
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let taken = case.read(machine(status::DEPLOYING), 5.0);
    assert_eq!(taken.decide(), Decision::Settle { happened: true });
    let not_yet = taken.read(machine(status::READY), 8.0);
    assert_eq!(waiting(&not_yet.decide()), "unknown_outcome");
    // It may stand in the queue of a busy region, or of a proxy.
    let mut late = not_yet.read(machine(status::READY), 200.0);
    late.now = at(201.0);
    assert_eq!(waiting(&late.decide()), "unknown_outcome");
    let mut never = late.read(machine(status::READY), 4.0 + LATE_EXECUTION_SECONDS);
    never.now = at(5.0 + LATE_EXECUTION_SECONDS);
    assert_eq!(never.decide(), Decision::Settle { happened: false });
}

/// Who deploys a machine owns it: what another user did meanwhile is not our deployment.
#[test]
fn deployment_of_another_user_does_not_settle_ours() {
    let ready = Case::new(Step::Deploy).read(machine(status::READY), 1.0);
    let case = ready.intent(deploy(), 2.0, unknown());
    for (owner, decision) in [("gpuaas", Some(true)), ("ann", None)] {
        let mut taken = machine(status::DEPLOYING);
        taken.owner = Some(owner.to_owned());
        let settled = match case.clone().read(taken, 8.0).decide() {
            Decision::Settle { happened } => Some(happened),
            other => (waiting(&other) != "unknown_outcome").then_some(false),
        };
        assert_eq!(settled, decision, "{owner}");
    }
}

/// MAAS answers 409 to what it has done already: the run goes on from that, at once, after a resume and
/// after a retry.
#[test]
fn refusal_after_an_unknown_try_is_read_as_done() {
    let conflict = || Outcome::Rejected {
        code: "maas_state_conflict".to_owned(),
        text: "Can't deploy a machine that is in the 'Deployed' state".to_owned(),
        conflict: true,
    };
    let ready = Case::new(Step::Deploy).read(machine(status::READY), 1.0);
    let mut case = ready.intent(deploy(), 2.0, None);
    case.run.state.record_outcome(unknown().unwrap(), at(3.0));
    case.run.state.record_outcome(Outcome::did_not_happen("as it was".to_owned()), at(400.0));
    let case = case.intent_after(deploy(), 410.0, conflict());
    let mut ours = machine(status::DEPLOYED);
    ours.owner = Some("gpuaas".to_owned());
    let mut case = case;
    case.now = at(420.0);
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let read = case.clone().read(ours.clone(), 415.0);
    assert_eq!(read.decide(), Decision::Settle { happened: true });
    // As it was parked by a version that did not look.
    for again in [RunState::resume, RunState::retry] {
        let mut parked = case.clone();
        parked.run.state.parked_code = Some("maas_state_conflict".to_owned());
        again(&mut parked.run.state, at(500.0));
        parked.now = at(501.0);
        assert_eq!(parked.decide(), Decision::Read(Read::Machine));
        let read = parked.clone().read(ours.clone(), 500.5);
        assert_eq!(read.decide(), Decision::Settle { happened: true });
        let read = parked.read(machine(status::READY), 500.5);
        assert_eq!(read.decide(), Decision::Do(deploy()), "it is not there: it is asked for again");
    }
    let mut foreign = machine(status::DEPLOYED);
    foreign.owner = Some("ann".to_owned());
    assert_ne!(case.read(foreign, 415.0).decide(), Decision::Settle { happened: true });
}

/// A deployment that failed at second 9, before which its events say this.
fn failed_deployment(rebooted: bool, alarm: Option<&str>) -> Case {
    let mut failed = machine(status::FAILED_DEPLOYMENT);
    failed.error_description = "Installation failed".to_owned();
    let mut case = deploying().read(failed, 9.0);
    assert_eq!(case.decide(), Decision::Read(Read::DeployEvents));
    let alarm = alarm.map(str::to_owned);
    let asked_at = at(9.5);
    let events = DeployEvents { asked_at, rebooted, installing: true, alarm };
    case.run.state.deploy_events = Some(events);
    case
}

/// What cloud-init says where it does not reach MAAS.
const NO_DATASOURCE: Option<&str> = Some("Node post-installation failure: no DataSourceMAAS");

/// What a machine did before its deployment failed tells the class, unless a text states another cause.
#[test]
fn failed_deployment_is_classed_by_how_far_it_came() {
    for (rebooted, installing, alarm, class) in [
        (false, false, None, FailureClass::NetworkBoot),
        (false, true, None, FailureClass::ImageDeploy),
        (true, true, None, FailureClass::FirstBoot),
        (true, true, Some("Kernel panic - not syncing"), FailureClass::FirstBoot),
        (true, true, NO_DATASOURCE, FailureClass::Datasource),
    ] {
        let mut case = failed_deployment(rebooted, alarm);
        case.run.state.deploy_events.as_mut().unwrap().installing = installing;
        case.profile.max_deploy_retry_attempts = 0;
        case.run.step = if rebooted { Step::FirstBoot } else { Step::Deploy };
        let Decision::Park { park, .. } = case.decide() else { panic!("{:?}", case.decide()) };
        assert_eq!(park.failure_class, Some(class), "{park:?}");
    }
}

#[test]
fn a_datasource_failure_is_retried_within_the_policy_and_an_image_failure_is_not() {
    assert_eq!(parked(&failed_deployment(false, None).decide()), "deploy_failed");
    let mut silent = failed_deployment(true, None);
    silent.run.step = Step::FirstBoot;
    assert_eq!(parked(&silent.decide()), "deploy_failed", "an image that does not boot");
    let mut case = failed_deployment(true, NO_DATASOURCE);
    case.run.step = Step::FirstBoot;
    assert_eq!(case.next().0, Step::ReleaseForRetry);
    case.run.state.visits.insert(Step::ReleaseForRetry, 2);
    assert_eq!(parked(&case.decide()), "deploy_failed");
    case.run.state.visits.clear();
    case.profile.enable_deploy_retry_on_datasource_failure = false;
    assert_eq!(parked(&case.decide()), "deploy_failed");
}

#[test]
fn a_failure_is_classed_by_its_own_events_whatever_the_feed_has_told() {
    let mut case = failed_deployment(true, NO_DATASOURCE);
    assert_eq!(case.observation.as_ref().unwrap().rebooted_at, None, "the feed is behind");
    let decided = case.decide();
    let Decision::Next { at: written_at, notes, .. } = &decided else { panic!("{decided:?}") };
    assert_eq!(*written_at, case.observation.as_ref().unwrap().status_at);
    assert_eq!(notes[0].code, TimelineCode::ImageWritten);
    case.run.step = Step::FirstBoot;
    assert_eq!(case.next().0, Step::ReleaseForRetry);
    case.run.state.deploy_events.as_mut().unwrap().asked_at = at(8.5);
    assert_eq!(case.decide(), Decision::Read(Read::DeployEvents), "of before the failure");
    case.observation.as_mut().unwrap().status_at = at(11.0);
    assert_eq!(case.decide(), Decision::Read(Read::Machine), "the feed tells of another change");
}

#[test]
fn a_kernel_that_curtin_cannot_install_names_the_stock_image() {
    let text = "Node installation failure: installing-kernel: linux-generic";
    let mut case = failed_deployment(false, Some(text));
    for heard in [None, Some(MaasAlarm { at: at(8.0), text: text.to_owned() })] {
        case.observation.as_mut().unwrap().alarm = heard;
        let Decision::Park { park, .. } = case.decide() else { panic!("{:?}", case.decide()) };
        assert!(park.text.contains("(curtin_kernel)") && park.text.contains(text), "{park:?}");
        assert!(park.next_action.contains("ubuntu/noble"), "{}", park.next_action);
        let told = park.evidence.iter().filter(|line| line.contains("linux-generic"));
        assert_eq!(told.count(), 1, "{park:?}");
    }
}

#[test]
fn a_machine_released_by_hand_is_deployed_again_only_on_an_operators_word() {
    let series =
        crate::policy::normalise_distro_series(&Case::new(Step::Deploy).profile.distro_series);
    let deploy = Effect::Deploy { distro_series: series, enable_hw_sync: false };
    for step in [Step::Deploy, Step::FirstBoot, Step::SiteBootstrap] {
        let mut case = Case::new(step).read(machine(status::READY), 5.0).intent(
            deploy.clone(),
            1.0,
            Some(Outcome::Accepted),
        );
        let Decision::Park { park, .. } = case.decide() else { panic!("{step}") };
        assert_eq!(park.code, "machine_taken", "{step}");
        case.run.state.parked_at = Some(at(10.0));
        case.run.state.parked_code = Some(park.code);
        assert_eq!(parked(&case.decide()), "machine_taken", "{step}");
        case.run.state.resume(at(20.0));
        case.now = at(21.0);
        assert_eq!(case.decide(), Decision::Read(Read::Machine), "{step}: as it is now");
        case = case.read(machine(status::READY), 20.5);
        assert_eq!(case.next(), (Step::ReleaseForRetry, 21.0), "{step}");
        case.run.state.enter_step(step);
        assert!(
            !case.run.state.resumed_after_park(&[ParkCode::MachineTaken]),
            "{step}: that word is used up"
        );
    }
}
