//! From `launch` to a guest that runs and back to free slots, with the agent's own code over a host in
//! memory that can be told to lie.

use std::sync::Arc;

use gpuaas_bundle::{Envelope, order};
use gpuaas_engine::step_slice_runs;
use gpuaas_node_agent::slice::{StandInFault, StandInHost, carry_out};
use gpuaas_types::agent::{TaskKeys, TaskSpec};
use gpuaas_types::slice::{SliceAction, SliceTask};
use gpuaas_types::{NodeId, RandomIds};
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};
use crate::slice_claims::{CLAIMS, claim, release, slice_host_with_agent};

/// A control plane and the agent of one slice host.
pub(crate) struct SliceRig {
    pub(crate) rig: Rig,
    node_id: NodeId,
    credential: String,
    host: Arc<StandInHost>,
}

impl SliceRig {
    pub(crate) async fn new() -> Self {
        let (rig, node, credential) = slice_host_with_agent().await;
        let host = Arc::new(StandInHost::default());
        Self { rig, node_id: node.node_id, credential, host }
    }

    /// Moves what is due and has the agent do what it is given, until nothing is left; answers what the
    /// agent did.
    pub(crate) async fn drive(&self) -> Vec<SliceAction> {
        let mut done = Vec::new();
        for _ in 0..60 {
            self.step().await;
            let Some((id, action, result)) = self.agent_turn().await else { return done };
            done.push(action);
            self.answer(&id, result).await;
        }
        unreachable!("it does not come to rest: {done:?}")
    }

    async fn step(&self) {
        step_slice_runs(&self.rig.store, &RandomIds, self.rig.now(), 1.0).await.unwrap();
    }

    /// The agent fetches one task and carries it out; none: there is none.
    async fn agent_turn(&self) -> Option<(String, SliceAction, Value)> {
        let (id, task) = self.fetch().await?;
        Some((id, task.action, self.carry_out(&task).await))
    }

    /// The agent fetches one task; none: there is none.
    async fn fetch(&self) -> Option<(String, SliceTask)> {
        let asked = self.rig.call("GET", "/agent/v1/tasks", Some(&self.credential), None).await;
        let order = asked.ok()["tasks"].get(0)?["order"].clone();
        let order: Envelope = serde_json::from_value(order).unwrap();
        let keys = self.rig.get("/api/v1/task-keys").await.ok();
        let keys: TaskKeys = serde_json::from_value(keys).unwrap();
        let task = order::admit(&order, &keys, self.node_id, self.rig.now()).unwrap();
        let TaskSpec::Slice { slice } = task.spec else { unreachable!("{task:?}") };
        Some((task.id.to_string(), *slice))
    }

    async fn carry_out(&self, task: &SliceTask) -> Value {
        serde_json::to_value(carry_out(&*self.host, task).await).unwrap()
    }

    async fn answer(&self, id: &str, result: Value) {
        let path = format!("/agent/v1/tasks/{id}/result");
        self.rig.call("POST", &path, Some(&self.credential), Some(result)).await.ok();
    }

    async fn claim(&self) -> String {
        let made = self.rig.post(CLAIMS, claim(1)).await.ok();
        made["id"].as_str().unwrap().to_owned()
    }

    async fn launch(&self, id: &str, image: &str) -> Answer {
        let body = json!({ "image": image, "actor": "ada", "reason": "a lease" });
        self.rig.post(&format!("{CLAIMS}/{id}/launch"), body).await
    }

    pub(crate) async fn show(&self, id: &str) -> Value {
        self.rig.get(&format!("{CLAIMS}/{id}")).await.ok()
    }

    /// State and reason of a slot.
    async fn slot(&self, index: usize) -> (String, String) {
        let slots = self.rig.get("/api/v1/admin/slots").await.ok();
        let text = |field: &str| slots["slots"][index][field].as_str().unwrap().to_owned();
        (text("state"), text("reason"))
    }

    /// A claim whose guest runs.
    pub(crate) async fn running(&self) -> String {
        let id = self.claim().await;
        assert_eq!(self.launch(&id, "debian-13.raw").await.status, 202);
        self.drive().await;
        assert_eq!(self.show(&id).await["state"], "in_use");
        id
    }

    /// A host whose slot was not proven to be clean when its claim ended.
    pub(crate) async fn in_doubt() -> Self {
        let slice = Self::new().await;
        let id = slice.running().await;
        slice.host.set_faults([StandInFault::EraseLies]);
        release(&slice.rig, &id, "").await.ok();
        slice.drive().await;
        slice
    }

    async fn recover(&self, index: u32) -> Answer {
        let path = format!("/api/v1/admin/nodes/j22u11/slots/{index}/recovery");
        self.rig.post(&path, json!({ "actor": "ada", "reason": "wiped by hand" })).await
    }
}

#[tokio::test]
async fn a_slice_is_launched_runs_and_comes_back_with_proof() {
    let slice = SliceRig::new().await;
    let id = slice.claim().await;
    let launched = slice.launch(&id, "debian-13.raw").await;
    assert_eq!(launched.status, 202, "{}", launched.json());
    assert_eq!(launched.json()["state"], "preparing");
    assert_eq!(slice.slot(0).await.0, "preparing");
    use SliceAction::{AwaitGuest, Define, Erase, Prepare, ReadBack, Reset, Start, Stop, Verify};
    assert_eq!(slice.drive().await, [Verify, Prepare, Define, Start, AwaitGuest]);
    let runs = slice.show(&id).await;
    assert_eq!((&runs["state"], &runs["run"]["status"]), (&json!("in_use"), &json!("succeeded")));
    assert_eq!(slice.slot(0).await.0, "in_use");
    assert_eq!(slice.host.domains(), 1);
    assert_eq!(slice.launch(&id, "debian-13.raw").await.code(), "claim_in_use");
    // The host is not taken from under it.
    let body = json!({ "kind": "decommission", "actor": "ada", "reason": "old" });
    let refused = slice.rig.post("/api/v1/nodes/j22u11/runs", body).await;
    assert_eq!(refused.code(), "node_has_claims");
    let releasing = release(&slice.rig, &id, "").await.ok();
    assert_eq!(
        (&releasing["state"], &releasing["run"]["part"]),
        (&json!("releasing"), &json!("stop"))
    );
    assert_eq!(slice.drive().await, [Stop, Reset, Erase, ReadBack]);
    let ended = slice.show(&id).await;
    assert_eq!(
        (&ended["state"], &ended["run"]["status"]),
        (&json!("released"), &json!("succeeded"))
    );
    let parts = ended["run"]["parts"].as_array().unwrap();
    let parts: Vec<&str> = parts.iter().map(|one| one["part"].as_str().unwrap()).collect();
    assert_eq!(
        parts.join(" "),
        "claim verify prepare define start guest_ready stop reset erase verify return"
    );
    let proofs = ended["proofs"].as_array().unwrap();
    assert!(proofs.iter().all(|proof| proof["result"] != "unproven"), "{proofs:?}");
    let memory = proofs.iter().find(|proof| proof["subject"] == "gpu_memory").unwrap();
    assert_eq!(memory["result"], "reset_only", "nobody looked at it");
    assert_eq!(slice.slot(0).await.0, "free");
    assert_eq!((slice.host.domains(), slice.host.resets()), (0, 2));
    let audit = slice.rig.store.audit_entries(0, 100).await.unwrap();
    let count = |action: &str| audit.iter().filter(|row| row.entry.action == action).count();
    assert_eq!((count("slice.launch"), count("slice.release")), (1, 1));
    slice.running().await;
}

/// Whether a file of the embedded database, or a backup of it, has these bytes.
fn is_stored(rig: &Rig, text: &str) -> bool {
    let url = &rig.test_database.url;
    let copy = tempfile::tempdir().unwrap();
    let backup = copy.path().join("backup.db");
    gpuaas_store::copy_database_file(url.as_ref(), &backup).unwrap();
    let files = [url.clone(), format!("{url}-wal"), backup.display().to_string()];
    let read = files.iter().filter_map(|file| std::fs::read(file).ok());
    read.into_iter().any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}

/// Secrets that are kept for a claim.
fn kept_secrets(rig: &Rig, claim: &str) -> i64 {
    let connection = rusqlite::Connection::open(&rig.test_database.url).unwrap();
    let sql = "SELECT COUNT(*) FROM secret WHERE owner = ?1";
    let owner = claim.parse::<gpuaas_types::ClaimId>().unwrap().0;
    connection.query_row(sql, [owner.as_bytes().as_slice()], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn user_data_is_sealed_goes_to_the_host_and_is_deleted_with_the_end_of_the_launch() {
    const SECRET: &str = "PLANTED-userdata-77";
    let slice = SliceRig::new().await;
    if !std::path::Path::new(&slice.rig.test_database.url).exists() {
        return test_report::skip("sqlite", "the files of the database are searched");
    }
    let user_data = format!("#cloud-config\npassword: {SECRET}\n");
    let launch = async |id: &str| {
        let body = json!({
            "image": "debian-13.raw", "user_data": user_data, "actor": "ada", "reason": "a lease",
        });
        slice.rig.post(&format!("{CLAIMS}/{id}/launch"), body).await.ok()
    };
    let id = slice.claim().await;
    launch(&id).await;
    assert_eq!(kept_secrets(&slice.rig, &id), 1);
    let mut seeds = Vec::new();
    for _ in 0..60 {
        slice.step().await;
        assert!(!is_stored(&slice.rig, SECRET), "after {} tasks", seeds.len());
        let Some((task_id, task)) = slice.fetch().await else { break };
        seeds.push(task.seed.as_ref().map(|seed| seed.user_data.expose().to_owned()));
        let result = slice.carry_out(&task).await;
        slice.answer(&task_id, result).await;
    }
    let sent: Vec<String> = seeds.into_iter().flatten().collect();
    assert_eq!(
        sent,
        std::slice::from_ref(&user_data),
        "the task that writes the seed has it, and no other"
    );
    assert_eq!(slice.show(&id).await["state"], "in_use");
    assert_eq!(kept_secrets(&slice.rig, &id), 0, "the guest runs: nothing needs it any more");
    // Nor is it kept where a launch is given up before the host had it.
    release(&slice.rig, &id, "").await.ok();
    slice.drive().await;
    let given_up = slice.claim().await;
    launch(&given_up).await;
    slice.step().await;
    release(&slice.rig, &given_up, "").await.ok();
    assert_eq!(kept_secrets(&slice.rig, &given_up), 0);
    slice.drive().await;
    assert!(!is_stored(&slice.rig, SECRET));
}

#[tokio::test]
async fn what_lies_or_fails_keeps_its_slots_until_somebody_acts() {
    for (fault, subject) in [
        (StandInFault::EraseLies, "drive_read_back"),
        (StandInFault::EraseStopsShort, "drive_read_back"),
        (StandInFault::EraseFails, "erase failed"),
        (StandInFault::ResetFails, "reset failed"),
        (StandInFault::StopFails, "stop failed"),
        (StandInFault::FilesStay, "files_removed"),
        (StandInFault::DrivesReplaced, "erase failed"),
        (StandInFault::IdentityStays, "reset failed"),
    ] {
        let slice = SliceRig::new().await;
        let id = slice.running().await;
        slice.host.set_faults([fault]);
        release(&slice.rig, &id, "").await.ok();
        slice.drive().await;
        let blocked = slice.show(&id).await;
        assert_eq!(blocked["state"], "cleanup_blocked", "{fault:?}");
        let reason = blocked["run"]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(subject), "{fault:?}: {reason}");
        assert_eq!(slice.slot(0).await.0, "cleanup_blocked");
        // No time frees it.
        slice.rig.advance(1_000_000);
        assert_eq!(slice.drive().await, []);
        assert_eq!(slice.slot(0).await.0, "cleanup_blocked");
        if fault == StandInFault::EraseLies {
            let slots = slice.recover(0).await.ok();
            assert_eq!(slots["slots"][0]["state"], "free");
            assert!(slice.slot(0).await.1.contains("wiped by hand"));
            assert_eq!(slice.show(&id).await["state"], "released");
            assert_eq!(slice.recover(0).await.code(), "slot_not_recoverable");
            continue;
        }
        slice.host.set_faults([]);
        release(&slice.rig, &id, "").await.ok();
        slice.drive().await;
        assert_eq!(slice.show(&id).await["state"], "released", "{fault:?}");
        assert_eq!(slice.slot(0).await.0, "free");
    }
}

#[tokio::test]
async fn a_launch_that_fails_is_taken_back_and_one_that_may_not_be_is_refused() {
    let slice = SliceRig::new().await;
    for (fault, reason) in
        [(StandInFault::StartFails, "start failed"), (StandInFault::IdentityLost, "identity_lost")]
    {
        slice.host.set_faults([fault]);
        let id = slice.claim().await;
        slice.launch(&id, "debian-13.raw").await.ok();
        slice.drive().await;
        let ended = slice.show(&id).await;
        let kind = &ended["run"]["kind"];
        assert_eq!((&ended["state"], kind), (&json!("released"), &json!("release")));
        assert!(ended["reason"].as_str().unwrap().contains(reason), "{ended}");
        assert_eq!(slice.slot(0).await.0, "free", "it was proven clean");
    }
    // Held by somebody: nothing is written to its drive, and an operator has to look.
    slice.host.set_faults([StandInFault::DevicesHeld]);
    let id = slice.claim().await;
    slice.launch(&id, "debian-13.raw").await.ok();
    assert_eq!(slice.drive().await, [SliceAction::Verify; 2]);
    let refused = slice.show(&id).await;
    assert_eq!(
        (&refused["state"], &refused["run"]["status"]),
        (&json!("released"), &json!("failed"))
    );
    let (state, reason) = slice.slot(0).await;
    assert!(state == "faulted" && reason.contains("device_held"), "{state} {reason}");
    slice.recover(0).await.ok();
    assert_eq!(slice.slot(0).await.0, "free");
    let id = slice.claim().await;
    for image in ["", "../shadow", "a b"] {
        assert_eq!(slice.launch(&id, image).await.code(), "invalid_field");
    }
    let long = json!({
        "image": "a", "user_data": "x".repeat(300 << 10), "actor": "ada", "reason": "a lease",
    });
    let launch = format!("{CLAIMS}/{id}/launch");
    assert_eq!(slice.rig.post(&launch, long).await.code(), "invalid_field");
    for silent in [
        "#cloud-config\nphone_home: {url: http://elsewhere/}\n",
        "#cloud-config\n{\"phone_home\": {\"url\": \"http://elsewhere/\"}}\n",
        "Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\ncGhvbmVfaG9tZTogeH0K\n",
    ] {
        let body =
            json!({ "image": "a", "user_data": silent, "actor": "ada", "reason": "a lease" });
        let refused = slice.rig.post(&launch, body).await;
        assert_eq!(refused.code(), "invalid_field", "{silent}");
        let said = refused.json();
        assert!(said["detail"].as_str().unwrap().contains("phone_home"), "{said}");
    }
    for seconds in [0, 59, 86_401] {
        let body = json!({
            "image": "a", "guest_timeout_seconds": seconds, "actor": "ada", "reason": "a lease",
        });
        assert_eq!(slice.rig.post(&launch, body).await.code(), "invalid_field", "{seconds}");
    }
    let fenced = json!({ "image": "a", "fence": 99, "actor": "ada", "reason": "a lease" });
    assert_eq!(slice.rig.post(&launch, fenced).await.code(), "claim_fenced");
    assert_eq!(slice.slot(0).await.0, "reserved", "nothing was changed");
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_asked_before_anything_is_repeated() {
    let slice = SliceRig::new().await;
    let id = slice.claim().await;
    slice.launch(&id, "debian-13.raw").await.ok();
    let mut given = Vec::new();
    // The answer to each start is lost; the agent carried it out.
    for _ in 0..40 {
        slice.step().await;
        let Some((task, action, result)) = slice.agent_turn().await else { break };
        given.push(action);
        if action == SliceAction::Start {
            slice.rig.advance(3601);
            continue;
        }
        slice.answer(&task, result).await;
    }
    use SliceAction::{AwaitGuest, Define, Prepare, Probe, Start, Verify};
    assert_eq!(given, [Verify, Prepare, Define, Start, Probe, AwaitGuest]);
    assert_eq!(slice.show(&id).await["state"], "in_use");
    assert_eq!(slice.host.domains(), 1);
}

#[tokio::test]
async fn several_control_planes_give_each_action_once() {
    let slice = SliceRig::new().await;
    let id = slice.claim().await;
    slice.launch(&id, "debian-13.raw").await.ok();
    let mut given = Vec::new();
    for turn in 0..40 {
        tokio::join!(slice.step(), slice.step(), slice.step());
        let Some((task, action, result)) = slice.agent_turn().await else {
            if turn > 20 || slice.show(&id).await["state"] != "in_use" {
                break;
            }
            release(&slice.rig, &id, "").await.ok();
            continue;
        };
        given.push(action);
        slice.answer(&task, result).await;
    }
    use SliceAction::{AwaitGuest, Define, Erase, Prepare, ReadBack, Reset, Start, Stop, Verify};
    assert_eq!(given, [Verify, Prepare, Define, Start, AwaitGuest, Stop, Reset, Erase, ReadBack]);
    assert_eq!(slice.slot(0).await.0, "free");
    let ended = slice.show(&id).await;
    assert_eq!(ended["proofs"].as_array().unwrap().len(), 10, "each proof is kept once");
}

/// The answer to each action is lost once, whether the agent carried it out or not, and comes too late
/// where it did.
#[tokio::test]
async fn an_answer_that_is_lost_anywhere_leaves_neither_guest_nor_slot_behind() {
    use SliceAction::{AwaitGuest, Define, Erase, Prepare, ReadBack, Reset, Start, Stop, Verify};
    let actions = [Verify, Prepare, Define, Start, AwaitGuest, Stop, Reset, Erase, ReadBack];
    for (lost, happens) in actions.into_iter().flat_map(|one| [(one, true), (one, false)]) {
        let slice = SliceRig::new().await;
        let id = slice.claim().await;
        slice.launch(&id, "debian-13.raw").await.ok();
        let (mut given, mut late) = (Vec::new(), None);
        for _ in 0..60 {
            slice.step().await;
            let Some((task_id, task)) = slice.fetch().await else {
                match slice.show(&id).await["state"].as_str() {
                    Some("in_use") => release(&slice.rig, &id, "").await.ok(),
                    _ => break,
                };
                continue;
            };
            given.push(task.action);
            if task.action == lost && late.is_none() {
                let result = if happens { slice.carry_out(&task).await } else { Value::Null };
                late = Some((task_id, result));
                slice.rig.advance(7 * 3600);
                continue;
            }
            let result = slice.carry_out(&task).await;
            slice.answer(&task_id, result).await;
        }
        let (task_id, result) = late.unwrap();
        if happens {
            slice.answer(&task_id, result).await;
            assert_eq!(slice.drive().await, [], "what comes too late changes nothing");
        }
        let ended = slice.show(&id).await;
        assert_eq!(ended["state"], "released", "{lost} {happens}: {given:?} {ended}");
        assert_eq!(slice.slot(0).await.0, "free");
        assert_eq!(slice.host.domains(), 0);
        let times = |action| given.iter().filter(|one| **one == action).count();
        let shows = [Prepare, Define, Start, Stop].contains(&lost);
        let wanted = if happens && shows { 1 } else { 2 };
        assert_eq!(times(lost), wanted, "{lost} {happens}: {given:?}");
        let others = actions.into_iter().filter(|one| *one != lost);
        assert!(others.into_iter().all(|one| times(one) == 1), "{lost}: {given:?}");
    }
}
