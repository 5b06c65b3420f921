#!/bin/bash
# One unit that gives every InfiniBand HCA its virtual functions, at every boot.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"
# shellcheck source=h200-slice-vm/files/fabric-identities.sh
source "$GPUAAS_BUNDLE_DIR/files/fabric-identities.sh"

name=gpuaas-slice-fabric-vfs
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
identities=/usr/local/lib/gpuaas/fabric-identities.sh
place "$identities" 0644 <"$GPUAAS_BUNDLE_DIR/files/fabric-identities.sh"
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"

# Whether each adapter that the kernel shows has its virtual functions, each with an identity: a number that
# was written is no proof of devices.
made() {
    local address folder link there index
    for address in $(pci_functions "$GPUAAS_SLICE_HCA_VENDOR" "$GPUAAS_SLICE_HCA_CLASS"); do
        folder=$GPUAAS_SYSFS/bus/pci/devices/$address there=0
        [[ -e $folder/sriov_numvfs ]] || continue
        for link in "$folder"/virtfn*; do
            if [[ -e $link/vendor ]]; then there=$((there + 1)); fi
        done
        [[ $(<"$folder/sriov_numvfs") == "$GPUAAS_SLICE_VFS_PER_HCA" && $there == "$GPUAAS_SLICE_VFS_PER_HCA" ]] || return 1
        for ((index = 0; index < there; index++)); do
            if identity_is_missing "$address" "$index"; then return 1; fi
        done
    done
}

in_effect=made unit_running "$name.service" "$unit" "$program" "$identities" /etc/gpuaas/slice.env
