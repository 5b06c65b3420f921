//! The decision by table: a batch is a word per member, and so is what it does.

use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::EPOCH.plus_seconds(seconds)
}

fn spec(canary: u32, ratio: f64, min_ended: u32, max_parallel: u32) -> BatchSpec {
    BatchSpec {
        name: "rack-7".to_owned(),
        site: "lab".to_owned(),
        profile: "h200".to_owned(),
        canary,
        stop_at_failure_ratio: ratio,
        stop_min_ended: min_ended,
        max_parallel,
        machines: Vec::new(),
    }
}

/// `w` waiting, `r` running, `a` active, `p` parked, `f` failed, `x` withdrawn; upper case: written
/// off. A digit after it: the profile revision of its run, 1 where none is given.
fn members(text: &str) -> Vec<MemberSnapshot> {
    let mut members: Vec<MemberSnapshot> = Vec::new();
    for letter in text.chars() {
        if let Some(digit) = letter.to_digit(10) {
            members.last_mut().unwrap().profile_revision = Some(i64::from(digit));
            continue;
        }
        let state = match letter.to_ascii_lowercase() {
            'w' => MemberState::Waiting,
            'r' => MemberState::Running,
            'a' => MemberState::Active,
            'p' => MemberState::Parked,
            'f' => MemberState::Failed,
            'x' => MemberState::Withdrawn,
            other => panic!("{other}"),
        };
        let begun = !matches!(state, MemberState::Waiting | MemberState::Withdrawn);
        members.push(MemberSnapshot {
            state,
            written_off: letter.is_ascii_uppercase(),
            profile_revision: begun.then_some(1),
            started_at: begun.then(|| at(0.0)),
            ended_at: (state == MemberState::Active).then(|| at(100.0)),
        });
    }
    members
}

fn decide(spec: &BatchSpec, text: &str, revision: i64) -> BatchDecision {
    let members = members(text);
    let snapshot = BatchSnapshot {
        now: at(200.0),
        spec,
        profile_revision: revision,
        stop: None,
        members: &members,
    };
    let first = decide_batch(&snapshot);
    assert_eq!(first, decide_batch(&snapshot), "{text}");
    first
}

#[test]
fn what_a_batch_does_by_table() {
    use BatchPhase::{Canary, Done, Rolling, Stopped};
    let one = spec(1, 0.2, 0, 0);
    let two = spec(2, 0.5, 2, 3);
    let none = spec(0, 0.2, 3, 2);
    let never = spec(1, 1.0, 0, 0);
    for (spec, members, phase, begin, stop) in [
        (&one, "wwww", Canary, &[0][..], ""),
        (&one, "rwww", Canary, &[], ""),
        (&one, "awww", Rolling, &[1, 2, 3], ""),
        (&one, "arrr", Rolling, &[], ""),
        (&one, "aaaa", Done, &[], ""),
        (&one, "aafa", Done, &[], ""),
        // One of one canary.
        (&one, "pwww", Stopped, &[], "canary_failed"),
        (&one, "fwww", Stopped, &[], "canary_failed"),
        // Nothing waits, so there is nothing to stop.
        (&one, "p", Canary, &[], ""),
        (&one, "arrp", Rolling, &[], ""),
        (&one, "aparw", Stopped, &[], "failure_ratio"),
        // Written off at a resume: the next machine is the canary, and the share begins anew.
        (&one, "Pwww", Canary, &[1], ""),
        (&one, "Prww", Canary, &[], ""),
        (&one, "Paww", Rolling, &[2, 3], ""),
        (&one, "Ppww", Stopped, &[], "canary_failed"),
        // A canary that left is replaced.
        (&one, "xwww", Canary, &[1], ""),
        (&one, "xaww", Rolling, &[2, 3], ""),
        (&two, "wwww", Canary, &[0, 1], ""),
        (&two, "arww", Canary, &[], ""),
        // The other canary is still under way.
        (&two, "prww", Canary, &[], ""),
        (&two, "paww", Stopped, &[], "canary_failed"),
        (&two, "aawwwww", Rolling, &[2, 3, 4], ""),
        (&two, "aarrww", Rolling, &[4], ""),
        (&two, "aarrrw", Rolling, &[], ""),
        // Half is not more than half; a parked one takes no place.
        (&two, "aappww", Rolling, &[4, 5], ""),
        (&two, "aapppw", Stopped, &[], "failure_ratio"),
        // Too few ended to say anything.
        (&none, "ppww", Rolling, &[2, 3], ""),
        (&none, "pppw", Stopped, &[], "failure_ratio"),
        (&never, "appp", Rolling, &[], ""),
        (&never, "apppw", Rolling, &[4], ""),
    ] {
        let decision = decide(spec, members, 1);
        let code = decision.stop.as_ref().map_or("", |stop| stop.code.as_str());
        assert_eq!((decision.phase, &*decision.begin, code), (phase, begin, stop), "{members}");
        assert!(!decision.more && !decision.waiting_for.is_empty(), "{members}");
    }
}

#[test]
fn a_mended_profile_is_proven_by_new_canaries() {
    let one = spec(1, 0.2, 0, 0);
    let decision = decide(&one, "a1Pwww", 2);
    assert_eq!((decision.phase, decision.begin), (BatchPhase::Canary, vec![2]));
    let decision = decide(&one, "a1Pa2ww", 2);
    assert_eq!((decision.phase, decision.begin), (BatchPhase::Rolling, vec![3, 4]));
    // Everything has begun: there is nobody left to prove it on.
    assert_eq!(decide(&one, "a1r1", 2).phase, BatchPhase::Rolling);
}

#[test]
fn a_stopped_batch_stays_stopped_until_somebody_says_otherwise() {
    let one = spec(1, 0.2, 0, 0);
    let stop = BatchStop { code: "stopped_by_operator".into(), text: "lunch".into(), at: at(1.0) };
    for (text, phase) in [("awww", BatchPhase::Stopped), ("aaxf", BatchPhase::Done)] {
        let members = members(text);
        let decision = decide_batch(&BatchSnapshot {
            now: at(9.0),
            spec: &one,
            profile_revision: 1,
            stop: Some(&stop),
            members: &members,
        });
        assert_eq!((decision.phase, decision.stop, decision.begin), (phase, None, vec![]));
    }
}

#[test]
fn many_members_begin_in_several_writes() {
    let decision = decide(&spec(0, 0.2, 0, 0), &"w".repeat(BEGIN_AT_ONCE + 1), 1);
    assert_eq!((decision.begin.len(), decision.more), (BEGIN_AT_ONCE, true));
    let decision = decide(&spec(0, 0.2, 0, 5), &"w".repeat(BEGIN_AT_ONCE + 1), 1);
    assert_eq!((decision.begin.len(), decision.more), (5, false));
}

#[test]
fn it_says_what_it_waits_for() {
    let two = spec(2, 0.5, 2, 3);
    let said = |text: &str| decide(&two, text, 1).waiting_for;
    assert_eq!(said("wwww"), "2 canaries in progress; 2 waiting for the canaries");
    assert_eq!(said("aarrrw"), "3 in progress (at most 3 at a time); 1 waiting for their turn");
    assert_eq!(said("aarp"), "1 in progress; 1 parked, waiting for an operator");
    assert_eq!(said("ppww"), "an operator: 2 of 2 canaries did not become active");
    assert_eq!(
        said("aapppw"),
        "an operator: 3 of 5 finished machines are parked or failed (limit: a ratio of 0.5)"
    );
}

#[test]
fn members_stand_as_their_run_and_node_do() {
    use MemberState::{Active, Failed, Parked, Running, Waiting, Withdrawn};
    for (run, node, busy, state) in [
        (None, NodeState::Registered, false, Waiting),
        (None, NodeState::Registered, true, Withdrawn),
        (None, NodeState::Retired, false, Withdrawn),
        (Some(RunStatus::Running), NodeState::Registered, true, Running),
        (Some(RunStatus::Waiting), NodeState::Enrolling, true, Running),
        (Some(RunStatus::Parked), NodeState::Registered, true, Parked),
        (Some(RunStatus::Succeeded), NodeState::Quarantined, false, Active),
        (Some(RunStatus::Cancelled), NodeState::Registered, false, Failed),
        (Some(RunStatus::Cancelled), NodeState::Active, false, Active),
    ] {
        assert_eq!(member_state(run, node, busy), state, "{run:?} {node}");
    }
}

#[test]
fn the_end_is_estimated_from_those_that_are_active() {
    let estimate = |canary: u32, max_parallel: u32, text: &str| {
        let spec = spec(canary, 0.9, 0, max_parallel);
        let members = members(text);
        let snapshot = BatchSnapshot {
            now: at(50.0),
            spec: &spec,
            profile_revision: 1,
            stop: None,
            members: &members,
        };
        estimated_end(&snapshot).map(|at| at.seconds_since(Timestamp::EPOCH))
    };
    // Nothing is known yet; nothing is left.
    assert_eq!(estimate(1, 0, "rww"), None);
    assert_eq!(estimate(1, 0, "aaa"), None);
    // Members take 100 seconds.
    assert_eq!(estimate(1, 0, "ar"), Some(100.0));
    assert_eq!(estimate(1, 0, "aww"), Some(150.0));
    // One place, taken until 100: two more after each other.
    assert_eq!(estimate(1, 1, "arww"), Some(300.0));
    // A second canary is under way until 100; the rest follows.
    assert_eq!(estimate(2, 0, "arww"), Some(200.0));
    assert_eq!(estimate(2, 0, "awww"), Some(250.0));
}

#[test]
fn written_off_members_do_not_count() {
    assert_eq!(failure_ratio(&members("wwrr")), 0.0);
    assert_eq!(failure_ratio(&members("aapf")), 0.5);
    assert_eq!(failure_ratio(&members("aaPF")), 0.0);
    assert_eq!(failure_ratio(&members("aAPp")), 1.0 / 3.0);
}
