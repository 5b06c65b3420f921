#!/bin/bash
# Runs this bundle by hand, as root: inputs are taken from the environment, such as
# H200_ENABLE_NETDATA=0. The launcher is the agent's program.
set -euo pipefail
launcher=${GPUAAS_LAUNCHER:-/usr/local/bin/gpuaas-node-agent}
if [[ ! -x $launcher ]]; then
    printf 'error: no launcher at %s; set GPUAAS_LAUNCHER to its path\n' "$launcher" >&2
    exit 1
fi
exec "$launcher" bundle run "$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")" "$@"
