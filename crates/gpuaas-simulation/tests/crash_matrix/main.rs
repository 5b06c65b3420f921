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

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod end;
mod region_setup;
mod setup;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use end::{End, faults};
use gpuaas_client::failure::Failure;
use gpuaas_engine::Failpoint;
use gpuaas_simulation::breakpoint::PassedFailpoint;
use gpuaas_types::steps::KINDS;
use gpuaas_types::{EffectKind, RunKind, Step};
use setup::{DriveOutcome, RunSetup, SETUPS, StartedRun};

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

/// Does `work` for every one of `0..count`, on as many threads as there are processors.
fn each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let worker = || {
            std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::SeqCst)))
                .take_while(|index| *index < count)
                .map(|index| (index, work(index)))
                .collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
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
async fn run_case(case: Case, baselines: &[Undisturbed]) -> Result<Vec<String>, Failure> {
    let mut started = SETUPS[case.setup].set(Some(case.index)).await?;
    if started.until_end().await? != DriveOutcome::BreakpointHit {
        return Ok(vec!["the run never came to this moment".to_owned()]);
    }
    if started.breakpoint.passed()[case.index] != baselines[case.setup].passed[case.index] {
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
    let (end, expected) = (End::read(&started).await.unwrap(), &baselines[case.setup].end);
    wrong.extend(end.differences(expected, &baselines[case.setup].passed[case.index]));
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

#[test]
fn the_crash_matrix_ends_every_run_as_if_nothing_had_happened() {
    let baselines =
        each(SETUPS.len(), |setup| block_on_current_thread(undisturbed(&SETUPS[setup])).unwrap());
    let wrong: Vec<_> = SETUPS
        .iter()
        .zip(&baselines)
        .filter(|(_, baseline)| !baseline.wrong.is_empty())
        .map(|(setup, baseline)| format!("{} ({}): {:?}", setup.kind, setup.name, baseline.wrong))
        .collect();
    assert!(wrong.is_empty(), "undisturbed:\n{}", wrong.join("\n"));
    let reached: BTreeSet<Row> = baselines.iter().flat_map(|t| t.reached.iter().copied()).collect();
    let missing: Vec<_> = rows().difference(&reached).copied().collect();
    assert!(
        missing.is_empty(),
        "no stage of tests/crash_matrix/setup.rs brings these effects about: {missing:?}"
    );
    let mut cases = Vec::new();
    let mut lines = Vec::new();
    for kind in KINDS {
        let mut seen = BTreeSet::new();
        let (mut stages, mut moments, before) = (0, 0, cases.len());
        let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
        for (setup, baseline) in
            baselines.iter().enumerate().filter(|(s, _)| SETUPS[*s].kind == kind.kind)
        {
            let chosen = fresh(baseline, kind.kind, &mut seen);
            stages += 1;
            moments += chosen.len();
            for (name, count) in boundaries(baseline, &chosen) {
                *counted.entry(name).or_default() += count;
            }
            for index in chosen {
                let ways = disturbances(baseline.passed[index].moment);
                cases.extend(ways.iter().map(|disturbance| Case {
                    setup,
                    index,
                    disturbance: *disturbance,
                }));
            }
        }
        assert!(moments > 0, "no stage of tests/crash_matrix/setup.rs is of kind {}", kind.kind);
        let effects = rows().iter().filter(|(of, ..)| *of == kind.kind).count();
        let counted: Vec<_> = counted.iter().map(|(name, n)| format!("{n} {name}")).collect();
        lines.push(format!(
            "crash matrix: {:<16}{effects:>3} effects {stages} stages {moments:>4} moments {:>5} lives  {}",
            kind.kind.to_string(),
            cases.len() - before,
            counted.join(", ")
        ));
    }
    println!("{}", lines.join("\n"));
    let lived = each(cases.len(), |index| {
        block_on_current_thread(run_case(cases[index], &baselines)).unwrap()
    });
    let mut broken = Vec::new();
    for (case, wrong) in cases.iter().zip(lived).filter(|(_, wrong)| !wrong.is_empty()) {
        let setup = &SETUPS[case.setup];
        let moment = &baselines[case.setup].passed[case.index];
        broken.push(format!(
            "{} ({}), {:?} at moment {}, {moment:?}:\n{}",
            setup.kind,
            setup.name,
            case.disturbance,
            case.index,
            wrong.join("\n")
        ));
    }
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), cases.len(), broken.join("\n\n"));
}
