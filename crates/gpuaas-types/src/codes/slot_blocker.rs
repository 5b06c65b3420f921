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
GpuCount "gpu_count" "Other GPUs than expected" {
    fixed_by: BlockerFixer::Hardware,
    overridable: true,
    next_action: "look for the missing GPU with `lspci` on the host and in the log of its BMC",
    doc: "The host does not have as many GPUs as its profile says",
}
IommuOff "iommu_off" "The IOMMU is off" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "turn the IOMMU on in the firmware; if the kernel was started without `intel_iommu=on iommu=pt`, `gpuaas node reimage NODE`",
    doc: "No GPU of the host is in an IOMMU group",
}
ModuleIdsUnknown "module_ids_unknown" "Module ids of GPUs are unknown" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "deploy the host again, `gpuaas node reimage NODE`: its first boot records them while NVIDIA's driver has the GPUs; then `gpuaas slice discover NODE --wait`",
    doc: "The host has NVSwitches, and not each of its GPUs has a module id of its own in `/var/lib/gpuaas/slices/nvidia-smi.xml`, or that record is of other hardware. The image brings NVIDIA's driver, or the slice bundle installs it (`record_packages`)",
}
FabricManagerMode "fabric_manager_mode" "NVSwitches join all GPUs" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "set `FABRIC_MODE=1` in `fabricmanager.cfg` where the fabric manager runs, which is the service guest with the NVSwitches, and restart it there",
    doc: "The fabric manager is in another mode than 1, so GPUs of different guests would reach each other",
}
FabricManagerSilent "fabric_manager_silent" "The fabric manager does not answer" {
    fixed_by: BlockerFixer::Operator,
    overridable: true,
    next_action: "start the fabric manager in the service guest with the NVSwitches, and install a program `fmpm` on the host that asks it (`fmpm -l` lists the partitions); or approve slots with a reason if partitions are activated by other means",
    doc: "The host has NVSwitches, and its fabric manager does not list their partitions, so none is activated at a launch",
}
GpuNumaUnknown "gpu_numa_unknown" "The GPU's NUMA node is unknown" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "update the firmware, or set its NUMA option, until sysfs says another node than -1",
    doc: "The host has several NUMA nodes and the firmware does not say which one the GPU is at, so no cores and pages can be chosen and no slice could be launched",
}
GpuDriver "gpu_driver" "The GPU is not bound to vfio-pci" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "`gpuaas node task NODE repair-drift --gate slice_ready --wait`",
    doc: "Another driver than vfio-pci, or none, has the GPU",
}
GpuGroupShared "gpu_group_shared" "The GPU shares its IOMMU group" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "have Access Control Services on in the firmware, so that the kernel makes smaller groups",
    doc: "Another function than bridges and functions of the same device is in the GPU's IOMMU group",
}
GpuAcsOff "gpu_acs_off" "A bridge above the GPU does not isolate" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "take the phase that disables ACS out of the profile's bundles, and start the host again",
    doc: "Access Control Services are off, or cannot be read, at a bridge above the GPU; groups are computed at boot and would still look whole",
}
GpuHeld "gpu_held" "A process holds the GPU" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "stop the process, which `seen` names",
    doc: "A process has the GPU or its group open, or whether one has could not be read",
}
GpuResetMissing "gpu_reset_missing" "The GPU cannot be reset" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "look at `/sys/bus/pci/devices/ADDRESS/reset_method`, and update the GPU's firmware",
    doc: "The kernel knows no way to reset the GPU by itself, so a tenant's state would stay in it",
}
GpuBarMissing "gpu_bar_missing" "The GPU's memory window is missing" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "have `Above 4G Decoding` on in the firmware, and its window large enough",
    doc: "The GPU has no prefetchable base address register with a size: the firmware found no space for it",
}
VfMissing "vf_missing" "There is no virtual function for it" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "`gpuaas node task NODE repair-drift --gate slice_ready --wait`",
    doc: "The fabric's adapters have fewer virtual functions than there are GPUs",
}
VfDriver "vf_driver" "The virtual function is not bound to vfio-pci" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "`gpuaas node task NODE repair-drift --gate slice_ready --wait`",
    doc: "Another driver than vfio-pci, or none, has the virtual function",
}
VfGroupShared "vf_group_shared" "The virtual function shares its IOMMU group" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "have Access Control Services on in the firmware, so that the kernel makes smaller groups",
    doc: "Another function than bridges is in the virtual function's IOMMU group, or it has no group",
}
VfAcsOff "vf_acs_off" "A bridge above the virtual function does not isolate" {
    fixed_by: BlockerFixer::Bundle,
    overridable: false,
    next_action: "take the phase that disables ACS out of the profile's bundles, and start the host again",
    doc: "Access Control Services are off, or cannot be read, at a bridge above the virtual function",
}
VfHeld "vf_held" "A process holds the virtual function" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "stop the process, which `seen` names",
    doc: "A process has the virtual function's group open, or whether one has could not be read",
}
VfIdentityMissing "vf_identity_missing" "The virtual function has no identity" {
    fixed_by: BlockerFixer::Bundle,
    overridable: true,
    next_action: "`gpuaas node task NODE repair-drift --gate slice_ready --wait`",
    doc: "The virtual function has no GUID (InfiniBand) or MAC address (Ethernet), or one of zeros",
}
FabricPortDown "fabric_port_down" "The fabric's port is not active" {
    fixed_by: BlockerFixer::Fabric,
    overridable: true,
    next_action: "look at cable, switch and subnet manager of the port that `seen` names",
    doc: "The port of the physical function is not ACTIVE, or does not say",
}
VfFar "vf_far" "The virtual function is at another NUMA node" {
    fixed_by: BlockerFixer::Hardware,
    overridable: true,
    next_action: "move an adapter to the GPU's side, or approve the slot with a reason",
    doc: "The virtual function's processor package is not the GPU's",
}
NvmeMissing "nvme_missing" "There is no disk for it" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "look for the missing drive with `nvme list` on the host",
    doc: "The host has fewer raw NVMe drives than GPUs",
}
NvmeBootDisk "nvme_boot_disk" "The disk has the host's system" {
    fixed_by: BlockerFixer::Profile,
    overridable: false,
    next_action: "have the profile deploy the system on the boot disk, and `gpuaas node reimage NODE`",
    doc: "The root file system, `/boot` or `/boot/efi` is on the only disk that is left near the GPU",
}
NvmeMounted "nvme_mounted" "The disk is mounted" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "unmount it, and take it out of `/etc/fstab`",
    doc: "A file system of the disk is mounted",
}
NvmeSwap "nvme_swap" "The system swaps to the disk" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "turn swapping off with `swapoff`, and take it out of `/etc/fstab`",
    doc: "The disk or a partition of it is in use for swap",
}
NvmeHeld "nvme_held" "The disk is part of another block device" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "take the disk out of the LVM group or the MD array, which `seen` names",
    doc: "LVM, MD, the device mapper or bcache has the disk",
}
NvmeOpen "nvme_open" "A process has the disk open" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "stop the process, which `seen` names",
    doc: "A process has the disk open, or what uses the disk could not be read",
}
NvmePartitioned "nvme_partitioned" "The disk has partitions" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "if nobody needs its data, erase the disk on the host, such as with `nvme format --ses=1`",
    doc: "The disk has partitions that nothing uses; the product erases no data that it did not write",
}
NvmeSignature "nvme_signature" "The disk has a file system, or is a member of an array or a pool" {
    fixed_by: BlockerFixer::Operator,
    overridable: false,
    next_action: "if nobody needs its data, erase the disk on the host, such as with `nvme format --ses=1`",
    doc: "udev found a signature on the disk that nothing uses; the product erases no data that it did not write",
}
NvmeSerialMissing "nvme_serial_missing" "The disk cannot be told from others" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "look at the drives with `nvme list` on the host, and replace the one without a serial number",
    doc: "The drive says no serial number, or another drive of the host says the same one",
}
NvmeEraseMissing "nvme_erase_missing" "The disk cannot erase itself" {
    fixed_by: BlockerFixer::Hardware,
    overridable: false,
    next_action: "look at `nvme id-ctrl` of the drive on the host: sanicap and oacs",
    doc: "The drive has neither sanitize nor format, or did not say whether it has",
}
NvmeFar "nvme_far" "The disk is at another NUMA node" {
    fixed_by: BlockerFixer::Hardware,
    overridable: true,
    next_action: "move a drive to the GPU's side, or approve the slot with a reason",
    doc: "The processor package of the disk's controller is not the GPU's",
}
CpusShort "cpus_short" "Too few cores near the GPU" {
    fixed_by: BlockerFixer::Profile,
    overridable: false,
    next_action: "ask for fewer CPUs a GPU, or for fewer that the host keeps",
    doc: "The NUMA nodes of the GPU's package do not have enough whole cores for all of its slots",
}
HugepagesShort "hugepages_short" "Too few pages of 1 GiB near the GPU" {
    fixed_by: BlockerFixer::Profile,
    overridable: false,
    next_action: "set the shape of slices, `gpuaas profile set PROFILE --input memory_gib_per_gpu=GIB`, or more pages, `gpuaas profile set PROFILE \"kernel_arguments=hugepagesz=1G hugepages=N\"`; then `gpuaas node reimage NODE`",
    doc: "The NUMA nodes of the GPU's package do not have enough pages of 1 GiB for all of its slots",
}
SubnetFull "subnet_full" "The slice network has no address for it" {
    fixed_by: BlockerFixer::Profile,
    overridable: false,
    next_action: "give the site a larger subnet for slices",
    doc: "The subnet of the slice network has fewer addresses than the host has slots",
}
}
