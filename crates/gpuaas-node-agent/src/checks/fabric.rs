//! Whether programs can use the GPUs of a board with NVSwitches.
//!
//! `nvidia-smi -L` lists GPUs long before CUDA can open one: on such a board a GPU waits until the fabric
//! manager has made its links to the switches, and every program ends with "system not yet initialized"
//! until then. `nvidia-smi -q` shows that state for each GPU, in the section `Fabric`.

use gpuaas_types::agent::{Finding, HostCheck};
use host_facts::HostFacts;

use super::query::query;
use super::units::unit_state;
use super::verdict::Verdict;
use crate::command::CommandRunner;
use crate::host::Host;

/// Longest time of a query to `nvidia-smi`, in seconds: it wakes every GPU first.
const NVIDIA_SECONDS: u64 = 60;
/// systemd unit of the fabric manager.
const FABRIC_MANAGER: &str = "nvidia-fabricmanager.service";
/// PCI vendor NVIDIA.
const NVIDIA: &str = "10de";
/// Beginning of the PCI class of NVSwitches: other bridges.
const SWITCH_CLASS: &str = "0680";
/// What a GPU says that is on no NVSwitch.
const NO_FABRIC: &str = "N/A";

/// The fabric of one GPU, as `nvidia-smi -q` prints it.
#[derive(Debug, Default, PartialEq, Eq)]
struct GpuFabric {
    state: String,
    status: String,
}

impl GpuFabric {
    fn is_ready(&self) -> bool {
        self.state == "Completed" && self.status == "Success"
    }
}

/// Evaluates [`HostCheck::NvidiaFabric`].
pub(super) async fn evaluate(host: &Host, facts: &HostFacts) -> Finding {
    let (passed, seen) = match CommandRunner::for_host(host) {
        Ok(runner) => judge(host, runner, facts).await,
        Err(error) => (false, error.to_string()),
    };
    let name = HostCheck::NvidiaFabric {}.name();
    Finding { name, passed: Some(passed), seen: seen.chars().take(500).collect() }
}

async fn judge(host: &Host, runner: CommandRunner<'_>, facts: &HostFacts) -> Verdict {
    let switches = facts.pci.iter().filter(|function| {
        let begins = |text: &Option<String>, begin: &str| {
            text.as_deref().is_some_and(|text| text.starts_with(begin))
        };
        begins(&function.vendor, NVIDIA) && begins(&function.class, SWITCH_CLASS)
    });
    let switches = switches.count();
    let gpus = match query(runner, "nvidia-smi", &["-q"], NVIDIA_SECONDS).await {
        Ok(text) => fabrics(&text),
        Err(reason) => return (false, reason),
    };
    let joined = gpus.iter().any(|gpu| gpu.state != NO_FABRIC && !gpu.state.is_empty());
    if switches == 0 && !joined {
        return (true, "the host has no NVSwitch".to_owned());
    }
    let mut wrong = Vec::new();
    let manager = unit_state(host, FABRIC_MANAGER).await;
    if manager.passed != Some(true) {
        wrong.push(format!("{FABRIC_MANAGER} is {}", manager.seen));
    }
    wrong.extend(not_ready(&gpus));
    if wrong.is_empty() {
        return (true, format!("{} GPUs have fabric state Completed, status Success", gpus.len()));
    }
    (false, wrong.join("; "))
}

/// What keeps GPUs from being ready, if anything does.
fn not_ready(gpus: &[GpuFabric]) -> Option<String> {
    if gpus.is_empty() {
        return Some("nvidia-smi lists no GPU".to_owned());
    }
    let waiting: Vec<&GpuFabric> = gpus.iter().filter(|gpu| !gpu.is_ready()).collect();
    let first = waiting.first()?;
    Some(format!(
        "{} of {} GPUs are not ready: fabric state {:?} with status {:?}",
        waiting.len(),
        gpus.len(),
        first.state,
        first.status
    ))
}

/// The fabric of each GPU that `nvidia-smi -q` lists; an empty one of a GPU without that section.
fn fabrics(printed: &str) -> Vec<GpuFabric> {
    let mut gpus: Vec<GpuFabric> = Vec::new();
    // Indentation of the section's head.
    let mut section: Option<usize> = None;
    for line in printed.lines() {
        let depth = line.len() - line.trim_start().len();
        let text = line.trim();
        if depth == 0 && text.starts_with("GPU ") {
            gpus.push(GpuFabric::default());
            section = None;
        } else if text == "Fabric" {
            section = Some(depth);
        } else if section.is_some_and(|head| depth <= head) && !text.is_empty() {
            section = None;
        }
        if let (Some(_), Some((name, value)), Some(gpu)) =
            (section, text.split_once(':'), gpus.last_mut())
        {
            match name.trim() {
                "State" => gpu.state = value.trim().to_owned(),
                "Status" => gpu.status = value.trim().to_owned(),
                _ => {}
            }
        }
    }
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(state: &str, status: &str) -> String {
        format!(
            "GPU 00000000:18:00.0\n    Product Name                          : NVIDIA H200\n    \
             Fabric\n        State                             : {state}\n        \
             Status                            : {status}\n        CliqueId              : 0\n    \
             Processes                             : None\n        State : other\n"
        )
    }

    #[test]
    fn each_gpu_has_to_be_completed_with_success() {
        let text = |gpus: &[String]| {
            format!("==============NVSMI LOG==============\n\nAttached GPUs : 2\n{}", gpus.concat())
        };
        let good = gpu("Completed", "Success");
        let both = fabrics(&text(&[good.clone(), good.clone()]));
        assert_eq!(both.len(), 2);
        assert_eq!(not_ready(&both), None);
        assert_eq!(not_ready(&[]).unwrap(), "nvidia-smi lists no GPU");
        for (state, status) in
            [("In Progress", "N/A"), ("Completed", "Insufficient resources"), ("N/A", "N/A")]
        {
            let gpus = fabrics(&text(&[good.clone(), gpu(state, status)]));
            let said = not_ready(&gpus).unwrap();
            let expected =
                format!("1 of 2 GPUs are not ready: fabric state {state:?} with status {status:?}");
            assert_eq!(said, expected);
        }
        let without = fabrics("GPU 00000000:18:00.0\n    Product Name : NVIDIA H200\n");
        assert_eq!(without, [GpuFabric::default()]);
        assert!(not_ready(&without).is_some());
    }
}
