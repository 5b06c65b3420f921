#!/bin/bash
# One unit that makes the guests' bridge and gives it the gateway's address, at every boot.
#
# Guests apart from each other: what comes from a guest's port goes to the host alone, whose rules
# decide on it. A port is heard with the MAC and the IPv4 address of its slot, from the approved slot map,
# and with no other; a port of no known guest is not heard. Nothing is learned: gpuaas-slice-guest-flows
# writes a set of flows for each guest that runs.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-ovs-bridge
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
flows=/etc/gpuaas/slice.flows
of_guests=/usr/local/sbin/gpuaas-slice-guest-flows

flows() {
    if [[ $GPUAAS_SLICE_GUEST_ISOLATION == 0 ]]; then
        say "table=0,priority=0,actions=NORMAL"
        return 0
    fi
    say "table=0,priority=200,in_port=LOCAL,actions=resubmit(,1)"
    say "table=0,priority=0,actions=drop"
    # The host asks for a guest's address, and answers one that has none yet.
    say "table=1,priority=50,dl_dst=ff:ff:ff:ff:ff:ff,actions=FLOOD"
    say "table=1,priority=0,actions=drop"
}

place "$flows" 0644 < <(flows)
place "$of_guests" 0755 <"$GPUAAS_BUNDLE_DIR/files/${of_guests##*/}"
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"
# Never restarted: every guest's traffic passes through it.
unit_running openvswitch-switch.service

# Whether the bridge has the gateway's address, and its switch any flows, which a restart takes away.
in_place() {
    [[ $(host_ask ip -4 -o addr show dev "$GPUAAS_SLICE_BRIDGE" 2>/dev/null) == *" $GPUAAS_SLICE_GATEWAY "* &&
        $(host_ask ovs-ofctl -O OpenFlow13 --timeout=5 dump-flows "$GPUAAS_SLICE_BRIDGE" 2>/dev/null) == *actions=* ]]
}

in_effect=in_place unit_running "$name.service" "$unit" "$program" "$of_guests" "$flows" /etc/gpuaas/slice.env
