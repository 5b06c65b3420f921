#!/bin/bash
# One unit that binds the GPUs and the virtual functions to vfio-pci, at every boot. Before the
# kernel has its IOMMU the unit is enabled and not started: nothing could be passed through.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-vfio-devices
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"

# NVIDIA's driver takes no GPU of a guest, neither at boot nor when a program asks for it.
conf=/etc/modprobe.d/gpuaas-slice.conf
place "$conf" 0644 <<CONF
# Written by ${GPUAAS_BUNDLE%@*}: GPUs are for guests.
blacklist nouveau
blacklist nvidiafb
blacklist nvidia
install nvidia /bin/false
blacklist nvidia_drm
install nvidia_drm /bin/false
blacklist nvidia_modeset
install nvidia_modeset /bin/false
blacklist nvidia_uvm
install nvidia_uvm /bin/false
CONF
# A driver in the initramfs takes the GPUs before the root file system, and so this file, can be read: the
# initramfs has a copy of its own. An image that is older than the file lacks it.
initramfs_has_it() {
    local image
    for image in "$(at /boot)"/initrd.img-*; do
        if [[ "$(at "$conf")" -nt $image ]]; then return 1; fi
    done
}
if [[ -x $(at /usr/sbin/update-initramfs) ]] && compgen -G "$(at /boot)/initrd.img-*" >/dev/null; then
    in_effect=initramfs_has_it after_change initramfs-gpuaas-slice "$conf" -- host_do update-initramfs -u -k all
fi

mapfile -t switches < <(pci_functions "$GPUAAS_SLICE_GPU_VENDOR" 0680)
if ((${#switches[@]})); then
    say "note: ${#switches[@]} NVSwitches connect the GPUs: isolated guests need NVSwitch partitions, which NVIDIA's fabric manager creates on the host or service guest that has the switches"
fi

# The driver's own daemons hold the GPUs open, and unbinding would wait for them for ever.
for daemon in nvidia-persistenced.service nvidia-dcgm.service nvidia-fabricmanager.service; do
    if [[ -n $(unit_file "$daemon") ]] && host_ask systemctl is-enabled --quiet "$daemon"; then
        host_do systemctl disable --now "$daemon"
    fi
done

# Whether each GPU and each virtual function is bound.
bound() {
    local address
    for address in $(pci_functions "$GPUAAS_SLICE_GPU_VENDOR" "$GPUAAS_SLICE_GPU_CLASS"); do
        [[ $(pci_driver "$address") == vfio-pci ]] || return 1
    done
    for address in $(pci_functions "$GPUAAS_SLICE_HCA_VENDOR" "$GPUAAS_SLICE_HCA_CLASS"); do
        if [[ -e $GPUAAS_SYSFS/bus/pci/devices/$address/physfn && $(pci_driver "$address") != vfio-pci ]]; then return 1; fi
    done
}

if compgen -G "$GPUAAS_SYSFS/kernel/iommu_groups/*" >/dev/null; then
    in_effect=bound unit_running "$name.service" "$unit" "$program" /etc/gpuaas/slice.env
else
    unit_enabled "$name.service"
    # The boot starts it with these files; nobody need do it again.
    after_change "unit-$name.service" "$unit" "$program" /etc/gpuaas/slice.env -- true
    say "$name starts at the next boot: the kernel has no IOMMU groups yet"
fi
