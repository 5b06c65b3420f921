//! All facts of a host: those in its files, and those that its GPU driver and its systemd report.
//!
//! The queries take up to a minute where GPUs sleep. So they run where a person wants to see the
//! host, not where a gate is evaluated. A host that cannot be queried has the rest of its facts.

use gpuaas_types::agent::SERVICE_UNITS;
use host_facts::{HostFacts, gpu, software};
use serde_json::Value;

use crate::command::CommandRunner;
use crate::host::Host;

/// Longest time of a query to `nvidia-smi`, in seconds: it wakes every GPU first.
const NVIDIA_SECONDS: u64 = 60;
/// Longest time of a query to systemd, in seconds.
const SYSTEMD_SECONDS: u64 = 10;
/// Beginnings of the names of units that are among the facts whatever their state.
const LISTED_UNIT_PREFIXES: [&str; 3] = ["gpuaas-", "maas", "nvidia-"];

/// All facts of a host, as JSON of [`HostFacts`].
pub async fn collect(host: &Host) -> Value {
    let facts = host.facts().await;
    let Ok(runner) = CommandRunner::for_host(host) else { return facts };
    let Ok(mut facts) = serde_json::from_value::<HostFacts>(facts.clone()) else { return facts };
    if gpu::has_driven_gpu(&facts.pci) {
        match runner.query("nvidia-smi", &[gpu::QUERY, gpu::QUERY_FORMAT], NVIDIA_SECONDS).await {
            Ok(output) => facts.nvidia_gpus = gpu::nvidia_gpus(&output.stdout),
            Err(error) => tracing::warn!(%error, "cannot query the GPU driver"),
        }
    }
    if let Ok(runner) = CommandRunner::with_systemd(host) {
        facts.units = units(runner).await;
    }
    serde_json::to_value(facts).unwrap_or_default()
}

/// Units that make the host what it is, and those that failed.
async fn units(runner: CommandRunner<'_>) -> Vec<host_facts::Unit> {
    let list = [
        "list-units",
        "--all",
        "--plain",
        "--no-legend",
        "--no-pager",
        "--full",
        "--type=service,socket,timer",
    ];
    match runner.query("systemctl", &list, SYSTEMD_SECONDS).await {
        Ok(output) => {
            let mut units = software::units(&output.stdout);
            units.retain(|unit| {
                unit.active == "failed"
                    || SERVICE_UNITS.contains(&unit.name.as_str())
                    || LISTED_UNIT_PREFIXES.iter().any(|start| unit.name.starts_with(start))
            });
            units.sort_by(|a, b| a.name.cmp(&b.name));
            units
        }
        Err(error) => {
            tracing::warn!(%error, "cannot query systemd");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use host_facts::HostRoot;

    use super::*;

    /// A host with one GPU of its own and one of a guest; `script` emulates its programs.
    fn host(dir: &std::path::Path, script: &str) -> Host {
        for (address, driver) in [("0000:19:00.0", "nvidia"), ("0000:3b:00.0", "vfio-pci")] {
            let at = dir.join("sys/bus/pci/devices").join(address);
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("vendor"), "0x10de\n").unwrap();
            std::fs::write(at.join("class"), "0x030200\n").unwrap();
            std::os::unix::fs::symlink(format!("/drivers/{driver}"), at.join("driver")).unwrap();
        }
        let program = dir.join("emulator");
        std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Host::at(HostRoot::new(dir), Some(program))
    }

    async fn facts(script: &str) -> HostFacts {
        let dir = tempfile::tempdir().unwrap();
        serde_json::from_value(collect(&host(dir.path(), script)).await).unwrap()
    }

    #[tokio::test]
    async fn driver_and_systemd_are_queried() {
        let facts = facts(
            r#"case "$2" in
                nvidia-smi) echo "00000000:19:00.0, GPU-1, NVIDIA H200, 165, 570.86, 96.00, 143771, Disabled, Enabled" ;;
                systemctl)
                    echo "cron.service loaded active running x"
                    echo "broken.service loaded failed failed x"
                    echo "libvirtd.service loaded inactive dead x" ;;
            esac"#,
        )
        .await;
        assert_eq!(facts.pci.len(), 2);
        assert_eq!(facts.nvidia_gpus.len(), 1);
        assert_eq!(facts.nvidia_gpus[0].pci_address, "0000:19:00.0");
        let names: Vec<&str> = facts.units.iter().map(|unit| unit.name.as_str()).collect();
        assert_eq!(names, ["broken.service", "libvirtd.service"]);
    }

    #[tokio::test]
    async fn a_host_that_does_not_answer_has_its_other_facts() {
        let facts = facts("echo \"couldn't communicate with the NVIDIA driver\" >&2; exit 9").await;
        assert_eq!((facts.pci.len(), facts.nvidia_gpus.len(), facts.units.len()), (2, 0, 0));
    }

    #[tokio::test]
    async fn files_of_another_host_are_all_that_is_known_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path(), "exit 1");
        let files = Host::Root(host.root().unwrap().clone());
        assert_eq!(collect(&files).await, files.facts().await);
    }
}
