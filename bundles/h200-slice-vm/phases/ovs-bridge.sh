#!/bin/bash
# One unit that makes the guests' bridge and gives it the gateway's address, at every boot.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-ovs-bridge
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"
# Never restarted: every guest's traffic passes through it.
unit_running openvswitch-switch.service
unit_running "$name.service" "$unit" "$program" /etc/gpuaas/slice.env
