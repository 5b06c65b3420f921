#!/bin/bash
# Records which module of its board each GPU is. Partitions of NVSwitches are named by these numbers, and
# only NVIDIA's driver tells them: once vfio-pci has the GPUs nobody can ask. So this phase runs before
# the one that binds them, and the record stays until the next deployment.
#
# The record names the hardware, because a disk may be moved to another chassis.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

record=/var/lib/gpuaas/slices/nvidia-smi.xml

# What tells this chassis from others, as the agent reads it.
hardware() {
    local file value all=()
    for file in product_uuid product_serial board_serial; do
        value=$(sysfs_read "class/dmi/id/$file" | tr -cd 'A-Za-z0-9._:/-')
        if [[ -n $value ]]; then all+=("$file=$value"); fi
    done
    printf '%s' "${all[*]}"
}

# covers TEXT: whether it has a module ID for each GPU.
covers() {
    local gpu
    [[ $(grep -cE '<(gpu_)?module_id>[0-9]+</' <<<"$1" || true) -ge ${#gpus[@]} ]] || return 1
    for gpu in "${gpus[@]}"; do
        grep -qi "<gpu id=\"0000$gpu\">" <<<"$1" || return 1
    done
}

bring_driver() {
    local headers
    headers=linux-headers-$(host_ask uname -r || true)
    GPUAAS_PACKAGES=$GPUAAS_SLICE_RECORD_PACKAGES GPUAAS_OPTIONAL_PACKAGES=${headers%-} \
        GPUAAS_BUNDLE=h200-slice-vm-record@1 packages_install
}

mapfile -t switches < <(pci_functions 10de 0680)
mapfile -t gpus < <(pci_functions "$GPUAAS_SLICE_GPU_VENDOR" "$GPUAAS_SLICE_GPU_CLASS")
if ((${#switches[@]} == 0)); then
    say "unchanged: no NVSwitch connects the GPUs, so their module IDs are not needed"
    exit 0
fi
identity=$(hardware)
if [[ -z $identity ]]; then
    say "warning: the firmware identifies neither the chassis nor the board (/sys/class/dmi/id), so the module IDs of the GPUs cannot be recorded"
    exit 0
fi
line="<!-- gpuaas hardware: $identity -->"
file=$(at "$record")
if [[ -f $file ]] && grep -qxF -- "$line" "$file" && covers "$(<"$file")"; then
    say "unchanged $record has the module IDs of ${#gpus[@]} GPUs"
    exit 0
fi
for gpu in "${gpus[@]}"; do
    if [[ $(pci_driver "$gpu") == vfio-pci ]]; then
        say "warning: $gpu is bound to vfio-pci and its module ID is not recorded: run \`gpuaas node reimage $GPUAAS_HOSTNAME\`, which deploys the host again and records it"
        exit 0
    fi
done
answer=$(host_ask nvidia-smi -q -x 2>/dev/null || true)
if ! covers "$answer" && [[ $GPUAAS_SLICE_INSTALL_PACKAGES == 1 && -n $GPUAAS_SLICE_RECORD_PACKAGES ]]; then
    bring_driver
    # The host's own settings keep the driver away from GPUs that are to be guests'.
    if ! dry; then
        kernel_do modprobe --ignore-install nvidia || say "warning: the running kernel cannot load the module nvidia"
        answer=$(host_ask nvidia-smi -q -x 2>/dev/null || true)
    fi
fi
if dry; then say "would change $record" && exit 0; fi
if ! covers "$answer"; then
    say "warning: nvidia-smi does not report a module ID for each of the ${#gpus[@]} GPUs: use an image with NVIDIA's driver, or list its packages in record_packages"
    exit 0
fi
place "$record" 0644 <<<"$answer
$line"
