//! What drives and NVIDIA's driver answer: parsed here, asked by the caller.

use std::collections::BTreeMap;

use gpuaas_types::topology::{EraseMethod, FabricPartition, GpuModule};
use serde_json::Value;

use crate::gpu;

/// Arguments of `nvidia-smi` for [`gpu_modules`].
pub const GPU_MODULES_QUERY: [&str; 2] = ["-q", "-x"];
/// Arguments of `nvme` (nvme-cli) for [`erase_methods`], before the path of the drive.
pub const ERASE_METHODS_QUERY: [&str; 2] = ["id-ctrl", "--output-format=json"];
/// Arguments of `ip` for [`virtual_identities`], before the name of the physical function's link.
pub const VIRTUAL_IDENTITIES_QUERY: [&str; 4] = ["-j", "link", "show", "dev"];

/// What a virtual function is on the fabric, as far as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VirtualIdentity {
    /// Node GUID.
    pub guid: Option<String>,
    /// Port GUID.
    pub port_guid: Option<String>,
    /// MAC address.
    pub mac: Option<String>,
}

/// Virtual functions by number in what `ip -j link show dev LINK` prints (iproute2, `print_vfinfo`).
///
/// ```
/// use host_facts::topology::queries::virtual_identities;
/// let printed = r#"[{"ifname": "ibp0", "vfinfo_list": [{"vf": 1, "link_type": "infiniband",
///     "node guid": "96:6d:ae:f0:00:12:34:01", "port guid": "96:6d:ae:f0:00:12:34:01"}]}]"#;
/// let all = virtual_identities(printed);
/// assert_eq!(all[&1].guid.as_deref(), Some("96:6d:ae:f0:00:12:34:01"));
/// assert!(virtual_identities("Device does not exist").is_empty());
/// ```
#[must_use]
pub fn virtual_identities(printed: &str) -> BTreeMap<u32, VirtualIdentity> {
    let links: Vec<Value> = serde_json::from_str(printed).unwrap_or_default();
    let functions = links.iter().filter_map(|link| link.get("vfinfo_list")?.as_array()).flatten();
    let identity = |function: &Value| {
        let index = u32::try_from(function.get("vf")?.as_u64()?).ok()?;
        let text =
            |name: &str| function.get(name).and_then(Value::as_str).map(str::to_ascii_lowercase);
        // An address of InfiniBand has 20 bytes and is no MAC address.
        let mac = text("address").or_else(|| text("mac")).filter(|mac| mac.len() == 17);
        let (guid, port_guid) = (text("node guid"), text("port guid"));
        Some((index, VirtualIdentity { guid, port_guid, mac }))
    };
    functions.filter_map(identity).collect()
}

/// Program that asks the fabric manager, and has it do things: the client that NVIDIA publishes for the
/// library of its fabric manager. Where that runs in a virtual machine of its own, a program of this
/// name may ask there.
pub const FABRIC_CLIENT: &str = "fmpm";

/// Partitions in what `fmpm -l` prints; `None` where that is no list of partitions: the client says
/// errors in the same place.
///
/// ```
/// use host_facts::topology::queries::fabric_partitions;
/// let printed = r#"{"numPartitions": 1, "partitionInfo": [{"partitionId": 3, "isActive": 1,
///     "numGpus": 2, "gpuInfo": [{"physicalId": 3}, {"physicalId": 1}]}]}"#;
/// let [pair] = &fabric_partitions(printed).unwrap()[..] else { panic!() };
/// assert_eq!((pair.id, pair.active, &pair.modules[..]), (3, true, &[1, 3][..]));
/// assert_eq!(fabric_partitions("Failed to connect to Fabric Manager instance."), None);
/// ```
#[must_use]
pub fn fabric_partitions(printed: &str) -> Option<Vec<FabricPartition>> {
    let answer: Value = serde_json::from_str(printed).ok()?;
    let number = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
    };
    let partition = |value: &Value| {
        let gpus = value.get("gpuInfo")?.as_array()?;
        let modules: Option<Vec<u32>> = gpus.iter().map(|gpu| number(gpu, "physicalId")).collect();
        let mut modules = modules?;
        modules.sort_unstable();
        let is_whole = number(value, "numGpus")? as usize == modules.len();
        let active = number(value, "isActive")? != 0;
        is_whole.then_some(FabricPartition { id: number(value, "partitionId")?, modules, active })
    };
    answer.get("partitionInfo")?.as_array()?.iter().map(partition).collect()
}

/// Module ids of GPUs in what `nvidia-smi -q -x` prints. A GPU without one (`N/A`) is left out.
///
/// Drivers of the branch 580 say `module_id`, within `platformInfo`; drivers of before say
/// `gpu_module_id`.
///
/// ```
/// let printed = "<gpu id=\"00000000:19:00.0\">\n <serial>165</serial>\n\
///                <gpu_module_id>2</gpu_module_id>\n</gpu>";
/// let [gpu] = &host_facts::topology::queries::gpu_modules(printed)[..] else { panic!() };
/// assert_eq!((gpu.address.as_str(), gpu.module_id), ("0000:19:00.0", 2));
/// ```
#[must_use]
pub fn gpu_modules(printed: &str) -> Vec<GpuModule> {
    let mut modules = Vec::new();
    let (mut address, mut serial) = (None, None);
    for line in printed.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("<gpu id=\"") {
            address = rest.split('"').next().and_then(gpu::address);
            serial = None;
        } else if let Some(text) = element(line, "serial") {
            serial = gpu::field_value(text);
        } else if let Some(text) =
            element(line, "gpu_module_id").or_else(|| element(line, "module_id"))
            && let (Some(address), Ok(module_id)) = (address.take(), text.parse())
        {
            modules.push(GpuModule { address, module_id, serial: serial.take() });
        }
    }
    modules.sort();
    modules
}

/// Text of an element that stands on one line.
fn element<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix('<')?.strip_prefix(name)?.strip_prefix('>')?;
    rest.split_once("</").map(|(text, _)| text)
}

/// Ways to erase itself that a drive's controller has, from what `nvme id-ctrl` prints as JSON;
/// `None` where that is no such answer.
///
/// NVM Express Base Specification 2.0, figure 275: bits 0 to 2 of `sanicap` are crypto erase, block
/// erase and overwrite; bit 1 of `oacs` is Format NVM.
///
/// ```
/// use gpuaas_types::topology::EraseMethod;
/// use host_facts::topology::queries::erase_methods;
/// let methods = erase_methods(r#"{"oacs": 94, "sanicap": 3}"#);
/// assert_eq!(
///     methods,
///     Some(vec![EraseMethod::SanitizeCrypto, EraseMethod::SanitizeBlock, EraseMethod::Format])
/// );
/// assert_eq!(erase_methods("no such device"), None);
/// ```
#[must_use]
pub fn erase_methods(printed: &str) -> Option<Vec<EraseMethod>> {
    let answer: Value = serde_json::from_str(printed).ok()?;
    let bits = |name: &str| answer.get(name).and_then(Value::as_u64);
    let (sanitize, commands) = (bits("sanicap")?, bits("oacs")?);
    let offered = [
        (sanitize & 1, EraseMethod::SanitizeCrypto),
        (sanitize & 2, EraseMethod::SanitizeBlock),
        (sanitize & 4, EraseMethod::SanitizeOverwrite),
        (commands & 2, EraseMethod::Format),
    ];
    Some(offered.into_iter().filter(|(bit, _)| *bit != 0).map(|(_, method)| method).collect())
}
