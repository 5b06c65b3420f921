#!/bin/bash
# Lets GPUs and HCAs below one PCIe switch talk to each other without a detour over the root
# complex, by taking Access Control Services off the bridges above them. For a bare-metal host only.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

if [[ $H200_HOST_ROLE != baremetal ]]; then
    fail "refused: without ACS the devices below a switch reach each other past the IOMMU, and a slice's guest would reach its neighbour's GPU; H200_DISABLE_ACS is for bare metal"
fi
unit=/etc/systemd/system/gpuaas-acs.service
program=/usr/local/sbin/gpuaas-acs
install_library
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/gpuaas-acs"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/gpuaas-acs.service"
unit_running gpuaas-acs.service "$unit" "$program"
