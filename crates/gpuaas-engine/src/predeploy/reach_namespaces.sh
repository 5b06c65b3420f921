#!/bin/bash
# Two network namespaces for a test: a control plane at 10.77.0.1:8080, which answers for its health as
# it does in life, and a host at 10.77.0.2, on which the script on standard input runs. The link between
# them is up, or with the argument `down` it is not. Standard output and status are the script's.
set -euo pipefail
if [[ ${GPUAAS_NAMESPACE:-} != own ]]; then
    GPUAAS_NAMESPACE=own exec unshare --net --pid --fork --kill-child --mount-proc -- bash "$0" "$@"
fi
script=$(cat)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
mkdir -p -- "$work/bootstrap/v1"
printf 'ok' >"$work/bootstrap/v1/health"
unshare --net sleep 60 &
host=$!
until [[ $(readlink "/proc/$host/ns/net") != $(readlink /proc/self/ns/net) ]]; do :; done
on_host() { nsenter --target "$host" --net -- "$@"; }
ip link set lo up
ip link add plane type veth peer name host
ip link set host netns "/proc/$host/ns/net"
ip address add 10.77.0.1/24 dev plane
ip link set plane up
on_host ip address add 10.77.0.2/24 dev host
on_host ip link set host up
python3 -m http.server --bind 10.77.0.1 --directory "$work" 8080 >/dev/null 2>&1 &
until bash -c 'exec 3<>/dev/tcp/10.77.0.1/8080' 2>/dev/null; do kill -0 $!; done
if [[ ${1:-} == down ]]; then on_host ip link set host down; fi
on_host sh -c "$script"
