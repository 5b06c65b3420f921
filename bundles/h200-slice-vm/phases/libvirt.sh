#!/bin/bash
# libvirtd stays up: its package ends it after two idle minutes, and a slice host counts as ready
# only while it is active. libvirt's own NAT network is not used, and its address range not either.
#
# libvirt gives a guest pages of 1 GiB only from a mount of that size, which it looks for when it starts, and
# systemd mounts those of the default size alone (2 MiB on x86). Nor would AppArmor have QEMU read which
# CPUs a NUMA node has, as it does to get a guest's memory there: no guest with memory of one node starts
# ("The nodes select no CPUs", libvirt 9.0 with QEMU 7.2).
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

mount=/etc/systemd/system/dev-hugepages1G.mount
place "$mount" 0644 <<UNIT
# Written by ${GPUAAS_BUNDLE%@*}.
[Unit]
Description=1 GiB huge pages for guests
DefaultDependencies=no
Before=libvirtd.service
ConditionPathExists=/sys/kernel/mm/hugepages/hugepages-1048576kB
ConditionCapability=CAP_SYS_ADMIN
ConditionVirtualization=!private-users

[Mount]
What=hugetlbfs
Where=/dev/hugepages1G
Type=hugetlbfs
Options=pagesize=1G
UNIT

drop_in=/etc/systemd/system/libvirtd.service.d/10-gpuaas-slice.conf
place "$drop_in" 0644 <<UNIT
[Unit]
Wants=dev-hugepages1G.mount
After=dev-hugepages1G.mount

[Service]
ExecStart=
ExecStart=/usr/sbin/libvirtd
UNIT

# Of the site's own rules, which stay as they are. They are read anew for each guest.
rules=/etc/apparmor.d/local/abstractions/libvirt-qemu
rule='/sys/devices/system/node/node[0-9]*/{cpumap,cpulist} r,'
with_rule() {
    local file
    file=$(at "$rules")
    if [[ -f $file ]]; then cat -- "$file"; fi
    if ! grep -qxF -- "$rule" "$file" 2>/dev/null; then printf '%s\n' "$rule"; fi
}
if [[ -e $(at /etc/apparmor.d/abstractions/libvirt-qemu) ]]; then
    text=$(with_rule)
    place "$rules" 0644 <<<"$text"
fi
unit_running libvirtd.service "$mount" "$drop_in"

network_off() {
    if host_ask virsh -q net-info default >/dev/null 2>&1; then
        host_do virsh -q net-autostart default --disable
        if host_ask virsh -q net-list --name | grep -qx default; then host_do virsh -q net-destroy default; fi
    fi
}
# Whether libvirt's own network is down, which a person or an upgrade of its package may start.
network_is_off() { ! host_ask virsh -q net-list --name 2>/dev/null | grep -qx default; }
in_effect=network_is_off after_change libvirt-default-network "$drop_in" -- network_off
