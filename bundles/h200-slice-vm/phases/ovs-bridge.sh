#!/bin/bash
# One unit that makes the guests' bridge and gives it the gateway's address, at every boot.
#
# Guests apart from each other: what comes from a guest's port goes to the host alone, whose rules
# decide on it, and what comes from the host goes to the port where its destination was seen.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-ovs-bridge
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
flows=/etc/gpuaas/slice.flows

flows() {
    if [[ $GPUAAS_SLICE_GUEST_ISOLATION == 0 ]]; then
        say "table=0,priority=0,actions=NORMAL"
        return 0
    fi
    say "table=0,priority=200,in_port=LOCAL,actions=resubmit(,1)"
    say "table=0,priority=100,actions=learn(table=1,idle_timeout=300,priority=100,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:LOCAL"
    say "table=1,priority=0,actions=FLOOD"
}

place "$flows" 0644 < <(flows)
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"
# Never restarted: every guest's traffic passes through it.
unit_running openvswitch-switch.service
unit_running "$name.service" "$unit" "$program" "$flows" /etc/gpuaas/slice.env
