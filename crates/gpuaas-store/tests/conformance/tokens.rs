//! Credentials: every rule, and its code.

use gpuaas_core::record::ReportKind;
use gpuaas_store::{AgentCredential, Enroll, Heartbeat, NewToken, RunWrite, TokenPurpose, sha256};
use gpuaas_types::{NodeId, RunId, RunStatus, TokenId};

use crate::rig::{NOON, World, at, code, event, id, on_each};

fn token(node_id: NodeId, run_id: RunId, text: &str, purpose: TokenPurpose) -> NewToken {
    NewToken {
        id: TokenId(id()),
        hash: sha256(text),
        purpose,
        node_id: Some(node_id),
        run_id: Some(run_id),
        single_use: purpose == TokenPurpose::Enrollment,
        usable_from: NOON,
        expires_at: None,
    }
}

fn enroll(run_id: RunId, text: &str, credential: &str) -> Enroll {
    Enroll {
        hash: sha256(text),
        run_id,
        agent_version: "1.0".to_owned(),
        hostname: "j22u11".to_owned(),
        credential: AgentCredential::Bearer { id: TokenId(id()), hash: sha256(credential) },
        timeline: vec![event(Some(run_id), "enrolled")],
    }
}

fn heartbeat(node_id: NodeId, run_id: RunId) -> Heartbeat {
    Heartbeat {
        node_id,
        run_id,
        agent_version: "1.0".to_owned(),
        troubles: String::new(),
        first: None,
        changed: None,
    }
}

/// Mints a bootstrap and an enrollment token for a new deployment.
async fn mint(world: &World, node_id: NodeId, run_id: RunId, suffix: &str) {
    let now = world.store.run(run_id).await.unwrap().lease_until.max(NOON);
    let claimed = world.claim_one(now).await;
    let mut write = RunWrite::new(claimed.run);
    write.tokens = vec![
        token(node_id, run_id, &format!("boot{suffix}"), TokenPurpose::Bootstrap),
        token(node_id, run_id, &format!("enroll{suffix}"), TokenPurpose::Enrollment),
    ];
    world.store.commit(NOON, write).await.unwrap();
}

#[test]
fn an_enrollment_token_works_once() {
    on_each(|place| async move {
        let world = World::new(place).await;
        let store = &world.store;
        let (node_id, run_id) = world.node("j22u11").await;
        mint(&world, node_id, run_id, "1").await;

        let taken =
            store.use_enrollment_token(at(1.0), enroll(run_id, "enroll1", "first")).await.unwrap();
        assert_eq!((taken.node_id, taken.run_id, taken.again), (node_id, run_id, false));
        let agent = |text| store.check_token(at(9.0), sha256(text), TokenPurpose::Agent);
        let grant = store.check_token(at(2.0), sha256("first"), TokenPurpose::Agent);
        assert_eq!(grant.await.unwrap().node_id, Some(node_id));

        // The agent died before it saved its credential: no heartbeat was ever seen.
        let again =
            store.use_enrollment_token(at(3.0), enroll(run_id, "enroll1", "second")).await.unwrap();
        assert!(again.again);
        assert_eq!(code(agent("first").await), "token_revoked");
        assert_eq!(agent("second").await.unwrap().run_id, Some(run_id));

        assert!(store.heartbeat(at(4.0), heartbeat(node_id, run_id)).await.unwrap());
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
fn a_token_is_good_for_its_own_purpose_and_run() {
    on_each(|place| async move {
        let world = World::new(place).await;
        let (node_id, run_id) = world.node("j22u11").await;
        mint(&world, node_id, run_id, "1").await;
        let check = |text, purpose| world.store.check_token(NOON, sha256(text), purpose);
        let boot = sha256("boot1");
        let grant = world.store.check_token(NOON, boot, TokenPurpose::Bootstrap).await.unwrap();
        assert_eq!((grant.node_id, grant.run_id), (Some(node_id), Some(run_id)));
        assert_eq!(code(check("boot1", TokenPurpose::Agent).await), "token_unknown");
        assert_eq!(code(check("nothing", TokenPurpose::Bootstrap).await), "token_unknown");
        let asked = enroll(run_id, "boot1", "x");
        assert_eq!(code(world.store.use_enrollment_token(NOON, asked).await), "token_unknown");
        let asked = enroll(RunId(id()), "enroll1", "x");
        assert_eq!(code(world.store.use_enrollment_token(NOON, asked).await), "token_unknown");
        let reports = world.store.reports(run_id).await.unwrap();
        assert!(reports.is_empty(), "a refused enrollment leaves nothing");
    });
}

#[test]
fn the_clock_of_a_token_starts_with_the_node() {
    on_each(|place| async move {
        let world = World::new(place).await;
        let (node_id, run_id) = world.node("j22u11").await;
        mint(&world, node_id, run_id, "1").await;
        let boot = sha256("boot1");
        let much_later = at(1e6);
        world.store.check_token(much_later, boot, TokenPurpose::Bootstrap).await.unwrap();
        world.store.start_token_clock(run_id, at(3600.0)).await.unwrap();
        world.store.start_token_clock(run_id, at(9999.0)).await.unwrap();
        world.store.check_token(at(3599.0), boot, TokenPurpose::Bootstrap).await.unwrap();
        let expired = world.store.check_token(at(3600.0), boot, TokenPurpose::Bootstrap).await;
        assert_eq!(code(expired), "token_expired");
        let asked = enroll(run_id, "enroll1", "x");
        let expired = world.store.use_enrollment_token(at(3600.0), asked).await;
        assert_eq!(code(expired), "token_expired");
    });
}

#[test]
fn a_new_deployment_revokes_the_tokens_of_the_one_before() {
    on_each(|place| async move {
        let world = World::new(place).await;
        let (node_id, run_id) = world.node("j22u11").await;
        mint(&world, node_id, run_id, "1").await;
        mint(&world, node_id, run_id, "2").await;
        let old = enroll(run_id, "enroll1", "x");
        assert_eq!(code(world.store.use_enrollment_token(NOON, old).await), "token_revoked");
        let old = sha256("boot1");
        let old = world.store.check_token(NOON, old, TokenPurpose::Bootstrap).await;
        assert_eq!(code(old), "token_revoked");
        let new = enroll(run_id, "enroll2", "x");
        world.store.use_enrollment_token(NOON, new).await.unwrap();
    });
}

#[test]
fn a_token_dies_with_its_run() {
    on_each(|place| async move {
        let world = World::new(place).await;
        let (node_id, run_id) = world.node("j22u11").await;
        mint(&world, node_id, run_id, "1").await;
        let asked = enroll(run_id, "enroll1", "agent");
        world.store.use_enrollment_token(NOON, asked.clone()).await.unwrap();
        let mut write = RunWrite::new(world.claim_one(at(60.0)).await.run).releasing();
        (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(at(61.0)));
        write.tokens_expire_at = Some(at(62.0));
        world.store.commit(at(61.0), write).await.unwrap();
        assert_eq!(code(world.store.use_enrollment_token(at(61.5), asked).await), "run_over");
        let boot = sha256("boot1");
        let boot = world.store.check_token(at(61.5), boot, TokenPurpose::Bootstrap).await;
        assert_eq!(code(boot), "run_over");
        let agent = sha256("agent");
        world.store.check_token(at(1e6), agent, TokenPurpose::Agent).await.unwrap();
    });
}

#[test]
fn an_admin_token_belongs_to_no_node() {
    on_each(|place| async move {
        let world = World::new(place).await;
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
        world.store.add_token(NOON, admin.clone()).await.unwrap();
        let check = |now| world.store.check_token(now, admin.hash, TokenPurpose::Admin);
        assert_eq!(code(check(NOON).await), "token_not_yet_usable");
        assert_eq!(check(at(1.0)).await.unwrap().node_id, None);
        world.store.revoke_token(at(2.0), admin.id).await.unwrap();
        assert_eq!(code(check(at(2.0)).await), "token_revoked");
        assert_eq!(code(world.store.revoke_token(NOON, TokenId(id())).await), "not_found");
        assert_eq!(code(world.store.add_token(NOON, admin.clone()).await), "already_exists");
    });
}
