use std::io::Write as _;

use gpuaas_types::batch::{
    BatchCounts, BatchMachine, BatchMember, BatchSpec, BatchStatus, BatchStop,
};
use gpuaas_types::ids::uuid_v7;
use gpuaas_types::{BatchId, NodeId, RunId, Step};

use super::*;

const BEGIN: Timestamp = Timestamp::from_micros(1_795_190_400_000_000);
const STYLE: Style = Style { width: 100, ascii: true, bounded: true, now: None };

fn member(hostname: &str, state: MemberState, waiting_for: &str) -> BatchMember {
    let begun = state != MemberState::Waiting;
    BatchMember {
        hostname: hostname.to_owned(),
        node_id: NodeId(uuid_v7(BEGIN, [1; 10])),
        run_id: begun.then(|| RunId(uuid_v7(BEGIN, [2; 10]))),
        state,
        canary: hostname == "j22u11",
        written_off: false,
        step: matches!(state, MemberState::Running | MemberState::Parked).then_some(Step::Deploy),
        waiting_for: waiting_for.to_owned(),
        started_at: begun.then_some(BEGIN),
        ended_at: (state == MemberState::Active).then(|| BEGIN.plus_seconds(1900.0)),
    }
}

pub(crate) fn rolling() -> BatchResource {
    let members = vec![
        member("j22u11", MemberState::Active, ""),
        member("j22u15", MemberState::Running, "MAAS to deploy the image"),
        member("j27u15", MemberState::Waiting, "its turn"),
    ];
    let machine = |member: &BatchMember| BatchMachine {
        hostname: member.hostname.clone(),
        ..BatchMachine::default()
    };
    BatchResource {
        id: BatchId(uuid_v7(BEGIN, [5; 10])),
        spec: BatchSpec {
            name: "rack-22".to_owned(),
            site: "lab".to_owned(),
            profile: "h200".to_owned(),
            canary: 1,
            stop_at_failure_ratio: 0.2,
            stop_min_ended: 3,
            max_parallel: 1,
            machines: members.iter().map(machine).collect(),
        },
        status: BatchStatus {
            phase: BatchPhase::Rolling,
            waiting_for: "1 in progress (at most 1 at a time); 1 waiting for their turn".to_owned(),
            stop: None,
            counts: BatchCounts { waiting: 1, running: 1, active: 1, ..BatchCounts::default() },
            failure_ratio: 0.0,
            profile_revision: 4,
            p50_seconds: Some(1900.0),
            p95_seconds: Some(1900.0),
            estimated_end: Some(BEGIN.plus_seconds(5700.0)),
            ended_at: None,
            members,
        },
        revision: 1,
        created_at: BEGIN,
        updated_at: BEGIN,
    }
}

fn stopped() -> BatchResource {
    let mut batch = rolling();
    let status = &mut batch.status;
    status.phase = BatchPhase::Stopped;
    status.stop = Some(BatchStop {
        code: "canary_failed".to_owned(),
        text: "1 of 1 canaries did not become active".to_owned(),
        at: BEGIN,
    });
    status.waiting_for = "an operator: 1 of 1 canaries did not become active".to_owned();
    status.counts = BatchCounts { waiting: 2, parked: 1, ..BatchCounts::default() };
    status.failure_ratio = 1.0;
    (status.p50_seconds, status.p95_seconds, status.estimated_end) = (None, None, None);
    status.members = vec![
        member("j22u11", MemberState::Parked, "MAAS failed to deploy: no space left"),
        member("j22u15", MemberState::Waiting, "an operator to resume the batch"),
        member("j27u15", MemberState::Waiting, "an operator to resume the batch"),
    ];
    batch
}

#[test]
fn batches_as_text() {
    let accepted = BatchAccepted {
        batch_id: None,
        name: "rack-22".to_owned(),
        profile_revision: 4,
        canaries: vec!["j22u11".to_owned()],
        rest: vec!["j22u15".to_owned(), "j27u15".to_owned()],
    };
    let items = vec![rolling(), stopped()];
    insta::assert_snapshot!(format!(
        "{}\n{}\n{}\n{}\n{}",
        plan(&accepted, STYLE),
        list(&List::whole(items), STYLE),
        show(&rolling(), STYLE),
        show(&stopped(), STYLE),
        verdict(&stopped()).unwrap_err(),
    ));
}

#[test]
fn a_wait_ends_when_nothing_moves_without_a_person() {
    assert!(!settled(&rolling()) && settled(&stopped()));
    let mut batch = stopped();
    batch.status.counts.running = 1;
    assert!(!settled(&batch), "a machine is still under way");
    let mut batch = rolling();
    batch.status.counts = BatchCounts { active: 2, parked: 1, ..BatchCounts::default() };
    assert!(settled(&batch), "only a parked machine is left");
    batch.status.phase = BatchPhase::Done;
    batch.status.members.truncate(1);
    assert!(settled(&batch) && verdict(&batch).is_ok());
}

#[test]
fn a_manifest_is_json_or_yaml() {
    let read = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        manifest::batch(file.path())
    };
    let json = read(
        r#"{"name": "rack-22", "site": "lab", "profile": "h200", "canary": 2,
            "machines": [{"hostname": "j22u11", "mac_addresses": ["52:54:00:00:00:01"]}]}"#,
    )
    .unwrap();
    let yaml = read(
        "name: rack-22\nsite: lab\nprofile: h200\ncanary: 2\nmachines:\n\
         - hostname: j22u11\n  mac_addresses: ['52:54:00:00:00:01']\n",
    )
    .unwrap();
    assert_eq!(json, yaml);
    assert_eq!((json.canary, json.stop_at_failure_ratio, json.max_parallel), (2, 0.2, 0));
    let readme = include_str!("../../../../README.md");
    let example = readme.split("rack-22.yaml <<'END'\n").nth(1).unwrap();
    let example = example.split("END\n").next().unwrap();
    assert_eq!(read(example).unwrap().machines.len(), 2, "{example}");
    for wrong in ["name: rack-22\n", "hostname,mac\nj22u11,52:54:00:00:00:01\n"] {
        assert_eq!(read(wrong).unwrap_err().code(), "manifest_unreadable", "{wrong}");
    }
}
