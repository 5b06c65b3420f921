//! The tag of a profile's machines, from nothing to listed at the machine.

use gpuaas_types::Step;
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::spec::SLICE_TAG;

use super::fixture::{Case, at, machine, parked, unknown};
use crate::effect::{Effect, Outcome};
use crate::run_state::RegionTag;
use crate::snapshot::{Decision, Read};

const ARGUMENTS: &str = "intel_iommu=on iommu=pt";

fn case() -> Case {
    let mut case = Case::new(Step::MachineTag).read(machine(status::READY), 1.0);
    case.kernel_arguments = Ok(ARGUMENTS.split(' ').map(str::to_owned).collect());
    case
}

/// MAAS' answer about the tag at second `seconds`.
fn shows(mut case: Case, kernel_opts: Option<&str>, seconds: f64) -> Case {
    let kernel_opts = kernel_opts.map(str::to_owned);
    case.run.state.tag =
        Some(RegionTag { asked_at: at(seconds), name: SLICE_TAG.to_owned(), kernel_opts });
    case
}

fn write(replaces: Option<&str>) -> Effect {
    let replaces = replaces.map(str::to_owned);
    Effect::WriteTag { name: SLICE_TAG.to_owned(), kernel_opts: ARGUMENTS.to_owned(), replaces }
}

fn tag() -> Effect {
    Effect::TagMachine { name: SLICE_TAG.to_owned() }
}

#[test]
fn a_profile_without_arguments_and_tag_asks_maas_nothing() {
    let mut none = case();
    none.kernel_arguments = Ok(Vec::new());
    assert_eq!(none.next(), (Step::PredeployChecks, 10.0));
    none.profile.machine_tag = "gold".to_owned();
    assert_eq!(none.decide(), Decision::Read(Read::Tag { name: "gold".to_owned() }));
}

#[test]
fn the_tag_is_made_given_and_read_back() {
    let asked = case();
    assert_eq!(asked.decide(), Decision::Read(Read::Tag { name: SLICE_TAG.to_owned() }));
    let missing = shows(asked, None, 2.0);
    assert_eq!(missing.decide(), Decision::Do(write(None)));
    let written = missing.intent(write(None), 3.0, Some(Outcome::Accepted));
    assert_eq!(written.decide(), Decision::Read(Read::Tag { name: SLICE_TAG.to_owned() }));
    let there = shows(written, Some(ARGUMENTS), 5.0);
    assert_eq!(there.decide(), Decision::Do(tag()));
    let tagged = there.intent(tag(), 6.0, Some(Outcome::Accepted));
    assert_eq!(tagged.decide(), Decision::Read(Read::Machine));
    let mut seen = machine(status::READY);
    seen.tags = vec!["other".to_owned(), SLICE_TAG.to_owned()];
    let listed = tagged.read(seen, 8.0);
    let decision = listed.decide();
    assert_eq!(listed.next_of(&decision), (Step::PredeployChecks, 10.0));
    let Decision::Next { checks, .. } = decision else { panic!("{decision:?}") };
    assert!(checks[0].passed && checks[0].evidence.contains(ARGUMENTS), "{checks:?}");
}

#[test]
fn other_kernel_options_are_replaced_and_named() {
    let other = shows(case(), Some("quiet"), 2.0);
    assert_eq!(other.decide(), Decision::Do(write(Some("quiet"))));
}

/// A missing tag is never taken for a given one.
#[test]
fn a_tag_that_does_not_show_parks() {
    let there = shows(case(), Some(ARGUMENTS), 2.0).intent(tag(), 3.0, Some(Outcome::Accepted));
    let untagged = there.read(machine(status::READY), 6.0);
    assert_eq!(parked(&untagged.decide()), "tag_not_as_asked");
    let written = shows(case(), None, 2.0).intent(write(None), 3.0, Some(Outcome::Accepted));
    assert_eq!(parked(&shows(written, Some("quiet"), 5.0).decide()), "tag_not_as_asked");
}

#[test]
fn a_lost_answer_is_looked_for() {
    let lost = shows(case(), None, 2.0).intent(write(None), 3.0, unknown());
    assert_eq!(lost.decide(), Decision::Read(Read::Tag { name: SLICE_TAG.to_owned() }));
    let found = shows(lost, Some(ARGUMENTS), 5.0);
    assert_eq!(found.decide(), Decision::Settle { happened: true });
}

#[test]
fn unknown_arguments_park() {
    let mut unknown = case();
    unknown.kernel_arguments = Err("there is no bundle".to_owned());
    assert_eq!(parked(&unknown.decide()), "host_checks_unknown");
}
