//! Requests that wait for another person.

use gpuaas_core::second_person::Verdict;
use gpuaas_store::{
    ApprovalFilter, ApprovalRequester, ApprovalVerdict, IdKind, NewApproval, NewAuditEntry, Page,
};
use gpuaas_types::access::{Role, RoleGrant};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest, ApprovalState};
use gpuaas_types::spec::SecondPersonPolicy;
use gpuaas_types::{ApprovalId, NodeId, SiteId};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NOON, at, code, id, on_each_database};

fn audit(action: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor: "ann".to_owned(),
        action: action.parse().unwrap(),
        subject: "s".to_owned(),
        detail: json!({}),
    }
}

fn line(code: &str) -> TimelineEvent {
    TimelineEvent {
        at: NOON,
        run_id: None,
        step: None,
        source: Source::Operator,
        code: code.to_owned(),
        text: "said".to_owned(),
    }
}

pub(crate) fn new(fixture: &Fixture, node_id: Option<NodeId>, name: &str) -> NewApproval {
    let body = format!(r#"{{"name":"{name}","bmc_password":"hush"}}"#);
    NewApproval {
        id: ApprovalId(id()),
        kind: ApprovalKind::Run,
        site_id: fixture.site_id,
        node_id,
        summary: "a reimage of j22u11".to_owned(),
        requester: ApprovalRequester {
            id: "ann-cli".to_owned(),
            name: "ann-cli".to_owned(),
            grants: vec![RoleGrant { role: Role::Operator, sites: None }],
            person: "ann".to_owned(),
            token: None,
        },
        reason: "new image".to_owned(),
        digest: name.to_owned(),
        target_digest: "t".to_owned(),
        request: ApprovalRequest::post("/api/v1/batches", "", body.as_bytes()),
        expires_at: at(100.0),
        history: vec![line("approval_asked")],
        audit: audit("approval.ask"),
    }
}

fn verdict_of(id: ApprovalId, verdict: Verdict) -> ApprovalVerdict {
    ApprovalVerdict {
        id,
        verdict,
        decided_by: "bob".to_owned(),
        reason: "looked".to_owned(),
        history: vec![line("approval_given")],
        audit: audit("approval.approve"),
    }
}

#[test]
fn a_request_is_kept_once_and_decided_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, _) = fixture.node("j22u11").await;
        let asked = new(&fixture, Some(node_id), "one");
        let first = store.hold_request(NOON, asked.clone()).await.unwrap();
        assert_eq!(first, asked.id);
        // The digest of what holds a password is another one each time.
        let same = new(&fixture, Some(node_id), "one");
        let again = NewApproval { digest: "salted anew".to_owned(), ..same };
        let again = store.hold_request(at(1.0), again).await;
        assert_eq!(again.unwrap(), first, "the same request waits already");
        let other = store.hold_request(at(2.0), new(&fixture, None, "two")).await.unwrap();
        assert_ne!(other, first);

        let found = store.approval(first).await.unwrap();
        assert_eq!((found.state, found.site.as_str()), (ApprovalState::Pending, "north"));
        assert_eq!(found.hostname.as_deref(), Some("j22u11"));
        assert_eq!((&found.requester, found.expires_at), (&asked.requester, at(100.0)));
        assert_eq!(store.held_request(first).await.unwrap(), asked.request);
        assert_eq!(code(store.approval(ApprovalId(id())).await), "not_found");
        assert_eq!(code(store.held_request(ApprovalId(id())).await), "not_found");
        let begun = store.ids_between(IdKind::Approval, first.0, first.0, 9).await.unwrap();
        assert_eq!(begun, [(first.0, "a reimage of j22u11".to_owned())]);

        let list = async |filter, page| {
            let found = store.approvals(filter, page).await.unwrap();
            found.into_iter().map(|one| one.id).collect::<Vec<_>>()
        };
        let all = ApprovalFilter::default();
        assert_eq!(list(all, Page::first(9)).await, [other, first]);
        assert_eq!(list(all, Page { after: Some(other), limit: 9 }).await, [first]);
        let of_node = ApprovalFilter { node_id: Some(node_id), ..all };
        assert_eq!(list(of_node, Page::first(9)).await, [first]);
        let elsewhere = ApprovalFilter { site_id: Some(SiteId(id())), ..all };
        assert!(list(elsewhere, Page::first(9)).await.is_empty());
        let open = |seconds| ApprovalFilter { open_at: Some(at(seconds)), ..all };
        assert_eq!(list(open(99.0), Page::first(9)).await.len(), 2);
        assert!(list(open(100.0), Page::first(9)).await.is_empty());

        let both = tokio::join!(
            store.decide_approval(at(3.0), verdict_of(first, Verdict::Approve)),
            store.decide_approval(at(3.0), verdict_of(first, Verdict::Deny))
        );
        assert!(both.0.is_ok() != both.1.is_ok(), "one is heard: {both:?}");
        let late = store.decide_approval(at(4.0), verdict_of(first, Verdict::Approve)).await;
        assert_eq!(code(late), "approval_decided");
        let late = store.decide_approval(at(100.0), verdict_of(other, Verdict::Deny)).await;
        assert_eq!(code(late), "approval_expired");
        assert_eq!(store.approval(other).await.unwrap().decided_by, None);
        let gone = store.decide_approval(NOON, verdict_of(ApprovalId(id()), Verdict::Deny)).await;
        assert_eq!(code(gone), "not_found");
        let history = store.timeline_of_node(node_id, 0, 99).await.unwrap();
        let codes: Vec<&str> = history.iter().map(|row| row.event.code.as_str()).collect();
        assert_eq!(codes.iter().filter(|code| code.starts_with("approval_")).count(), 2);
    });
}

#[test]
fn what_came_of_a_request_is_noted_once_and_its_secret_is_sealed() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let asked = store.hold_request(NOON, new(&fixture, None, "one")).await.unwrap();
        store.end_approval(asked, ApprovalState::Done, json!(1)).await.unwrap();
        assert_eq!(store.approval(asked).await.unwrap().state, ApprovalState::Pending);
        store.decide_approval(at(1.0), verdict_of(asked, Verdict::Approve)).await.unwrap();
        let decided = store.approval(asked).await.unwrap();
        assert_eq!((decided.state, decided.answer), (ApprovalState::Approved, None));
        assert_eq!(decided.decided_by.as_deref(), Some("bob"));
        assert_eq!(decided.decided_at, Some(at(1.0)));
        let undone = |seconds| store.unexecuted_approvals(at(seconds));
        assert!(undone(1.0).await.unwrap().is_empty(), "it was decided just now");
        assert_eq!(undone(2.0).await.unwrap(), [store.approval(asked).await.unwrap()]);
        // Of two executions the first that commits an effect is the one.
        let execute = async |token: u128| {
            let execution = gpuaas_store::ApprovalExecution {
                approval: asked,
                token: uuid::Uuid::from_u128(token),
            };
            let origin = gpuaas_store::RequestOrigin {
                execution: Some(execution),
                ..gpuaas_store::RequestOrigin::default()
            };
            let effect = store.append_audit_entry(at(2.0), audit("node.reimage"));
            gpuaas_store::with_origin(origin, effect).await
        };
        execute(1).await.unwrap();
        execute(1).await.unwrap();
        assert_eq!(code(execute(2).await), "approval_decided");
        assert!(undone(2.0).await.unwrap().is_empty());
        let answer = json!({ "run_id": "x" });
        store.end_approval(asked, ApprovalState::Done, answer.clone()).await.unwrap();
        store.end_approval(asked, ApprovalState::Failed, Value::Null).await.unwrap();
        let ended = store.approval(asked).await.unwrap();
        assert_eq!((ended.state, ended.answer), (ApprovalState::Done, Some(answer)));
        if fixture.database.url.starts_with("sqlite:") {
            store.close().await;
            for file in std::fs::read_dir(fixture.database.folder.path()).unwrap() {
                let bytes = std::fs::read(file.unwrap().path()).unwrap();
                assert!(!bytes.windows(4).any(|part| part == b"hush"), "a secret is in the file");
            }
        }
    });
}

#[test]
fn erasing_is_counted_until_it_is_too_much() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site) = (&fixture.store, fixture.site_id);
        let policy = SecondPersonPolicy { erasing_above: Some(3), ..Default::default() };
        let count = |seconds, person, nodes| {
            store.count_erasing(at(seconds), (site, Vec::new()), policy.clone(), person, nodes)
        };
        assert!(!count(0.0, "ann", 2).await.unwrap());
        assert!(count(1.0, "ann", 2).await.unwrap(), "four are more than three");
        assert!(!count(2.0, "ann", 1).await.unwrap(), "what waits was not counted");
        assert!(count(3.0, "ann", 1).await.unwrap());
        assert!(!count(3.0, "bob", 3).await.unwrap(), "another person has another count");
        assert!(!count(3_600.0, "ann", 2).await.unwrap(), "an hour has gone by for the first two");
        let many = (0..8).map(|_| count(9_000.0, "eve", 1));
        let waits = futures_all(many).await;
        assert_eq!(waits.iter().filter(|waits| !**waits).count(), 3, "requests at once: {waits:?}");
    });
}

async fn futures_all<F>(all: impl Iterator<Item = F>) -> Vec<bool>
where
    F: Future<Output = Result<bool, gpuaas_store::StoreError>>,
{
    futures::future::join_all(all).await.into_iter().map(Result::unwrap).collect()
}
