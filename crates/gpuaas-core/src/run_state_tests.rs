//! What a run remembers, as it is stored and as it is resumed.

use super::*;

/// What a control plane from before wrote is read, and written in the same words.
#[test]
fn a_stored_state_reads_back() {
    let stored = serde_json::json!({
        "tries": {"mark_broken": 1, "release": 2},
        "answers": {"release": 1},
        "in_vain": {"mark_broken": 1},
        "intended_at": {"release": "2026-11-20T16:00:00.000000Z"},
        "visits": {"release": 1},
        "checks": {},
    });
    let state: RunState = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(state.tries[&EffectKind::Release], 2);
    assert_eq!(state.without_effect[&EffectKind::MarkBroken], 1);
    assert_eq!(serde_json::to_value(&state).unwrap(), stored);
}

fn intent(outcome: Option<Outcome>) -> Intent {
    let id = AttemptId::new(&gpuaas_types::RandomIds, Timestamp::EPOCH);
    let (at, effect) = (Timestamp::EPOCH, Effect::PowerOff);
    let (before, ended_at) = (None, None);
    Intent {
        id,
        step: Step::PowerOff,
        effect,
        number: 4,
        at,
        before,
        outcome,
        ended_at,
        given_up: None,
        after_unknown: false,
    }
}

/// What MAAS refused before the word is asked again; what it took, or may have taken, is not.
#[test]
fn a_resume_forgets_what_was_not_done_and_keeps_what_may_have_been() {
    let refused = Outcome::Rejected { code: "c".to_owned(), text: "t".to_owned(), conflict: false };
    let kept = |outcome| {
        let mut state = RunState { intent: Some(intent(outcome)), ..RunState::default() };
        state.resume(Timestamp::EPOCH.plus_seconds(1.0));
        state.intent.map(|intent| intent.number)
    };
    assert_eq!(kept(Some(refused)), None);
    assert_eq!(kept(Some(Outcome::did_not_happen("t".to_owned()))), None);
    assert_eq!(kept(Some(Outcome::Accepted)), Some(4));
    assert_eq!(kept(None), Some(1), "probed, and then tried as often as at first");
}

#[test]
fn a_word_is_later_than_what_a_faster_clock_has_read() {
    let at = |seconds| Timestamp::EPOCH.plus_seconds(seconds);
    let state = RunState { parked_at: Some(at(5.0)), ..RunState::default() };
    assert_eq!(state.later_than_reads(at(9.0), Some(at(8.0))), at(9.0));
    assert!(state.later_than_reads(at(4.0), None) > at(5.0));
    assert!(state.later_than_reads(at(9.0), Some(at(12.0))) > at(12.0));
}
