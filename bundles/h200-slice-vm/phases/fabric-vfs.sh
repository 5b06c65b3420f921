#!/bin/bash
# One unit that gives every InfiniBand HCA its virtual functions, at every boot.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-fabric-vfs
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"

# Whether each adapter that the kernel shows has its virtual functions: a number that was written is no
# proof of devices.
made() {
    local address folder link there
    for address in $(pci_functions "$GPUAAS_SLICE_HCA_VENDOR" "$GPUAAS_SLICE_HCA_CLASS"); do
        folder=$GPUAAS_SYSFS/bus/pci/devices/$address there=0
        [[ -e $folder/sriov_numvfs ]] || continue
        for link in "$folder"/virtfn*; do
            if [[ -e $link/vendor ]]; then there=$((there + 1)); fi
        done
        [[ $(<"$folder/sriov_numvfs") == "$GPUAAS_SLICE_VFS_PER_HCA" && $there == "$GPUAAS_SLICE_VFS_PER_HCA" ]] || return 1
    done
}

in_effect=made unit_running "$name.service" "$unit" "$program" /etc/gpuaas/slice.env
