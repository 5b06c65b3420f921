//! Leases, fencing, waking.

use std::collections::BTreeSet;

use gpuaas_core::effect::{Effect, Intent, Outcome};
use gpuaas_core::record::ReportKind;
use gpuaas_store::{DeployLimitScope, NodeChange, OperatorCommand, Page, RunWrite, Transition};
use gpuaas_types::api::{Owner, Park, Wait};
use gpuaas_types::codes::WaitCode;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{AttemptId, EffectKind, NodeState, RunStatus, SiteId, Step, Timestamp};

use crate::fixture::{Fixture, NOON, at, by_test, code, event, id, new_run, on_each_database};

pub(crate) fn park() -> Park {
    Park {
        code: "two_candidates".to_owned(),
        text: "MAAS has two machines that match".to_owned(),
        since: NOON,
        owner: Owner::InfraOperator,
        evidence: vec!["a".to_owned()],
        next_action: "rename one of them".to_owned(),
        actions: Vec::new(),
        failure_class: None,
        looks_again_at: None,
    }
}

fn intent(outcome: Option<Outcome>) -> Intent {
    Intent {
        id: AttemptId(id()),
        step: Step::Deploy,
        effect: Effect::Deploy { distro_series: "ubuntu/noble".to_owned(), enable_hw_sync: true },
        number: 1,
        at: at(1.0),
        before: Some(4),
        outcome,
        ended_at: None,
        given_up: None,
        after_unknown: false,
    }
}

#[test]
fn a_claim_is_exclusive_and_loads_everything() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let claimed = fixture.claim_one(at(1.0)).await;
        assert_eq!((claimed.run.id, claimed.node.id), (run_id, node_id));
        assert_eq!(claimed.run.lease_token, 1);
        assert_eq!(claimed.run.due_at, NOON);
        assert_eq!(claimed.node.hostname, "j22u11");
        assert_eq!(claimed.node.run_id, Some(run_id));
        assert_eq!(claimed.observation, None);
        assert!(claimed.reports.is_empty());
        assert!(fixture.claim(at(2.0)).await.is_empty());
        assert_eq!(fixture.store.next_due().await.unwrap(), Some(at(61.0)));

        let again = fixture.claim_one(at(61.0)).await;
        assert_eq!(again.run.lease_token, 2, "an expired lease is handed on");
        fixture.give_back(at(62.0), &again, at(500.0)).await.unwrap();
        assert_eq!(fixture.store.next_due().await.unwrap(), Some(at(500.0)));
        assert!(fixture.claim(at(499.0)).await.is_empty());
        assert_eq!(fixture.claim(at(500.0)).await.len(), 1);
    });
}

#[test]
fn a_stale_token_writes_nothing_at_all() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let stale = fixture.claim_one(NOON).await;
        let fresh = fixture.claim_one(at(60.0)).await;

        let mut write = RunWrite::new(stale.run.clone()).releasing();
        write.run.step = Step::Deploy;
        write.node = Some(NodeChange {
            state: Some(NodeState::Active),
            system_id: Some("abc123".to_owned()),
        });
        write.timeline = vec![event(Some(run_id), "stale")];
        write.transitions =
            vec![Transition { step: Step::Deploy, at: NOON, cause: "stale".to_owned() }];
        write.attempts = vec![intent(None)];
        assert_eq!(code(fixture.store.commit(at(61.0), write.clone()).await), "lease_lost");
        assert_eq!(
            code(fixture.store.renew_lease(run_id, stale.run.lease_token, at(99.0)).await),
            "lease_lost"
        );

        let run = fixture.store.run(run_id).await.unwrap();
        assert_eq!((run.step, run.lease_token), (Step::Accept, fresh.run.lease_token));
        let node = fixture.store.node(node_id).await.unwrap();
        assert_eq!((node.state, node.system_id, node.revision), (NodeState::Registered, None, 1));
        assert_eq!(fixture.store.transitions(run_id).await.unwrap().len(), 1);
        assert!(fixture.store.attempts(run_id).await.unwrap().is_empty());
        assert_eq!(fixture.store.timeline_of_node(node_id, 0, 10).await.unwrap().len(), 1);

        write.run = fresh.run.clone();
        write.run.step = Step::Deploy;
        fixture.store.commit(at(61.0), write.clone()).await.unwrap();
        assert_eq!(
            code(fixture.store.commit(at(62.0), write).await),
            "lease_lost",
            "a lease that was given back is over"
        );
        let node = fixture.store.node(node_id).await.unwrap();
        assert_eq!((node.state, node.revision), (NodeState::Active, 2));
        assert_eq!(node.system_id.as_deref(), Some("abc123"));
        let transitions = fixture.store.transitions(run_id).await.unwrap();
        assert_eq!(transitions[1].cause, "stale");
    });
}

#[test]
fn an_event_during_the_work_is_not_lost() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, run_id) = fixture.node("j22u11").await;
        let claimed = fixture.claim_one(NOON).await;
        fixture.store.wake(at(1.0), vec![run_id]).await.unwrap();
        assert!(fixture.claim(at(2.0)).await.is_empty(), "an event does not break a lease");
        fixture.give_back(at(3.0), &claimed, at(900.0)).await.unwrap();

        let again = fixture.claim_one(at(3.0)).await;
        assert_eq!((again.run.wake_seq, again.run.handled_seq), (1, 0));
        fixture.give_back(at(4.0), &again, at(900.0)).await.unwrap();
        let run = fixture.store.run(run_id).await.unwrap();
        assert_eq!((run.handled_seq, run.due_at), (1, at(900.0)));
        assert!(fixture.claim(at(5.0)).await.is_empty());

        fixture.store.wake(at(6.0), vec![run_id, run_id]).await.unwrap();
        assert_eq!(fixture.claim_one(at(6.0)).await.run.due_at, at(6.0));
    });
}

#[test]
fn a_wake_never_makes_a_run_later() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, run_id) = fixture.node("j22u11").await;
        fixture.store.wake(at(50.0), vec![run_id]).await.unwrap();
        assert_eq!(fixture.store.next_due().await.unwrap(), Some(NOON));
    });
}

#[test]
fn keeping_the_lease_keeps_others_away() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, run_id) = fixture.node("j22u11").await;
        let mut claimed = fixture.claim_one(NOON).await;
        claimed.run.lease_until = at(120.0);
        claimed.run.state.visits.insert(Step::Discover, 3);
        fixture.store.commit(at(1.0), RunWrite::new(claimed.run.clone())).await.unwrap();
        assert!(fixture.claim(at(100.0)).await.is_empty());
        fixture.store.renew_lease(run_id, claimed.run.lease_token, at(300.0)).await.unwrap();
        assert!(fixture.claim(at(299.0)).await.is_empty());
        let again = fixture.claim_one(at(300.0)).await;
        assert_eq!(again.run.state.visits(Step::Discover), 3);
    });
}

#[test]
fn four_claimers_share_the_work() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        for n in 0..60 {
            fixture.node(&format!("host{n}")).await;
        }
        let mut claimers = Vec::new();
        for _ in 0..4 {
            let store = fixture.store.clone();
            claimers.push(tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..20 {
                    let claimed = store.claim(at(1.0), at(61.0), 7).await.unwrap();
                    assert!(claimed.len() <= 7);
                    ids.extend(claimed.into_iter().map(|claimed| {
                        assert_eq!(claimed.node.run_id, Some(claimed.run.id));
                        claimed.run.id
                    }));
                }
                ids
            }));
        }
        let mut all = Vec::new();
        for claimer in claimers {
            all.extend(claimer.await.unwrap());
        }
        assert_eq!(all.len(), 60);
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 60);
    });
}

#[test]
fn a_parked_run_counts_events_and_waits_for_a_person() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, run_id) = fixture.node("j22u11").await;
        let claimed = fixture.claim_one(NOON).await;
        let mut run = claimed.run.clone();
        (run.status, run.park) = (RunStatus::Parked, Some(park()));
        run.due_at = Timestamp::NEVER;
        fixture.store.commit(at(1.0), RunWrite::new(run).releasing()).await.unwrap();
        assert_eq!(fixture.store.next_due().await.unwrap(), None);
        fixture.store.wake(at(2.0), vec![run_id]).await.unwrap();
        assert!(fixture.claim(Timestamp::NEVER.plus_seconds(-1.0)).await.is_empty());
        let run = fixture.store.run(run_id).await.unwrap();
        assert_eq!((run.wake_seq, run.park), (1, Some(park())));

        fixture.store.resume_run(at(3.0), run_id, "ada", "renamed it").await.unwrap();
        let claimed = fixture.claim_one(at(3.0)).await;
        assert_eq!((claimed.run.status, claimed.run.park), (RunStatus::Running, None));
        let entries = fixture.store.audit_entries(crate::fixture::SETUP_ENTRIES, 10).await.unwrap();
        assert_eq!(entries[0].entry.actor, "ada");
        assert_eq!(entries[0].entry.detail["reason"], "renamed it");
        assert_eq!(
            code(fixture.store.resume_run(at(4.0), run_id, "ada", "").await),
            "run_not_parked"
        );
        let unknown = gpuaas_types::RunId(id());
        assert_eq!(code(fixture.store.resume_run(at(4.0), unknown, "ada", "").await), "not_found");
    });
}

#[test]
fn a_command_is_a_report_a_line_and_an_audit_entry() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let claimed = fixture.claim_one(NOON).await;
        let apply = async |seconds, command| {
            store.apply_operator_command(at(seconds), run_id, command, "ada", "known").await
        };
        let skip = OperatorCommand::SkipCheck { check: "pxe".to_owned(), until: at(900.0) };
        // A worker holds the run: the command is appended, and nothing of the run is changed.
        apply(1.0, skip).await.unwrap();
        assert_eq!(code(apply(1.0, OperatorCommand::Retry).await), "run_not_parked");
        let skipped = ReportKind::CheckSkipped {
            check: "pxe".to_owned(),
            actor: "ada".to_owned(),
            reason: "known".to_owned(),
            until: at(900.0),
        };
        let reports = store.reports(run_id).await.unwrap();
        assert_eq!(reports.iter().map(|report| &report.kind).collect::<Vec<_>>(), [&skipped]);
        let run = store.run(run_id).await.unwrap();
        assert_eq!((run.wake_seq, run.lease_token), (1, claimed.run.lease_token));

        let mut parked = claimed.run.clone();
        (parked.status, parked.park) = (RunStatus::Parked, Some(park()));
        store.commit(at(2.0), RunWrite::new(parked).releasing()).await.unwrap();
        apply(3.0, OperatorCommand::Retry).await.unwrap();
        let claimed = fixture.claim_one(at(3.0)).await;
        assert_eq!((claimed.run.status, &claimed.run.park), (RunStatus::Running, &None));
        apply(4.0, OperatorCommand::Cancel { leave_machine: true }).await.unwrap();
        let actions = store.audit_entries(crate::fixture::SETUP_ENTRIES, 10).await.unwrap();
        let actions: Vec<_> = actions.into_iter().map(|entry| entry.entry.action).collect();
        assert_eq!(actions, ["run.skip_check", "run.retry", "run.cancel"]);
        let lines = store.timeline_of_node(node_id, 0, 10).await.unwrap();
        let codes: Vec<_> = lines.iter().map(|line| line.event.code.as_str()).collect();
        assert_eq!(codes, ["accepted", "check_skipped", "run_retried", "cancel_asked"]);

        let mut ended = claimed.run;
        (ended.status, ended.ended_at) = (RunStatus::Cancelled, Some(at(5.0)));
        store.commit(at(5.0), RunWrite::new(ended).releasing()).await.unwrap();
        let late = apply(6.0, OperatorCommand::Cancel { leave_machine: true }).await;
        assert_eq!(code(late), "run_over");
    });
}

#[test]
fn a_parked_run_goes_on_with_the_latest_revision_of_its_profile() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let mut run = fixture.claim_one(NOON).await.run;
        let second = ProfileSpec { max_deploy_retry_attempts: 7, ..ProfileSpec::default() };
        store.set_profile(at(1.0), "h200", None, &second, &[], by_test()).await.unwrap();
        let go_on = async |seconds, run_id| {
            let retry = OperatorCommand::Retry;
            store.continue_with_profile(at(seconds), run_id, (retry, 2), "ada", "mended").await
        };
        // A refusal keeps the revision, and so does letting the run go on without this.
        assert_eq!(code(go_on(2.0, run_id).await), "run_not_parked");
        assert_eq!(code(go_on(2.0, gpuaas_types::RunId(id())).await), "not_found");
        (run.status, run.park) = (RunStatus::Parked, Some(park()));
        store.commit(at(3.0), RunWrite::new(run).releasing()).await.unwrap();
        store.resume_run(at(4.0), run_id, "ada", "mended").await.unwrap();
        let mut run = fixture.claim_one(at(4.0)).await.run;
        assert_eq!(run.profile_revision, 1);

        (run.status, run.park) = (RunStatus::Parked, Some(park()));
        store.commit(at(5.0), RunWrite::new(run).releasing()).await.unwrap();
        go_on(6.0, run_id).await.unwrap();
        let run = fixture.claim_one(at(6.0)).await.run;
        assert_eq!((run.status, run.profile_revision), (RunStatus::Running, 2));
        let entries = store.audit_entries(crate::fixture::SETUP_ENTRIES, 10).await.unwrap();
        let entry = &entries.last().unwrap().entry;
        assert_eq!(
            (entry.action.as_str(), &entry.detail["profile_revision"]),
            ("run.retry", &2.into())
        );
        let lines = store.timeline_of_node(node_id, 0, 10).await.unwrap();
        let codes: Vec<_> = lines.iter().map(|line| line.event.code.as_str()).collect();
        assert_eq!(codes, ["accepted", "run_resumed", "run_retried", "profile_repinned"]);
    });
}

#[test]
fn resuming_fences_the_worker_that_parked() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, run_id) = fixture.node("j22u11").await;
        let mut claimed = fixture.claim_one(NOON).await;
        claimed.run.status = RunStatus::Parked;
        fixture.store.commit(at(1.0), RunWrite::new(claimed.run.clone())).await.unwrap();
        fixture.store.resume_run(at(2.0), run_id, "ada", "").await.unwrap();
        assert_eq!(code(fixture.give_back(at(3.0), &claimed, at(9.0)).await), "lease_lost");
    });
}

#[test]
fn a_machine_belongs_to_one_node() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        fixture.node("first").await;
        let first = fixture.claim_one(NOON).await;
        fixture.node("second").await;
        let second = fixture.claim_one(NOON).await;
        let bind = |claimed: &gpuaas_store::LeasedRun| {
            let mut write = RunWrite::new(claimed.run.clone());
            write.run.step = Step::Commission;
            write.node = Some(NodeChange { state: None, system_id: Some("abc".to_owned()) });
            write
        };
        fixture.store.commit(at(1.0), bind(&first)).await.unwrap();
        let refused = fixture.store.commit(at(1.0), bind(&second)).await.unwrap_err();
        assert_eq!(refused.code(), "machine_held");
        assert!(refused.to_string().contains("first"), "{refused}");
        let run = fixture.store.run(second.run.id).await.unwrap();
        assert_eq!(run.step, Step::Accept, "nothing of a refused write is kept");
        fixture.store.commit(at(2.0), bind(&first)).await.unwrap();
    });
}

#[test]
fn an_outcome_is_written_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, run_id) = fixture.node("j22u11").await;
        let claimed = fixture.claim_one(NOON).await;
        let mut attempt = intent(None);
        let commit = |attempt: &Intent| {
            let mut write = RunWrite::new(claimed.run.clone());
            write.attempts = vec![attempt.clone()];
            fixture.store.commit(at(1.0), write)
        };
        commit(&attempt).await.unwrap();
        let seen = fixture.store.attempts(run_id).await.unwrap();
        assert_eq!((seen[0].effect, seen[0].outcome.clone()), (EffectKind::Deploy, None));

        attempt.outcome = Some(Outcome::Unknown { code: "timeout".into(), text: "504".into() });
        attempt.ended_at = Some(at(31.0));
        commit(&attempt).await.unwrap();
        attempt.outcome = Some(Outcome::Accepted);
        commit(&attempt).await.unwrap();
        let seen = fixture.store.attempts(run_id).await.unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].outcome.as_deref(), Some("unknown"));
        assert_eq!((seen[0].detail.as_str(), seen[0].ended_at), ("504", Some(at(31.0))));
    });
}

/// A parked run that looks again is claimed when it is due, and by no event before that.
#[test]
fn a_parked_run_is_claimed_for_its_recheck_and_woken_by_nothing() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, run_id) = fixture.node("j22u11").await;
        let claimed = fixture.claim_one(at(1.0)).await;
        let mut run = claimed.run;
        (run.status, run.park, run.due_at) = (RunStatus::Parked, Some(park()), at(60.0));
        fixture.store.wake(at(2.0), vec![run_id]).await.unwrap();
        fixture.store.commit(at(3.0), RunWrite::new(run).releasing()).await.unwrap();
        assert_eq!(fixture.store.next_due().await.unwrap(), None, "it does not move");
        assert_eq!(fixture.store.next_recheck().await.unwrap(), Some(at(60.0)));
        fixture.store.wake(at(4.0), vec![run_id]).await.unwrap();
        assert!(fixture.claim(at(59.0)).await.is_empty());

        let again = fixture.claim_one(at(60.0)).await;
        assert_eq!((again.run.id, again.run.status), (run_id, RunStatus::Parked));
        assert!(fixture.claim(at(61.0)).await.is_empty(), "one worker has it");
        let mut run = again.run.clone();
        run.due_at = at(180.0);
        fixture.store.wake(at(62.0), vec![run_id]).await.unwrap();
        let write = RunWrite::new(run).releasing().staying_parked();
        fixture.store.commit(at(63.0), write).await.unwrap();
        assert_eq!(fixture.store.next_recheck().await.unwrap(), Some(at(180.0)));

        // An operator's word takes the run from whoever rechecks it.
        let late = fixture.claim_one(at(180.0)).await;
        fixture.store.resume_run(at(181.0), run_id, "ann", "mended").await.unwrap();
        let write = RunWrite::new(late.run).releasing().staying_parked();
        let lost = fixture.store.commit(at(182.0), write).await.unwrap_err();
        assert_eq!(lost.code(), "lease_lost");
        assert_eq!(fixture.store.next_recheck().await.unwrap(), None);
        assert_eq!(fixture.store.next_due().await.unwrap(), Some(at(181.0)));
    });
}

#[test]
fn a_node_has_one_open_run() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let refused =
            fixture.store.start_run(at(1.0), node_id, new_run(), vec![]).await.unwrap_err();
        assert_eq!(refused.code(), "node_has_open_run");
        assert!(refused.to_string().contains(&run_id.to_string()));

        let mut run = fixture.claim_one(at(1.0)).await.run;
        (run.status, run.ended_at) = (RunStatus::Failed, Some(at(2.0)));
        fixture.store.commit(at(2.0), RunWrite::new(run).releasing()).await.unwrap();
        assert_eq!(fixture.store.next_due().await.unwrap(), None);
        let next = new_run();
        fixture.store.start_run(at(3.0), node_id, next.clone(), vec![]).await.unwrap();
        assert_eq!(fixture.store.node(node_id).await.unwrap().run_id, Some(next.id));
        let runs = fixture.store.runs_of_node(node_id, Page::first(9)).await.unwrap();
        assert_eq!(runs.iter().map(|run| run.id).collect::<Vec<_>>(), vec![next.id, run_id]);
        let newest = fixture.store.runs_of_node(node_id, Page::first(1)).await.unwrap();
        assert_eq!(newest[..], runs[..1]);
        let older = Page { after: Some(next.id), limit: 9 };
        assert_eq!(fixture.store.runs_of_node(node_id, older).await.unwrap()[..], runs[1..]);
    });
}

#[test]
fn runs_are_found_by_what_they_wait_for() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, waiting) = fixture.node("h1").await;
        fixture.node("h2").await;
        fixture.node("h3").await;
        for claimed in fixture.claim(NOON).await {
            let mut write = RunWrite::new(claimed.run).releasing();
            let of_region = write.run.id == waiting;
            let code =
                if of_region { WaitCode::MaasUnavailable } else { WaitCode::MaasCommissioning };
            if of_region || claimed.node.hostname == "h2" {
                write.run.status = RunStatus::Waiting;
                write.run.wait = Some(Wait {
                    code: code.as_str().to_owned(),
                    text: "for it".to_owned(),
                    since: NOON,
                    expected_by: None,
                    expected_from: None,
                    deadline: None,
                });
            }
            fixture.store.commit(at(1.0), write).await.unwrap();
        }
        let found = |site, codes: &'static [WaitCode]| fixture.store.runs_waiting_for(site, codes);
        let away = &[WaitCode::MaasUnavailable, WaitCode::UnknownOutcome];
        assert_eq!(found(fixture.site_id, away).await.unwrap(), [waiting]);
        assert_eq!(found(fixture.site_id, &away[1..]).await.unwrap(), []);
        assert_eq!(found(SiteId(id()), away).await.unwrap(), []);
    });
}

#[test]
fn spans_meet_and_end_with_the_run() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, run_id) = fixture.node("j22u11").await;
        let mut write = RunWrite::new(fixture.claim_one(NOON).await.run).releasing();
        write.run.status = RunStatus::Succeeded;
        write.run.ended_at = Some(at(9.0));
        write.run.wait = Some(Wait {
            code: "maas_commissioning".to_owned(),
            text: "MAAS says Commissioning".to_owned(),
            since: NOON,
            expected_by: None,
            expected_from: None,
            deadline: Some(at(99.0)),
        });
        let step = |step, seconds| Transition { step, at: at(seconds), cause: String::new() };
        write.transitions = vec![step(Step::Discover, 2.0), step(Step::Commission, 5.0)];
        let wait = write.run.wait.clone();
        fixture.store.commit(at(9.0), write).await.unwrap();
        let spans = fixture.store.spans(run_id).await.unwrap();
        let edges: Vec<_> = spans.iter().map(|span| (span.step, span.from, span.until)).collect();
        assert_eq!(
            edges,
            vec![
                (Step::Accept, NOON, Some(at(2.0))),
                (Step::Discover, at(2.0), Some(at(5.0))),
                (Step::Commission, at(5.0), Some(at(9.0))),
            ]
        );
        assert_eq!(fixture.store.run(run_id).await.unwrap().wait, wait);
        fixture.node("other").await;
    });
}

#[test]
fn the_oldest_at_the_gate_goes_first() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        for hostname in ["a", "b", "c"] {
            fixture.node(hostname).await;
        }
        let mut claimed = fixture.claim(NOON).await;
        claimed.sort_by_key(|claim| claim.run.id);
        let site = claimed[0].run.site_id;
        let runs: Vec<_> = claimed.iter().map(|claim| claim.run.clone()).collect();
        let mut first = RunWrite::new(runs[0].clone()).releasing();
        first.run.step = Step::Deploy;
        fixture.store.commit(at(1.0), first).await.unwrap();
        let mut last = RunWrite::new(runs[2].clone()).releasing();
        last.run.status = RunStatus::Waiting;
        fixture.store.commit(at(1.0), last).await.unwrap();
        for scope in [DeployLimitScope::Profile(fixture.profile_id), DeployLimitScope::Site(site)] {
            let mut ahead = Vec::new();
            for run in &runs {
                let (gate, deploying) = (Step::Accept, [Step::Deploy]);
                ahead.push(
                    fixture
                        .store
                        .runs_ahead_of_deployment(scope, run, gate, &deploying)
                        .await
                        .unwrap(),
                );
            }
            assert_eq!(ahead, [0, 1, 2], "{scope:?}");
            let next = fixture.store.next_run_to_deploy(scope, Step::Accept).await.unwrap();
            assert_eq!(next, Some(runs[2].id), "the other is not waiting");
        }
    });
}
