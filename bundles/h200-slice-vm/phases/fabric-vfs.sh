#!/bin/bash
# One unit that gives every InfiniBand HCA its virtual functions, at every boot.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-fabric-vfs
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"
unit_running "$name.service" "$unit" "$program" /etc/gpuaas/slice.env
