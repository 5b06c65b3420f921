//! What the agent reads of NVIDIA GPUs, beside what `nvidia-smi -q` and `lspci` say.
//!
//! On a machine with such GPUs its own are compared; elsewhere that is skipped visibly, and what is
//! compared are records of such a machine (`h100`) and made-up ones. `GPUAAS_AGENT` names another
//! executable, so the built test can be taken to a machine that has no compiler.

#![expect(clippy::disallowed_methods, reason = "the environment says where the agent is")]

mod topology;

use std::collections::BTreeMap;
use std::process::Command;

use host_facts::{HostFacts, NvidiaGpu, PciFunction};

/// What `nvidia-smi -q` says, by path: `GPU 00000000:19:00.0/FB Memory Usage/Total`. A deeper
/// heading is indented by more; what has a colon is a value.
fn log(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut above: Vec<(usize, &str)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        above.retain(|(other, _)| *other < indent);
        // The name of a GPU has colons, too, but no blank before them.
        match line.split_once(" : ") {
            Some((name, value)) => {
                let names = above.iter().map(|(_, name)| *name).chain([name.trim()]);
                values.insert(names.collect::<Vec<_>>().join("/"), value.trim().to_owned());
            }
            None => above.push((indent, line.trim())),
        }
    }
    values
}

/// Differences between the facts and what the tools say.
fn differences(facts: &HostFacts, smi: &str, lspci: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut same = |what: String, agent: Option<String>, tool: Option<String>| {
        if agent != tool {
            found.push(format!("{what}: the agent says {agent:?}, the tool {tool:?}"));
        }
    };
    let values = log(smi);
    let attached = values.get("Attached GPUs").and_then(|count| count.parse::<usize>().ok());
    same(
        "GPUs".to_owned(),
        Some(facts.nvidia_gpus.len().to_string()),
        attached.map(|count| count.to_string()),
    );
    for gpu in &facts.nvidia_gpus {
        let bus = format!("GPU 0000{}", gpu.pci_address.to_uppercase());
        let of_gpu = |name: &str| values.get(&format!("{bus}/{name}"));
        let reported =
            |name: &str| of_gpu(name).filter(|text| *text != "N/A" && *text != "0").cloned();
        let mut compare = |name: &str, agent: Option<String>| {
            same(format!("{bus}/{name}"), agent, reported(name));
        };
        let NvidiaGpu { uuid, name, serial, vbios_version, .. } = gpu.clone();
        compare("GPU UUID", uuid);
        compare("Product Name", name);
        compare("Serial Number", serial);
        compare("VBIOS Version", vbios_version);
        let switch = |on: bool| if on { "Enabled" } else { "Disabled" }.to_owned();
        compare("MIG Mode/Current", gpu.mig.map(switch));
        compare("ECC Mode/Current", gpu.ecc.map(switch));
        let mib = gpu.memory_total_bytes.map(|bytes| format!("{} MiB", bytes >> 20));
        compare("FB Memory Usage/Total", mib);
        let driver = values.get("Driver Version").cloned();
        same(format!("{bus}: driver"), gpu.driver_version.clone(), driver);
    }
    let functions = facts.pci.iter().filter(|function| function.vendor.as_deref() == Some("10de"));
    let agent: Vec<String> = functions.map(line).collect();
    let tool: Vec<String> = lspci.lines().filter_map(of_lspci).collect();
    same("PCI functions".to_owned(), Some(agent.join("\n")), Some(tool.join("\n")));
    found
}

/// Address, class and device of a function.
fn line(function: &PciFunction) -> String {
    let class = function.class.as_deref().and_then(|class| class.get(..4)).unwrap_or_default();
    format!("{} {class} {}", function.address, function.device.as_deref().unwrap_or_default())
}

/// The same of a line of `lspci -Dnmm`: `0000:19:00.0 "0302" "10de" "2335" -ra1 "10de" "18be"`.
fn of_lspci(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().map(|word| word.trim_matches('"'));
    let (address, class, _vendor) = (words.next()?, words.next()?, words.next()?);
    Some(format!("{address} {class} {}", words.next()?))
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn agent() -> String {
    let agent = std::env::var("GPUAAS_AGENT");
    agent.unwrap_or_else(|_| env!("CARGO_BIN_EXE_gpuaas-node-agent").to_owned())
}

#[test]
fn facts_agree_with_the_driver_and_lspci() {
    let Some(smi) = output_of("nvidia-smi", &["-q"]) else {
        return test_report::skip("gpu", "this machine has no NVIDIA GPU that nvidia-smi knows");
    };
    let facts = output_of(&agent(), &["facts", "--root", "/", "-o", "json"]).unwrap();
    let facts: HostFacts = serde_json::from_str(&facts).unwrap();
    let lspci = output_of("lspci", &["-Dnmm", "-d", "10de:"]).unwrap();
    let found = differences(&facts, &smi, &lspci);
    assert!(found.is_empty(), "{}", found.join("\n"));
    println!("{} GPUs agree with nvidia-smi -q and lspci", facts.nvidia_gpus.len());
}

const SMI: &str = "
==============NVSMI LOG==============

Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : 2
GPU 00000000:19:00.0
    Product Name                          : NVIDIA H200
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    Serial Number                         : 1654321
    GPU UUID                              : GPU-1
    VBIOS Version                         : 96.00.BC.00.01
    FB Memory Usage
        Total                             : 143771 MiB
        Used                              : 1 MiB
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled

GPU 00000000:3B:00.0
    Product Name                          : NVIDIA H200
    MIG Mode
        Current                           : N/A
    Serial Number                         : N/A
    GPU UUID                              : GPU-2
    VBIOS Version                         : 96.00.BC.00.01
    FB Memory Usage
        Total                             : 143771 MiB
    ECC Mode
        Current                           : Disabled
";
const LSPCI: &str = "0000:19:00.0 \"0302\" \"10de\" \"2335\" -ra1 \"10de\" \"18be\"\n\
                     0000:3b:00.0 \"0302\" \"10de\" \"2335\" -ra1 \"10de\" \"18be\"\n";

#[test]
fn each_difference_is_seen() {
    let function = |address: &str| PciFunction {
        address: address.to_owned(),
        vendor: Some("10de".to_owned()),
        device: Some("2335".to_owned()),
        class: Some("030200".to_owned()),
        driver: Some("nvidia".to_owned()),
        iommu_group: None,
        numa_node: None,
        virtual_functions: None,
        physical_function: None,
    };
    let gpus = "00000000:19:00.0, GPU-1, NVIDIA H200, 1654321, 570.86.15, 96.00.BC.00.01, 143771, \
                Disabled, Enabled\n\
                00000000:3B:00.0, GPU-2, NVIDIA H200, [N/A], 570.86.15, 96.00.BC.00.01, 143771, \
                [N/A], Disabled\n";
    let facts = HostFacts {
        pci: vec![function("0000:19:00.0"), function("0000:3b:00.0")],
        nvidia_gpus: host_facts::gpu::nvidia_gpus(gpus),
        ..HostFacts::default()
    };
    assert_eq!(differences(&facts, SMI, LSPCI), [""; 0]);
    for (was, is, path) in [
        ("143771 MiB\n        Used", "143770 MiB\n        Used", "19:00.0/FB Memory Usage/Total"),
        ("GPU-2", "GPU-3", "3B:00.0/GPU UUID"),
        ("Serial Number                         : N/A", "Serial Number : 7", "3B:00.0/Serial"),
        ("Current                           : N/A", "Current : Enabled", "3B:00.0/MIG Mode"),
        ("Attached GPUs                             : 2", "Attached GPUs : 3", "GPUs"),
    ] {
        let found = differences(&facts, &SMI.replacen(was, is, 1), LSPCI);
        assert!(found.len() == 1 && found[0].contains(path), "{path}: {found:?}");
    }
    assert_eq!(differences(&facts, SMI, &LSPCI.replacen("2335", "2330", 1)).len(), 1);
    assert_eq!(differences(&HostFacts::default(), "", "").len(), 1, "nothing was compared");
}
