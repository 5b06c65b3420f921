//! Credentials: every rule, and its code.

use gpuaas_core::record::ReportKind;
use gpuaas_store::{
    NewAccessToken, NewAgentCredential, NewAuditEntry, NewEnrollment, NewTask, NewToken, RunWrite,
    TokenPurpose, sha256,
};
use gpuaas_types::access::{Role, RoleGrant};
use gpuaas_types::agent::TaskSpec;
use gpuaas_types::filter::FilterList;
use gpuaas_types::{AuditAction, NodeId, RunId, RunStatus, Step, TaskId, TokenId};

use crate::fixture::{Fixture, NOON, at, code, event, heartbeat, id, on_each_database, token};

fn enroll(run_id: RunId, text: &str, credential: &str) -> NewEnrollment {
    NewEnrollment {
        hash: sha256(text),
        run_id,
        key: None,
        agent_version: "1.0".to_owned(),
        hostname: "j22u11".to_owned(),
        credential: NewAgentCredential::Bearer { id: TokenId(id()), hash: sha256(credential) },
        timeline: vec![event(Some(run_id), "enrolled")],
    }
}

/// Mints a bootstrap and an enrollment token for a new deployment.
async fn mint(fixture: &Fixture, node_id: NodeId, run_id: RunId, suffix: &str) {
    let now = fixture.store.run(run_id).await.unwrap().lease_until.max(NOON);
    let claimed = fixture.claim_one(now).await;
    let mut write = RunWrite::new(claimed.run);
    write.tokens = vec![
        token((node_id, run_id), &format!("boot{suffix}"), TokenPurpose::Bootstrap),
        token((node_id, run_id), &format!("enroll{suffix}"), TokenPurpose::Enrollment),
    ];
    fixture.store.commit(NOON, write).await.unwrap();
}

#[test]
fn an_enrollment_token_works_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        mint(&fixture, node_id, run_id, "1").await;

        let taken =
            store.use_enrollment_token(at(1.0), enroll(run_id, "enroll1", "first")).await.unwrap();
        assert_eq!((taken.node_id, taken.run_id, taken.again), (node_id, run_id, false));
        let agent = |text| store.check_token(at(9.0), sha256(text), TokenPurpose::Agent);
        let grant = store.check_token(at(2.0), sha256("first"), TokenPurpose::Agent);
        assert_eq!(grant.await.unwrap().node_id, Some(node_id));

        // The stand-in died before it saved its credential: no heartbeat was ever seen.
        let again =
            store.use_enrollment_token(at(3.0), enroll(run_id, "enroll1", "second")).await.unwrap();
        assert!(again.again);
        assert_eq!(code(agent("first").await), "token_revoked");
        assert_eq!(agent("second").await.unwrap().run_id, Some(run_id));

        assert!(store.record_heartbeat(at(4.0), heartbeat(node_id, run_id)).await.unwrap());
        let third = store.use_enrollment_token(at(5.0), enroll(run_id, "enroll1", "third")).await;
        assert_eq!(code(third), "token_used");
        assert_eq!(code(agent("third").await), "token_unknown");
        agent("second").await.unwrap();

        let reports = store.reports(run_id).await.unwrap();
        let enrolled = |kind: &ReportKind| matches!(kind, ReportKind::Enrolled { .. });
        assert_eq!(reports.iter().filter(|report| enrolled(&report.kind)).count(), 2);
        let run = store.run(run_id).await.unwrap();
        assert_eq!(run.wake_seq, 3, "two enrollments and a first heartbeat");
    });
}

#[test]
fn another_deployment_ends_what_the_earlier_ones_were_given_used_or_not() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let honoured = async || store.count_honoured_tokens(node_id).await.unwrap();
        assert_eq!(honoured().await, 0);
        mint(&fixture, node_id, run_id, "1").await;
        assert_eq!(honoured().await, 2);
        // An agent that nobody heard yet may enroll again, so its token is honoured still.
        store.use_enrollment_token(at(1.0), enroll(run_id, "enroll1", "a")).await.unwrap();
        assert_eq!(honoured().await, 2);
        store.record_heartbeat(at(2.0), heartbeat(node_id, run_id)).await.unwrap();
        assert_eq!(honoured().await, 1);

        // The machine is released, and its next system heard for the first time.
        let lease_until = store.run(run_id).await.unwrap().lease_until;
        let mut write = RunWrite::new(fixture.claim_one(lease_until).await.run);
        write.revokes_tokens = true;
        write.tasks = vec![NewTask {
            id: TaskId(id()),
            spec: TaskSpec::Diagnostics { units: Vec::new() },
            expires_at: at(600.0),
        }];
        write.run.state.enter_step(Step::ReleaseForRetry);
        store.commit(at(3.0), write).await.unwrap();
        assert_eq!(honoured().await, 0);
        let check = |text, purpose| store.check_token(at(4.0), sha256(text), purpose);
        assert_eq!(code(check("boot1", TokenPurpose::Bootstrap).await), "token_revoked");
        assert_eq!(code(check("enroll1", TokenPurpose::Enrollment).await), "token_revoked");
        let tasks = async || store.pending_tasks(at(4.0), node_id).await.unwrap().len();
        assert_eq!(tasks().await, 1);
        mint(&fixture, node_id, run_id, "2").await;
        assert_eq!(tasks().await, 0, "the next system does not do what the one before was to do");
        assert_eq!(honoured().await, 2);
        store.use_enrollment_token(at(5.0), enroll(run_id, "enroll2", "b")).await.unwrap();
        check("enroll2", TokenPurpose::Enrollment).await.unwrap();
        assert!(store.record_heartbeat(at(6.0), heartbeat(node_id, run_id)).await.unwrap());
        let heard = |kind: &ReportKind| matches!(kind, ReportKind::FirstHeartbeat);
        let reports = store.reports(run_id).await.unwrap();
        let heard: Vec<_> = reports.iter().filter(|r| heard(&r.kind)).map(|r| r.at).collect();
        assert_eq!(heard, [at(6.0)]);

        // Also where nobody released it, and where its agent was never heard.
        mint(&fixture, node_id, run_id, "3").await;
        store.use_enrollment_token(at(7.0), enroll(run_id, "enroll3", "c")).await.unwrap();
        mint(&fixture, node_id, run_id, "4").await;
        let again = store.use_enrollment_token(at(8.0), enroll(run_id, "enroll3", "c")).await;
        assert_eq!(code(again), "token_revoked");
    });
}

#[test]
fn a_token_is_good_for_its_own_purpose_and_run() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        mint(&fixture, node_id, run_id, "1").await;
        let check = |text, purpose| fixture.store.check_token(NOON, sha256(text), purpose);
        let boot = sha256("boot1");
        let grant = fixture.store.check_token(NOON, boot, TokenPurpose::Bootstrap).await.unwrap();
        assert_eq!((grant.node_id, grant.run_id), (Some(node_id), Some(run_id)));
        assert_eq!(code(check("boot1", TokenPurpose::Agent).await), "token_unknown");
        assert_eq!(code(check("nothing", TokenPurpose::Bootstrap).await), "token_unknown");
        let asked = enroll(run_id, "boot1", "x");
        assert_eq!(code(fixture.store.use_enrollment_token(NOON, asked).await), "token_unknown");
        let asked = enroll(RunId(id()), "enroll1", "x");
        assert_eq!(code(fixture.store.use_enrollment_token(NOON, asked).await), "token_unknown");
        let reports = fixture.store.reports(run_id).await.unwrap();
        assert!(reports.is_empty(), "a refused enrollment leaves nothing");
    });
}

/// Writes the run with another status, `end` being what a worker says of its tokens.
async fn put(fixture: &Fixture, seconds: f64, status: RunStatus, end: Option<f64>) {
    let mut write = RunWrite::new(fixture.claim_one(at(seconds)).await.run).releasing();
    (write.run.status, write.run.due_at) = (status, at(seconds));
    write.run.ended_at = (!status.is_open()).then(|| at(seconds));
    write.tokens_expire_at = end.map(at);
    fixture.store.commit(at(seconds), write).await.unwrap();
}

#[test]
fn a_token_has_an_end_only_while_its_run_is_parked() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        mint(&fixture, node_id, run_id, "1").await;
        let boot = |seconds| {
            fixture.store.check_token(at(seconds), sha256("boot1"), TokenPurpose::Bootstrap)
        };
        let enroll = |seconds| {
            fixture.store.use_enrollment_token(at(seconds), enroll(run_id, "enroll1", "x"))
        };
        boot(1e6).await.unwrap();

        // Parked: an hour from there, or from the last word of the node.
        put(&fixture, 10_000.0, RunStatus::Parked, Some(13_600.0)).await;
        boot(13_599.0).await.unwrap();
        fixture.store.start_token_clock(run_id, at(14_000.0)).await.unwrap();
        fixture.store.start_token_clock(run_id, at(12_000.0)).await.unwrap();
        boot(13_999.0).await.unwrap();
        assert_eq!(code(boot(14_000.0).await), "token_expired");
        assert_eq!(code(enroll(14_000.0).await), "token_expired");
        assert!(fixture.store.reports(run_id).await.unwrap().is_empty());

        // Resumed: as good as before, and with an end again where it parks again.
        fixture.store.resume_run(at(20_000.0), run_id, "ann", "mended").await.unwrap();
        boot(1e6).await.unwrap();
        put(&fixture, 20_001.0, RunStatus::Waiting, None).await;
        enroll(90_000.0).await.unwrap();
        put(&fixture, 90_001.0, RunStatus::Parked, Some(93_601.0)).await;
        boot(93_600.0).await.unwrap();
        assert_eq!(code(boot(93_601.0).await), "token_expired");
        assert_eq!(code(enroll(93_601.0).await), "token_expired");

        // Over, it has a cause of its own, whatever else is true of it.
        fixture.store.resume_run(at(94_000.0), run_id, "ann", "mended").await.unwrap();
        put(&fixture, 94_001.0, RunStatus::Failed, None).await;
        assert_eq!(code(boot(94_001.0).await), "run_over");
        assert_eq!(code(enroll(94_001.0).await), "run_over");
    });
}

#[test]
fn a_new_deployment_revokes_the_tokens_of_the_one_before() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        mint(&fixture, node_id, run_id, "1").await;
        mint(&fixture, node_id, run_id, "2").await;
        let old = enroll(run_id, "enroll1", "x");
        assert_eq!(code(fixture.store.use_enrollment_token(NOON, old).await), "token_revoked");
        let old = sha256("boot1");
        let old = fixture.store.check_token(NOON, old, TokenPurpose::Bootstrap).await;
        assert_eq!(code(old), "token_revoked");
        let new = enroll(run_id, "enroll2", "x");
        fixture.store.use_enrollment_token(NOON, new).await.unwrap();
    });
}

#[test]
fn a_token_dies_with_its_run() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        mint(&fixture, node_id, run_id, "1").await;
        let asked = enroll(run_id, "enroll1", "agent");
        fixture.store.use_enrollment_token(NOON, asked.clone()).await.unwrap();
        let mut write = RunWrite::new(fixture.claim_one(at(60.0)).await.run).releasing();
        (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(at(61.0)));
        write.tokens_expire_at = Some(at(62.0));
        fixture.store.commit(at(61.0), write).await.unwrap();
        assert_eq!(code(fixture.store.use_enrollment_token(at(61.5), asked).await), "run_over");
        let boot = sha256("boot1");
        let boot = fixture.store.check_token(at(61.5), boot, TokenPurpose::Bootstrap).await;
        assert_eq!(code(boot), "run_over");
        let agent = sha256("agent");
        fixture.store.check_token(at(1e6), agent, TokenPurpose::Agent).await.unwrap();
    });
}

#[test]
fn an_admin_token_belongs_to_no_node() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let admin = NewToken {
            id: TokenId(id()),
            hash: sha256("admin"),
            purpose: TokenPurpose::Admin,
            node_id: None,
            run_id: None,
            single_use: false,
            usable_from: at(1.0),
            expires_at: None,
        };
        fixture.store.add_token(NOON, admin.clone()).await.unwrap();
        let check = |now| fixture.store.check_token(now, admin.hash, TokenPurpose::Admin);
        assert_eq!(code(check(NOON).await), "token_not_yet_usable");
        assert_eq!(check(at(1.0)).await.unwrap().node_id, None);
        fixture.store.revoke_token(at(2.0), admin.id).await.unwrap();
        assert_eq!(code(check(at(2.0)).await), "token_revoked");
        assert_eq!(code(fixture.store.revoke_token(NOON, TokenId(id())).await), "not_found");
        assert_eq!(code(fixture.store.add_token(NOON, admin.clone()).await), "already_exists");
    });
}

#[test]
fn a_credential_is_replaced() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let admin = |text: &str| NewToken {
            id: TokenId(uuid::Uuid::from_u128(7)),
            hash: sha256(text),
            purpose: TokenPurpose::Admin,
            node_id: None,
            run_id: None,
            single_use: false,
            usable_from: NOON,
            expires_at: None,
        };
        let entry = |reason: &str| NewAuditEntry {
            actor: "host (root)".to_owned(),
            action: AuditAction::TokenReset,
            subject: "admin".to_owned(),
            detail: serde_json::json!({ "reason": reason }),
        };
        fixture.store.replace_token(NOON, admin("first"), entry("none yet")).await.unwrap();
        fixture.store.replace_token(at(1.0), admin("second"), entry("lost")).await.unwrap();
        let check = |text| fixture.store.check_token(at(2.0), sha256(text), TokenPurpose::Admin);
        assert_eq!(code(check("first").await), "token_unknown");
        check("second").await.unwrap();
        let audited = fixture.store.audit_entries(0, 100).await.unwrap();
        let resets = audited.iter().filter(|one| one.entry.action == "token.reset");
        assert_eq!(resets.map(|one| one.at).collect::<Vec<_>>(), [NOON, at(1.0)]);
    });
}

#[test]
fn a_program_s_token_has_a_name_roles_and_an_end() {
    on_each_database(|database| async move {
        let fixture = Fixture::empty(database).await;
        let store = &fixture.store;
        let new = |name: &str, text: &str, expires_at| NewAccessToken {
            id: TokenId(id()),
            hash: sha256(text),
            name: name.to_owned(),
            grants: vec![RoleGrant { role: Role::Viewer, sites: Some(vec!["lab".to_owned()]) }],
            created_by: "ada".to_owned(),
            person: "ada".to_owned(),
            expires_at,
        };
        let entry = |action: &str| NewAuditEntry {
            actor: "ada".to_owned(),
            action: action.parse().unwrap(),
            subject: "ci".to_owned(),
            detail: serde_json::Value::Null,
        };
        let made =
            store.add_access_token(NOON, new("ci", "one", Some(at(100.0))), entry("token.create"));
        let made = made.await.unwrap();
        let twice = store.add_access_token(NOON, new("ci", "two", None), entry("token.create"));
        assert_eq!(code(twice.await), "token_name_taken");
        assert_eq!(store.access_tokens().await.unwrap(), std::slice::from_ref(&made));
        let filters = [
            ("name=ci person=ada created_by=ada revoked=false expires<2099-01-01", 1),
            ("revoked=true or used>1970-01-01 or name~CI", 0),
        ];
        crate::filters::assert_pass(&fixture, FilterList::Tokens, &filters).await;

        assert_eq!(store.use_access_token(at(1.0), sha256("one")).await.unwrap(), made);
        let used = store.access_tokens().await.unwrap();
        assert_eq!(used[0].last_used_at, Some(at(1.0)));
        store.use_access_token(at(2.0), sha256("one")).await.unwrap();
        let again = store.access_tokens().await.unwrap();
        assert_eq!(again[0].last_used_at, Some(at(1.0)), "a use is written once a minute");
        assert_eq!(code(store.use_access_token(NOON, sha256("two")).await), "token_unknown");
        assert_eq!(code(store.use_access_token(at(100.0), sha256("one")).await), "token_expired");

        store.revoke_access_token(at(3.0), "ci", entry("token.revoke")).await.unwrap();
        assert_eq!(code(store.use_access_token(at(4.0), sha256("one")).await), "token_revoked");
        let name = async |text| store.access_token_name(sha256(text)).await.unwrap();
        assert_eq!(name("one").await.as_deref(), Some("ci"), "a revoked one keeps its name");
        assert_eq!(name("two").await, None);
        let gone = store.revoke_access_token(at(5.0), "ci", entry("token.revoke"));
        assert_eq!(code(gone.await), "not_found");
        store
            .add_access_token(at(6.0), new("ci", "two", None), entry("token.create"))
            .await
            .unwrap();
        let names = store.access_tokens().await.unwrap();
        let revoked: Vec<bool> = names.iter().map(|one| one.revoked_at.is_some()).collect();
        assert_eq!(revoked, [false, true]);
        let audit = store.audit_entries(0, 10).await.unwrap();
        let actions: Vec<&str> = audit.iter().map(|one| one.entry.action.as_str()).collect();
        assert_eq!(actions, ["token.create", "token.revoke", "token.create"]);
    });
}
