#!/bin/bash
# The values that the slice units work with, checked against each other before anything changes.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

subnet=$GPUAAS_SLICE_GUEST_SUBNET
bounds=$(subnet_bounds "$subnet")
gateway=${GPUAAS_SLICE_GATEWAY%/*}
[[ $(ip_text "${bounds% *}") == "${subnet%/*}" ]] || fail "$subnet is a host address, expected a subnet"
if [[ ${GPUAAS_SLICE_GATEWAY#*/} != "${subnet#*/}" ]] || ! host_in_subnet "$gateway" "$subnet"; then
    fail "the gateway $GPUAAS_SLICE_GATEWAY is not a host address of the guest subnet $subnet"
fi
for name in GPUAAS_SLICE_DHCP_FIRST GPUAAS_SLICE_DHCP_LAST; do
    host_in_subnet "${!name}" "$subnet" || fail "$name ${!name} is not a host address of the guest subnet $subnet"
done
first=$(ip_number "$GPUAAS_SLICE_DHCP_FIRST")
last=$(ip_number "$GPUAAS_SLICE_DHCP_LAST")
gateway_number=$(ip_number "$gateway")
((first <= last)) || fail "the DHCP range $GPUAAS_SLICE_DHCP_FIRST to $GPUAAS_SLICE_DHCP_LAST is reversed"
((gateway_number < first || gateway_number > last)) || fail "the gateway $gateway is inside the DHCP range"
((last - first + 1 >= GPUAAS_SLICE_GPU_COUNT)) ||
    fail "the DHCP range has $((last - first + 1)) addresses for $GPUAAS_SLICE_GPU_COUNT GPUs, expected at least one per GPU"
((GPUAAS_SLICE_VF_COUNT == GPUAAS_SLICE_VFS_PER_HCA * GPUAAS_SLICE_HCA_COUNT)) ||
    fail "GPUAAS_SLICE_VF_COUNT is $GPUAAS_SLICE_VF_COUNT, expected $((GPUAAS_SLICE_VFS_PER_HCA * GPUAAS_SLICE_HCA_COUNT)): $GPUAAS_SLICE_HCA_COUNT HCAs with $GPUAAS_SLICE_VFS_PER_HCA each"
for name in GPUAAS_SLICE_GPU_VENDOR GPUAAS_SLICE_HCA_VENDOR; do
    [[ ${!name} =~ ^[0-9a-f]{4}$ ]] || fail "$name is ${!name}, expected four hexadecimal digits"
done
for name in GPUAAS_SLICE_GPU_CLASS GPUAAS_SLICE_HCA_CLASS; do
    [[ ${!name} =~ ^([0-9a-f]{2}){1,3}$ ]] || fail "$name is ${!name}, expected two, four or six hexadecimal digits"
done
for name in GPUAAS_SLICE_IOMMU_ARGUMENT GPUAAS_SLICE_PASSTHROUGH_ARGUMENT; do
    [[ ${!name} =~ ^[a-z0-9_.]+=[A-Za-z0-9_,]+$ ]] || fail "$name is ${!name}, expected NAME=VALUE"
done
[[ ! $GPUAAS_SLICE_KERNEL_ARGUMENTS =~ [\"\'\`\$\\\;\|\&\<\>] ]] || fail "GPUAAS_SLICE_KERNEL_ARGUMENTS contains a character that the boot loader's settings do not allow: $GPUAAS_SLICE_KERNEL_ARGUMENTS"
# A port that needs no privilege, and is none of those that guests reach anyway.
if ! [[ $GPUAAS_SLICE_GUEST_CALL_PORT =~ ^[0-9]{4,5}$ ]] || ((GPUAAS_SLICE_GUEST_CALL_PORT < 1024 || GPUAAS_SLICE_GUEST_CALL_PORT > 65535)); then
    fail "GPUAAS_SLICE_GUEST_CALL_PORT is $GPUAAS_SLICE_GUEST_CALL_PORT, expected a port from 1024 to 65535"
fi

for name in GPUAAS_SLICE_VCPUS_PER_GPU GPUAAS_SLICE_MEMORY_GIB_PER_GPU; do
    [[ ${!name} =~ ^[1-9][0-9]{0,3}$ ]] || fail "$name is ${!name}, expected 1 to 9999"
done
[[ $GPUAAS_SLICE_HOST_CORES_PER_NODE =~ ^[0-9]{1,2}$ ]] || fail "GPUAAS_SLICE_HOST_CORES_PER_NODE is $GPUAAS_SLICE_HOST_CORES_PER_NODE, expected a number of cores"

settings() {
    local name
    printf '# Written by %s.\n' "${GPUAAS_BUNDLE%@*}"
    for name in GPU_VENDOR GPU_CLASS GPU_COUNT HCA_VENDOR HCA_CLASS HCA_COUNT VFS_PER_HCA VCPUS_PER_GPU MEMORY_GIB_PER_GPU HOST_CORES_PER_NODE VIRT_TYPE BRIDGE GATEWAY GUEST_CALL_PORT UNCLAIMED_DOMAINS GUEST_SUBNET GUEST_ISOLATION OVS_DATAPATH; do
        name=GPUAAS_SLICE_$name
        printf '%s=%s\n' "$name" "${!name}"
    done
    # Where sysfs is, and who plays the kernel, when it is not the kernel.
    for name in GPUAAS_SYSFS GPUAAS_FIXTURE_KERNEL; do
        if live && [[ -n ${!name} && ${!name} != /sys ]]; then printf '%s=%s\n' "$name" "${!name}"; fi
    done
}

install_library
place /etc/gpuaas/slice.env 0644 < <(settings)
