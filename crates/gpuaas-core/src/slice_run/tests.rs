//! Launches and releases, turn by turn, with an agent whose answers are written here.

use gpuaas_types::claim::ClaimedSlot;
use gpuaas_types::slice::{
    DomainState, ProofResult, ProofSubject, RecordedProof, SliceAction, SlicePart, SlicePartition,
    SliceProof, SliceReport, SliceRun, SliceRunKind, SliceRunStatus,
};
use gpuaas_types::{TaskId, Timestamp};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_795_190_400_000_000 + seconds * 1_000_000)
}

fn slots() -> Vec<ClaimedSlot> {
    vec![ClaimedSlot {
        index: 3,
        gpu: "0000:19:00.0".to_owned(),
        fabric_vf: Some("0000:1a:00.1".to_owned()),
        nvme: Some("S3".to_owned()),
        numa_node: Some(0),
        cpus: "1-12".to_owned(),
        hugepages: 64,
        mac: "02:00:00:00:00:03".to_owned(),
        private_ip: None,
    }]
}

fn report(domain: DomainState) -> SliceReport {
    SliceReport { domain, prepared: false, erasing: false, proofs: Vec::new() }
}

fn succeeded() -> SliceTaskOutcome {
    SliceTaskOutcome::Succeeded(report(DomainState::Absent))
}

fn failed() -> SliceTaskOutcome {
    SliceTaskOutcome::Failed { code: "tool_failed".to_owned(), message: "virsh".to_owned() }
}

const LIMITS: TaskLimits = TaskLimits { factor: 1.0, guest_timeout_seconds: None };

/// A run, the proofs of its release, and the seconds that have passed.
struct Course {
    run: SliceRun,
    proofs: Vec<RecordedProof>,
    seconds: i64,
}

impl Course {
    fn new() -> Self {
        Self { run: new_launch(at(0)), proofs: Vec::new(), seconds: 0 }
    }

    /// Decides once, with what came of the last task.
    fn turn(&mut self, outcome: Option<&SliceTaskOutcome>) -> SliceDecision {
        self.seconds += 1;
        let now = at(self.seconds);
        let decision = decide_slice_run(&SliceSnapshot {
            now,
            run: &self.run,
            outcome,
            slots: &slots(),
            partition: None,
            proofs: &self.proofs,
        });
        self.run = apply(&self.run, &decision, now, task_id(self.seconds), LIMITS);
        decision
    }

    /// Goes on with an agent that answers `answer` to each action until the run rests, and says what
    /// the agent was given.
    fn drive(&mut self, answer: impl Fn(SliceAction) -> SliceTaskOutcome) -> Vec<SliceAction> {
        let mut given = Vec::new();
        let mut outcome = None;
        for _ in 0..200 {
            match self.turn(outcome.as_ref()) {
                SliceDecision::Act { action, .. } => {
                    given.push(action);
                    outcome = Some(answer(action));
                }
                SliceDecision::Rest => return given,
                _ => outcome = None,
            }
        }
        unreachable!("{:?}", self.run)
    }

    fn prove_all(&mut self) {
        let now = at(self.seconds);
        for (subject, device) in [
            (ProofSubject::DomainGone, "id"),
            (ProofSubject::FilesRemoved, "id"),
            (ProofSubject::DevicesUnheld, "0000:19:00.0"),
            (ProofSubject::GpuReset, "0000:19:00.0"),
            (ProofSubject::GpuMemory, "0000:19:00.0"),
            (ProofSubject::VfReset, "0000:1a:00.1"),
            (ProofSubject::VfIdentityCleared, "0000:1a:00.1"),
            (ProofSubject::DevicesUnheld, "0000:1a:00.1"),
            (ProofSubject::DriveErased, "S3"),
            (ProofSubject::DriveReadBack, "S3"),
        ] {
            let result = match subject {
                ProofSubject::GpuMemory => ProofResult::ResetOnly,
                _ => ProofResult::Proven,
            };
            let proof = SliceProof {
                slot: 3,
                subject,
                device: device.to_owned(),
                method: "test".to_owned(),
                result,
                reader: "test".to_owned(),
                detail: String::new(),
            };
            self.proofs.push(RecordedProof { at: now, proof });
        }
    }
}

fn task_id(seconds: i64) -> TaskId {
    TaskId(gpuaas_types::ids::uuid_v7(at(seconds), [7; 10]))
}

#[test]
fn a_launch_goes_through_its_parts_and_a_release_through_its_own() {
    let mut course = Course::new();
    let given = course.drive(|_| succeeded());
    use SliceAction::{AwaitGuest, Define, Erase, Prepare, ReadBack, Reset, Start, Stop, Verify};
    assert_eq!(given, [Verify, Prepare, Define, Start, AwaitGuest]);
    assert_eq!(course.run.status, SliceRunStatus::Succeeded);
    course.run = to_release(&course.run, at(course.seconds), "given back");
    course.prove_all();
    let given = course.drive(|_| succeeded());
    assert_eq!(given, [Stop, Reset, Erase, ReadBack]);
    assert_eq!(
        (course.run.kind, course.run.status),
        (SliceRunKind::Release, SliceRunStatus::Succeeded)
    );
    let parts: Vec<String> = course.run.parts.iter().map(|span| span.part.to_string()).collect();
    assert_eq!(
        parts.join(" "),
        "claim verify prepare define start guest_ready stop reset erase verify return"
    );
    for (span, next) in course.run.parts.iter().zip(&course.run.parts[1..]).skip(6) {
        assert_eq!(span.ended_at, Some(next.began_at), "spans of a release touch");
    }
    assert!(course.run.parts.iter().all(|span| span.ended_at.is_some()));
}

#[test]
fn a_release_without_all_of_its_proofs_is_blocked_whatever_the_agent_says() {
    let all = {
        let mut course = Course::new();
        course.prove_all();
        course.proofs
    };
    for absent in 0..all.len() {
        let mut course = Course::new();
        course.run = to_release(&course.run, at(0), "given back");
        course.proofs = all.clone();
        let removed = course.proofs.remove(absent).proof;
        course.drive(|_| succeeded());
        assert_eq!(course.run.status, SliceRunStatus::Blocked, "{removed:?}");
        let wanted = format!("{} of slot 3 has no proof", removed.subject);
        assert_eq!(course.run.reason, wanted);
        // What was proven before counts no more once it is tried again.
        course.run = to_release(&course.run, at(1000), "again");
        course.seconds = 1000;
        course.proofs = all.clone();
        course.drive(|_| succeeded());
        assert_eq!(course.run.status, SliceRunStatus::Blocked);
        course.run = to_release(&course.run, at(2000), "again");
        course.seconds = 2000;
        course.prove_all();
        course.drive(|_| succeeded());
        assert_eq!(course.run.status, SliceRunStatus::Succeeded, "{}", course.run.reason);
    }
}

#[test]
fn a_proof_that_says_no_blocks_and_the_last_one_counts() {
    let mut course = Course::new();
    course.prove_all();
    let mut denial = course.proofs[9].clone();
    (denial.proof.result, denial.proof.detail) =
        (ProofResult::Unproven, "7 of 16 canaries are there".to_owned());
    course.proofs.push(denial);
    let missing = missing_proofs(&slots(), None, &course.proofs, at(0));
    assert_eq!(
        missing,
        ["drive_read_back of slot 3 is unproven (test: 7 of 16 canaries are there)"]
    );
    course.prove_all();
    assert_eq!(missing_proofs(&slots(), None, &course.proofs, at(0)), Vec::<String>::new());
    // A partition is proven inactive where there was one.
    let partition = SlicePartition { id: 3, modules: vec![1, 3] };
    let missing = missing_proofs(&slots(), Some(&partition), &course.proofs, at(0));
    assert_eq!(missing, ["partition_inactive of slot 3 has no proof"]);
    // Only a GPU's memory may be reset and not looked at.
    course.proofs.iter_mut().for_each(|one| one.proof.result = ProofResult::ResetOnly);
    assert_eq!(missing_proofs(&slots(), None, &course.proofs, at(0)).len(), 9);
}

#[test]
fn a_launch_that_fails_is_refused_before_and_taken_back_after_a_change() {
    let mut course = Course::new();
    let given = course.drive(|_| failed());
    assert_eq!(given, [SliceAction::Verify; 2]);
    assert_eq!(course.run.status, SliceRunStatus::Failed);
    assert!(course.run.reason.contains("tool_failed: virsh"), "{}", course.run.reason);
    for broken in
        [SliceAction::Prepare, SliceAction::Define, SliceAction::Start, SliceAction::AwaitGuest]
    {
        let mut course = Course::new();
        course.drive(|action| if action == broken { failed() } else { succeeded() });
        assert_eq!(course.run.kind, SliceRunKind::Release, "{broken}");
        assert_eq!(course.run.status, SliceRunStatus::Blocked, "nothing was proven");
        let released = course.run.parts.iter().filter(|one| one.kind == SliceRunKind::Release);
        assert_eq!(released.map(|one| one.part).next(), Some(SlicePart::Stop));
    }
}

#[test]
fn an_action_whose_outcome_is_lost_is_looked_at_and_not_repeated() {
    // It happened: the next part comes without a second start.
    let mut course = Course::new();
    let given = course.drive(|action| match action {
        SliceAction::Start => SliceTaskOutcome::Unknown,
        SliceAction::Probe => SliceTaskOutcome::Succeeded(report(DomainState::Running)),
        _ => succeeded(),
    });
    assert_eq!(given.iter().filter(|one| **one == SliceAction::Start).count(), 1);
    assert_eq!(given.iter().filter(|one| **one == SliceAction::Probe).count(), 1);
    assert_eq!(course.run.status, SliceRunStatus::Succeeded);
    // It did not: it is done again, as often as its row allows.
    let mut course = Course::new();
    let given = course.drive(|action| match action {
        SliceAction::Start => SliceTaskOutcome::Unknown,
        SliceAction::Probe => SliceTaskOutcome::Succeeded(report(DomainState::Defined)),
        _ => succeeded(),
    });
    assert_eq!(given.iter().filter(|one| **one == SliceAction::Start).count(), 2);
    assert_eq!(course.run.kind, SliceRunKind::Release);
    // Nobody says: a release is blocked, and nothing is done a second time.
    let mut course = Course::new();
    course.run = to_release(&course.run, at(0), "given back");
    let given = course.drive(|action| match action {
        SliceAction::Erase | SliceAction::Probe => SliceTaskOutcome::Unknown,
        _ => succeeded(),
    });
    assert_eq!(given.iter().filter(|one| **one == SliceAction::Erase).count(), 1);
    assert_eq!(given.iter().filter(|one| **one == SliceAction::Probe).count(), 10);
    assert_eq!(course.run.status, SliceRunStatus::Blocked);
    // A drive that erases itself is left to it, and a reset waits for the domain to be gone.
    let mut busy = report(DomainState::Absent);
    busy.erasing = true;
    for (action, report) in
        [(SliceAction::Erase, busy), (SliceAction::Reset, report(DomainState::Running))]
    {
        assert_eq!(action_row(action).probe.judge(&report), super::table::Probed::NotYet);
    }
}

#[test]
fn a_decision_is_the_same_until_something_happens() {
    let mut course = Course::new();
    course.turn(None);
    course.turn(None);
    let attempt = course.run.attempt.clone().unwrap();
    assert_eq!((attempt.action, attempt.tries), (SliceAction::Verify, 1));
    for _ in 0..3 {
        let waits = course.turn(Some(&SliceTaskOutcome::Open));
        assert_eq!(waits, SliceDecision::Await { until: attempt.deadline_at });
        assert_eq!(course.run.attempt.as_ref(), Some(&attempt));
    }
    // Overdue: a look that changes nothing is just done again.
    course.seconds += i64::from(action_row(SliceAction::Verify).limit_seconds);
    let again = course.turn(Some(&SliceTaskOutcome::Open));
    assert_eq!(again, SliceDecision::Act { action: SliceAction::Verify, probed: None });
    assert_eq!(course.run.attempt.as_ref().unwrap().tries, 2);
}

#[test]
fn a_launch_that_gives_its_guest_longer_has_its_agent_wait_longer() {
    let run = new_launch(at(0));
    let seconds = |action, guest_timeout_seconds| {
        let limits = TaskLimits { factor: 2.0, guest_timeout_seconds };
        let act = SliceDecision::Act { action, probed: None };
        let next = apply(&run, &act, at(0), task_id(0), limits);
        next.attempt.unwrap().deadline_at.seconds_since(at(0))
    };
    assert_eq!(seconds(SliceAction::AwaitGuest, None), 1800.0);
    assert_eq!(seconds(SliceAction::AwaitGuest, Some(7200)), 14_600.0);
    assert_eq!(seconds(SliceAction::AwaitGuest, Some(60)), 320.0);
    assert_eq!(seconds(SliceAction::Start, Some(7200)), seconds(SliceAction::Start, None));
}

#[test]
fn each_part_has_its_action_and_each_action_its_row() {
    for kind in SliceRunKind::ALL {
        let with_action = parts(*kind)
            .iter()
            .filter(|part| !matches!(part, SlicePart::Claim | SlicePart::Return));
        for part in with_action {
            let action = super::table::action(*kind, *part).unwrap();
            let row = action_row(action);
            assert!(row.action == action && row.limit_seconds >= 60 && row.tries > 0);
        }
    }
}
