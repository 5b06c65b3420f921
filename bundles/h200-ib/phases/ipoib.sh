#!/bin/bash
# IPoIB: the links of the fabric, the host's address there, and a route to the whole fabric.
#
# Without addresses from the site, the first link gets one: the fabric's network part, and the host
# part of the management address. In 192.168.0.0/16, 10.177.36.100 becomes 192.168.36.100. The route
# has a metric, so that it never replaces the kernel's own route of an address.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"
# shellcheck source=h200-ib/files/fabric-links.sh
source "$GPUAAS_BUNDLE_DIR/files/fabric-links.sh"

netplan=/etc/netplan/60-ipoib.yaml
derived_address() {
    local management=$H200_MANAGEMENT_ADDRESS bounds first size
    if [[ -z $management ]]; then management=$(management_address); fi
    [[ -n $management ]] ||
        fail "no management address to derive the fabric address from: set H200_IPOIB_ADDRESSES or H200_MANAGEMENT_ADDRESS"
    bounds=$(subnet_bounds "$H200_FABRIC_SUBNET")
    first=${bounds% *}
    size=$((${bounds#* } - first + 1))
    management=$(ip_number "${management%%[/ ]*}")
    printf '%s/%s' "$(ip_text $((first + management % size)))" "${H200_FABRIC_SUBNET#*/}"
}

# Whether netplan knows infiniband-mode: that of Debian 11 (0.101) refuses the whole file for it.
netplan_knows_mode() {
    local folder status=0
    live || return 0
    folder=$(mktemp -d)
    mkdir -p -- "$folder/etc/netplan"
    (umask 077 && printf 'network:\n  ethernets:\n    ib0:\n      infiniband-mode: datagram\n' >"$folder/etc/netplan/1.yaml")
    netplan generate --root-dir "$folder" >/dev/null 2>&1 || status=1
    rm -rf -- "$folder"
    return "$status"
}

document() {
    local index
    printf '# Written by %s.\nnetwork:\n  version: 2\n  renderer: networkd\n  ethernets:\n' "${GPUAAS_BUNDLE%@*}"
    for index in "${!links[@]}"; do
        printf '    %s:\n      dhcp4: false\n      dhcp6: false\n      link-local: []\n      optional: true\n' "${links[index]}"
        if ((knows_mode)); then printf '      infiniband-mode: %s\n' "$H200_IPOIB_MODE"; fi
        if ((H200_IPOIB_MTU > 0)); then printf '      mtu: %s\n' "$H200_IPOIB_MTU"; fi
        if ((index < ${#addresses[@]})); then
            printf '      addresses:\n        - %s\n' "${addresses[index]}"
            printf '      routes:\n        - to: %s\n          scope: link\n          metric: %s\n' \
                "$H200_FABRIC_SUBNET" $((1024 + index))
        fi
    done
}

apply() { # LINK...
    host_do netplan generate
    host_do networkctl reload
    host_do networkctl reconfigure "$@"
    applied=1
}

[[ $H200_FABRIC_INTERFACE == "$any" || $H200_FABRIC_INTERFACE =~ ^[A-Za-z0-9_.-]+\*?$ ]] ||
    fail "H200_FABRIC_INTERFACE is $H200_FABRIC_INTERFACE, expected $any or a link name with an optional trailing *"
read -r -a links <<<"$H200_IPOIB_INTERFACES"
if ((${#links[@]} == 0)); then
    # At boot the drivers may still be loading, and another link would get the first one's address.
    for ((left = 60; left > 0; left--)); do
        mapfile -t links < <(found_links)
        if ((${#links[@]} >= H200_FABRIC_LINKS)) || ! wait_a_second; then break; fi
    done
    if ((${#links[@]} < H200_FABRIC_LINKS)); then say "warning: found ${#links[@]} fabric links, expected $H200_FABRIC_LINKS"; fi
fi
((${#links[@]})) || fail "no InfiniBand link matches $H200_FABRIC_INTERFACE: check that the HCAs are present and ib_ipoib is loaded"
while read -r link; do
    if [[ -n $link && " ${links[*]} " != *" $link "* ]]; then say "warning: the InfiniBand link $link was not changed: it is not one of the fabric links ($H200_FABRIC_INTERFACE)"; fi
done < <(infiniband_links)
read -r -a addresses <<<"$H200_IPOIB_ADDRESSES"
if ((${#addresses[@]} == 0)); then
    derived=$(derived_address)
    addresses=("$derived")
    say "derived $derived for ${links[0]}"
fi
((${#addresses[@]} <= ${#links[@]})) || fail "${#addresses[@]} addresses for ${#links[@]} links (${links[*]})"
for address in "${addresses[@]}"; do
    host_in_subnet "$address" "$H200_FABRIC_SUBNET" ||
        fail "$address is not a host address in the fabric subnet $H200_FABRIC_SUBNET"
done

knows_mode=1
if ! netplan_knows_mode; then
    knows_mode=0
    [[ $H200_IPOIB_MODE == datagram ]] ||
        fail "H200_IPOIB_MODE is $H200_IPOIB_MODE, but this host's netplan does not support infiniband-mode: use datagram, the kernel's default"
    say "this host's netplan does not support infiniband-mode: the links keep the kernel's default mode, datagram"
fi
place "$netplan" 0600 < <(document)
applied=0
after_change netplan-ipoib "$netplan" -- apply "${links[@]}"
mapfile -t lost < <(lost_links)
if ((${#lost[@]} && !applied)); then apply "${lost[@]}"; fi
# networkd gives the addresses a moment later.
for ((left = 15; left > 0 && applied && ${#lost[@]}; left--)); do
    mapfile -t lost < <(lost_links)
    if ((${#lost[@]} == 0)) || ! wait_a_second; then break; fi
done
if ((${#lost[@]})) && ! dry && { live || [[ -n $GPUAAS_FIXTURE_KERNEL ]]; }; then
    say "warning: ${lost[*]} did not get the settings in $netplan"
fi
