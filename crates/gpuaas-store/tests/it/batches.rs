//! Batches: made whole or not at all, moved once, woken by what happens to their members.

use gpuaas_core::record::NodeHardware;
use gpuaas_store::{
    BatchAdvance, ExposeSecret as _, IdempotencyKey, MemberStart, NewAuditEntry, NewBatch, NewNode,
    NewRunOfNode, OperatorBatchCommand, Page, RunWrite, SecretString, StoredBatch, sha256,
};
use gpuaas_types::batch::{BatchAccepted, BatchMachine, BatchSpec, BatchStop};
use gpuaas_types::{
    BatchId, MemberState, NodeId, NodeState, RunId, RunKind, RunStatus, SiteId, Step, Timestamp,
};

use crate::fixture::{BMC_PASSWORD, Fixture, NOON, at, code, event, id, new_run, on_each_database};

fn spec(name: &str, hosts: &[&str]) -> BatchSpec {
    BatchSpec {
        name: name.to_owned(),
        site: "north".to_owned(),
        profile: "h200".to_owned(),
        canary: 1,
        stop_at_failure_ratio: 0.2,
        stop_min_ended: 0,
        max_parallel: 0,
        machines: hosts
            .iter()
            .map(|host| BatchMachine { hostname: (*host).to_owned(), ..BatchMachine::default() })
            .collect(),
    }
}

pub(crate) fn new_batch(fixture: &Fixture, name: &str, hosts: &[&str]) -> NewBatch {
    let node = |hostname: &&str| NewNode {
        id: NodeId(id()),
        site_id: fixture.site_id,
        profile_id: fixture.profile_id,
        hostname: (*hostname).to_owned(),
        hardware: NodeHardware {
            bmc_address: Some(format!("bmc-{hostname}")),
            ..NodeHardware::default()
        },
        bmc_password: Some(SecretString::from(BMC_PASSWORD.to_owned())),
    };
    let batch_id = BatchId(id());
    NewBatch {
        id: batch_id,
        spec: spec(name, hosts),
        site_id: fixture.site_id,
        profile_id: fixture.profile_id,
        profile_revision: 1,
        nodes: hosts.iter().map(|host| (node(host), event(None, "batch_accepted"))).collect(),
        accepted: BatchAccepted {
            batch_id: Some(batch_id),
            name: name.to_owned(),
            profile_revision: 1,
            canaries: vec![hosts[0].to_owned()],
            rest: Vec::new(),
        },
        audit: Some(audit("batch.create")),
        idempotency: None,
    }
}

fn audit(action: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor: "ann".to_owned(),
        action: action.parse().unwrap(),
        subject: "rack-7".to_owned(),
        detail: serde_json::json!({ "reason": "because" }),
    }
}

fn advance(batch: &StoredBatch, begin: Vec<MemberStart>) -> BatchAdvance {
    BatchAdvance {
        batch: batch.clone(),
        begin,
        stop: None,
        due_at: Timestamp::NEVER,
        ended: false,
        audit: None,
    }
}

async fn begin(fixture: &Fixture, batch: &StoredBatch, position: usize) -> MemberStart {
    let members = fixture.store.batch_members(batch.id).await.unwrap();
    let run = new_run();
    MemberStart {
        position: members[position].position,
        node_id: members[position].node_id,
        reports: Vec::new(),
        history: vec![event(Some(run.id), "batch_turn")],
        run,
    }
}

/// Ends the run of a member, or parks it.
async fn rest_in(fixture: &Fixture, run_id: RunId, now: Timestamp, status: RunStatus) {
    let claimed = fixture.claim(now).await;
    let claimed = claimed.into_iter().find(|c| c.run.id == run_id).unwrap();
    let mut run = claimed.run;
    run.status = status;
    run.due_at = Timestamp::NEVER;
    if status != RunStatus::Parked {
        run.ended_at = Some(now);
    }
    fixture.store.commit(now, RunWrite::new(run).releasing()).await.unwrap();
}

#[test]
fn a_batch_is_made_whole_or_not_at_all() {
    on_each_database(async |database| {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let mut asked = new_batch(&fixture, "rack-7", &["h1", "h2"]);
        asked.idempotency =
            Some(IdempotencyKey { key: "batch:k".to_owned(), request_hash: sha256("body") });
        let made = store.create_batch(NOON, asked.clone()).await.unwrap();
        assert_eq!(made, asked.accepted);
        // Repeated under its key: the first answer, although the identifiers are new.
        let mut again = new_batch(&fixture, "rack-7", &["h1", "h2"]);
        again.idempotency.clone_from(&asked.idempotency);
        assert_eq!(store.create_batch(NOON, again.clone()).await.unwrap(), asked.accepted);
        again.idempotency.as_mut().unwrap().request_hash = sha256("another");
        assert_eq!(code(store.create_batch(NOON, again).await), "idempotency_key_reused");

        let batch = store.batch("rack-7").await.unwrap();
        assert_eq!(batch.spec, asked.spec);
        assert_eq!((batch.id, batch.stop.clone(), batch.ended_at), (asked.id, None, None));
        assert_eq!(store.batch(&batch.id.to_string()).await.unwrap(), batch);
        assert_eq!(code(store.batch("rack-8").await), "not_found");
        let members = store.batch_members(batch.id).await.unwrap();
        let hosts: Vec<_> = members.iter().map(|m| (&*m.hostname, m.state())).collect();
        assert_eq!(hosts, [("h1", MemberState::Waiting), ("h2", MemberState::Waiting)]);
        assert_eq!(store.node(members[0].node_id).await.unwrap().run_id, None);
        let password = store.bmc_password(members[1].node_id).await.unwrap().unwrap();
        assert_eq!(password.expose_secret(), BMC_PASSWORD);
        assert_eq!(store.next_due().await.unwrap(), None);

        let same_name = new_batch(&fixture, "rack-7", &["h3"]);
        assert_eq!(code(store.create_batch(NOON, same_name).await), "batch_name_taken");
        let same_host = new_batch(&fixture, "rack-8", &["h4", "h2"]);
        assert_eq!(code(store.create_batch(NOON, same_host).await), "hostname_taken");
        assert!(store.find_nodes("h3").await.unwrap().is_empty());
        assert!(store.find_nodes("h4").await.unwrap().is_empty());
        assert_eq!(store.batches(None, None, Page::first(9)).await.unwrap(), [batch]);
        assert_eq!(store.audit_entries(crate::fixture::SETUP_ENTRIES, 9).await.unwrap().len(), 1);
    });
}

#[test]
fn batches_page_from_the_newest_with_their_members() {
    on_each_database(async |database| {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        for n in 0..5 {
            let hosts = [format!("a{n}"), format!("b{n}")];
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            let batch = new_batch(&fixture, &format!("rack-{n}"), &hosts);
            store.create_batch(at(f64::from(n)), batch).await.unwrap();
        }
        let (mut names, mut page) = (Vec::new(), Page::first(2));
        loop {
            let batches = store.batches(Some(fixture.site_id), None, page).await.unwrap();
            let Some(last) = batches.last() else { break };
            page.after = Some(last.id);
            let members = store.members_of_batches(batches.iter().map(|b| b.id)).await.unwrap();
            for batch in &batches {
                assert_eq!(members[&batch.id], store.batch_members(batch.id).await.unwrap());
                names.push(format!("{} {}", batch.spec.name, members[&batch.id][1].hostname));
            }
        }
        assert_eq!(names, ["rack-4 b4", "rack-3 b3", "rack-2 b2", "rack-1 b1", "rack-0 b0"]);
        assert!(store.batch_members(BatchId(id())).await.unwrap().is_empty());
        let elsewhere = store.batches(Some(SiteId(id())), None, Page::first(9)).await.unwrap();
        assert!(elsewhere.is_empty());
        assert_eq!(store.batches(None, None, Page::first(9)).await.unwrap().len(), 5);
    });
}

#[test]
fn a_step_on_rows_that_have_changed_is_dropped_whole() {
    on_each_database(async |database| {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        store.create_batch(NOON, new_batch(&fixture, "rack-7", &["h1", "h2"])).await.unwrap();
        assert!(store.due_batches(at(-1.0)).await.unwrap().is_empty());
        let [batch] = store.due_batches(NOON).await.unwrap().try_into().unwrap();

        let first = begin(&fixture, &batch, 0).await;
        let node_id = first.node_id;
        let run_id = first.run.id;
        let second = begin(&fixture, &batch, 0).await;
        assert!(store.advance_batch(at(1.0), advance(&batch, vec![first])).await.unwrap());
        // Somebody else decided on the same rows.
        assert!(!store.advance_batch(at(1.0), advance(&batch, vec![second])).await.unwrap());
        assert!(store.due_batches(at(9.0)).await.unwrap().is_empty());
        assert_eq!(store.runs_of_node(node_id, Page::first(9)).await.unwrap().len(), 1);
        assert_eq!(store.node(node_id).await.unwrap().run_id, Some(run_id));
        assert_eq!(store.next_due().await.unwrap(), Some(at(1.0)));
        let members = store.batch_members(batch.id).await.unwrap();
        assert_eq!(members[0].run.as_ref().unwrap().id, run_id);
        assert_eq!(members[0].state(), MemberState::Running);

        // A node that was given other work meanwhile: nothing of the step is kept.
        let batch = store.batch("rack-7").await.unwrap();
        let step = begin(&fixture, &batch, 1).await;
        let mut run = new_run();
        run.kind = RunKind::Decommission;
        let other = NewRunOfNode {
            node_id: step.node_id,
            run,
            profile_id: None,
            from: &[NodeState::Registered],
            history: Vec::new(),
            audit: None,
        };
        store.start_run_from(at(2.0), other).await.unwrap();
        let current = store.batch("rack-7").await.unwrap();
        assert_eq!(current.due_at, at(2.0), "its batch was woken");
        let mut step = advance(&current, vec![step]);
        step.ended = true;
        assert!(!store.advance_batch(at(3.0), step).await.unwrap());
        assert_eq!(store.batch("rack-7").await.unwrap(), current);
        let members = store.batch_members(batch.id).await.unwrap();
        assert_eq!(members[1].state(), MemberState::Withdrawn);
    });
}

#[test]
fn what_happens_to_a_member_wakes_its_batch() {
    on_each_database(async |database| {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        store.create_batch(NOON, new_batch(&fixture, "rack-7", &["h1", "h2"])).await.unwrap();
        let batch = store.batch("rack-7").await.unwrap();
        let (first, second) = (begin(&fixture, &batch, 0).await, begin(&fixture, &batch, 1).await);
        let (one, two) = (first.run.id, second.run.id);
        assert!(store.advance_batch(NOON, advance(&batch, vec![first, second])).await.unwrap());
        let mut seen = store.batch_signal();
        seen.mark_unchanged();
        rest_in(&fixture, one, at(10.0), RunStatus::Parked).await;
        assert!(seen.has_changed().unwrap());
        let [due] = store.due_batches(at(10.0)).await.unwrap().try_into().unwrap();
        assert!(store.advance_batch(at(10.0), advance(&due, Vec::new())).await.unwrap());
        assert!(store.due_batches(at(11.0)).await.unwrap().is_empty());
        store.resume_run(at(20.0), one, "ann", "mended").await.unwrap();
        assert_eq!(store.due_batches(at(20.0)).await.unwrap().len(), 1);
        // Claims of the second run are leased until at(70).
        rest_in(&fixture, two, at(80.0), RunStatus::Cancelled).await;
        let batch = store.batch("rack-7").await.unwrap();
        assert_eq!(batch.due_at, at(20.0), "the earlier event still stands");
        let members = store.batch_members(batch.id).await.unwrap();
        let states: Vec<_> = members.iter().map(gpuaas_store::StoredMember::state).collect();
        assert_eq!(states, [MemberState::Running, MemberState::Failed]);
        let mut last = advance(&batch, Vec::new());
        last.ended = true;
        assert!(store.advance_batch(at(81.0), last).await.unwrap());
        let ended = store.batch("rack-7").await.unwrap();
        assert_eq!(ended.ended_at, Some(at(81.0)));
        assert!(!store.advance_batch(at(82.0), advance(&ended, Vec::new())).await.unwrap());
    });
}

#[test]
fn an_operator_stops_and_resumes_it() {
    on_each_database(async |database| {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        store.create_batch(NOON, new_batch(&fixture, "rack-7", &["h1", "h2"])).await.unwrap();
        let batch = store.batch("rack-7").await.unwrap();
        let first = begin(&fixture, &batch, 0).await;
        let run_id = first.run.id;
        let mut step = advance(&batch, vec![first]);
        let stop = BatchStop { code: "x".to_owned(), text: "y".to_owned(), at: NOON };
        step.stop = Some(stop.clone());
        step.audit = Some(audit("batch.stop"));
        assert!(store.advance_batch(NOON, step).await.unwrap());
        assert_eq!(store.batch("rack-7").await.unwrap().stop, Some(stop));
        rest_in(&fixture, run_id, at(5.0), RunStatus::Parked).await;

        let (stop, resume) =
            (OperatorBatchCommand::Stop, OperatorBatchCommand::Resume { profile_revision: 1 });
        let tell = async |command| {
            store.apply_batch_command(at(6.0), batch.id, command, audit("batch.resume")).await
        };
        assert_eq!(code(tell(stop).await), "batch_stopped");
        tell(resume).await.unwrap();
        let after = store.batch("rack-7").await.unwrap();
        assert_eq!((after.stop, after.due_at), (None, at(6.0)));
        let members = store.batch_members(batch.id).await.unwrap();
        assert_eq!((members[0].written_off, members[1].written_off), (true, false));
        assert_eq!(members[0].run.as_ref().unwrap().step, Step::Accept);
        assert_eq!(code(tell(resume).await), "batch_not_stopped");
        tell(stop).await.unwrap();
        let text = store.batch("rack-7").await.unwrap().stop.unwrap().text;
        assert_eq!(text, "ann stopped it: because");

        let nobody =
            store.apply_batch_command(NOON, BatchId(id()), stop, audit("batch.stop")).await;
        assert_eq!(code(nobody), "not_found");
        let mut over = advance(&store.batch("rack-7").await.unwrap(), Vec::new());
        over.ended = true;
        assert!(store.advance_batch(at(7.0), over).await.unwrap());
        assert_eq!(code(tell(resume).await), "batch_over");
        let actions = store.audit_entries(crate::fixture::SETUP_ENTRIES, 99).await.unwrap();
        let actions: Vec<_> = actions.into_iter().map(|entry| entry.entry.action).collect();
        let told = ["batch.create", "batch.stop", "batch.resume", "batch.resume"];
        assert_eq!(actions, told);
    });
}
