# shellcheck shell=bash disable=SC2154,SC2016 # sourced by test.sh, which sets these
# What guests of a slice host reach: in network namespaces, with the rules and flows of the bundle.

# What listens, and what asks. `serve [tcp|udp]:ADDRESS:PORT...` prints a line when all listen;
# `ask SECONDS PROTOCOL:ADDRESS:PORT...` prints which of them answered, a line each.
peers() {
    cat >"$work/peers.py" <<'PYTHON'
import socket, sys, threading
NO_CHECKSUM = 11 # SO_NO_CHECK: a veth leaves the sum to hardware that is not there
def split(text):
    kind, address, port = text.split(":")
    return (socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM), (address, int(port))
def serve(text):
    kind, where = split(text)
    s = socket.socket(socket.AF_INET, kind)
    if kind == socket.SOCK_DGRAM: s.setsockopt(socket.SOL_SOCKET, NO_CHECKSUM, 1)
    s.bind(where)
    if kind == socket.SOCK_STREAM: s.listen()
    def run():
        while True:
            if kind == socket.SOCK_STREAM:
                c, _ = s.accept(); c.sendall(b"yes"); c.close()
            else:
                _, peer = s.recvfrom(100); s.sendto(b"yes", peer)
    threading.Thread(target=run, daemon=False).start()
def ask(seconds, text, answers):
    kind, where = split(text)
    s = socket.socket(socket.AF_INET, kind); s.settimeout(seconds)
    if kind == socket.SOCK_DGRAM: s.setsockopt(socket.SOL_SOCKET, NO_CHECKSUM, 1)
    try:
        s.connect(where); s.send(b"?") if kind == socket.SOCK_DGRAM else None
        answers[text] = "yes" if s.recv(3) == b"yes" else "no"
    except OSError: answers[text] = "no"
if sys.argv[1] == "serve":
    for one in sys.argv[2:]: serve(one)
    print("listening", flush=True)
else:
    answers = {}
    threads = [threading.Thread(target=ask, args=(float(sys.argv[2]), one, answers)) for one in sys.argv[3:]]
    for one in threads: one.start()
    for one in threads: one.join()
    for one in sys.argv[3:]: print(one, answers[one])
PYTHON
}

# Inside of a namespace of its own, which is the host's: two guests on a bridge, and beyond eno1 a BMC
# (10.177.36.50), a registry (10.177.40.7) and the world (203.0.113.5). $1: peers.py, $2: the rules.
guests_world() {
    cat >"$work/world.sh" <<'WORLD'
set -euo pipefail
peers=$1 rules=$2
# Whoever ends this ends all of it: it is the first process of a namespace.
# A namespace is that of a process, which waits for us.
space() { unshare -n bash -c 'echo ready; exec sleep 600' > >(read -r _; echo >"$fifo") & made=$!; read -r _ <"$fifo"; }
fifo=$(mktemp -u) && mkfifo "$fifo"
on() { nsenter --target "$1" --net -- "${@:2}"; }
link() { # NAME PROCESS ADDRESS: a link between us and a namespace, where it is eth0
    ip link add "$1" type veth peer name eth0 netns "$2"
    ip link set "$1" up
    on "$2" ip link set lo up
    on "$2" ip link set eth0 up
    on "$2" ip addr add "$3" dev eth0
}
serve() { # PROCESS SOCKET...
    on "$1" python3 "$peers" serve "${@:2}" >"$fifo" &
    read -r _ <"$fifo"
}
ip link set lo up
ip link add ovsbr0 type bridge
ip addr add 10.100.0.1/24 dev ovsbr0
ip link set ovsbr0 up
space && one=$made && link tap1 "$one" 10.100.0.11/24 && ip link set tap1 master ovsbr0
space && two=$made && link tap2 "$two" 10.100.0.12/24 && ip link set tap2 master ovsbr0
space && beyond=$made && link eno1 "$beyond" 10.177.36.1/24
ip addr add 10.177.36.100/24 dev eno1
ip route add default via 10.177.36.1
for address in 10.177.36.50 10.177.40.7 203.0.113.5; do on "$beyond" ip addr add "$address/32" dev lo; done
for guest in "$one" "$two"; do on "$guest" ip route add default via 10.100.0.1; done
echo 1 >/proc/sys/net/ipv4/ip_forward
nft -f "$rules"
nft -f "$rules" # as a restart does
serve $$ tcp:0.0.0.0:22 tcp:0.0.0.0:18774 tcp:0.0.0.0:18775 tcp:0.0.0.0:19999 tcp:0.0.0.0:53 udp:0.0.0.0:53 udp:0.0.0.0:67 udp:0.0.0.0:623
serve "$beyond" tcp:10.177.36.1:5240 tcp:10.177.36.50:443 udp:10.177.36.50:623 tcp:10.177.40.7:5000 tcp:203.0.113.5:443
serve "$two" tcp:0.0.0.0:8080
# The two guests are one hop apart by the host too.
on "$one" ip route add 10.100.0.12/32 via 10.100.0.1
wanted() { on "$one" python3 "$peers" ask "$@"; }
wanted 10 tcp:10.100.0.1:53 udp:10.100.0.1:53 udp:10.100.0.1:67 tcp:10.100.0.1:18775 tcp:203.0.113.5:443 | sed 's/^/open /'
wanted 1 tcp:10.100.0.1:22 tcp:10.100.0.1:18774 tcp:10.177.36.100:18775 tcp:10.177.36.100:22 tcp:10.100.0.1:19999 tcp:10.177.36.100:53 udp:10.100.0.1:623 \
    tcp:10.177.36.1:5240 tcp:10.177.36.50:443 udp:10.177.36.50:623 tcp:10.177.40.7:5000 tcp:10.100.0.12:8080 | sed 's/^/shut /'
# The host reaches its guests.
python3 "$peers" ask 10 tcp:10.100.0.12:8080 | sed 's/^/host /'
WORLD
}

# look_out [VARIABLE=VALUE...]: the lines of the world with the rules of these inputs.
look_out() {
    passes network-baseline "$@"
    unshare --net --pid --fork --kill-child --mount-proc bash "$work/world.sh" "$work/peers.py" "$root/etc/gpuaas/slice.nft" >"$work/said" 2>"$work/trouble" ||
        wrong "the guests' world: $(<"$work/trouble")"
}

test_guests_reach_dhcp_dns_and_the_world_alone() {
    use h200-slice-vm
    passes settings
    if ! tool nft || ! own_network; then return; fi
    peers
    guests_world
    look_out
    [[ $(<"$work/said") == "open tcp:10.100.0.1:53 yes
open udp:10.100.0.1:53 yes
open udp:10.100.0.1:67 yes
open tcp:10.100.0.1:18775 yes
open tcp:203.0.113.5:443 yes
shut tcp:10.100.0.1:22 no
shut tcp:10.100.0.1:18774 no
shut tcp:10.177.36.100:18775 no
shut tcp:10.177.36.100:22 no
shut tcp:10.100.0.1:19999 no
shut tcp:10.177.36.100:53 no
shut udp:10.100.0.1:623 no
shut tcp:10.177.36.1:5240 no
shut tcp:10.177.36.50:443 no
shut udp:10.177.36.50:623 no
shut tcp:10.177.40.7:5000 no
shut tcp:10.100.0.12:8080 no
host tcp:10.100.0.12:8080 yes" ]] || wrong "reached: $(<"$work/said")"
    # An exception, and guests that are not apart: only these are open then. A management network of
    # public addresses is kept from guests as well.
    look_out GPUAAS_SLICE_GUEST_ALLOW=10.177.40.0/24 GPUAAS_SLICE_GUEST_ISOLATION=0 GPUAAS_SLICE_MANAGEMENT_ADDRESS=203.0.113.9/24
    [[ $(grep -E '^shut .* yes$' "$work/said") == "shut tcp:10.177.40.7:5000 yes
shut tcp:10.100.0.12:8080 yes" && $(grep -c '^open .* yes$' "$work/said") == 4 ]] || wrong "reached: $(<"$work/said")"
    has_line /etc/gpuaas/slice.nft '        iifname "ovsbr0" ip daddr 203.0.113.0/24 drop'
}

# The switch itself, in a namespace and on its own datapath: what one guest sends reaches the host, and
# no other guest, and what the host sends reaches the one that it is for.
test_guests_are_apart_on_the_bridge() {
    use h200-slice-vm
    passes settings
    twice ovs-bridge
    logged "ovs-vsctl --timeout=30 --may-exist add-br ovsbr0 -- set bridge ovsbr0 datapath_type=system -- set-fail-mode ovsbr0 secure"
    logged "ovs-ofctl -O OpenFlow13 --timeout=30 replace-flows ovsbr0 /run/gpuaas/slice.flows"
    local switch
    switch=$(PATH=$PATH:/usr/lib/openvswitch-switch:/usr/lib/openvswitch-switch-dpdk command -v ovs-vswitchd || true)
    if [[ -z $switch ]] || ! tool ovs-vsctl || ! tool ovsdb-tool || ! own_network; then
        printf 'skip %s: there is no Open vSwitch\n' "$current"
        return
    fi
    peers
    # The host below the folder, whose switch is a real one.
    cat >"$work/passes" <<'PASSES'
#!/bin/bash
shift
exec "${@/#\/run\/gpuaas/$GPUAAS_HOST_ROOT/run/gpuaas}"
PASSES
    chmod +x "$work/passes"
    cat >"$work/switch.sh" <<'SWITCH'
set -euo pipefail
peers=$1 kernel=$2 switch=$3 schema=$4 dir=$5
export OVS_RUNDIR=$dir OVS_LOGDIR=$dir OVS_DBDIR=$dir OVS_SYSCONFDIR=$dir
# Whoever ends this ends all of it: it is the first process of a namespace.
fifo=$dir/fifo && mkfifo "$fifo"
space() { unshare -n bash -c 'echo ready; exec sleep 600' > >(read -r _; echo >"$fifo") & made=$!; read -r _ <"$fifo"; }
on() { nsenter --target "$1" --net -- "${@:2}"; }
ovsdb-tool create "$dir/conf.db" "$schema"
ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" --unixctl="$dir/db.ctl" --log-file=/dev/null &
for _ in $(seq 100); do if [[ -S $dir/db.sock ]]; then break; fi; sleep 0.1; done
ovs-vsctl --db="unix:$dir/db.sock" --no-wait init
"$switch" "unix:$dir/db.sock" --unixctl="$dir/sw.ctl" --disable-system --log-file=/dev/null &
vsctl() { ovs-vsctl --db="unix:$dir/db.sock" --timeout=30 "$@"; }
vsctl --may-exist add-br ovsbr0 -- set bridge ovsbr0 datapath_type=netdev -- set-fail-mode ovsbr0 secure
ip link set lo up
# What the agent has at each launch, and at each end: the bundle's program.
flows() { GPUAAS_FIXTURE_KERNEL=$kernel "$GPUAAS_HOST_ROOT/usr/local/sbin/gpuaas-slice-guest-flows" >&2; }
mac_of() { printf '02:00:00:00:00:1%s' "$1"; }
# Three slots of the map had a guest before, as the agent wrote them down; two have one now.
hosts=$GPUAAS_HOST_ROOT/var/lib/gpuaas/dhcp-hosts
mkdir -p "$hosts"
for number in 1 2 3; do printf '%s,10.100.0.1%s\n' "$(mac_of "$number")" "$number" >"$hosts/$(mac_of "$number" | tr : -)"; done
# As libvirt does it.
guest() {
    space
    ip link add "tap$1" type veth peer name eth0 netns "$made"
    ip link set "tap$1" up
    on "$made" ip link set eth0 address "$(mac_of "$1")" up
    on "$made" ip addr add "10.100.0.1$1/24" dev eth0
    vsctl add-port ovsbr0 "tap$1" -- set Interface "tap$1" "external_ids:attached-mac=\"$(mac_of "$1")\""
    guests[$1]=$made
    flows
}
flows
guest 1
guest 2
ip addr replace 10.100.0.1/24 dev ovsbr0
ip link set ovsbr0 up
on "${guests[2]}" python3 "$peers" serve udp:0.0.0.0:8080 >"$fifo" &
read -r _ <"$fifo"
python3 "$peers" serve udp:0.0.0.0:53 >"$fifo" &
read -r _ <"$fifo"
on "${guests[1]}" python3 "$peers" ask 10 udp:10.100.0.1:53 | sed 's/^/open /'
python3 "$peers" ask 10 udp:10.100.0.12:8080 | sed 's/^/open /'
on "${guests[1]}" python3 "$peers" ask 1 udp:10.100.0.12:8080 | sed 's/^/shut /'
# What the host sends is for the guest of the address, and for no other.
mac=$(mac_of 2)
ovs-ofctl -O OpenFlow13 dump-flows "$dir/ovsbr0.mgmt" "table=1,dl_dst=$mac" | sed -n 's/.*actions=/sent to /p'
# A guest that takes another's address is not heard, and is again with its own.
ask_of() { on "${guests[$1]}" python3 "$peers" ask "$2" udp:10.100.0.1:53 | sed "s/^/$3 /"; }
take() { on "${guests[2]}" ip addr flush dev eth0 scope global && on "${guests[2]}" ip addr add "$1/24" dev eth0; }
take 10.100.0.11
ask_of 2 1 "another's IPv4"
take 10.100.0.12
ask_of 2 10 "its own IPv4"
ask_of 1 10 "the other guest"
on "${guests[2]}" ip link set eth0 address "$(mac_of 1)"
ask_of 2 1 "another's MAC"
on "${guests[2]}" ip link set eth0 address "$mac"
ask_of 2 10 "its own MAC"
ask_of 1 10 "the other guest"
# One that takes the MAC and the address of a slot whose guest has not booted is not heard, and the guest is,
# once it has, while the other still has them.
on "${guests[2]}" ip link set eth0 address "$(mac_of 3)"
take 10.100.0.13
ask_of 2 1 "a slot that has not booted"
guest 3
ask_of 3 10 "the guest of that slot"
ask_of 2 1 "what squats it"
on "${guests[2]}" ip link set eth0 address "$mac"
take 10.100.0.12
ask_of 2 10 "its own again"
# With the guest its flows go.
count() { ovs-ofctl -O OpenFlow13 dump-flows "$dir/ovsbr0.mgmt" | grep -c "$(mac_of 3)" || true; }
printf 'flows of the guest: %s\n' "$(count)"
vsctl del-port ovsbr0 tap3
flows
printf 'flows without it: %s\n' "$(count)"
number=$(vsctl get Interface tap1 ofport)
trace() { ovs-appctl -t "$dir/sw.ctl" ofproto/trace ovsbr0 "in_port=$number,dl_src=$1,dl_dst=ff:ff:ff:ff:ff:ff,$2" | sed -n "s/^Datapath actions:/$3:/p" | sed 's/: [^d].*/: passes/'; }
one=$(mac_of 1)
trace "$one" ip,nw_src=10.100.0.1,nw_dst=10.100.0.12 "the gateway's IPv4"
trace "$one" arp,arp_spa=10.100.0.1,arp_tpa=10.100.0.12,arp_op=2 "the gateway's ARP"
trace "$one" ip,nw_src=172.16.5.5,nw_dst=10.100.0.1 "an address of another network"
trace "$one" udp,nw_src=0.0.0.0,nw_dst=255.255.255.255,udp_src=68,udp_dst=67 "a question for an address"
trace "$mac" udp,nw_src=0.0.0.0,nw_dst=255.255.255.255,udp_src=68,udp_dst=67 "that with another's MAC"
SWITCH
    local schema share
    share=$(dirname -- "$(command -v ovs-vsctl)")/../share
    for schema in "${GPUAAS_OVS_SCHEMA:-}" /usr/share/openvswitch/vswitch.ovsschema "$share/openvswitch/vswitch.ovsschema"; do
        if [[ -f $schema ]]; then break; fi
    done
    # A socket's path has its bounds.
    local dir
    dir=$(mktemp -d)
    unshare --net --pid --fork --kill-child --mount-proc bash "$work/switch.sh" "$work/peers.py" "$work/passes" "$switch" "$schema" "$dir" >"$work/said" 2>"$work/trouble" ||
        wrong "the switch: $(<"$work/trouble")"
    rm -rf -- "$dir"
    [[ $(<"$work/said") == "open udp:10.100.0.1:53 yes
open udp:10.100.0.12:8080 yes
shut udp:10.100.0.12:8080 no
sent to output:32780
another's IPv4 udp:10.100.0.1:53 no
its own IPv4 udp:10.100.0.1:53 yes
the other guest udp:10.100.0.1:53 yes
another's MAC udp:10.100.0.1:53 no
its own MAC udp:10.100.0.1:53 yes
the other guest udp:10.100.0.1:53 yes
a slot that has not booted udp:10.100.0.1:53 no
the guest of that slot udp:10.100.0.1:53 yes
what squats it udp:10.100.0.1:53 no
its own again udp:10.100.0.1:53 yes
flows of the guest: 5
flows without it: 0
the gateway's IPv4: drop
the gateway's ARP: drop
an address of another network: drop
a question for an address: passes
that with another's MAC: drop" ]] || wrong "reached: $(<"$work/said") $(tail -n 5 -- "$work/trouble")"
}

# What the fixture says of the rules is what nft itself says.
test_ruleset_of_the_fixture() {
    use h200-slice-vm
    passes settings
    passes network-baseline GPUAAS_SLICE_GUEST_ALLOW=10.177.40.0/24
    "$GPUAAS_FIXTURE_KERNEL" ask nft -j list ruleset >"$work/ours"
    python3 -c 'import json, sys; assert len([i for i in json.load(open(sys.argv[1]))["nftables"] if "rule" in i]) > 15' "$work/ours" || wrong "no JSON of many rules: $(<"$work/ours")"
    if ! tool nft || ! own_network; then return; fi
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare -n bash -euc 'nft -f "$0"; nft -j list ruleset' "$root/etc/gpuaas/slice.nft" >"$work/theirs"
    python3 - "$work/ours" "$work/theirs" >"$work/said" 2>&1 <<'PYTHON' || wrong "another ruleset: $(<"$work/said")"
import json, sys
def plain(path):
    keep = {"chain": ("family", "table", "name", "type", "hook", "policy"), "rule": ("family", "table", "chain", "expr")}
    out = {"chain": [], "rule": []}
    for item in json.load(open(path))["nftables"]:
        for kind, fields in keep.items():
            if kind in item: out[kind].append({field: item[kind].get(field) for field in fields})
    return out
def order(text): # a set has none
    if isinstance(text, dict):
        return {k: sorted((json.dumps(order(v)) for v in i)) if k == "set" else order(i) for k, i in text.items()}
    return [order(i) for i in text] if isinstance(text, list) else text
ours, theirs = order(plain(sys.argv[1])), order(plain(sys.argv[2]))
for kind in ours:
    assert len(ours[kind]) == len(theirs[kind]), (kind, len(ours[kind]), len(theirs[kind]))
    for a, b in zip(ours[kind], theirs[kind]): assert a == b, f"{a}\n{b}"
PYTHON
}
