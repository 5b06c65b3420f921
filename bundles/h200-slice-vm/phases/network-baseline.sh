#!/bin/bash
# Guests reach the world through the host: forwarding, and NAT in a table of our own. They reach no
# network of the host's owner: neither private ones nor that of management, where BMCs and MAAS are.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-network-baseline
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
rules=/etc/gpuaas/slice.nft
sysctl=/etc/sysctl.d/60-gpuaas-slice.conf

# subnet_text NETWORK: without the host's part.
subnet_text() {
    local bounds
    bounds=$(subnet_bounds "$1")
    printf '%s/%s' "$(ip_text "${bounds% *}")" "${1#*/}"
}

# The rules of forwarding, of which the first that fits decides: guests among themselves, the networks
# that they may reach, and those that they may not.
forward_rules() {
    local network bridge="iifname \"$GPUAAS_SLICE_BRIDGE\"" management=$GPUAAS_SLICE_MANAGEMENT_ADDRESS
    if [[ -z $management ]]; then management=$(management_address); fi
    if [[ $GPUAAS_SLICE_GUEST_ISOLATION == 0 ]]; then
        printf '        %s oifname "%s" accept\n' "$bridge" "$GPUAAS_SLICE_BRIDGE"
    else
        printf '        %s oifname "%s" drop\n' "$bridge" "$GPUAAS_SLICE_BRIDGE"
    fi
    for network in $GPUAAS_SLICE_GUEST_ALLOW; do
        printf '        %s ip daddr %s accept\n' "$bridge" "$(subnet_text "$network")"
    done
    for network in $GPUAAS_SLICE_GUEST_DENY $GPUAAS_SLICE_FABRIC_SUBNET $management; do
        printf '        %s ip daddr %s drop\n' "$bridge" "$(subnet_text "$network")"
    done
}

place "$sysctl" 0644 <<<"net.ipv4.ip_forward = 1"
forward=$(forward_rules)
template=$(<"$GPUAAS_BUNDLE_DIR/files/slice.nft")
template=${template//@RULES@/$forward}
template=${template//@SUBNET@/$GPUAAS_SLICE_GUEST_SUBNET}
template=${template//@CALL_PORT@/$GPUAAS_SLICE_GUEST_CALL_PORT}
template=${template//@GATEWAY@/${GPUAAS_SLICE_GATEWAY%/*}}
place "$rules" 0644 <<<"${template//@BRIDGE@/$GPUAAS_SLICE_BRIDGE}"
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"

# Whether Docker lets guests through: it sets the policy of FORWARD to drop, and its restart takes other rules away.
docker_lets_guests() {
    local chain=FORWARD
    if ! host_ask iptables -w 10 -S FORWARD 2>/dev/null | grep -qx -- '-P FORWARD DROP'; then return 0; fi
    if host_ask iptables -w 10 -S DOCKER-USER >/dev/null 2>&1; then chain=DOCKER-USER; fi
    host_ask iptables -w 10 -C "$chain" -i "$GPUAAS_SLICE_BRIDGE" -j ACCEPT 2>/dev/null &&
        host_ask iptables -w 10 -C "$chain" -o "$GPUAAS_SLICE_BRIDGE" -m conntrack --ctstate ESTABLISHED,RELATED,DNAT -j ACCEPT 2>/dev/null
}

# Whether nftables has the tables, which a flush or another program's restart takes away, and the kernel
# forwards.
loaded() {
    docker_lets_guests &&
        host_ask nft list table ip gpuaas_slice >/dev/null 2>&1 &&
        host_ask nft list table inet gpuaas_guests >/dev/null 2>&1 &&
        [[ $(cat -- "$(at /proc/sys/net/ipv4/ip_forward)" 2>/dev/null) == 1 ]]
}

in_effect=loaded unit_running "$name.service" "$unit" "$program" "$rules" "$sysctl" /etc/gpuaas/slice.env
