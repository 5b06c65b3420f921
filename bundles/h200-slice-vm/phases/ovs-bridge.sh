#!/bin/bash
# One unit that makes the guests' bridge and gives it the gateway's address, at every boot.
#
# Guests apart from each other: what comes from a guest's port goes to the host alone, whose rules
# decide on it, and what comes from the host goes to the port where its destination was seen.
#
# A port sends with one MAC and one IPv4 address, those that it showed first: while it uses them, no
# other port may, and it may use no others. Silent for a minute, it may show others. The addresses of
# the subnet are the guests', but for the gateway's.
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
    local gateway=${GPUAAS_SLICE_GATEWAY%/*} net=$GPUAAS_SLICE_GUEST_SUBNET
    # Registers: 0 - what table 2 says of the MAC, 1 - what table 3 says of the IPv4 address, 2 - that address.
    local mac=",resubmit(,2),resubmit(,4)" both=",resubmit(,2),resubmit(,3),resubmit(,4)"
    local own=hard_timeout=60,priority=20,NXM_OF_IN_PORT[] other=hard_timeout=60,priority=10
    local seen="learn(table=1,idle_timeout=300,priority=100,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])"
    seen+=",learn(table=2,$own,NXM_OF_ETH_SRC[],load:1->NXM_NX_REG0[])"
    seen+=",learn(table=2,$other,NXM_OF_IN_PORT[],load:2->NXM_NX_REG0[])"
    seen+=",learn(table=2,$other,NXM_OF_ETH_SRC[],load:2->NXM_NX_REG0[])"
    local address="learn(table=3,$own,NXM_NX_REG2[],load:1->NXM_NX_REG1[])"
    address+=",learn(table=3,$other,NXM_OF_IN_PORT[],load:2->NXM_NX_REG1[])"
    address+=",learn(table=3,$other,NXM_NX_REG2[],load:2->NXM_NX_REG1[])"
    say "table=0,priority=200,in_port=LOCAL,actions=resubmit(,1)"
    say "table=0,priority=150,arp,arp_spa=$gateway,actions=drop"
    say "table=0,priority=150,ip,nw_src=$gateway,actions=drop"
    say "table=0,priority=140,arp,arp_spa=$net,actions=move:NXM_OF_ARP_SPA[]->NXM_NX_REG2[]$both"
    say "table=0,priority=140,ip,nw_src=$net,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG2[]$both"
    # Who has no address yet asks for one.
    say "table=0,priority=140,arp,arp_spa=0.0.0.0,actions=${mac#,}"
    say "table=0,priority=140,udp,nw_src=0.0.0.0,tp_src=68,tp_dst=67,actions=${mac#,}"
    say "table=0,priority=130,arp,actions=drop"
    say "table=0,priority=130,ip,actions=drop"
    say "table=0,priority=100,actions=${mac#,}"
    say "table=1,priority=0,actions=FLOOD"
    say "table=4,priority=100,reg0=2,actions=drop"
    say "table=4,priority=100,reg1=2,actions=drop"
    say "table=4,priority=50,reg2=0,actions=$seen,output:LOCAL"
    say "table=4,priority=0,actions=$seen,$address,output:LOCAL"
}

place "$flows" 0644 < <(flows)
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"
# Never restarted: every guest's traffic passes through it.
unit_running openvswitch-switch.service
unit_running "$name.service" "$unit" "$program" "$flows" /etc/gpuaas/slice.env
