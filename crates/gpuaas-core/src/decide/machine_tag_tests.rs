//! The tags of a machine, from nothing to listed there, and away again.

use std::collections::BTreeMap;

use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::spec::SLICE_TAG;
use gpuaas_types::{EffectKind, RunKind, Step};

use super::fixture::{Case, at, machine, parked, unknown};
use super::machine_tag::kernel_tag;
use crate::effect::{Effect, Outcome};
use crate::record::ReportKind;
use crate::run_state::RegionTag;
use crate::snapshot::{Decision, Read};

const ARGUMENTS: &str = "intel_iommu=on iommu=pt";

fn name() -> String {
    kernel_tag(ARGUMENTS)
}

fn case() -> Case {
    let mut case = Case::new(Step::MachineTag).read(machine(status::READY), 1.0);
    case.kernel_arguments = Ok(ARGUMENTS.split(' ').map(str::to_owned).collect());
    case
}

fn tagged(tags: &[&str]) -> MachineView {
    MachineView {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..machine(status::READY)
    }
}

/// MAAS' answer about a tag at second `seconds`.
fn shows_tag(mut case: Case, name: &str, kernel_opts: Option<&str>, seconds: f64) -> Case {
    let kernel_opts = kernel_opts.map(str::to_owned);
    let name = name.to_owned();
    case.run.state.keep_tag(RegionTag { asked_at: at(seconds), name, kernel_opts });
    case
}

fn shows(case: Case, kernel_opts: Option<&str>, seconds: f64) -> Case {
    shows_tag(case, &name(), kernel_opts, seconds)
}

fn write(replaces: Option<&str>) -> Effect {
    let replaces = replaces.map(str::to_owned);
    Effect::WriteTag { name: name(), kernel_opts: ARGUMENTS.to_owned(), replaces }
}

fn tag() -> Effect {
    Effect::TagMachine { name: name() }
}

fn untag(name: &str) -> Effect {
    Effect::UntagMachine { name: name.to_owned() }
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
    assert_eq!(asked.decide(), Decision::Read(Read::Tag { name: name() }));
    let missing = shows(asked, None, 2.0);
    assert_eq!(missing.decide(), Decision::Do(write(None)));
    let written = missing.intent(write(None), 3.0, Some(Outcome::Accepted));
    assert_eq!(written.decide(), Decision::Read(Read::Tag { name: name() }));
    let there = shows(written, Some(ARGUMENTS), 5.0);
    assert_eq!(there.decide(), Decision::Do(tag()));
    let given = there.intent(tag(), 6.0, Some(Outcome::Accepted));
    assert_eq!(given.decide(), Decision::Read(Read::Machine));
    let listed = given.read(tagged(&["other", &name()]), 8.0);
    let decision = listed.decide();
    assert_eq!(listed.next_of(&decision), (Step::PredeployChecks, 10.0));
    let Decision::Next { checks, .. } = decision else { panic!("{decision:?}") };
    assert!(checks[0].passed && checks[0].evidence.contains(ARGUMENTS), "{checks:?}");
}

/// Two sets of arguments never share a tag, so one run cannot change what another machine boots with.
#[test]
fn another_set_of_arguments_has_another_tag() {
    let mut more = case();
    more.kernel_arguments.as_mut().unwrap().push("hugepages=512".to_owned());
    let Decision::Read(Read::Tag { name: other }) = more.decide() else { panic!("no read") };
    assert_ne!(other, name());
}

#[test]
fn a_tag_that_a_person_changed_gets_its_arguments_back() {
    let other = shows(case(), Some("quiet"), 2.0);
    assert_eq!(other.decide(), Decision::Do(write(Some("quiet"))));
}

/// The profile's own tag carries no options, or a machine would boot with those of an earlier version.
#[test]
fn the_profiles_own_tag_is_given_beside_the_kernels_and_carries_no_options() {
    let mut own = case();
    own.profile.machine_tag = "gold".to_owned();
    let old = shows_tag(own, "gold", Some("iommu=pt hugepages=1"), 2.0);
    let cleared = Effect::WriteTag {
        name: "gold".to_owned(),
        kernel_opts: String::new(),
        replaces: Some("iommu=pt hugepages=1".to_owned()),
    };
    assert_eq!(old.decide(), Decision::Do(cleared));
    let both = shows(shows_tag(old, "gold", Some(""), 3.0), Some(ARGUMENTS), 4.0);
    assert_eq!(both.decide(), Decision::Do(Effect::TagMachine { name: "gold".to_owned() }));
    let one = both.read(tagged(&["gold"]), 6.0);
    assert_eq!(one.decide(), Decision::Do(tag()));
    let done = one.read(tagged(&["gold", &name()]), 8.0);
    assert_eq!(done.next(), (Step::PredeployChecks, 10.0));
}

/// An upgrade, and a reimage with another profile: the machine boots with its own arguments alone.
#[test]
fn tags_of_other_arguments_are_removed() {
    let other = kernel_tag("hugepages=1");
    for stale in [SLICE_TAG, other.as_str()] {
        let there = shows(case(), Some(ARGUMENTS), 2.0).read(tagged(&[stale, &name()]), 3.0);
        assert_eq!(there.decide(), Decision::Do(untag(stale)));
        let asked = there.intent(untag(stale), 4.0, Some(Outcome::Accepted));
        assert_eq!(asked.decide(), Decision::Read(Read::Machine));
        let still = asked.clone().read(tagged(&[stale, &name()]), 7.0);
        assert_eq!(parked(&still.decide()), "tag_not_as_asked");
        let gone = asked.read(tagged(&[&name()]), 7.0);
        assert_eq!(gone.next(), (Step::PredeployChecks, 10.0));

        let mut bare = case().read(tagged(&["rack-7", stale]), 3.0);
        bare.kernel_arguments = Ok(Vec::new());
        assert_eq!(bare.decide(), Decision::Do(untag(stale)));
        let asked = bare.intent(untag(stale), 4.0, Some(Outcome::Accepted));
        let gone = asked.read(tagged(&["rack-7"]), 7.0);
        let decision = gone.decide();
        assert_eq!(gone.next_of(&decision), (Step::PredeployChecks, 10.0));
        let Decision::Next { notes, .. } = decision else { panic!("{decision:?}") };
        assert_eq!(notes.len(), 1, "the timeline tells it");
    }
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
    assert_eq!(lost.decide(), Decision::Read(Read::Tag { name: name() }));
    let found = shows(lost, Some(ARGUMENTS), 5.0);
    assert_eq!(found.decide(), Decision::Settle { happened: true });
}

#[test]
fn unknown_arguments_park() {
    let mut unknown = case();
    unknown.kernel_arguments = Err("there is no bundle".to_owned());
    assert_eq!(parked(&unknown.decide()), "host_checks_unknown");
}

/// A person, another revision of the profile, or the version of this program that began the run: what
/// MAAS lists right before the deployment counts.
#[test]
fn a_machine_with_other_tags_is_tagged_again_before_it_is_deployed() {
    let mut case = Case::new(Step::Deploy).read(tagged(&[&name()]), 9.0);
    case.kernel_arguments = Ok(ARGUMENTS.split(' ').map(str::to_owned).collect());
    assert!(matches!(case.decide(), Decision::Do(Effect::Deploy { .. })), "{:?}", case.decide());
    for tags in [&[SLICE_TAG][..], &[], &[&name(), SLICE_TAG]] {
        let lost = case.clone().read(tagged(tags), 9.0);
        assert_eq!(lost.next(), (Step::MachineTag, 10.0), "{tags:?}");
        let Decision::Do(deploy) = case.decide() else { panic!("no deployment") };
        let under_way = lost.intent(deploy, 9.0, unknown());
        assert!(!matches!(under_way.decide(), Decision::AdvanceTo { .. }), "it may have begun");
    }
}

#[test]
fn a_machine_that_leaves_loses_the_tag_of_its_arguments() {
    let mut leaving = Case::new(Step::PowerOff);
    leaving.run.kind = RunKind::Decommission;
    let leaving = leaving.read(tagged(&["gold", &name()]), 9.0);
    assert_eq!(leaving.decide(), Decision::Do(untag(&name())));
    let gone = leaving.clone().read(tagged(&["gold"]), 9.5);
    assert!(matches!(gone.decide(), Decision::Finish { .. }), "{:?}", gone.decide());
    let taken = MachineView {
        owner: Some("eve".to_owned()),
        status: status::ALLOCATED,
        ..tagged(&[&name()])
    };
    let theirs = leaving.read(taken, 9.5);
    assert!(matches!(theirs.decide(), Decision::Finish { .. }), "{:?}", theirs.decide());
}

#[test]
fn a_cancelled_run_takes_its_tag_back() {
    let cancel = ReportKind::CancelRequested {
        actor: "operator".to_owned(),
        reason: "enough".to_owned(),
        leave_machine: false,
    };
    let mut given = shows(case(), Some(ARGUMENTS), 2.0).report(cancel, 9.0);
    assert!(matches!(given.decide(), Decision::Finish { .. }), "it gave none yet");
    given.run.state.intended_at.insert(EffectKind::TagMachine, at(3.0));
    let given = given.read(tagged(&[&name()]), 5.0);
    assert_eq!(given.next(), (Step::ReleaseForCancel, 10.0));
    let mut release = given;
    release.run.step = Step::ReleaseForCancel;
    let release = release.read(tagged(&[&name()]), 9.5);
    assert_eq!(release.decide(), Decision::Do(untag(&name())));
    let gone = release.read(tagged(&[]), 9.8);
    assert!(matches!(gone.decide(), Decision::Finish { .. }), "{:?}", gone.decide());
}

/// Random orders that are tried.
const ORDERS: u64 = 50;
/// Kernel arguments of three profiles of one site.
const PROFILES: [&str; 3] = [
    "intel_iommu=on iommu=pt hugepagesz=1G hugepages=512",
    "intel_iommu=on iommu=pt hugepagesz=1G hugepages=256",
    "intel_iommu=on iommu=pt",
];

/// A run of one of the profiles, and what MAAS lists at its machine.
struct TaggedRun {
    case: Case,
    arguments: &'static str,
    tags: Vec<String>,
    is_tagged: bool,
}

impl TaggedRun {
    fn new(arguments: &'static str, tags: Vec<String>) -> Self {
        let mut case = Case::new(Step::MachineTag);
        case.kernel_arguments = Ok(arguments.split(' ').map(str::to_owned).collect());
        Self { case, arguments, tags, is_tagged: false }
    }

    /// Carries out the next decision at second `seconds`, in a region with these tags.
    fn act(&mut self, region: &mut BTreeMap<String, String>, seconds: f64) {
        self.case.now = at(seconds);
        let effect = match self.case.decide() {
            Decision::Next { .. } => {
                self.is_tagged = true;
                return;
            }
            Decision::Read(Read::Tag { name }) => {
                let kernel_opts = region.get(&name).cloned();
                let read = RegionTag { asked_at: at(seconds), name, kernel_opts };
                return self.case.run.state.keep_tag(read);
            }
            Decision::Read(Read::Machine) => {
                let tags: Vec<&str> = self.tags.iter().map(String::as_str).collect();
                self.case = self.case.clone().read(tagged(&tags), seconds);
                return;
            }
            Decision::Do(effect) => effect,
            other => panic!("{other:?}"),
        };
        match &effect {
            Effect::WriteTag { name, kernel_opts, .. } => {
                region.insert(name.clone(), kernel_opts.clone());
            }
            Effect::TagMachine { name } => self.tags.push(name.clone()),
            Effect::UntagMachine { name } => self.tags.retain(|tag| tag != name),
            other => panic!("{other:?}"),
        }
        self.case = self.case.clone().intent(effect, seconds, Some(Outcome::Accepted));
    }

    /// The kernel options that MAAS boots the machine with.
    fn booted_with(&self, region: &BTreeMap<String, String>) -> String {
        let options = region.iter().filter(|(name, _)| self.tags.contains(name));
        options.map(|(_, options)| options.as_str()).collect::<Vec<_>>().join(" ")
    }
}

/// MAAS reads the options when a machine boots, long after they were written: each boots with its own,
/// in whatever order runs are tagged and machines boot, and whatever tags they had before.
#[test]
fn each_machine_boots_with_its_own_arguments_in_any_order() {
    for seed in 1..=ORDERS {
        let mut state = seed;
        let mut below = |limit: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % limit
        };
        let mut region = BTreeMap::from([(SLICE_TAG.to_owned(), "hugepages=1".to_owned())]);
        let mut runs: Vec<TaggedRun> = Vec::new();
        for number in 0..6 {
            let before = match below(3) {
                0 => vec![SLICE_TAG.to_owned()],
                1 => vec![kernel_tag(PROFILES[below(3)])],
                _ => Vec::new(),
            };
            runs.push(TaggedRun::new(PROFILES[number % 3], before));
        }
        let mut seconds = 10.0;
        while !runs.is_empty() {
            seconds += 2.0;
            let chosen = below(runs.len());
            if runs[chosen].is_tagged {
                let run = runs.swap_remove(chosen);
                assert_eq!(run.booted_with(&region), run.arguments, "order {seed}");
            } else {
                runs[chosen].act(&mut region, seconds);
            }
        }
    }
}
