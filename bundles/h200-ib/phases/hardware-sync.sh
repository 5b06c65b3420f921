#!/bin/bash
# MAAS' hardware sync: MAAS places a timer on a host that it deploys with it. The bundle makes sure
# that it runs, and never installs one: without MAAS' credentials it would have nobody to report to.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

timer=maas_hardware_sync.timer
path=$(unit_file "$timer")
if [[ -z $path ]]; then
    if [[ $H200_REQUIRE_HW_SYNC == 1 ]]; then
        fail "the host has no $timer: it was deployed without enable_hw_sync"
    fi
    say "unchanged the host was deployed without hardware sync"
    exit 0
fi
[[ -n $(unit_file maas_hardware_sync.service) ]] || fail "$path exists, but maas_hardware_sync.service does not"
unit_running "$timer" "$path"
