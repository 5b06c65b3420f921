#!/bin/bash
# curl of a simulated host: once the control plane knows that a phase of the bootstrap has begun, the
# phase takes the time that was drawn for it (host_pace.rs).
set -u
PATH=${PATH#*:}
folder=$GPUAAS_HOST_ROOT/run/pace
if [[ ! -p $folder/events || "$*" != */progress* ]]; then exec curl "$@"; fi
curl "$@" || exit
for argument; do
    if [[ $argument == @* && $(<"${argument#@}") =~ \"phase\":\ \"([a-z_]+)\",\ \"status\":\ \"started\" ]]; then
        exec 8<>"$folder/go" 9<>"$folder/events"
        printf 'wait %s\n' "${BASH_REMATCH[1]}" >&9
        read -r _ <&8
    fi
done
