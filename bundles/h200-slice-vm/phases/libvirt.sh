#!/bin/bash
# libvirtd stays up: its package ends it after two idle minutes, and a slice host counts as ready
# only while it is active. libvirt's own NAT network is not used, and its address range not either.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

drop_in=/etc/systemd/system/libvirtd.service.d/10-gpuaas-slice.conf
place "$drop_in" 0644 <<UNIT
[Service]
ExecStart=
ExecStart=/usr/sbin/libvirtd
UNIT
unit_running libvirtd.service "$drop_in"

network_off() {
    if host_ask virsh -q net-info default >/dev/null 2>&1; then
        host_do virsh -q net-autostart default --disable
        if host_ask virsh -q net-list --name | grep -qx default; then host_do virsh -q net-destroy default; fi
    fi
}
after_change libvirt-default-network "$drop_in" -- network_off
