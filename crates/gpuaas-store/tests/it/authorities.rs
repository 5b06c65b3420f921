//! Authorities that sign nodes' certificates: staged, active, retiring, retired.

use gpuaas_store::{
    CertificateEnding, ExposeSecret as _, NewAgentCredential, NewAuthority, NewCertificate,
    NewEnrollment, SecretString, TokenPurpose, sha256,
};
use gpuaas_types::{NodeId, RunId};

use crate::fixture::{Fixture, NOON, at, by_test, code, heartbeat, on_each_database, token};

fn authority(name: &str) -> NewAuthority {
    NewAuthority {
        certificate_pem: format!("certificate of {name}"),
        digest: format!("digest of {name}"),
        not_after: at(9_000.0),
        cross_pem: (name != "first").then(|| format!("cross certificate of {name}")),
    }
}

fn certificate(name: &str, authority: i64) -> NewCertificate {
    NewCertificate {
        fingerprint: sha256(name),
        serial: name.to_owned(),
        not_before: at(-10.0),
        not_after: at(1_000.0),
        authority,
    }
}

/// A node whose agent has a certificate of the first authority.
async fn enrolled(fixture: &Fixture, hostname: &str) -> (NodeId, RunId) {
    let (node_id, run_id) = fixture.node(hostname).await;
    let purpose = TokenPurpose::Enrollment;
    fixture.store.add_token(NOON, token((node_id, run_id), hostname, purpose)).await.unwrap();
    let enroll = NewEnrollment {
        hash: sha256(hostname),
        run_id,
        key: Some(sha256(&format!("key of {hostname}"))),
        agent_version: "1.0".to_owned(),
        hostname: hostname.to_owned(),
        credential: NewAgentCredential::Certificate(certificate(hostname, 1)),
        timeline: Vec::new(),
    };
    fixture.store.use_enrollment_token(at(1.0), enroll).await.unwrap();
    fixture.store.record_heartbeat(at(1.0), heartbeat(node_id, run_id)).await.unwrap();
    (node_id, run_id)
}

#[test]
fn one_authority_takes_over_from_another_and_names_whom_it_would_leave_behind() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let states = async || {
            let all = store.authorities().await.unwrap().into_iter();
            all.map(|one| one.view.state.to_string()).collect::<Vec<_>>()
        };
        let key = SecretString::from("first key".to_owned());
        store.ensure_node_authority(&key).await.unwrap();
        for _ in 0..2 {
            store.note_first_authority(NOON, authority("first")).await.unwrap();
        }
        assert_eq!(states().await, ["active"]);
        assert_eq!(store.authority_key(1).await.unwrap().expose_secret(), "first key");
        assert_eq!(
            code(store.activate_authority(NOON, None, by_test()).await),
            "no_authority_staged"
        );
        assert_eq!(
            code(store.retire_authority(NOON, None, by_test()).await),
            "no_authority_retiring"
        );

        let (node_id, _) = enrolled(&fixture, "j22u11").await;
        let key = SecretString::from("second key".to_owned());
        store.stage_authority(at(2.0), 2, authority("second"), &key, by_test()).await.unwrap();
        let again = store.stage_authority(at(2.0), 3, authority("third"), &key, by_test()).await;
        assert_eq!(code(again), "authority_staged");
        let known = store.authorities().await.unwrap();
        assert_eq!(known[1].cross_pem.as_deref(), Some("cross certificate of second"));

        let both = || Some("both".to_owned());
        let refused = store.activate_authority(at(3.0), both(), by_test()).await.unwrap_err();
        assert!(refused.to_string().contains("j22u11"), "{refused}");
        assert_eq!(refused.code(), "authority_not_trusted");
        store.note_trust_digest(node_id, "both").await.unwrap();
        // Whoever is still to enroll has user-data of before.
        let late = fixture.node("j22u12").await;
        let late = token(late, "late", TokenPurpose::Enrollment);
        let late_id = late.id;
        store.add_token(NOON, late).await.unwrap();
        let refused = store.activate_authority(at(3.0), both(), by_test()).await.unwrap_err();
        assert!(refused.to_string().contains("j22u12"), "{refused}");
        store.activate_authority(at(3.0), None, by_test()).await.unwrap();
        assert_eq!(states().await, ["retiring", "active"]);

        let laggards = store.authority_laggards(at(4.0), Some("both"), 2).await.unwrap();
        let names = |one: &str| vec![one.to_owned()];
        assert_eq!((laggards.without_bundle, laggards.to_enroll), (Vec::new(), names("j22u12")));
        assert_eq!(laggards.with_former_certificate, names("j22u11"));
        assert_eq!(
            code(store.retire_authority(at(4.0), both(), by_test()).await),
            "authority_in_use"
        );
        let renewed = certificate("renewed", 2);
        store.renew_certificate(at(5.0), sha256("j22u11"), renewed, Vec::new()).await.unwrap();
        let refused = store.retire_authority(at(5.0), both(), by_test()).await.unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("j22u12") && !said.contains("j22u11"), "{said}");
        store.revoke_token(at(5.0), late_id).await.unwrap();
        assert_eq!(store.retire_authority(at(6.0), both(), by_test()).await.unwrap(), 1);
        assert_eq!(states().await, ["retired", "active"]);
        let ended = store.certificate(sha256("j22u11")).await.unwrap().unwrap();
        assert_eq!(ended.ended.unwrap().0, CertificateEnding::Revoked);
        let lives = store.certificate(sha256("renewed")).await.unwrap().unwrap();
        assert_eq!((lives.ended, lives.authority), (None, 2));
        assert_eq!(code(store.authority_key(1).await), "not_found");
        assert_eq!(store.authority_key(2).await.unwrap().expose_secret(), "second key");
        store.stage_authority(at(7.0), 3, authority("third"), &key, by_test()).await.unwrap();
        assert_eq!(
            store.retire_authority(at(8.0), both(), by_test()).await.unwrap(),
            3,
            "it signed nothing"
        );
    });
}
