//! Every interleaving of one effect's life: two workers, two crashes, one answer that is late or lost, and
//! one person in MAAS.
//!
//! The world is small and explored as a whole. A worker decides with the functions of the
//! product ([`super::drive`], the guard, and that no run goes past an open intent); what they decide is
//! carried out on a toy region: a call that was sent is carried out at once, or later in a queue whether
//! or not its worker still lives, or never. What must hold in each state:
//!
//! - no effect is carried out twice, and none after it was said not to have happened;
//! - nothing is said to have happened that did not;
//! - no call is sent to a machine that was seen to be another user's;
//! - no run parks although its effect took place.
//!
//! [`ROWS`] has a row for every kind of effect. A test that plants a mistake in each row shows that the
//! model would find it.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use gpuaas_types::machine::{MachineView, Observation, maas_status as status};
use gpuaas_types::steps::{self, StepRow};
use gpuaas_types::{AttemptId, EffectKind, Step};

use super::change_guard::guard_change;
use super::drive::drive_effect;
use super::fixture::{Case, at, id, machine};
use super::interleaving_rows::{ROWS, Row};
use super::settle_open_intent;
use crate::effect::{Effect, Outcome};
use crate::run_state::{
    Candidate, MachineFacts, MachineSearch, RegionScripts, RegionTag, RunState,
};
use crate::snapshot::{Decision, Read};

/// Seconds after which MAAS refuses the signature of a call, however long it stood in a queue.
const SIGNATURE_SECONDS: f64 = 300.0;
/// Seconds after which another worker takes over the run of one that died.
const LEASE_SECONDS: f64 = 45.0;
/// Seconds for which a worker waits for an answer.
const PATIENCE_SECONDS: f64 = 90.0;
/// A worker comes this much later than it said: the model needs no finer steps.
const TARDY_SECONDS: f64 = 90.0;

/// A mistake of the product, planted in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// An unchanged machine counts as proof at once.
    JudgesEarly,
    /// A read does not show what was done.
    LooksElsewhere,
    /// A refusal is taken at its word although an earlier try had no answer.
    BelievesRefusal,
}

/// A call that left its worker and was not carried out yet.
#[derive(Debug, Clone, Copy)]
struct Call {
    sent: f64,
    /// It was said that it did not happen.
    written_off: bool,
}

/// How the worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    Decides,
    /// It waits for the answer to the last of the calls.
    Waits,
    Done,
    Parked,
}

/// What is known of the run and its machine.
#[derive(Clone, Default)]
struct Known {
    state: RunState,
    seen: Option<Rc<Observation>>,
}

#[derive(Clone)]
struct World {
    now: f64,
    worker: Worker,
    /// What the worker knows.
    known: Known,
    /// What the database knows, as of the last commit.
    stored: Known,
    calls: Vec<Call>,
    /// How often MAAS carried the effect out.
    carried_out: u32,
    /// A person took the machine.
    taken: bool,
    crashes: u32,
    lost_answers: u32,
    people: u32,
    /// What happened, and when.
    story: Vec<(&'static str, f64)>,
}

impl World {
    fn tell(&mut self, what: &'static str) {
        self.story.push((what, self.now));
    }

    fn violation(&self, what: &str) -> String {
        let story = self.story.iter().map(|(what, at)| format!("{what} at {at}"));
        format!("{what}: {}", story.collect::<Vec<_>>().join(", "))
    }
}

struct Model<'a> {
    row: &'a Row,
    /// The run without what is known of it.
    base: Case,
    crashes: u32,
    mistake: Mistake,
    /// For how long a call may stand in a queue.
    queue_seconds: f64,
}

/// What an exploration found.
#[derive(Debug, Default)]
struct Explored {
    states: usize,
    violations: Vec<String>,
}

impl<'a> Model<'a> {
    fn new(row: &'a Row, mistake: Mistake) -> Self {
        // Not the one that takes a machine over, for which an operator has to agree.
        let asks =
            |step: &&StepRow| step.step != Step::ReleaseAdopted && step.effects.contains(&row.kind);
        let step = steps::ROWS.iter().find(asks).unwrap();
        let mut base = Case::new(step.step);
        base.run.kind = step.kinds[0];
        if row.kind == EffectKind::CreateMachine {
            base.node.system_id = None;
        }
        Self { row, base, crashes: 2, mistake, queue_seconds: SIGNATURE_SECONDS }
    }

    /// A queue that is longer than any signature lasts.
    fn with_endless_queue(row: &'a Row, mistake: Mistake) -> Self {
        Self { crashes: 1, queue_seconds: 2.5 * SIGNATURE_SECONDS, ..Self::new(row, mistake) }
    }

    fn begin(&self) -> World {
        let mut world = World {
            now: 1.0,
            worker: Worker::Decides,
            known: Known::default(),
            stored: Known::default(),
            calls: Vec::new(),
            carried_out: 0,
            taken: false,
            crashes: self.crashes,
            lost_answers: 1,
            people: 1,
            story: Vec::new(),
        };
        self.read(&mut world, &Read::Machine);
        world.stored = world.known.clone();
        world
    }

    /// The machine as MAAS has it.
    fn machine(&self, world: &World) -> MachineView {
        let mut machine = machine(status::READY);
        (self.row.before)(&mut machine);
        if world.carried_out > 0 && self.mistake != Mistake::LooksElsewhere {
            (self.row.done)(&mut machine);
        }
        if world.taken {
            let commissions = machine.status == status::NEW;
            machine.status = if commissions { status::COMMISSIONING } else { status::DEPLOYING };
            machine.owner = Some("ann".to_owned());
        }
        machine
    }

    fn read(&self, world: &mut World, read: &Read) {
        let shown = world.carried_out > 0 && self.mistake != Mistake::LooksElsewhere;
        let (now, machine) = (at(world.now), self.machine(world));
        let state = &mut world.known.state;
        match read {
            Read::FindMachine => {
                let found = shown.then(|| Candidate {
                    system_id: machine.system_id.clone(),
                    hostname: machine.hostname.clone(),
                    matched_by: vec!["hostname".to_owned()],
                    held_by: None,
                    facts: Some(MachineFacts::new(&machine, None)),
                });
                state.found = Some(MachineSearch {
                    asked_at: now,
                    candidates: found.into_iter().collect(),
                    unclaimed_new: Vec::new(),
                });
            }
            Read::RegionScripts => {
                let script = shown.then(|| ("s".to_owned(), "d".to_owned()));
                state.region_scripts = Some(RegionScripts {
                    asked_at: now,
                    digests: BTreeMap::from_iter(script),
                    automatic: Vec::new(),
                    default_tests: false,
                });
            }
            Read::Tag { name } => {
                let kernel_opts = shown.then(|| "k".to_owned());
                state.tag = Some(RegionTag { asked_at: now, name: name.clone(), kernel_opts });
            }
            _ => world.known.seen = Some(Rc::new(Observation::from_read(machine, now))),
        }
    }

    /// What the product decides now; none: the effect took place as far as it knows.
    fn decide(&self, world: &World) -> Option<Decision> {
        let mut case = self.base.clone();
        case.now = at(world.now);
        case.run.state = world.known.state.clone();
        case.observation = world.known.seen.as_deref().cloned();
        if self.mistake == Mistake::BelievesRefusal
            && let Some(intent) = &mut case.run.state.intent
        {
            intent.after_unknown = false;
        }
        let snapshot = case.snapshot();
        let decision = match drive_effect(&snapshot, (self.row.effect)()) {
            Ok(_) => return None,
            Err(decision) => decision,
        };
        let decision = settle_open_intent(&snapshot, guard_change(&snapshot, decision));
        match decision {
            Decision::Wait { wait, .. }
                if self.mistake == Mistake::JudgesEarly && wait.code == "unknown_outcome" =>
            {
                Some(Decision::Settle { happened: false })
            }
            other => Some(other),
        }
    }

    /// Every world that may come next. An `Err` is what must not happen.
    fn successors(&self, world: &World) -> Vec<Result<World, String>> {
        let mut next = Vec::new();
        if matches!(world.worker, Worker::Done | Worker::Parked) && world.calls.is_empty() {
            return next;
        }
        for index in 0..world.calls.len() {
            let last = index + 1 == world.calls.len();
            if world.worker == Worker::Waits && last {
                next.extend(self.answers(world));
                continue;
            }
            if world.now - world.calls[index].sent <= self.queue_seconds {
                next.push(self.carry_out(world, index).map(|(world, _)| world));
            }
            let mut lost = world.clone();
            lost.calls.remove(index);
            lost.tell("a call is lost");
            next.push(Ok(lost));
        }
        let overdue = |call: &Call| world.now - call.sent > self.queue_seconds + PATIENCE_SECONDS;
        match world.worker {
            Worker::Decides if !world.calls.iter().any(overdue) => next.push(self.work(world)),
            _ => {}
        }
        if world.crashes > 0 && matches!(world.worker, Worker::Decides | Worker::Waits) {
            next.push(Ok(crash(world)));
        }
        let seen = self.machine(world);
        let free = seen.owner.is_none() && matches!(seen.status, status::READY | status::NEW);
        if world.people > 0 && free && self.row.kind != EffectKind::CreateMachine {
            let mut taken = world.clone();
            (taken.people, taken.taken) = (0, true);
            taken.tell("ann takes the machine");
            next.push(Ok(taken));
        }
        next
    }

    /// What may come of the call that the worker waits for.
    fn answers(&self, world: &World) -> Vec<Result<World, String>> {
        let last = world.calls.len() - 1;
        let heard = |mut world: World, outcome: Outcome, seconds: f64| {
            world.now += seconds;
            world.known.state.record_outcome(outcome, at(world.now));
            world.worker = Worker::Decides;
            world
        };
        let unknown = |code: &str| Outcome::Unknown { code: code.to_owned(), text: "?".to_owned() };
        let carried_out = self.carry_out(world, last);
        let mut next = Vec::new();
        if world.lost_answers > 0 {
            let mut lost = world.clone();
            lost.lost_answers -= 1;
            lost.tell("the answer is given up");
            next.push(Ok(heard(lost.clone(), unknown("timeout"), PATIENCE_SECONDS)));
            if let Ok((mut done, _)) = carried_out.clone() {
                done.lost_answers -= 1;
                done.tell("and its answer says nothing");
                next.push(Ok(heard(done, unknown("maas_unavailable"), 1.0)));
            }
            lost.calls.remove(last);
            lost.tell("MAAS did nothing and said 503");
            next.push(Ok(heard(lost, unknown("maas_unavailable"), 1.0)));
        }
        next.push(carried_out.map(|(world, outcome)| heard(world, outcome, 1.0)));
        next
    }

    /// MAAS comes to a call: it carries it out, or refuses it.
    fn carry_out(&self, world: &World, index: usize) -> Result<(World, Outcome), String> {
        let mut world = world.clone();
        let call = world.calls.remove(index);
        let done = world.carried_out > 0;
        let others = world.taken && (self.row.effect)().takes_machine();
        if others || done && self.row.refused_again {
            world.tell("MAAS refuses");
            let (code, text) = ("maas_state_conflict".to_owned(), "409".to_owned());
            return Ok((world, Outcome::Rejected { code, text, conflict: true }));
        }
        world.carried_out += 1;
        world.tell("MAAS carries it out");
        if done {
            return Err(world.violation("carried out twice"));
        }
        if call.written_off && self.queue_seconds <= SIGNATURE_SECONDS {
            return Err(world.violation("carried out after it was said not to have happened"));
        }
        Ok((world, Outcome::Accepted))
    }

    /// The worker decides and does it.
    fn work(&self, world: &World) -> Result<World, String> {
        let mut world = world.clone();
        world.now += 1.0;
        let Some(decision) = self.decide(&world) else {
            world.worker = Worker::Done;
            return Ok(world);
        };
        match decision {
            Decision::Read(read) => self.read(&mut world, &read),
            Decision::Do(effect) => {
                let seen = world.known.seen.as_ref().and_then(|seen| seen.machine.as_ref());
                if seen.is_some_and(|machine| machine.owner.as_deref() == Some("ann")) {
                    return Err(world.violation("sent to ann's machine"));
                }
                begin_intent(&mut world, self.base.run.step, effect);
            }
            Decision::Settle { happened } => {
                if happened && world.carried_out == 0 {
                    return Err(world.violation("said to have happened"));
                }
                let outcome = if happened {
                    Outcome::Accepted
                } else {
                    world.calls.iter_mut().for_each(|call| call.written_off = true);
                    Outcome::did_not_happen("it is as it was".to_owned())
                };
                world.tell(if happened { "it happened" } else { "it did not happen" });
                world.known.state.record_outcome(outcome, at(world.now));
            }
            Decision::Wait { recheck_at, .. } => {
                let until = recheck_at.seconds_since(at(0.0));
                world.now = until.max(world.now + TARDY_SECONDS);
                world.stored = world.known.clone();
            }
            Decision::Park { park, .. } => {
                if world.carried_out > 0 && !world.taken {
                    let what = format!("parked with {} although it took place", park.code);
                    return Err(world.violation(&what));
                }
                world.worker = Worker::Parked;
            }
            other => return Err(world.violation(&format!("{other:?}"))),
        }
        Ok(world)
    }

    fn explore(&self) -> Explored {
        let mut found = Explored::default();
        let (mut seen, mut left) = (HashSet::new(), vec![self.begin()]);
        while let Some(world) = left.pop() {
            if !seen.insert(fingerprint(&world)) {
                continue;
            }
            found.states += 1;
            assert!(found.states < 400_000, "{}: the model does not end", self.row.kind);
            for next in self.successors(&world) {
                match next {
                    Ok(next) => left.push(next),
                    Err(violation) => found.violations.push(violation),
                }
            }
            if !found.violations.is_empty() {
                break;
            }
        }
        found
    }
}

/// Writes an intent, commits it and sends the call.
fn begin_intent(world: &mut World, step: Step, effect: Effect) {
    let now = at(world.now);
    let before = world.known.seen.as_ref().map(|seen| seen.status);
    let state = &mut world.known.state;
    let intent = state.next_intent(step, effect, id::<AttemptId>(9), before, now);
    state.record_intent(intent);
    world.stored = world.known.clone();
    world.calls.push(Call { sent: world.now, written_off: false });
    world.worker = Worker::Waits;
    world.tell("sent");
}

/// The worker dies, and another one takes the run over as the database has it.
fn crash(world: &World) -> World {
    let mut world = world.clone();
    world.tell("the worker dies");
    world.crashes -= 1;
    world.now += LEASE_SECONDS;
    world.known = world.stored.clone();
    let state = &mut world.known.state;
    if state.intent.as_ref().is_some_and(|intent| intent.outcome.is_none()) {
        let (code, text) = ("caller_gone".to_owned(), "?".to_owned());
        state.record_outcome(Outcome::Unknown { code, text }, at(world.now));
    }
    world.worker = Worker::Decides;
    world
}

/// What of a world decides how it goes on: not how it came about.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    let World { now, worker, calls, carried_out, taken, crashes, lost_answers, people, .. } = world;
    (now.to_bits(), *worker as u8, carried_out, taken).hash(&mut hasher);
    (crashes, lost_answers, people).hash(&mut hasher);
    for call in calls {
        (call.sent.to_bits(), call.written_off).hash(&mut hasher);
    }
    for known in [&world.known, &world.stored] {
        hash_known(known, &mut hasher);
    }
    hasher.finish()
}

fn hash_known(known: &Known, hasher: &mut DefaultHasher) {
    let Known { state, seen } = known;
    if let Some(intent) = &state.intent {
        let outcome = intent.outcome.as_ref().map(|outcome| match outcome {
            Outcome::Accepted => "accepted",
            Outcome::Rejected { code, .. }
            | Outcome::NotSent { code, .. }
            | Outcome::Unknown { code, .. } => code,
        });
        (intent.number, intent.at, intent.before, outcome, intent.ended_at).hash(hasher);
        (intent.after_unknown, intent.given_up.as_ref().map(|given_up| given_up.at)).hash(hasher);
    }
    state.found.as_ref().map(|found| (found.asked_at, found.candidates.len())).hash(hasher);
    state.tag.as_ref().map(|tag| (tag.asked_at, tag.kernel_opts.is_some())).hash(hasher);
    let scripts = state.region_scripts.as_ref();
    scripts.map(|scripts| (scripts.asked_at, scripts.digests.len())).hash(hasher);
    let machine = seen.as_ref().and_then(|seen| Some((seen.read_at, seen.machine.as_ref()?)));
    if let Some((read_at, m)) = machine {
        (read_at, m.status, &m.owner, &m.power_state, m.boot_disk_id, m.tags.len()).hash(hasher);
        let filesystem = m.disks[0].filesystem.as_ref();
        let mounted = filesystem.map(|on| on.mount_point.is_some());
        (mounted, m.disks[1].partitions, m.nics[1].links.len()).hash(hasher);
    }
}

#[test]
fn every_kind_of_effect_has_a_row() {
    let kinds: Vec<EffectKind> = ROWS.iter().map(|row| row.kind).collect();
    assert_eq!(kinds, EffectKind::ALL);
    assert!(ROWS.iter().all(|row| (row.effect)().kind() == row.kind));
}

#[test]
fn no_interleaving_carries_an_effect_out_twice() {
    let mut states = 0;
    for row in ROWS {
        let found = Model::new(row, Mistake::None).explore();
        assert_eq!(found.violations, Vec::<String>::new(), "{}", row.kind);
        eprintln!("{}: {} states, 0 violations", row.kind, found.states);
        states += found.states;
    }
    eprintln!("{} kinds of effects, {states} states", ROWS.len());
    assert!(states > 10_000, "{states} states");
}

/// A queue that is longer than any signature lasts cannot be excluded for ever: what then comes twice is
/// refused by MAAS, and the run goes on from what it did at first.
#[test]
fn refusal_of_what_was_done_before_parks_no_run() {
    for row in ROWS.iter().filter(|row| row.refused_again) {
        let found = Model::with_endless_queue(row, Mistake::None).explore();
        assert_eq!(found.violations, Vec::<String>::new(), "{}", row.kind);
    }
}

#[test]
fn planted_mistake_in_each_kind_of_effect_is_found() {
    for row in ROWS {
        for mistake in [Mistake::JudgesEarly, Mistake::LooksElsewhere] {
            let found = Model::new(row, mistake).explore();
            assert!(!found.violations.is_empty(), "{mistake:?} in {} is not found", row.kind);
        }
        // A machine that a create made is looked for in any case.
        if row.refused_again && row.kind != EffectKind::CreateMachine {
            let mistake = Mistake::BelievesRefusal;
            let found = Model::with_endless_queue(row, mistake).explore();
            assert!(!found.violations.is_empty(), "{mistake:?} in {} is not found", row.kind);
        }
    }
}
