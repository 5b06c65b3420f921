#!/bin/bash
# DHCP and DNS for the guests, on their bridge only. `bind-interfaces`, because libvirt's package
# asks for it too and dnsmasq refuses a mix; so it starts behind the bridge. settings.sh has checked
# the range: dnsmasq itself takes one that is the wrong way round.
#
# Where guests' questions go on to is named: the site's servers, else those that systemd-resolved has
# from the network, else those of /etc/resolv.conf. Its stub on 127.0.0.53 stays as it is, because
# dnsmasq takes no address of the host but the bridge's.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

conf=/etc/dnsmasq.d/gpu_subnet.conf
# The agent writes a file there for each slot that it leases: its guest's MAC address, and the address of the
# slot. dnsmasq reads it at once, and finds the lease of an earlier guest no obstacle, as long as that had the MAC.
hosts=/var/lib/gpuaas/dhcp-hosts
drop_in=/etc/systemd/system/dnsmasq.service.d/10-gpuaas-slice.conf
gateway=${GPUAAS_SLICE_GATEWAY%/*}
bounds=$(subnet_bounds "$GPUAAS_SLICE_GUEST_SUBNET")
netmask=$(ip_text $((16#ffffffff - (${bounds#* } - ${bounds% *}))))

# Whether a file names a server that is no stub of this host.
names_servers() { grep -qE '^nameserver +[^ ]' "$(at "$1")" 2>/dev/null && ! grep -qE '^nameserver +127\.' "$(at "$1")"; }
upstream() {
    local server
    if [[ -n $GPUAAS_SLICE_DNS_SERVERS ]]; then
        say no-resolv
        for server in $GPUAAS_SLICE_DNS_SERVERS; do say "server=$server"; done
    elif names_servers /run/systemd/resolve/resolv.conf; then
        say resolv-file=/run/systemd/resolve/resolv.conf
    else
        say resolv-file=/etc/resolv.conf
    fi
}

upstream=$(upstream)
if ! dry; then mkdir -p -- "$(at "$hosts")"; fi
place "$conf" 0644 <<CONF
# Written by ${GPUAAS_BUNDLE%@*}.
interface=$GPUAAS_SLICE_BRIDGE
except-interface=lo
bind-interfaces
$upstream
dhcp-authoritative
dhcp-hostsdir=$hosts
dhcp-range=$GPUAAS_SLICE_DHCP_FIRST,$GPUAAS_SLICE_DHCP_LAST,$netmask,12h
dhcp-option=option:router,$gateway
dhcp-option=option:dns-server,$gateway
CONF
place "$drop_in" 0644 <<UNIT
[Unit]
Requires=gpuaas-slice-ovs-bridge.service
After=gpuaas-slice-ovs-bridge.service
UNIT
after_change dnsmasq-test "$conf" -- host_do dnsmasq --test
unit_running dnsmasq.service "$conf" "$drop_in"
