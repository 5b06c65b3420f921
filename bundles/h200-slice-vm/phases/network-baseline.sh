#!/bin/bash
# Guests reach the world through the host: forwarding, and NAT in a table of our own.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-network-baseline
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
rules=/etc/gpuaas/slice.nft
sysctl=/etc/sysctl.d/60-gpuaas-slice.conf
place "$sysctl" 0644 <<<"net.ipv4.ip_forward = 1"
template=$(<"$GPUAAS_BUNDLE_DIR/files/slice.nft")
template=${template//@SUBNET@/$GPUAAS_SLICE_GUEST_SUBNET}
place "$rules" 0644 <<<"${template//@BRIDGE@/$GPUAAS_SLICE_BRIDGE}"
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"
unit_running "$name.service" "$unit" "$program" "$rules" "$sysctl" /etc/gpuaas/slice.env
