//! What keeps a slot, or a whole host, from having slices.
//!
//! A blocker of isolation cannot be overridden: with it one tenant could reach another one, or find
//! what another one left.

use crate::slot::BlockerFixer;

/// A row of [`SLOT_BLOCKERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotBlockerRow {
    /// The code.
    pub code: SlotBlockerCode,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// Who makes it go away.
    pub fixed_by: BlockerFixer,
    /// Whether an operator may approve a slot all the same.
    pub overridable: bool,
    /// What to do.
    pub next_action: &'static str,
    /// When a slot has the blocker.
    pub doc: &'static str,
}

codes! {
/// Why a slot or a host cannot be used for slices, as `code` of a blocker names it.
SlotBlockerCode, SlotBlockerRow, SLOT_BLOCKERS;
GpuCount "gpu_count" "Unexpected number of GPUs" {
    fixed_by: BlockerFixer::Hardware,
    overridable: true,
    next_action: "look for the missing GPU with `lspci` on the host and in its BMC log",
    doc: "The number of GPUs in the host differs from its profile",
}
IommuOff "iommu_off" "The IOMMU is off" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "enable the IOMMU in the firmware; if the kernel was started without `intel_iommu=on iommu=pt`, `gpuaas node reimage NODE`",
    doc: "No GPU of the host is in an IOMMU group",
}
ModuleIdsUnknown "module_ids_unknown" "GPU module IDs are unknown" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "redeploy the host, `gpuaas node reimage NODE`: its first boot records the IDs while NVIDIA's driver is bound to the GPUs; then `gpuaas slice discover NODE --wait`",
    doc: "The host has NVSwitches, but `/var/lib/gpuaas/slices/nvidia-smi.xml` lacks a separate module ID for each GPU or describes other hardware. NVIDIA's driver is part of the image, or the slice bundle installs it (`record_packages`)",
}
FabricManagerMode "fabric_manager_mode" "NVSwitches connect all GPUs" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "set `FABRIC_MODE=1` in `fabricmanager.cfg` in the service guest with the NVSwitches, where the fabric manager runs, and restart the fabric manager there",
    doc: "The fabric manager is not in mode 1, so GPUs of different guests could reach each other",
}
FabricManagerSilent "fabric_manager_silent" "The fabric manager does not answer" {
    fixed_by: BlockerFixer::Operator,
    overridable: true,
    next_action: "start the fabric manager in the service guest with the NVSwitches, and install the program `fmpm` on the host to query it (`fmpm -l` lists the partitions); or if partitions are activated by other means, approve slots with a reason",
    doc: "The host has NVSwitches, but its fabric manager does not list their partitions, so a launch activates none",
}
GpuNumaUnknown "gpu_numa_unknown" "The GPU's NUMA node is unknown" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "update the firmware or change its NUMA option until sysfs shows a node other than -1",
    doc: "The host has several NUMA nodes and the firmware does not report the GPU's node, so GPUaaS cannot choose cores and pages or launch a slice",
}
GpuDriver "gpu_driver" "The GPU is not bound to vfio-pci" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "`gpuaas node task NODE repair-drift --gate slice_ready --wait`",
    doc: "The GPU is bound to another driver or to none",
}
GpuGroupShared "gpu_group_shared" "The GPU shares its IOMMU group" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "enable Access Control Services in the firmware, so that the kernel creates smaller groups",
    doc: "The GPU's IOMMU group contains a function that is neither a bridge nor part of the same device",
}
GpuAcsOff "gpu_acs_off" "A bridge above the GPU does not isolate it" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "remove the phase that disables ACS from the profile's bundles, and reboot the host",
    doc: "Access Control Services are off or unreadable on a bridge above the GPU; the kernel computes the groups at boot, so they would still look isolated",
}
GpuHeld "gpu_held" "A process is using the GPU" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "stop the process that `seen` names",
    doc: "A process has the GPU or its group open, or GPUaaS could not check whether one has",
}
GpuResetMissing "gpu_reset_missing" "The GPU cannot be reset" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "check `/sys/bus/pci/devices/ADDRESS/reset_method`, and update the GPU's firmware",
    doc: "The kernel cannot reset this GPU separately, so a tenant's state would remain in it",
}
GpuBarMissing "gpu_bar_missing" "The GPU's memory window is missing" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "enable `Above 4G Decoding` in the firmware, with a large enough window",
    doc: "The GPU has no prefetchable base address register with a nonzero size, because the firmware found no space for it",
}
VfMissing "vf_missing" "No virtual function for the slot" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "`gpuaas node task NODE repair-drift --gate slice_ready --wait`",
    doc: "The fabric adapters have fewer virtual functions than the host has GPUs",
}
VfDriver "vf_driver" "The virtual function is not bound to vfio-pci" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "`gpuaas node task NODE repair-drift --gate slice_ready --wait`",
    doc: "The virtual function is bound to another driver or to none",
}
VfGroupShared "vf_group_shared" "The virtual function shares its IOMMU group" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "enable Access Control Services in the firmware, so that the kernel creates smaller groups",
    doc: "The virtual function's IOMMU group contains a function that is not a bridge, or it has no group",
}
VfAcsOff "vf_acs_off" "A bridge above the virtual function does not isolate it" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "remove the phase that disables ACS from the profile's bundles, and reboot the host",
    doc: "Access Control Services are off or unreadable on a bridge above the virtual function",
}
VfHeld "vf_held" "A process is using the virtual function" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "stop the process that `seen` names",
    doc: "A process has the virtual function's group open, or GPUaaS could not check whether one has",
}
VfIdentityMissing "vf_identity_missing" "The virtual function has no identity" {
    fixed_by: BlockerFixer::Bundle,
    overridable: true,
    next_action: "`gpuaas node task NODE repair-drift --gate slice_ready --wait`",
    doc: "The virtual function has no GUID (InfiniBand) or MAC address (Ethernet), or one that is all zeros",
}
FabricPortDown "fabric_port_down" "The fabric port is not active" {
    fixed_by: BlockerFixer::Fabric,
    overridable: true,
    next_action: "check the cable, switch and subnet manager of the port that `seen` names",
    doc: "The port of the physical function is not ACTIVE, or does not report its state",
}
VfFar "vf_far" "The virtual function is on another NUMA node" {
    fixed_by: BlockerFixer::Hardware,
    overridable: true,
    next_action: "move an adapter to the GPU's processor package, or approve the slot with a reason",
    doc: "The virtual function and the GPU are on different processor packages",
}
NvmeMissing "nvme_missing" "No disk for the slot" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "look for the missing drive with `nvme list` on the host",
    doc: "The host has fewer raw NVMe drives than GPUs",
}
NvmeBootDisk "nvme_boot_disk" "The disk holds the host's system" {
    fixed_by: BlockerFixer::Profile,
    overridable: false,
    next_action: "change the profile so that it deploys the system on the boot disk, and `gpuaas node reimage NODE`",
    doc: "The root file system, `/boot` or `/boot/efi` is on the only disk left near the GPU",
}
NvmeMounted "nvme_mounted" "The disk is mounted" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "unmount it, and remove it from `/etc/fstab`",
    doc: "A file system on the disk is mounted",
}
NvmeSwap "nvme_swap" "The disk is used for swap" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "turn swap off with `swapoff`, and remove it from `/etc/fstab`",
    doc: "The system swaps to the disk or to one of its partitions",
}
NvmeHeld "nvme_held" "The disk is part of another block device" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "remove the disk from the LVM group or the MD array that `seen` names",
    doc: "LVM, MD, the device mapper or bcache uses the disk",
}
NvmeOpen "nvme_open" "A process has the disk open" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "stop the process that `seen` names",
    doc: "A process has the disk open, or GPUaaS could not check what uses the disk",
}
NvmePartitioned "nvme_partitioned" "The disk has partitions" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "if nobody needs its data, erase the disk on the host, for example with `nvme format --ses=1`",
    doc: "The disk has unused partitions; GPUaaS erases only data that it wrote",
}
NvmeSignature "nvme_signature" "The disk has a file system, or is a member of an array or a pool" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "if nobody needs its data, erase the disk on the host, for example with `nvme format --ses=1`",
    doc: "udev found an unused signature on the disk; GPUaaS erases only data that it wrote",
}
NvmeSerialMissing "nvme_serial_missing" "The disk has no unique serial number" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "list the drives with `nvme list` on the host, and replace the one without a unique serial number",
    doc: "The drive reports no serial number, or the same one as another drive of the host",
}
NvmeEraseMissing "nvme_erase_missing" "The disk cannot erase itself" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "check the sanicap and oacs fields in the output of `nvme id-ctrl` for the drive on the host",
    doc: "The drive supports neither sanitize nor format, or did not report whether it does",
}
NvmeFar "nvme_far" "The disk is on another NUMA node" {
    fixed_by: BlockerFixer::Hardware,
    overridable: true,
    next_action: "move a drive to the GPU's processor package, or approve the slot with a reason",
    doc: "The disk's controller and the GPU are on different processor packages",
}
CpusShort "cpus_short" "Too few cores near the GPU" {
    fixed_by: BlockerFixer::Profile,
    overridable: false,
    next_action: "configure fewer CPUs per GPU, or reserve fewer for the host",
    doc: "The NUMA nodes of the GPU's package have too few whole cores for all of its slots",
}
HugepagesShort "hugepages_short" "Too few 1 GiB pages near the GPU" {
    fixed_by: BlockerFixer::Profile,
    overridable: false,
    next_action: "set the memory per GPU, `gpuaas profile set PROFILE --input memory_gib_per_gpu=GIB`, or reserve more pages, `gpuaas profile set PROFILE \"kernel_arguments=hugepagesz=1G hugepages=N\"`; then `gpuaas node reimage NODE`",
    doc: "The NUMA nodes of the GPU's package have too few 1 GiB pages for all of its slots",
}
SubnetFull "subnet_full" "No address in the slice network for the slot" {
    fixed_by: BlockerFixer::Profile,
    overridable: false,
    next_action: "configure a larger slice subnet for the site",
    doc: "The subnet of the slice network has fewer addresses than the host has slots",
}
}
