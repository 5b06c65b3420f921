#!/bin/bash
# Docker runs and starts at boot, whether a package or the image brought it.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

if ! dry && [[ -z $(unit_file docker.service) ]]; then
    fail "there is no docker.service on this host: neither its image nor a package brought Docker"
fi
unit_running docker.service
