//! A plan in libvirt's words.
//!
//! Each address that libvirt would choose by itself is written down, so that the guest sees the same
//! machine after each start, whatever libvirt's version.

use super::cpu_list;
use super::plan::{DomainPlan, GuestFunction, GuestRootComplex};
use super::policy::{DomainPolicy, VirtType};
use super::xml::{Element, element};

const QEMU_NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
/// Slot of bus 0 with the first root port of an emulated device; there are eight to a slot.
const FIRST_PORT_SLOT: usize = 1;
const PORTS_PER_SLOT: usize = 8;
/// Slot of bus 0 with the first expander bus.
const FIRST_EXPANDER_SLOT: usize = 3;

/// The domain.
pub(super) fn domain(plan: &DomainPlan, policy: &DomainPolicy) -> Element {
    let memory = |name: &'static str| element(name).with("unit", "GiB").text(plan.memory_gib());
    let window_mib = plan.mmio_window_gib.saturating_mul(1024);
    let window = format!("name=opt/ovmf/X-PciMmio64Mb,string={window_mib}");
    element("domain")
        .with("type", virt_type(policy))
        .with("xmlns:qemu", QEMU_NAMESPACE)
        .child(element("name").text(format!("gpuaas-{}", plan.claim_id)))
        .child(element("uuid").text(plan.claim_id))
        .child(memory("memory"))
        .child(memory("currentMemory"))
        .child(memory_backing())
        .child(element("vcpu").with("placement", "static").text(plan.vcpus()))
        .child(pinning(plan))
        .child(numa_policy(plan))
        .child(firmware(plan, policy))
        .child(element("features").child(element("acpi")).child(element("apic")))
        .child(processor(plan, policy))
        .child(clock())
        .child(element("on_poweroff").text("destroy"))
        .child(element("on_reboot").text("restart"))
        .child(element("on_crash").text("destroy"))
        .child(devices(plan, policy))
        .child(
            element("qemu:commandline")
                .child(element("qemu:arg").with("value", "-fw_cfg"))
                .child(element("qemu:arg").with("value", window)),
        )
}

/// Pages of 1 GiB, never swapped, never merged with a neighbour's.
fn memory_backing() -> Element {
    let page = element("page").with("size", 1).with("unit", "GiB");
    element("memoryBacking")
        .child(element("hugepages").child(page))
        .child(element("nosharepages"))
        .child(element("locked"))
}

fn pinning(plan: &DomainPlan) -> Element {
    let cpus = plan.cells.iter().flat_map(|cell| &cell.cpus).enumerate();
    let pins = cpus.map(|(vcpu, cpu)| element("vcpupin").with("vcpu", vcpu).with("cpuset", cpu));
    let emulator = element("emulatorpin").with("cpuset", cpu_list::format(&plan.emulator_cpus));
    element("cputune").children(pins).child(emulator)
}

fn numa_policy(plan: &DomainPlan) -> Element {
    let nodes: Vec<u32> = plan.cells.iter().map(|cell| cell.host_node).collect();
    let cells = plan.cells.iter().enumerate().map(|(at, cell)| {
        element("memnode").with("cellid", at).with("mode", "strict").with("nodeset", cell.host_node)
    });
    element("numatune")
        .child(element("memory").with("mode", "strict").with("nodeset", cpu_list::format(&nodes)))
        .children(cells)
}

fn firmware(plan: &DomainPlan, policy: &DomainPolicy) -> Element {
    let kind = element("type").with("arch", "x86_64").with("machine", "q35").text("hvm");
    let loader = element("loader")
        .with("readonly", "yes")
        .with("secure", "no")
        .with("type", "pflash")
        .text(&policy.firmware);
    let variables = element("nvram")
        .with("template", &policy.firmware_variables)
        .text(format!("{}/vars.fd", plan.folder));
    element("os").child(kind).child(loader).child(variables)
}

const fn virt_type(policy: &DomainPolicy) -> &'static str {
    match policy.virt_type {
        VirtType::Kvm => "kvm",
        VirtType::Qemu => "qemu",
    }
}

fn processor(plan: &DomainPlan, policy: &DomainPolicy) -> Element {
    let threads = plan.threads_per_core.max(1);
    let cores = |vcpus: usize| vcpus / threads as usize;
    // Cells as sockets where they are alike; else the sockets cannot be told from the counts.
    let alike = plan.cells.iter().all(|cell| cell.cpus.len() == plan.cells[0].cpus.len());
    let sockets = if alike { plan.cells.len().max(1) } else { 1 };
    let topology = element("topology")
        .with("sockets", sockets)
        .with("dies", 1)
        .with("cores", cores(plan.vcpus()) / sockets)
        .with("threads", threads);
    let mut first = 0;
    let cells = plan.cells.iter().enumerate().map(|(at, cell)| {
        let next = first + cell.cpus.len();
        let range = format!("{first}-{}", next.saturating_sub(1));
        first = next;
        let siblings = cell.distances.iter().enumerate();
        let siblings =
            siblings.map(|(id, value)| element("sibling").with("id", id).with("value", value));
        let written = element("cell")
            .with("id", at)
            .with("cpus", range)
            .with("memory", cell.memory_gib)
            .with("unit", "GiB");
        if cell.distances.is_empty() {
            return written;
        }
        written.child(element("distances").children(siblings))
    });
    let cells = element("numa").children(cells);
    let cpu = element("cpu");
    match policy.virt_type {
        VirtType::Kvm => cpu
            .with("mode", "host-passthrough")
            .with("check", "none")
            .with("migratable", "off")
            .child(topology)
            .child(element("cache").with("mode", "passthrough"))
            .child(cells),
        // What QEMU can do by itself: nothing of the host's processors or caches is in it.
        VirtType::Qemu => {
            cpu.with("mode", "maximum").with("check", "none").child(topology).child(cells)
        }
    }
}

fn clock() -> Element {
    let timer = |name: &str| element("timer").with("name", name);
    element("clock")
        .with("offset", "utc")
        .child(timer("rtc").with("tickpolicy", "catchup"))
        .child(timer("pit").with("tickpolicy", "delay"))
        .child(timer("hpet").with("present", "no"))
}

/// A PCI address of the guest.
fn address(bus: usize, slot: usize, function: usize) -> Element {
    element("address")
        .with("type", "pci")
        .with("domain", "0x0000")
        .with("bus", format!("0x{bus:02x}"))
        .with("slot", format!("0x{slot:02x}"))
        .with("function", format!("0x{function:x}"))
}

/// A root port with the number `index`, which nothing is plugged into or out of while the guest runs.
fn root_port(index: usize, at: Element, port: usize) -> Element {
    let target = element("target")
        .with("chassis", index)
        .with("port", format!("0x{port:x}"))
        .with("hotplug", "off");
    element("controller")
        .with("type", "pci")
        .with("index", index)
        .with("model", "pcie-root-port")
        .child(element("model").with("name", "pcie-root-port"))
        .child(target)
        .child(at)
}

fn devices(plan: &DomainPlan, policy: &DomainPolicy) -> Element {
    let mut emulated = vec![interface(plan, policy), seed(plan)];
    emulated.extend((0..).zip(&plan.drives).map(|(number, drive)| {
        let source = element("source").with("dev", &drive.path);
        let boots = (number == 0).then(boot);
        disk("block", number, source, "yes")
            .children(boots)
            .child(element("serial").text(format!("slot{}", drive.slot)))
    }));
    emulated.push(random_numbers());
    let root =
        element("controller").with("type", "pci").with("index", 0).with("model", "pcie-root");
    let mut controllers = vec![root];
    let mut functions = Vec::new();
    // The number of a root port is that of the bus behind it.
    for (at, device) in emulated.iter_mut().enumerate() {
        let (index, slot, function) =
            (at + 1, FIRST_PORT_SLOT + at / PORTS_PER_SLOT, at % PORTS_PER_SLOT);
        let mut port = address(0, slot, function);
        if function == 0 {
            port = port.with("multifunction", "on");
        }
        controllers.push(root_port(index, port, slot << 3 | function));
        *device = device.clone().child(address(index, 0, 0));
    }
    for (number, complex) in plan.root_complexes.iter().enumerate() {
        let index = controllers.len();
        controllers.push(expander_bus(index, number, complex));
        for (at, one) in complex.functions.iter().enumerate() {
            let bus = index + 1 + at;
            controllers.push(root_port(bus, address(index, at, 0), at << 3));
            functions.push(passed_function(one, bus));
        }
    }
    element("devices")
        .child(element("emulator").text(&policy.emulator))
        .children(controllers)
        .child(element("controller").with("type", "usb").with("model", "none"))
        .children(emulated)
        .children(functions)
        .child(element("memballoon").with("model", "none"))
        .children(console())
}

fn expander_bus(index: usize, number: usize, complex: &GuestRootComplex) -> Element {
    let target = element("target")
        .with("busNr", complex.bus_number)
        .child(element("node").text(complex.cell));
    element("controller")
        .with("type", "pci")
        .with("index", index)
        .with("model", "pcie-expander-bus")
        .child(element("model").with("name", "pxb-pcie"))
        .child(target)
        .child(address(0, FIRST_EXPANDER_SLOT + number, 0))
}

/// A function of the host. Its driver was changed before the domain is defined, and libvirt leaves
/// it as it is.
fn passed_function(passed: &GuestFunction, guest_bus: usize) -> Element {
    let [domain, bus, slot, function] = passed.address;
    let host = element("address")
        .with("domain", format!("0x{domain:04x}"))
        .with("bus", format!("0x{bus:02x}"))
        .with("slot", format!("0x{slot:02x}"))
        .with("function", format!("0x{function:x}"));
    element("hostdev")
        .with("mode", "subsystem")
        .with("type", "pci")
        .with("managed", "no")
        .child(element("driver").with("name", "vfio"))
        .child(element("source").child(host))
        .children(passed.boots.then(boot))
        .child(element("rom").with("bar", "off"))
        .child(address(guest_bus, 0, 0))
}

/// The mark of the device that the guest boots from.
fn boot() -> Element {
    element("boot").with("order", 1)
}

fn interface(plan: &DomainPlan, policy: &DomainPolicy) -> Element {
    element("interface")
        .with("type", "bridge")
        .child(element("mac").with("address", &plan.mac))
        .child(element("source").with("bridge", &policy.bridge))
        .child(element("virtualport").with("type", "openvswitch"))
        .child(element("model").with("type", "virtio"))
}

/// The seed that cloud-init reads as NoCloud, after the drives.
fn seed(plan: &DomainPlan) -> Element {
    let source = element("source").with("file", format!("{}/seed.img", plan.folder));
    disk("file", plan.drives.len(), source, "no").child(element("readonly"))
}

fn disk(kind: &str, number: usize, source: Element, discards: &str) -> Element {
    let discard = if discards == "yes" { "unmap" } else { "ignore" };
    let driver = element("driver")
        .with("name", "qemu")
        .with("type", "raw")
        .with("cache", "none")
        .with("io", "native")
        .with("discard", discard);
    // Eight drives and a seed: no name is longer than three letters.
    let letter = char::from(b'a' + u8::try_from(number % 26).unwrap_or_default());
    element("disk")
        .with("type", kind)
        .with("device", "disk")
        .child(driver)
        .child(source)
        .child(element("target").with("dev", format!("vd{letter}")).with("bus", "virtio"))
}

fn random_numbers() -> Element {
    element("rng")
        .with("model", "virtio")
        .child(element("backend").with("model", "random").text("/dev/urandom"))
}

/// A console that nothing is written to on the host.
fn console() -> [Element; 2] {
    let target = |kind: &str| element("target").with("type", kind).with("port", 0);
    [
        element("serial").with("type", "pty").child(target("isa-serial")),
        element("console").with("type", "pty").child(target("serial")),
    ]
}
