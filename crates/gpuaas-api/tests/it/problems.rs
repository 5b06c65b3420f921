//! What is wrong with nodes in service: in `node show`, in `explain` and on the list of nodes that
//! do not go on, the same everywhere, each with its age.

use gpuaas_api::NodeAccess;
use gpuaas_core::connectivity::decide_connectivity;
use gpuaas_core::drift::Difference;
use gpuaas_store::{
    ConnectivityNote, NewAgentCredential, NewCertificate, NewEnrollment, NewToken,
    ReceivedHeartbeat, SweepFinding, TokenPurpose, sha256,
};
use gpuaas_types::agent::{Gate, GateCheck, GateClass, GateReport};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::{
    DriftAction, DriftKind, IdSource as _, NodeId, RandomIds, RunId, Timestamp, TokenId,
};
use serde_json::{Value, json};

use crate::drift::{active, finish_onboarding};
use crate::rig::Rig;

const ALLOWED: f64 = 300.0;

/// A node in service whose agent was heard just now.
async fn in_service(rig: &Rig, hostname: &str) -> (NodeId, RunId) {
    let node_id = active(rig, hostname).await;
    let run_id = rig.store.node(node_id).await.unwrap().run_id.unwrap();
    beat(rig, (node_id, run_id), "").await;
    (node_id, run_id)
}

async fn beat(rig: &Rig, (node_id, run_id): (NodeId, RunId), troubles: &str) {
    let heartbeat = ReceivedHeartbeat {
        node_id,
        run_id,
        agent_version: "1.0".to_owned(),
        troubles: troubles.to_owned(),
        first: None,
        changed: None,
    };
    rig.store.record_heartbeat(rig.now(), heartbeat).await.unwrap();
}

/// A look for silent agents, as an engine makes it.
async fn watch_agents(rig: &Rig) {
    let now = rig.now();
    for subject in rig.store.connectivity_subjects(now.plus_seconds(-ALLOWED)).await.unwrap() {
        let (node_id, presence) = (subject.node_id, subject.presence);
        let change = decide_connectivity(&presence, ALLOWED, Timestamp::EPOCH, now);
        let Some(change) = change else { continue };
        let (code, text) = change.event(&presence, ALLOWED, now);
        let (run_id, step, source) = (None, None, Source::ControlPlane);
        let event = TimelineEvent { at: now, run_id, step, source, code: code.into(), text };
        let note = ConnectivityNote { node_id, presence, change, event };
        assert_eq!(rig.store.note_connectivity(now, vec![note]).await.unwrap(), 1);
    }
}

fn codes(problems: &Value) -> Vec<&str> {
    problems.as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect()
}

async fn released(rig: &Rig, node_id: NodeId) {
    let difference = Difference {
        kind: DriftKind::ReleasedByHand,
        expected: "Deployed".to_owned(),
        found: "MAAS says Ready".to_owned(),
    };
    let finding = SweepFinding {
        node_id,
        asked_at: rig.now(),
        status: None,
        differences: vec![(difference, DriftAction::Report)],
        not_looked_at: Vec::new(),
        maas_user: None,
        remember: None,
        adopted: Vec::new(),
        hostname: None,
    };
    rig.store.record_sweep(rig.now(), vec![finding]).await.unwrap();
}

async fn enroll(rig: &Rig, (node_id, run_id): (NodeId, RunId), life_seconds: f64) {
    let (now, hash) = (rig.now(), sha256(&node_id.to_string()));
    let token = NewToken {
        id: TokenId(RandomIds.uuid(now)),
        hash,
        purpose: TokenPurpose::Enrollment,
        node_id: Some(node_id),
        run_id: Some(run_id),
        single_use: true,
        usable_from: now,
        expires_at: None,
    };
    rig.store.add_token(now, token).await.unwrap();
    let certificate = NewCertificate {
        fingerprint: hash,
        serial: "0a".to_owned(),
        not_before: now,
        not_after: now.plus_seconds(life_seconds),
        authority: 1,
    };
    let enroll = NewEnrollment {
        hash,
        run_id,
        key: None,
        agent_version: "1.0".to_owned(),
        hostname: "j22u11".to_owned(),
        credential: NewAgentCredential::Certificate(certificate),
        timeline: Vec::new(),
    };
    rig.store.use_enrollment_token(now, enroll).await.unwrap();
}

#[tokio::test]
async fn a_silent_agent_is_told_of_everywhere_until_it_is_heard_again() {
    let rig = Rig::with_site().await;
    let node = in_service(&rig, "j22u11").await;
    let healthy = in_service(&rig, "j22u12").await;
    let shown = rig.get("/api/v1/nodes/j22u11").await.ok();
    assert_eq!(
        (&shown["problems"], &shown["connectivity"]["state"]),
        (&json!([]), &json!("online"))
    );
    let heard = rig.now();
    rig.advance(310);
    beat(&rig, healthy, "").await;
    watch_agents(&rig).await;
    released(&rig, node.0).await;
    rig.advance(4000);
    beat(&rig, healthy, "").await;

    let shown = rig.get("/api/v1/nodes/j22u11").await.ok();
    assert_eq!((&shown["state"], &shown["heartbeat_at"]), (&json!("offline"), &json!(heard)));
    let connectivity = json!({ "state": "offline", "since": heard, "heard_seconds_ago": 4310.0 });
    assert_eq!(shown["connectivity"], connectivity);
    assert_eq!(codes(&shown["problems"]), ["released_by_hand", "agent_silent"]);
    let drift = &shown["problems"][0];
    assert_eq!((&drift["stale"], &drift["observed_seconds_ago"]), (&json!(true), &json!(4000.0)));
    assert_eq!(drift["actions"][0]["command"], "gpuaas node reimage j22u11");
    let said = rig.get("/api/v1/nodes/j22u11/explain").await.ok();
    assert_eq!(said["problems"], shown["problems"]);
    assert_eq!((&said["owner"], &said["actions"]), (&drift["owner"], &drift["actions"]));
    assert_eq!(said["next_action"], drift["next_action"]);
    let text = said["text"].to_string();
    for wanted in [
        "Agent: last heartbeat 1 h 11 min ago, too old to rely on.",
        "MAAS: Ready, expected Deployed (released_by_hand, first seen 1 h 6 min \
         ago, last 1 h 6 min ago, too old to rely on).",
        "GPUaaS: the agent has been silent since",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let list = rig.get("/api/v1/nodes/stuck").await.ok();
    let items = list["items"].as_array().unwrap();
    assert_eq!(
        (items.len(), &items[0]["node"], &items[0]["mark"]),
        (1, &json!("j22u11"), &json!(null))
    );
    assert_eq!((&items[0]["problems"], &items[0]["code"]), (&shown["problems"], &drift["code"]));

    beat(&rig, node, "").await;
    watch_agents(&rig).await;
    let shown = rig.get("/api/v1/nodes/j22u11").await.ok();
    assert_eq!(
        (&shown["state"], codes(&shown["problems"])),
        (&json!("active"), vec!["released_by_hand"])
    );
    let connectivity = json!({ "state": "online", "since": rig.now(), "heard_seconds_ago": 0.0 });
    assert_eq!(shown["connectivity"], connectivity);
    let lines = shown["timeline"].as_array().unwrap().iter();
    let lines: Vec<&Value> =
        lines.filter(|line| line["code"].as_str().unwrap().starts_with("agent_")).collect();
    assert_eq!((lines.len(), &lines[1]["code"]), (2, &json!("agent_online")));
    let text = lines[1]["text"].as_str().unwrap();
    assert!(text.contains("it was silent for 1 h 11 min"), "{text}");
}

#[tokio::test]
async fn certificates_troubles_and_gates_are_problems_while_they_last() {
    // In the past of any host: certificates are dated by its clock where that is behind.
    let rig = Rig::made(NodeAccess::StandIns, 1_700_000_000_000_000).await;
    rig.add_site().await;
    let accepted = rig.onboard("j22u11").await;
    let node = (accepted.node_id, accepted.run_id);
    enroll(&rig, node, 1000.0).await;
    finish_onboarding(&rig, "j22u11", node.1).await;
    beat(&rig, node, "").await;
    let problems = async || {
        let shown = rig.get("/api/v1/nodes/j22u11").await.ok();
        codes(&shown["problems"]).join(" ")
    };
    rig.advance(799);
    beat(&rig, node, "").await;
    assert_eq!(problems().await, "");
    rig.advance(2);
    assert_eq!(problems().await, "certificate_ends_soon");
    rig.advance(200);
    beat(&rig, node, "disk_full").await;
    assert_eq!(problems().await, "certificate_expired agent_troubled");
    beat(&rig, node, "").await;
    rig.store
        .revoke_certificates(
            rig.now(),
            node.0,
            "stolen",
            vec![],
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
    let check = GateCheck {
        name: "file /etc/x".to_owned(),
        passed: false,
        expected: "present".to_owned(),
        seen: "it is not there".to_owned(),
        reason: String::new(),
        blocks: Vec::new(),
    };
    let report = |class: Option<GateClass>| GateReport {
        gate: Gate::SliceReady,
        passed: class.is_none(),
        class,
        checks: vec![GateCheck { passed: class.is_none(), ..check.clone() }],
    };
    let say = async |class| {
        let gates = vec![report(class)];
        rig.store.set_gates(rig.now(), node.0, node.1, gates, |_, _| None).await.unwrap();
    };
    say(Some(GateClass::HostSetupIncomplete)).await;
    assert_eq!(problems().await, "certificate_revoked gate_host_setup_incomplete");
    let said = rig.get("/api/v1/nodes/j22u11/explain").await.ok();
    assert!(said["evidence"].to_string().contains("file /etc/x: expected "), "{said}");
    say(None).await;
    assert_eq!(problems().await, "certificate_revoked");
}

#[tokio::test]
async fn a_profile_says_how_long_an_agent_may_be_silent() {
    let rig = Rig::with_site().await;
    let profile = |seconds: u32| json!({ "offline_after_seconds": seconds });
    for (seconds, taken) in [(119, false), (120, true), (86_400, true), (86_401, false)] {
        let answer = rig.patch("/api/v1/profiles/h200", profile(seconds)).await;
        if taken {
            assert_eq!(answer.ok()["spec"]["offline_after_seconds"], seconds);
        } else {
            assert_eq!(answer.code(), "invalid_field", "{seconds}");
        }
    }
}
