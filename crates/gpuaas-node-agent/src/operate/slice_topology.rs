//! The operation `discover_slices`: the devices of the host that slices are made of.
//!
//! It reads files and asks programs that change nothing. What cannot be read or asked is left out of
//! the report, which is not the same as an empty answer: the control plane makes a blocker of it.

use std::collections::BTreeSet;

use gpuaas_types::agent::Finding;
use gpuaas_types::topology::{HostTopology, TopologyFunction, TopologyReport};
use host_facts::HostRoot;
use host_facts::topology::{is_switch, queries};

use super::operation::{OperationContext, OperationError, OperationOutcome};
use crate::clock::{AgentClock as _, HostClock};
use crate::command::{CommandError, CommandRunner};
use crate::host::Host;

/// Longest time of a query, in seconds.
const QUERY_SECONDS: u64 = 30;
/// PCI vendor of NVIDIA's GPUs.
const NVIDIA: &str = "10de";

/// What a discovery found.
#[derive(Debug)]
pub struct SliceDiscovery {
    /// The devices of the host that slices are made of, and how long reading them took.
    pub report: TopologyReport,
    /// Programs that did not answer; what they were asked for is left out of the report.
    pub unanswered: Vec<Finding>,
}

/// Why nothing of a host could be read.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A simulated host that is no folder.
    #[error("a simulated host without files has no devices to read")]
    NoFiles,
    /// The reader of the files did not end as it should.
    #[error("cannot read the host's files: {0}")]
    Unreadable(String),
}

impl From<DiscoveryError> for OperationError {
    fn from(error: DiscoveryError) -> Self {
        let code = match error {
            DiscoveryError::NoFiles => "host_not_live",
            DiscoveryError::Unreadable(_) => "topology_unreadable",
        };
        Self::new(code, error.to_string())
    }
}

/// Reads the devices of `host` that slices are made of; it changes nothing.
///
/// # Errors
/// Where the host has no files, or none could be read.
pub async fn discover(host: &Host) -> Result<SliceDiscovery, DiscoveryError> {
    let Some(root) = host.root() else { return Err(DiscoveryError::NoFiles) };
    let begun_at = HostClock.monotonic_seconds();
    let (root, devices) = (root.clone(), root.clone());
    let read = tokio::task::spawn_blocking(move || root.topology()).await;
    let mut topology = read.map_err(|error| DiscoveryError::Unreadable(error.to_string()))?;
    let mut findings = Vec::new();
    match CommandRunner::for_host(host) {
        Ok(runner) => {
            query(&runner, &mut topology, &mut findings).await;
            query_partitions(&runner, &mut topology, &mut findings).await;
            query_identities(&runner, &devices, &mut topology, &mut findings).await;
        }
        Err(error) => findings.push(unanswered("nvme, nvidia-smi", &error)),
    }
    let discovery_seconds = HostClock.monotonic_seconds() - begun_at;
    let report = TopologyReport { discovery_seconds, topology };
    Ok(SliceDiscovery { report, unanswered: findings })
}

pub(super) async fn run(
    context: &OperationContext<'_>,
) -> Result<OperationOutcome, OperationError> {
    if context.host.root().is_none() {
        return Err(DiscoveryError::NoFiles.into());
    }
    if context.dry_run {
        let message = "would read sysfs and procfs and query nvme and nvidia-smi".to_owned();
        return Ok(OperationOutcome { message, ..OperationOutcome::default() });
    }
    let SliceDiscovery { report, unanswered: findings } = discover(context.host).await?;
    let TopologyReport { discovery_seconds, topology } = &report;
    let message = format!(
        "found {} PCI functions, {} NVMe namespaces and {} NUMA nodes in {discovery_seconds:.2} s",
        topology.functions.len(),
        topology.namespaces.len(),
        topology.numa_nodes.len()
    );
    let topology = Some(Box::new(report));
    Ok(OperationOutcome { topology, findings, message, ..OperationOutcome::default() })
}

/// Adds what is in no file: how drives erase themselves, and module ids that nobody recorded while
/// NVIDIA's driver has a GPU.
async fn query(
    runner: &CommandRunner<'_>,
    topology: &mut HostTopology,
    findings: &mut Vec<Finding>,
) {
    for drive in &mut topology.namespaces {
        let device = format!("/dev/{}", drive.name);
        let [command, format] = queries::ERASE_METHODS_QUERY;
        match runner.query("nvme", &[command, format, &device], QUERY_SECONDS).await {
            Ok(output) => drive.erase_methods = queries::erase_methods(&output.stdout),
            Err(error) => findings.push(unanswered(&device, &error)),
        }
    }
    let has_driver = topology.functions.iter().any(|function| {
        function.vendor.as_deref() == Some(NVIDIA) && function.driver.as_deref() == Some("nvidia")
    });
    if has_driver && topology.gpu_modules.is_empty() {
        match runner.query("nvidia-smi", &queries::GPU_MODULES_QUERY, QUERY_SECONDS).await {
            Ok(output) => topology.gpu_modules = queries::gpu_modules(&output.stdout),
            Err(error) => findings.push(unanswered("nvidia-smi", &error)),
        }
    }
}

/// Adds GUIDs and MAC addresses of virtual functions that sysfs does not show: the kernel's own driver
/// answers for them through the link of the physical function.
async fn query_identities(
    runner: &CommandRunner<'_>,
    root: &HostRoot,
    topology: &mut HostTopology,
    findings: &mut Vec<Finding>,
) {
    let is_hidden = |function: &&TopologyFunction| {
        function.guid.is_none() && function.mac.is_none() && function.virtual_index.is_some()
    };
    let with_port: BTreeSet<String> = topology
        .functions
        .iter()
        .filter(|function| function.port.is_some())
        .map(|function| function.address.clone())
        .collect();
    let hidden = topology.functions.iter().filter(is_hidden);
    let physical: BTreeSet<String> = hidden
        .filter_map(|function| function.physical_function.clone())
        .filter(|address| with_port.contains(address))
        .collect();
    for address in physical {
        let Some(link) = root.function_links(&address).into_iter().next() else { continue };
        let arguments = [&queries::VIRTUAL_IDENTITIES_QUERY[..], &[link.as_str()]].concat();
        let mut all = match runner.query("ip", &arguments, QUERY_SECONDS).await {
            Ok(output) => queries::virtual_identities(&output.stdout),
            Err(error) => {
                findings.push(unanswered(&link, &error));
                continue;
            }
        };
        for function in &mut topology.functions {
            if function.physical_function.as_ref() != Some(&address) {
                continue;
            }
            let found = function.virtual_index.and_then(|index| all.remove(&index));
            let found = found.unwrap_or_default();
            function.guid = function.guid.take().or(found.guid);
            function.mac = function.mac.take().or(found.mac);
        }
    }
    root.apply_assigned_identities(topology);
}

/// Adds the partitions of NVSwitches.
async fn query_partitions(
    runner: &CommandRunner<'_>,
    topology: &mut HostTopology,
    findings: &mut Vec<Finding>,
) {
    if !topology.functions.iter().any(is_switch) {
        return;
    }
    let client = queries::FABRIC_CLIENT;
    match runner.query(client, &["-l"], QUERY_SECONDS).await {
        Ok(output) => {
            topology.fabric_partitions = queries::fabric_partitions(&output.stdout);
            if topology.fabric_partitions.is_none() {
                let seen = "it printed no partition list".to_owned();
                findings.push(Finding { name: client.to_owned(), passed: Some(false), seen });
            }
        }
        Err(error) => findings.push(unanswered(client, &error)),
    }
}

fn unanswered(name: &str, error: &CommandError) -> Finding {
    Finding { name: name.to_owned(), passed: Some(false), seen: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use gpuaas_types::agent::{Operation, TaskResult};
    use gpuaas_types::topology::EraseMethod;

    use super::*;
    use crate::env::AgentEnv;
    use crate::operate::test_host::{commands_run, emulated, operate};

    async fn discover(host: &Host, dry_run: bool) -> TaskResult {
        let env = AgentEnv::default();
        let context = OperationContext { host, env: &env, dry_run };
        operate(&context, &Operation::DiscoverSlices {}).await
    }

    /// One GPU of NVIDIA's driver, one drive, one NUMA node.
    fn write_host(dir: &Path) {
        let root = dir.join("root");
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let gpu = "sys/bus/pci/devices/0000:19:00.0";
        put(&format!("{gpu}/vendor"), "0x10de\n");
        put(&format!("{gpu}/class"), "0x030200\n");
        put(&format!("{gpu}/numa_node"), "-1\n");
        put("sys/bus/pci/drivers/nvidia/bind", "");
        std::os::unix::fs::symlink("../../drivers/nvidia", root.join(gpu).join("driver")).unwrap();
        put("sys/class/nvme/nvme0/nvme0n1/size", "7501476528\n");
        put("sys/class/nvme/nvme0/address", "0000:1b:00.0\n");
        put("sys/class/nvme/nvme0/serial", "S6\n");
        put("sys/devices/system/node/node0/cpulist", "0-3\n");
    }

    #[tokio::test]
    async fn what_a_host_has_is_read_and_nothing_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let host = emulated(
            dir.path(),
            r#"
case "$2" in
  nvme) echo '{"oacs": 94, "sanicap": 1}' ;;
  nvidia-smi) printf '<gpu id="00000000:19:00.0">\n<serial>165</serial>\n<gpu_module_id>2</gpu_module_id>\n</gpu>\n' ;;
esac
"#,
        );
        write_host(dir.path());
        let done = discover(&host, false).await;
        assert!(done.succeeded, "{done:?}");
        let TopologyReport { discovery_seconds, topology } = *done.topology.unwrap();
        assert!(discovery_seconds > 0.0);
        let gpu = &topology.functions[0];
        assert_eq!((gpu.address.as_str(), gpu.numa_node), ("0000:19:00.0", Some(0)));
        assert_eq!(topology.gpu_modules[0].module_id, 2);
        let methods = [EraseMethod::SanitizeCrypto, EraseMethod::Format];
        assert_eq!(topology.namespaces[0].erase_methods.as_deref(), Some(&methods[..]));
        assert_eq!(topology.numa_nodes[0].id, 0);
        assert!(commands_run(dir.path()).is_empty(), "it changes nothing");
    }

    #[tokio::test]
    async fn what_nobody_answers_is_unknown_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let host = emulated(dir.path(), "echo 'no such program' >&2; exit 127\n");
        write_host(dir.path());
        let done = discover(&host, false).await;
        let topology = done.topology.unwrap().topology;
        assert_eq!(topology.namespaces[0].erase_methods, None);
        assert_eq!(topology.gpu_modules, []);
        let names: Vec<&str> = done.findings.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["/dev/nvme0n1", "nvidia-smi"]);
    }

    #[tokio::test]
    async fn a_dry_run_reads_nothing_and_a_host_without_files_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let dry = discover(&emulated(dir.path(), "exit 1\n"), true).await;
        assert!(dry.succeeded && dry.topology.is_none());
        assert!(!dir.path().join("calls").exists());
        let fixed = Host::Fixed(std::sync::Arc::new(serde_json::json!({})));
        let refused = discover(&fixed, false).await;
        assert_eq!((refused.succeeded, refused.code.as_str()), (false, "host_not_live"));
    }
}
