//! The crash matrix, generated from the tables of steps and of run kinds.
//!
//! Every kind of run is carried out once undisturbed on each of its setups ([`setup::SETUPS`]), while
//! the engine reports each moment at which a process could die ([`gpuaas_engine::Failpoint`]). Then it
//! is repeated for every such moment and every [`Disturbance`] there, each time in a new simulation of
//! the same seed. It must end as the undisturbed one did: same state, same machine, same calls, and a
//! complete timeline with a line for each event of MAAS' feed.
//!
//! Which effects there are is what `gpuaas_types::steps` says. One that no setup reaches, by the
//! journal, fails the test by name: nothing is skipped.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

mod end;
mod region_setup;
mod setup;

use std::collections::{BTreeMap, BTreeSet};

use self::end::{End, faults};
use self::setup::{DriveOutcome, RunSetup, SETUPS, StartedRun};
use gpuaas_client::failure::Failure;
use gpuaas_engine::Failpoint;
use gpuaas_simulation::breakpoint::PassedFailpoint;
use gpuaas_types::steps::KINDS;
use gpuaas_types::{EffectKind, RunKind, Step};
use test_report::SystemTest;

/// All that decides, performs and stores a run, and the region that it runs against.
const COVERS: [&str; 9] = [
    "crates/gpuaas-artifact/src",
    "crates/gpuaas-core/src",
    "crates/gpuaas-engine/src",
    "lab/gpuaas-simulation/src",
    "crates/gpuaas-store/src",
    "lab/gpuaas-systems/tests/it/crash_matrix",
    "crates/gpuaas-types/src",
    "crates/maas-client/src",
    "lab/maas-sim/src",
];

/// What happens at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    /// The process dies and starts again.
    Killed,
    /// It stands still until its lease is over and another worker has the run; then it goes on.
    Overtaken,
    /// It stands still until the other worker has brought the run to its end; then it goes on.
    Late,
}

/// Ways of being disturbed at a moment. What a worker that stands still can do afterwards is told
/// by where it stands: with a claim, an intent or an answer that nobody knows of, it goes on to a
/// write; after its record it goes on to a decision, which only an end can have made stale.
fn disturbances(moment: Failpoint) -> &'static [Disturbance] {
    match moment {
        Failpoint::Call | Failpoint::Called => {
            &[Disturbance::Killed, Disturbance::Overtaken, Disturbance::Late]
        }
        Failpoint::Commit => &[Disturbance::Killed, Disturbance::Overtaken],
        Failpoint::Claimed | Failpoint::Committed => &[Disturbance::Killed, Disturbance::Late],
    }
}

/// An effect of a run kind, in a step of it or in any: what the tables say there is.
type Row = (RunKind, Option<Step>, EffectKind);

/// One life to live.
#[derive(Clone, Copy)]
struct Case {
    /// Which setup of its kind.
    setup: usize,
    /// Which moment of the run.
    index: usize,
    disturbance: Disturbance,
}

/// An undisturbed life.
struct Undisturbed {
    passed: Vec<PassedFailpoint>,
    reached: BTreeSet<Row>,
    wrong: Vec<String>,
    end: End,
}

/// Does `work` on a runtime of its own.
fn block_on_current_thread<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn undisturbed(setup: &RunSetup) -> Result<Undisturbed, Failure> {
    let mut started = setup.set(None).await?;
    assert_eq!(started.until_end().await?, DriveOutcome::Reached);
    let wrong = faults(&started, false).await.unwrap();
    let reached = started.simulation.store.attempts(started.run_id).await.unwrap().into_iter();
    let reached = reached.filter_map(|attempt| {
        let of_step = attempt.step.row().effects.contains(&attempt.effect);
        of_step.then(|| row(setup.kind, attempt.step, attempt.effect))
    });
    let end = End::read(&started).await.unwrap();
    Ok(Undisturbed { passed: started.breakpoint.passed(), reached: reached.collect(), wrong, end })
}

/// Lives one case. Answers what is wrong with it.
async fn run_case(
    case: Case,
    setup: &RunSetup,
    baseline: &Undisturbed,
) -> Result<Vec<String>, Failure> {
    let mut started = setup.set(Some(case.index)).await?;
    if started.until_end().await? != DriveOutcome::BreakpointHit {
        return Ok(vec!["the run never came to this moment".to_owned()]);
    }
    if started.breakpoint.passed()[case.index] != baseline.passed[case.index] {
        return Ok(vec!["the run came to another moment than before".to_owned()]);
    }
    let mut wrong = Vec::new();
    match case.disturbance {
        Disturbance::Killed => {
            started.simulation.crash(started.first);
            started.take_over(true).await;
            started.until_end().await?;
        }
        Disturbance::Overtaken => {
            started.simulation.pause(started.first);
            started.take_over(false).await;
            started.drive(|started| started.second.passed_count() > 0).await?;
            started.resume_paused().await?;
            started.until_end().await?;
        }
        Disturbance::Late => {
            started.simulation.pause(started.first);
            started.take_over(false).await;
            started.until_end().await?;
            let before = everything(&started).await;
            started.resume_paused().await?;
            let after = everything(&started).await;
            let wrote = before.iter().zip(&after).filter(|(before, after)| before != after);
            wrong.extend(wrote.map(|(b, a)| format!("a late worker changed {b}\nto {a}")));
        }
    }
    wrong.extend(faults(&started, true).await.unwrap());
    let end = End::read(&started).await.unwrap();
    wrong.extend(end.differences(&baseline.end, &baseline.passed[case.index]));
    Ok(wrong)
}

/// All that is stored of a run, and all that its machine was asked.
async fn everything(started: &StartedRun) -> [String; 6] {
    let store = &started.simulation.store;
    let run = store.run(started.run_id).await.unwrap();
    let attempts = store.attempts(run.id).await.unwrap();
    let transitions = store.transitions(run.id).await.unwrap();
    let timeline = store.timeline_of_run(run.id, 0, 10_000).await.unwrap();
    let node = store.node(started.node_id).await.unwrap();
    let machine = started
        .simulation
        .region
        .with(|region| region.stats().machines.get(&started.host).cloned());
    [
        format!("{run:?}"),
        format!("{node:?}"),
        format!("{attempts:?}"),
        format!("{transitions:?}"),
        format!("{timeline:?}"),
        format!("{machine:?}"),
    ]
}

/// The moments of a setup that no earlier setup of its kind has had, by what the run was at. Of two
/// moments between which nothing is written and nothing asked, one is enough: the commit of an
/// intent and its call, an answer and the commit after it.
fn fresh(baseline: &Undisturbed, kind: RunKind, seen: &mut BTreeSet<String>) -> Vec<usize> {
    let mut recorded = None;
    let mut moments = Vec::new();
    for (index, passed) in baseline.passed.iter().enumerate() {
        let effect = passed.intent.as_ref().map(|intent| (intent.effect, intent.ended));
        if passed.moment == Failpoint::Called {
            recorded = passed.intent.as_ref().map(|intent| intent.effect);
        }
        let PassedFailpoint { moment, step, status, wait, .. } = passed;
        let key = format!("{kind} {moment:?} {step} {status} {wait:?} {effect:?} {recorded:?}");
        let at =
            |index: Option<usize>| index.and_then(|i| baseline.passed.get(i)).map(|p| p.moment);
        let same = match moment {
            Failpoint::Committed => at(index.checked_add(1)) == Some(Failpoint::Call),
            Failpoint::Commit => at(index.checked_sub(1)) == Some(Failpoint::Called),
            _ => false,
        };
        // The record of one effect and the intent of the next share a commit.
        if *moment == Failpoint::Call || *moment == Failpoint::Committed && !same {
            recorded = None;
        }
        if !same && seen.insert(key) {
            moments.push(index);
        }
    }
    moments
}

/// An effect of a step as a row. The escalation of a release that hangs is one function for all steps
/// that release (`decide::release`), so what it asks for beyond the release has one row per kind:
/// one of the kind's steps has to bring it about.
fn row(kind: RunKind, step: Step, effect: EffectKind) -> Row {
    let releases = step.row().effects.contains(&EffectKind::Release);
    let escalates = releases && effect != EffectKind::Release;
    (kind, (!escalates).then_some(step), effect)
}

/// Every effect of every run kind, as the tables say.
fn rows() -> BTreeSet<Row> {
    let of =
        |kind, step: Step| step.row().effects.iter().map(move |effect| row(kind, step, *effect));
    KINDS.iter().flat_map(|k| k.steps.iter().flat_map(move |step| of(k.kind, *step))).collect()
}

/// How many boundaries of effects a kind's chosen moments are: before the call, after it, after
/// its record.
fn boundaries(baseline: &Undisturbed, chosen: &[usize]) -> BTreeMap<&'static str, usize> {
    let mut count = BTreeMap::new();
    let mut recording = false;
    for (index, passed) in baseline.passed.iter().enumerate() {
        let name = match passed.moment {
            Failpoint::Call => Some("before a call"),
            Failpoint::Called => Some("after a call"),
            Failpoint::Committed if recording => Some("after its record"),
            _ => None,
        };
        match passed.moment {
            Failpoint::Called => recording = true,
            Failpoint::Committed => recording = false,
            _ => {}
        }
        // The record of one effect and the intent of the next share a commit.
        let next = baseline.passed.get(index + 1).map(|next| next.moment);
        let shares = passed.moment == Failpoint::Committed && next == Some(Failpoint::Call);
        let chosen = chosen.contains(&index) || shares && chosen.contains(&(index + 1));
        if let Some(name) = name.filter(|_| chosen) {
            *count.entry(name).or_default() += 1;
        }
    }
    count
}

/// The cases of a kind, and the line that counts them.
fn cases(kind: RunKind, baselines: &[Undisturbed]) -> (Vec<Case>, String) {
    let (mut cases, mut moments) = (Vec::new(), 0);
    let mut seen = BTreeSet::new();
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for (setup, baseline) in baselines.iter().enumerate() {
        let chosen = fresh(baseline, kind, &mut seen);
        moments += chosen.len();
        for (name, count) in boundaries(baseline, &chosen) {
            *counted.entry(name).or_default() += count;
        }
        for index in chosen {
            let ways = disturbances(baseline.passed[index].moment).iter();
            cases.extend(ways.map(|disturbance| Case { setup, index, disturbance: *disturbance }));
        }
    }
    let effects = rows().iter().filter(|(of, ..)| *of == kind).count();
    let counted: Vec<_> = counted.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let line = format!(
        "crash matrix: {:<16}{effects:>3} effects {} stages {moments:>4} moments {:>5} lives  {}",
        kind.to_string(),
        baselines.len(),
        cases.len(),
        counted.join(", ")
    );
    (cases, line)
}

/// Lives every `parts`th case of a kind, from number `part` on.
fn live_part(kind: RunKind, part: usize, parts: usize) {
    let setups: Vec<&RunSetup> = SETUPS.iter().filter(|setup| setup.kind == kind).collect();
    assert!(!setups.is_empty(), "no setup in crash_matrix/setup.rs is of kind {kind}");
    let baselines: Vec<_> =
        setups.iter().map(|setup| block_on_current_thread(undisturbed(setup)).unwrap()).collect();
    for (setup, baseline) in setups.iter().zip(&baselines) {
        let wrong = baseline.wrong.join("\n");
        assert!(wrong.is_empty(), "undisturbed, {kind} ({}):\n{wrong}", setup.name);
    }
    let reached: BTreeSet<Row> = baselines.iter().flat_map(|t| t.reached.iter().copied()).collect();
    let of_kind = rows().into_iter().filter(|(of, ..)| *of == kind);
    let missing: Vec<_> = of_kind.filter(|row| !reached.contains(row)).collect();
    assert!(
        missing.is_empty(),
        "no setup in crash_matrix/setup.rs brings these effects about: {missing:?}"
    );
    let (cases, line) = cases(kind, &baselines);
    assert!(!cases.is_empty(), "no moment of a run of kind {kind}");
    println!("{line}, part {part} of {parts}");
    let mut broken = Vec::new();
    for case in cases.iter().skip(part - 1).step_by(parts) {
        let (setup, baseline) = (setups[case.setup], &baselines[case.setup]);
        let wrong = block_on_current_thread(run_case(*case, setup, baseline)).unwrap();
        if !wrong.is_empty() {
            let (moment, name) = (&baseline.passed[case.index], setup.name);
            let at = format!("{:?} at moment {}, {moment:?}", case.disturbance, case.index);
            broken.push(format!("{kind} ({name}), {at}:\n{}", wrong.join("\n")));
        }
    }
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), cases.len(), broken.join("\n\n"));
}

/// A test for each part of each kind: parts run beside each other, and none of them alone is what
/// a run of the suite waits for.
macro_rules! parts {
    ($($test:ident: $kind:ident $part:literal of $parts:literal)*) => {
        $(
            #[test]
            fn $test() {
                let Some(test) = SystemTest::begin(&COVERS) else { return };
                live_part(RunKind::$kind, $part, $parts);
                test.passed();
            }
        )*

        /// What the tests live.
        const PARTS: &[(RunKind, usize, usize)] = &[$((RunKind::$kind, $part, $parts)),*];
    };
}

parts! {
    crash_matrix_of_onboard_1: Onboard 1 of 4
    crash_matrix_of_onboard_2: Onboard 2 of 4
    crash_matrix_of_onboard_3: Onboard 3 of 4
    crash_matrix_of_onboard_4: Onboard 4 of 4
    crash_matrix_of_decommission_1: Decommission 1 of 2
    crash_matrix_of_decommission_2: Decommission 2 of 2
    crash_matrix_of_reimage_1: Reimage 1 of 4
    crash_matrix_of_reimage_2: Reimage 2 of 4
    crash_matrix_of_reimage_3: Reimage 3 of 4
    crash_matrix_of_reimage_4: Reimage 4 of 4
    crash_matrix_of_soft_reset: SoftReset 1 of 1
    crash_matrix_of_storage_cleanup: StorageCleanup 1 of 1
    crash_matrix_of_detach: Detach 1 of 1
    crash_matrix_of_remove: Remove 1 of 1
}

#[test]
fn every_part_of_every_kind_is_in_the_crash_matrix() {
    for kind in KINDS {
        let mut lived = PARTS.iter().filter(|(of, ..)| *of == kind.kind);
        let parts = lived.clone().next().map_or(1, |(.., parts)| *parts);
        let all = (1..=parts).all(|part| lived.next() == Some(&(kind.kind, part, parts)));
        assert!(all && lived.next().is_none(), "{} is not lived part by part", kind.kind);
    }
    let setups: BTreeSet<_> = SETUPS.iter().map(|setup| setup.kind.to_string()).collect();
    let kinds: BTreeSet<_> = KINDS.iter().map(|kind| kind.kind.to_string()).collect();
    assert_eq!(setups, kinds);
}
