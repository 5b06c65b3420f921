#!/bin/bash
# Lets GPUs and HCAs below one PCIe switch talk to each other without a detour over the root
# complex, by taking Access Control Services off the bridges above them. For a bare-metal host only.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

if [[ $H200_HOST_ROLE != baremetal ]]; then
    fail "refused: without ACS, devices below a switch bypass the IOMMU, and a guest could reach another guest's GPU; H200_DISABLE_ACS is for bare metal only"
fi
unit=/etc/systemd/system/gpuaas-acs.service
program=/usr/local/sbin/gpuaas-acs
install_library
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/gpuaas-acs"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/gpuaas-acs.service"
# Whether ACS is off, which a reset of a bus turns on again.
off() { bash "$GPUAAS_BUNDLE_DIR/files/gpuaas-acs" check >/dev/null 2>&1; }
in_effect=off unit_running gpuaas-acs.service "$unit" "$program"
