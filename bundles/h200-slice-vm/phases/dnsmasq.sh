#!/bin/bash
# DHCP and DNS for the guests, on their bridge only. `bind-interfaces`, because libvirt's package
# asks for it too and dnsmasq refuses a mix; so it starts behind the bridge. settings.sh has checked
# the range: dnsmasq itself takes one that is the wrong way round.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

conf=/etc/dnsmasq.d/gpu_subnet.conf
drop_in=/etc/systemd/system/dnsmasq.service.d/10-gpuaas-slice.conf
gateway=${GPUAAS_SLICE_GATEWAY%/*}
bounds=$(subnet_bounds "$GPUAAS_SLICE_GUEST_SUBNET")
netmask=$(ip_text $((16#ffffffff - (${bounds#* } - ${bounds% *}))))

place "$conf" 0644 <<CONF
# Written by ${GPUAAS_BUNDLE%@*}.
interface=$GPUAAS_SLICE_BRIDGE
except-interface=lo
bind-interfaces
dhcp-authoritative
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
