#!/bin/bash
# Repairs the telemetry edge of the host that it runs on. `gpuaas node converge-telemetry` sends it
# with the phases of h200-ib beside it, which do the work; this says what is wrong before, brings
# the packages, and looks at the effects afterwards.
#
# Its output is read by a program: a line begins with diagnosis, changed, unchanged, would change,
# would run, seen or warning. The last line is `converged`, or there is `failed` and why.
set -euo pipefail
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
export GPUAAS_LIB=$here/host.sh GPUAAS_BUNDLE_DIR=$here
# shellcheck source=host.sh
source "$GPUAAS_LIB"

# The values that the host was set up with win over the defaults: a slice host keeps its guests out.
inputs=$(at /var/lib/gpuaas/site-bootstrap/h200-ib.inputs)
while read -r input variable; do
    if [[ -r $inputs ]]; then
        value=$(sed -n "s/^ *\"$input\": \"\([^\"\\\\]*\)\",\{0,1\}\$/\1/p" "$inputs")
        if [[ -n $value ]]; then export "$variable=$value"; fi
    fi
done <"$here/inputs"
if [[ -z ${GPUAAS_HOSTNAME:-} ]]; then
    GPUAAS_HOSTNAME=$(cat -- "$(at /etc/hostname)")
    export GPUAAS_HOSTNAME=${GPUAAS_HOSTNAME%%.*}
fi
export H200_NETDATA_REQUIRED=1 H200_ENABLE_NETDATA=1
backend_port=$(socket_port "$H200_NETDATA_BIND" H200_NETDATA_BIND)
edge_port=$(socket_port "$H200_NETDATA_EDGE_LISTEN" H200_NETDATA_EDGE_LISTEN)
backend=http://$H200_NETDATA_BIND/api/v1/info
edge=http://127.0.0.1:$edge_port/gpuaas/telemetry

# listeners PORT: who listens there, as `ADDRESS PROGRAM` lines.
listeners() {
    host_ask ss -H -ltnp "sport = :$1" | sed -n 's/^LISTEN *[0-9]* *[0-9]* *\([^ ]*\):[0-9]* .*users:(("\([^"]*\)".*/\1 \2/p; t; s/^LISTEN *[0-9]* *[0-9]* *\([^ ]*\):[0-9]* .*/\1 ?/p' | sort -u || true
}

diagnose() {
    local address program found=0
    while read -r address program; do
        if [[ $program == netdata* ]]; then
            say "diagnosis wrong_listener Netdata itself listens on $address:$edge_port, where the edge belongs: everybody reaches all of it"
            found=1
        fi
    done < <(listeners "$edge_port")
    while read -r address program; do
        if [[ $address != 127.0.0.1 ]]; then
            say "diagnosis open_backend $program listens on $address:$backend_port, not only on 127.0.0.1"
            found=1
        fi
    done < <(listeners "$backend_port")
    if [[ -n $(packages_missing netdata) ]]; then
        say "diagnosis no_netdata the package netdata is not installed"
        found=1
    elif ! http_answers "$backend"; then
        say "diagnosis silent_netdata nothing answers on $backend"
        found=1
    fi
    if [[ -n $(packages_missing nginx) && -n $(packages_missing nginx-light) ]]; then
        say "diagnosis no_nginx neither nginx nor nginx-light is installed"
        found=1
    elif ! http_answers "$edge/health"; then
        say "diagnosis silent_edge nothing answers on $edge/health"
        found=1
    fi
    if ((found == 0)); then say "diagnosis none the edge answers, and Netdata behind it"; fi
}

# What is missing; the plugin for GPU metrics comes along where Netdata's own packages have it.
install() {
    local wanted=() optional=''
    if [[ -n $(packages_missing netdata) ]]; then wanted+=(netdata) optional=netdata-plugin-go; fi
    if [[ -n $(packages_missing nginx) && -n $(packages_missing nginx-light) ]]; then wanted+=(nginx-light); fi
    if ((${#wanted[@]})); then
        GPUAAS_PACKAGES=${wanted[*]} GPUAAS_OPTIONAL_PACKAGES=$optional GPUAAS_BUNDLE=converge-telemetry@1 packages_install
    else
        say "unchanged the packages are installed"
    fi
    if dry && ((${#wanted[@]})); then
        say "converged what follows the installation cannot be said before"
        exit 0
    fi
}

look() {
    local address program
    while read -r address program; do
        [[ $address == 127.0.0.1 ]] || fail "$program still listens on $address:$backend_port"
    done < <(listeners "$backend_port")
    http_answers "$edge/health" || fail "nothing answers on $edge/health"
    say "seen $edge/health answers"
    http_answers "$edge/netdata/" || fail "nothing answers on $edge/netdata/"
    say "seen $edge/netdata/ leads to a dashboard"
}

state=$(at /var/lib/gpuaas/site-bootstrap)
mkdir -p -- "$state"
exec 9>>"$state/launcher.lock"
flock -n 9 || fail "busy: a launcher runs a bundle on this host"
diagnose
install
for phase in netdata telemetry-edge; do bash "$here/phases/$phase.sh"; done
if ! dry; then look; fi
say converged
