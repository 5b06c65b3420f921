//! Certificates of agents: handed out, renewed, superseded, revoked.

use gpuaas_core::record::ReportKind;
use gpuaas_store::{
    CertificateEnding, ExposeSecret as _, NewAgentCredential, NewCertificate, NewEnrollment,
    NodeChange, RunWrite, SecretString, TokenPurpose, sha256,
};
use gpuaas_types::{NodeId, NodeState, RunId};

use crate::fixture::{Fixture, NOON, at, by_test, code, event, heartbeat, on_each_database, token};

fn certificate(name: &str) -> NewCertificate {
    NewCertificate {
        fingerprint: sha256(name),
        serial: name.to_owned(),
        not_before: at(-10.0),
        not_after: at(1000.0),
        authority: 1,
    }
}

/// With the key and the certificate of this name.
fn enroll(run_id: RunId, token: &str, name: &str) -> NewEnrollment {
    NewEnrollment {
        hash: sha256(token),
        run_id,
        key: Some(sha256(&format!("key of {name}"))),
        agent_version: "1.0".to_owned(),
        hostname: "j22u11".to_owned(),
        credential: NewAgentCredential::Certificate(certificate(name)),
        timeline: Vec::new(),
    }
}

/// A node whose run has the enrollment token `t`.
async fn node_with_token(fixture: &Fixture) -> (NodeId, RunId) {
    let made = fixture.node("j22u11").await;
    fixture.store.add_token(NOON, token(made, "t", TokenPurpose::Enrollment)).await.unwrap();
    made
}

async fn endings(fixture: &Fixture, node_id: NodeId) -> Vec<(String, Option<CertificateEnding>)> {
    let known = fixture.store.certificates_of_node(node_id).await.unwrap();
    known.into_iter().map(|one| (one.serial, one.ended.map(|(how, ..)| how))).collect()
}

#[test]
fn a_certificate_counts_until_another_enrollment_or_an_operator_ends_it() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = node_with_token(&fixture).await;
        assert_eq!(store.token_owner(sha256("t")).await.unwrap(), Some(node_id));
        assert_eq!(store.token_owner(sha256("nothing")).await.unwrap(), None);
        store.use_enrollment_token(at(1.0), enroll(run_id, "t", "a")).await.unwrap();
        let known = store.certificate(sha256("a")).await.unwrap().unwrap();
        assert_eq!((known.node_id, known.run_id, known.ended), (node_id, run_id, None));
        assert_eq!((known.not_before, known.not_after), (at(-10.0), at(1000.0)));
        assert_eq!(store.certificate(sha256("b")).await.unwrap(), None);

        // A renewal ends nothing; another enrollment ends everything before it.
        let line = || vec![event(Some(run_id), "certificate_renewed")];
        store.renew_certificate(at(2.0), sha256("a"), certificate("b"), line()).await.unwrap();
        assert_eq!(endings(&fixture, node_id).await, [("a".into(), None), ("b".into(), None)]);
        store
            .add_token(NOON, token((node_id, run_id), "u", TokenPurpose::Enrollment))
            .await
            .unwrap();
        store.use_enrollment_token(at(3.0), enroll(run_id, "u", "c")).await.unwrap();
        let gone = Some(CertificateEnding::Superseded);
        let wanted = [("a".into(), gone), ("b".into(), gone), ("c".into(), None)];
        assert_eq!(endings(&fixture, node_id).await, wanted);
        let late = store.renew_certificate(at(4.0), sha256("b"), certificate("d"), line()).await;
        assert_eq!(code(late), "certificate_revoked");
        let never = store.renew_certificate(at(4.0), sha256("x"), certificate("d"), line()).await;
        assert_eq!(code(never), "certificate_revoked");

        let told = || vec![event(Some(run_id), "certificate_revoked")];
        let revoke =
            |when| store.revoke_certificates(at(when), node_id, "it leaked", told(), by_test());
        assert_eq!(revoke(5.0).await.unwrap(), 1);
        assert_eq!(revoke(6.0).await.unwrap(), 0, "and it is said once");
        let known = store.certificate(sha256("c")).await.unwrap().unwrap();
        let ended = Some((CertificateEnding::Revoked, at(5.0), "it leaked".to_owned()));
        assert_eq!(known.ended, ended);
        let history = store.timeline_of_run(run_id, 0, 100).await.unwrap();
        let count = |code: &str| history.iter().filter(|row| row.event.code == code).count();
        assert_eq!((count("certificate_renewed"), count("certificate_revoked")), (1, 1));
    });
}

#[test]
fn a_token_works_again_for_the_key_that_used_it_and_for_no_other() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = node_with_token(&fixture).await;
        let asks = |name: &str| enroll(run_id, "t", name);
        let check = |name: &str| store.check_enrollment(at(2.0), sha256("t"), asks(name).key);
        check("a").await.unwrap();
        store.use_enrollment_token(at(1.0), asks("a")).await.unwrap();

        // Whoever copied it is told apart; what that ends, a call of its own says.
        let before = (fixture.store.run(run_id).await.unwrap(), endings(&fixture, node_id).await);
        assert_eq!(code(check("thief").await), "token_contested");
        assert_eq!(
            code(store.use_enrollment_token(at(2.0), asks("thief")).await),
            "token_contested"
        );
        let keyless = NewEnrollment { key: None, ..asks("thief") };
        assert_eq!(code(store.use_enrollment_token(at(2.0), keyless).await), "token_contested");
        let after = (fixture.store.run(run_id).await.unwrap(), endings(&fixture, node_id).await);
        assert_eq!((after, store.reports(run_id).await.unwrap().len()), (before, 1));

        // The agent that lost the answer gets another; the first is no worse for it.
        let lost = |name: &str| {
            let credential = NewAgentCredential::Certificate(certificate(name));
            NewEnrollment { credential, ..asks("a") }
        };
        let taken = store.use_enrollment_token(at(3.0), lost("b")).await.unwrap();
        assert!(taken.again);
        assert_eq!(endings(&fixture, node_id).await, [("a".into(), None), ("b".into(), None)]);
        for n in 2..8 {
            store.use_enrollment_token(at(3.0), lost(&n.to_string())).await.unwrap();
        }
        let more = store.use_enrollment_token(at(3.0), lost("8")).await;
        assert_eq!(code(more), "certificates_too_many");

        // A heartbeat says that the answer came.
        store.record_heartbeat(at(4.0), heartbeat(node_id, run_id)).await.unwrap();
        assert_eq!(code(store.use_enrollment_token(at(5.0), asks("a")).await), "token_used");
        assert_eq!(code(check("a").await), "token_used");
    });
}

#[test]
fn an_agent_cannot_collect_certificates() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (_, run_id) = node_with_token(&fixture).await;
        store.use_enrollment_token(NOON, enroll(run_id, "t", "0")).await.unwrap();
        let renew = async |when: f64, name: &str| {
            let new = certificate(name);
            store.renew_certificate(at(when), sha256("0"), new, Vec::new()).await
        };
        for n in 1..8 {
            renew(1.0, &n.to_string()).await.unwrap();
        }
        assert_eq!(code(renew(1.0, "8").await), "certificates_too_many");
        // Those whose time is over do not count.
        renew(1001.0, "8").await.unwrap();
    });
}

#[test]
fn a_node_that_leaves_or_is_deployed_again_has_no_certificate() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        for (hostname, left) in [
            ("j22u11", None),
            ("j22u15", Some(NodeState::Retired)),
            ("j22u16", Some(NodeState::Detached)),
        ] {
            let (node_id, run_id) = fixture.node(hostname).await;
            fixture
                .store
                .add_token(NOON, token((node_id, run_id), hostname, TokenPurpose::Enrollment))
                .await
                .unwrap();
            let asked = enroll(run_id, hostname, hostname);
            fixture.store.use_enrollment_token(NOON, asked).await.unwrap();
            let claimed = fixture.claim(NOON).await;
            let run = claimed.into_iter().map(|one| one.run).find(|run| run.id == run_id).unwrap();
            let mut write = RunWrite::new(run);
            match left {
                None => {
                    write.tokens = vec![token((node_id, run_id), "next", TokenPurpose::Enrollment)]
                }
                left => write.node = Some(NodeChange { state: left, system_id: None }),
            }
            fixture.store.commit(at(1.0), write).await.unwrap();
            let how = left.map_or(CertificateEnding::Superseded, |_| CertificateEnding::Revoked);
            assert_eq!(endings(&fixture, node_id).await, [(hostname.to_owned(), Some(how))]);
        }
    });
}

#[test]
fn the_first_key_of_a_tpm_stays_until_somebody_ends_what_it_enrolled() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = node_with_token(&fixture).await;
        assert_eq!(store.node_tpm_key(node_id).await.unwrap(), None);
        let note = async |key: &str| {
            store.note_node_tpm_key(at(1.0), node_id, run_id, key.to_owned()).await.unwrap();
            store.node_tpm_key(node_id).await.unwrap()
        };
        assert_eq!(note("a").await.as_deref(), Some("a"));
        assert_eq!(note("b").await.as_deref(), Some("a"), "the first stays");
        store
            .revoke_certificates(at(2.0), node_id, "another board", Vec::new(), by_test())
            .await
            .unwrap();
        assert_eq!(store.node_tpm_key(node_id).await.unwrap(), None);
        assert_eq!(note("b").await.as_deref(), Some("b"));
        store.contest_enrollment(at(3.0), run_id, String::new(), Vec::new()).await.unwrap();
        assert_eq!(store.node_tpm_key(node_id).await.unwrap(), None, "nobody knows whose it was");
    });
}

#[test]
fn a_second_key_in_an_open_run_ends_what_the_run_gave_out() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = node_with_token(&fixture).await;
        let key = |name: &str| Some(sha256(&format!("key of {name}")));
        store.use_enrollment_token(at(1.0), enroll(run_id, "t", "a")).await.unwrap();
        let check = |name| store.check_enrollment(at(2.0), sha256("t"), key(name));
        check("a").await.unwrap();
        assert_eq!(code(check("b").await), "token_contested");
        let second = store.use_enrollment_token(at(2.0), enroll(run_id, "t", "b")).await;
        assert_eq!(code(second), "token_contested");
        // Also once the node is heard, which uses the token up for the first key.
        store.record_heartbeat(at(3.0), heartbeat(node_id, run_id)).await.unwrap();
        assert_eq!(code(check("a").await), "token_used");
        assert_eq!(code(check("b").await), "token_contested");
        let grant = store.enrollment_grant(at(3.0), sha256("t")).await.unwrap();
        assert_eq!((grant.node_id, grant.run_id), (Some(node_id), Some(run_id)));

        let contest = |seconds| {
            let line = vec![event(Some(run_id), "enrollment_contested")];
            store.contest_enrollment(at(seconds), run_id, "10.0.0.9".to_owned(), line)
        };
        assert!(contest(4.0).await.unwrap());
        assert!(!contest(5.0).await.unwrap(), "once is enough");
        let revoked = Some(CertificateEnding::Revoked);
        assert_eq!(endings(&fixture, node_id).await, [("a".to_owned(), revoked)]);
        for name in ["a", "b"] {
            assert_eq!(code(check(name).await), "token_revoked");
        }
        assert_eq!(code(store.enrollment_grant(at(5.0), sha256("t")).await), "token_revoked");
        assert_eq!(code(store.enrollment_grant(at(5.0), sha256("u")).await), "token_unknown");
        let reports = store.reports(run_id).await.unwrap();
        let contested = |kind: &ReportKind| matches!(kind, ReportKind::EnrollmentContested { .. });
        assert_eq!(reports.iter().filter(|report| contested(&report.kind)).count(), 1);
    });
}

#[test]
fn the_authority_is_made_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let propose = |text: &str| {
            let secret = SecretString::from(text.to_owned());
            let store = fixture.store.clone();
            async move { store.ensure_node_authority(&secret).await.unwrap() }
        };
        assert_eq!(propose("one").await.expose_secret(), "one");
        assert_eq!(propose("two").await.expose_secret(), "one");
    });
}
