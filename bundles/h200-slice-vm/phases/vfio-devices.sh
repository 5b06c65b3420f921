#!/bin/bash
# One unit that binds the GPUs and the virtual functions to vfio-pci, at every boot. Before the
# kernel has its IOMMU the unit is enabled and not started: nothing could be passed through.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

name=gpuaas-slice-vfio-devices
program=/usr/local/sbin/$name
unit=/etc/systemd/system/$name.service
place "$program" 0755 <"$GPUAAS_BUNDLE_DIR/files/$name"
place "$unit" 0644 <"$GPUAAS_BUNDLE_DIR/files/$name.service"

# The driver's own daemons hold the GPUs open, and unbinding would wait for them for ever.
for daemon in nvidia-persistenced.service nvidia-dcgm.service; do
    if [[ -n $(unit_file "$daemon") ]] && host_ask systemctl is-enabled --quiet "$daemon"; then
        host_do systemctl disable --now "$daemon"
    fi
done
if compgen -G "$GPUAAS_SYSFS/kernel/iommu_groups/*" >/dev/null; then
    unit_running "$name.service" "$unit" "$program" /etc/gpuaas/slice.env
else
    unit_enabled "$name.service"
    # The boot starts it with these files; nobody need do it again.
    after_change "unit-$name.service" "$unit" "$program" /etc/gpuaas/slice.env -- true
    say "$name starts with the next boot: the kernel has no IOMMU groups yet"
fi
