//! What the bootstrap and the agent of a host say, written straight into the store.

use std::sync::Arc;

use gpuaas_artifact::{BootstrapInputs, parse_user_data};
use gpuaas_core::record::{Report, ReportKind};
use gpuaas_engine::{Clock, RealClock};
use gpuaas_node_agent::env::AgentEnv;
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::tasks::execute;
use gpuaas_store::{NewAgentCredential, NewEnrollment, ReceivedHeartbeat, Store, sha256};
use gpuaas_types::agent::{BootstrapPhase, ProgressStatus};
use gpuaas_types::{IdSource, NodeId, RandomIds, RunId, Timestamp, TokenId};
use host_facts::HostRoot;
use maas_sim::{FirstBoot, Notice, SimHandle};

use super::{Failing, Told};

pub(super) async fn play_nodes(
    store: Store,
    mut sim: SimHandle,
    clock: Arc<dyn Clock>,
    (failing, told): (Failing, Told),
) {
    while let Some(notice) = sim.notices.recv().await {
        if let Notice::FirstBoot(boot) = notice {
            if let Ok(parsed) = parse_user_data(&boot.user_data) {
                told.lock().unwrap().insert(parsed.inputs.hostname.clone(), parsed.inputs);
            }
            let failing = Arc::clone(&failing);
            tokio::spawn(play_node(store.clone(), boot, Arc::clone(&clock), failing));
        }
    }
}

/// What the bootstrap and the agent of one node say, in order.
async fn play_node(store: Store, boot: Box<FirstBoot>, clock: Arc<dyn Clock>, failing: Failing) {
    let now = || clock.now();
    // A person's deployment has no user-data of ours, and its host never calls back.
    let Ok(parsed) = parse_user_data(&boot.user_data) else { return };
    let inputs = parsed.inputs;
    let run_id = inputs.run_id;
    let fails = match failing.lock().unwrap().get(&inputs.hostname) {
        Some(None) => return,
        Some(fails) => fails.clone(),
        None => None,
    };
    for (phase, status) in [
        (BootstrapPhase::SiteBootstrap, ProgressStatus::Started),
        (BootstrapPhase::SiteBootstrap, ProgressStatus::Succeeded),
        (BootstrapPhase::NodeBootstrap, ProgressStatus::Started),
    ] {
        match &fails {
            Some((failed, message)) if *failed == phase && status != ProgressStatus::Started => {
                return add_progress_report(
                    &store,
                    now(),
                    run_id,
                    phase,
                    ProgressStatus::Failed,
                    message,
                )
                .await;
            }
            _ => add_progress_report(&store, now(), run_id, phase, status, "").await,
        }
    }
    if let Some((phase, message)) = &fails {
        return add_progress_report(&store, now(), run_id, *phase, ProgressStatus::Failed, message)
            .await;
    }
    let asked = enrollment(run_id, &inputs, now());
    let node_id = store.use_enrollment_token(now(), asked).await.unwrap().node_id;
    store.record_heartbeat(now(), heartbeat(node_id, run_id)).await.unwrap();
    add_progress_report(
        &store,
        now(),
        run_id,
        BootstrapPhase::NodeBootstrap,
        ProgressStatus::Succeeded,
        "",
    )
    .await;
    let task = loop {
        if let Some(task) = store.pending_tasks(now(), node_id).await.unwrap().pop() {
            break task;
        }
        RealClock.sleep_until(RealClock.now().plus_seconds(0.02)).await;
    };
    let root = tempfile::tempdir().unwrap();
    furnish(root.path());
    let host = Host::Root(HostRoot::new(root.path()));
    let result = execute(&host, &AgentEnv::default(), &task.spec).await;
    store.finish_task(now(), node_id, task.id, result, Vec::new()).await.unwrap();
}

/// What an agent sends that enrolls with the token of these inputs.
pub(crate) fn enrollment(run_id: RunId, inputs: &BootstrapInputs, now: Timestamp) -> NewEnrollment {
    NewEnrollment {
        hash: sha256(&inputs.enrollment_token),
        run_id,
        key: None,
        agent_version: "0.1.0".to_owned(),
        hostname: inputs.hostname.clone(),
        credential: NewAgentCredential::Bearer {
            id: TokenId::new(&RandomIds, now),
            hash: sha256(&RandomIds.uuid(now).to_string()),
        },
        timeline: Vec::new(),
    }
}

/// What an agent sends that has no trouble.
pub(crate) fn heartbeat(node_id: NodeId, run_id: RunId) -> ReceivedHeartbeat {
    ReceivedHeartbeat {
        node_id,
        run_id,
        agent_version: "0.1.0".to_owned(),
        troubles: String::new(),
        first: None,
        changed: None,
    }
}

/// What the agent finds on a host: its root, its own unit, and one link of each fabric.
fn furnish(root: &std::path::Path) {
    let hca = "00:".repeat(19) + "01";
    for (path, content) in [
        ("etc/os-release", "ID=ubuntu\n"),
        ("proc/mounts", "/dev/sda2 / ext4 rw 0 0\n"),
        ("sys/class/net/ens108np0/operstate", "up\n"),
        ("sys/class/net/ib0/operstate", "up\n"),
        ("sys/class/net/ib0/address", hca.as_str()),
        ("sys/fs/cgroup/system.slice/gpuaas-node-agent.service/cgroup.procs", "1\n"),
    ] {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    // Only a link with an adapter behind it counts.
    let device = root.join("sys/class/net/ib0/device");
    std::os::unix::fs::symlink("../../../0000:1a:00.0", device).unwrap();
}

pub(super) async fn add_progress_report(
    store: &Store,
    at: Timestamp,
    run_id: RunId,
    phase: BootstrapPhase,
    status: ProgressStatus,
    message: &str,
) {
    let kind = ReportKind::Progress { phase, status, attempt: None, message: message.to_owned() };
    store.add_report(Report { run_id, at, kind }, Vec::new()).await.unwrap();
}
