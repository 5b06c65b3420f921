//! What an agent answers to `discover_slices`: kept with the slot map of it.

use std::collections::BTreeMap;

use gpuaas_core::slots::{SlotPolicy, slot_map};
use gpuaas_store::NewSliceTopology;
use gpuaas_types::agent::{Operation, TaskResult, TaskSpec};
use gpuaas_types::slice::SliceReport;
use gpuaas_types::topology::TopologyReport;
use gpuaas_types::{NodeId, TaskId};
use serde_json::Value;

use crate::check;
use crate::ctx::Ctx;
use crate::http::problem::ApiResult;

/// Most PCI functions, NVMe namespaces and NUMA nodes of a report. A server with eight GPUs has some
/// two hundred functions.
const MOST: (usize, usize, usize) = (4096, 256, 64);
/// Most GPUs of a host: sets of slots are 32 bits.
const MOST_GPUS: usize = 32;
/// Most proofs that an agent hands in at once: a dozen for each of a host's slots.
const MOST_PROOFS: usize = 512;
/// Most partitions of NVSwitches: the fabric manager has 15 for eight GPUs, and an own list of some more.
const MOST_PARTITIONS: usize = 256;
/// Characters of a text of the report that are kept.
const TEXT_CHARS: usize = 300;

/// Keeps the report of a task that asked for one, with its map; another one is dropped. One that no
/// host can have makes the task a failed one.
///
/// # Errors
/// The database's.
pub(crate) async fn record(
    ctx: &Ctx,
    node_id: NodeId,
    task_id: TaskId,
    report: TopologyReport,
    result: &mut TaskResult,
) -> ApiResult<()> {
    let Ok(task) = ctx.store.operator_task(task_id).await else { return Ok(()) };
    let discovers = TaskSpec::Operate { dry_run: false, operation: Operation::DiscoverSlices {} };
    if task.node_id != node_id || task.task.spec != discovers || !result.succeeded {
        return Ok(());
    }
    let policy = policy(ctx, node_id).await?;
    let report = match bounded(report, &policy) {
        Ok(report) => report,
        Err(message) => {
            result.succeeded = false;
            result.code = "topology_too_large".to_owned();
            result.message = message;
            return Ok(());
        }
    };
    let map = slot_map(&task.hostname, &report.topology, &policy);
    let new = NewSliceTopology { node_id, task_id, report, map };
    ctx.store.record_slice_topology(ctx.now(), new).await?;
    Ok(())
}

/// What site and profile of a node say of slots, the profile after the site, and what the site says
/// of the host alone last.
async fn policy(ctx: &Ctx, node_id: NodeId) -> ApiResult<SlotPolicy> {
    Ok(SlotPolicy::from_inputs(&inputs(ctx, node_id).await?))
}

/// Inputs of the bundles of a node, those of the site first and those of the host alone last.
///
/// # Errors
/// The database's.
pub(crate) async fn inputs(ctx: &Ctx, node_id: NodeId) -> ApiResult<BTreeMap<String, String>> {
    let node = ctx.store.listed_node(node_id).await?.node;
    let profile = ctx.store.profile(node.profile_id).await?.spec;
    let site = ctx.store.site(node.site_id).await?.spec;
    let mut inputs: BTreeMap<String, String> = BTreeMap::new();
    inputs.extend(site.bundle_inputs.into_values().flatten());
    inputs.extend(profile.site_bootstrap_inputs);
    let mut of_hosts = site.host_inputs;
    inputs.extend(of_hosts.remove(&node.hostname).unwrap_or_default().into_values().flatten());
    Ok(inputs)
}

/// What an agent saw of a slice, with plain texts of bounded length; none: it is no report of one.
pub(crate) fn bounded_slice_report(mut report: SliceReport) -> Option<SliceReport> {
    report.proofs.truncate(MOST_PROOFS);
    let mut value = serde_json::to_value(&report).ok()?;
    plain(&mut value);
    serde_json::from_value(value).ok()
}

/// The report with plain texts of bounded length.
fn bounded(report: TopologyReport, policy: &SlotPolicy) -> Result<TopologyReport, String> {
    let topology = &report.topology;
    let gpus = topology.functions.iter().filter(|one| policy.gpu.matches(one)).count();
    let (functions, namespaces, numa_nodes) = MOST;
    for (what, seen, most) in [
        ("PCI functions", topology.functions.len(), functions),
        ("NVMe namespaces", topology.namespaces.len(), namespaces),
        ("NUMA nodes", topology.numa_nodes.len(), numa_nodes),
        ("GPUs", gpus, MOST_GPUS),
        ("partitions", topology.fabric_partitions.as_ref().map_or(0, Vec::len), MOST_PARTITIONS),
    ] {
        if seen > most {
            return Err(format!("the agent reported {seen} {what}; at most {most} are accepted"));
        }
    }
    let unreadable = |error: serde_json::Error| format!("cannot store the report: {error}");
    let mut value = serde_json::to_value(&report).map_err(unreadable)?;
    plain(&mut value);
    serde_json::from_value(value).map_err(unreadable)
}

fn plain(value: &mut Value) {
    match value {
        Value::String(text) => *text = check::plain_text(text, TEXT_CHARS),
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Object(fields) => fields.values_mut().for_each(plain),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::topology::{HostTopology, TopologyFunction};

    use super::*;

    fn report(functions: usize, class: &str) -> TopologyReport {
        let function = TopologyFunction {
            address: "0000:19:00.0\u{1b}[2J".to_owned(),
            vendor: Some("10de".to_owned()),
            class: Some(class.to_owned()),
            ..TopologyFunction::default()
        };
        let functions = vec![function; functions];
        let topology = HostTopology { functions, ..HostTopology::default() };
        TopologyReport { discovery_seconds: 0.5, topology }
    }

    #[test]
    fn a_report_is_plain_and_bounded() {
        let policy = SlotPolicy::default();
        let kept = bounded(report(1, "030200"), &policy).unwrap();
        assert_eq!(kept.topology.functions[0].address, "0000:19:00.0[2J");
        assert!(bounded(report(33, "030200"), &policy).unwrap_err().contains("33 GPUs"));
        assert!(bounded(report(33, "060400"), &policy).is_ok());
        assert!(bounded(report(4097, "060400"), &policy).unwrap_err().contains("4097 PCI"));
    }
}
