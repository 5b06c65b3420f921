#!/bin/bash
# The links of a RoCE fabric: as many as are expected, all of them RDMA over Ethernet, with the fabric's MTU.
#
# Their addresses are MAAS', in its own netplan, which this leaves alone: netplan takes the settings of one
# link from several files (netplan(5)).
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

netplan=/etc/netplan/61-gpuaas-roce.yaml
pattern=$H200_ROCE_FABRIC_INTERFACE
ethernet=1 # ARPHRD_ETHER

# The fabric's links by name: of adapters with RDMA, and no virtual functions.
found_links() {
    local folder
    # shellcheck disable=SC2086 # a pattern
    for folder in "$GPUAAS_SYSFS"/class/net/$pattern; do
        if [[ -e $folder/type && $(<"$folder/type") == "$ethernet" && -d $folder/device/infiniband && ! -e $folder/device/physfn ]]; then
            printf '%s\n' "${folder##*/}"
        fi
    done | sort -V
}

document() {
    local link
    printf '# Written by %s.\nnetwork:\n  version: 2\n  ethernets:\n' "${GPUAAS_BUNDLE%@*}"
    for link in "${links[@]}"; do
        printf '    %s:\n      mtu: %s\n' "$link" "$H200_ROCE_FABRIC_MTU"
    done
}

apply() {
    host_do netplan generate
    host_do networkctl reload
    host_do networkctl reconfigure "${links[@]}"
}

[[ $pattern =~ ^[A-Za-z0-9_.-]+\*?$ ]] || fail "H200_ROCE_FABRIC_INTERFACE is $pattern, expected a link name with an optional trailing *"
((H200_ROCE_FABRIC_MTU == 0 || (H200_ROCE_FABRIC_MTU >= 1280 && H200_ROCE_FABRIC_MTU <= 9978))) ||
    fail "H200_ROCE_FABRIC_MTU is $H200_ROCE_FABRIC_MTU, expected 0 or 1280 to 9978"
mapfile -t links < <(found_links)
((${#links[@]} >= H200_ROCE_FABRIC_LINKS)) ||
    fail "found ${#links[@]} of $H200_ROCE_FABRIC_LINKS RDMA over Ethernet links named $pattern (${links[*]}): check that the adapters are present and in Ethernet mode, and that mlx5_ib is loaded"
say "the fabric links are ${links[*]}"

# Whether each link is up, or waits for its cable alone, and has the fabric's MTU, where the kernel says.
in_place() {
    local link mtu flags
    for link in "${links[@]}"; do
        flags=$(sysfs_read "class/net/$link/flags") mtu=$(sysfs_read "class/net/$link/mtu")
        if [[ -n $flags ]] && (((flags & 1) == 0)); then return 1; fi
        if [[ -n $mtu ]] && ((H200_ROCE_FABRIC_MTU > 0 && mtu != H200_ROCE_FABRIC_MTU)); then return 1; fi
    done
}

if ((H200_ROCE_FABRIC_MTU == 0)); then
    absent "$netplan"
    # Addresses that MAAS' own netplan has, and the kernel has not.
    if repairing || ! in_place; then apply; fi
else
    place "$netplan" 0600 < <(document)
    in_effect=in_place after_change netplan-roce "$netplan" -- apply
fi
