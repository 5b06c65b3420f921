#!/bin/bash
# What the emulated machine does: `before` in its first boot, whose kernel knows nothing of an IOMMU,
# `after` in the second. It changes things, and writes down what the agent says and what lspci, lscpu,
# sysfs and the others say; whether that agrees is judged outside.
#
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
here=/run/handed
out=$here/out
agent=/usr/local/bin/gpuaas-node-agent
bundles=/usr/local/share/gpuaas/site-bootstrap
devices=/sys/bus/pci/devices

# What was done when, for whoever reads what the machine said.
at() { printf '%6s s %s\n' "$(cut -d ' ' -f 1 /proc/uptime)" "$*"; }
bundle() {
    at "bundle $1"
    "$agent" bundle run "$bundles/h200-slice-vm" --inputs "$here/inputs" >"$out/$1.bundle"
}
# Exit code 4 says that the gate is shut.
gate() {
    at "gate $1"
    "$agent" check --gate slice_ready >"$out/$1.gate" 2>/dev/null || (($? == 4))
}

# What the bundle may touch, in files and in the kernel; but for what it saw, which a reboot changes.
state() {
    (cd / && find etc usr/local var/lib/gpuaas boot ! -type d ! -name '*.validation' \( -type l -printf '%p %l\n' -o -printf '%p %m ' -exec sha256sum {} \; \) | sort)
    for device in "$devices"/*; do
        printf '%s %s %s %s\n' "${device##*/}" "$(readlink -- "$device/driver")" "$(<"$device/driver_override")" \
            "$(cat -- "$device/sriov_numvfs" 2>/dev/null)"
    done
}

# The agent's facts, and the same asked of the distribution's own tools.
look() {
    at "look $1"
    "$agent" facts >"$out/$1.facts"
    lspci -Dvmmnnk >"$out/$1.lspci"
    lspci -Dvv >"$out/$1.lspci-vv"
    for link in "$devices"/*/virtfn*; do
        if [[ -L $link ]]; then printf '%s %s\n' "$(basename -- "${link%/*}")" "$(basename -- "$(readlink -- "$link")")"; fi
    done >"$out/$1.virtfn"
    for folder in /sys/kernel/iommu_groups/*/devices/*; do
        if [[ -e $folder ]]; then printf '%s %s\n' "$(cut -d / -f 5 <<<"$folder")" "${folder##*/}"; fi
    done >"$out/$1.groups"
    lscpu -p=CPU,NODE | grep -v '^#' >"$out/$1.lscpu"
    lsblk -bdPn -o NAME,SIZE,ROTA,SERIAL >"$out/$1.lsblk"
    findmnt -rn -o SOURCE,TARGET,FSTYPE >"$out/$1.findmnt"
    ip -j link >"$out/$1.ip-link"
    {
        printf 'kernel_release %s\n' "$(uname -r)"
        printf 'hostname %s\n' "$(uname -n)"
        printf 'kernel_cmdline %s\n' "$(dmesg | sed -n 's/.*\] Command line: //p' | head -n 1)"
        printf 'boot_id %s\n' "$(sysctl -n kernel.random.boot_id)"
        printf 'memory_total_bytes %s\n' "$(free -b | awk '/^Mem:/ { print $2 }')"
        printf 'cpu_count %s\n' "$(getconf _NPROCESSORS_ONLN)"
        printf 'cpu_model %s\n' "$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)"
    } >"$out/$1.plain"
}

adapter=$(lspci -Dn -d 1b36:0010 | sort | head -n 1 | cut -d ' ' -f 1)
mapfile -t gpus < <(lspci -Dn -d 1234:11e8 | cut -d ' ' -f 1)
function_of() { basename -- "$(readlink -- "$devices/$adapter/virtfn$1")"; }
write() { printf '%s' "$2" >"/sys/bus/pci/$1"; }
rebind() { # ADDRESS DRIVER
    write "devices/$1/driver_override" "$2"
    write "devices/$1/driver/unbind" "$1"
    write drivers_probe "$1"
}
units_again() { systemctl restart gpuaas-slice-fabric-vfs.service gpuaas-slice-vfio-devices.service; }

# Ways to break it. Unless a row has its own way back, the units have to find it.
break_function_unbound() { write "devices/$(function_of 1)/driver/unbind" "$(function_of 1)"; }
break_functions_one() { write "devices/$adapter/sriov_numvfs" 0 && write "devices/$adapter/sriov_numvfs" 1; }
break_functions_none() { write "devices/$adapter/sriov_numvfs" 0; }
break_gpu_unbound() { write "devices/${gpus[0]}/driver/unbind" "${gpus[0]}"; }
break_gpu_overridden() { modprobe pci-stub && rebind "${gpus[1]}" pci-stub; }
break_gpu_gone() { write "devices/${gpus[0]}/remove" 1; }
mend_gpu_gone() { write rescan 1 && units_again; }
break_acs_off() { setpci -s "$(port_above "${gpus[1]}")" ECAP_ACS+6.w=0; }
mend_acs_off() { setpci -s "$(port_above "${gpus[1]}")" ECAP_ACS+6.w=001d; }
port_above() { basename -- "$(dirname -- "$(realpath -- "$devices/$1")")"; }
break_unit_vfio() { systemctl stop gpuaas-slice-vfio-devices.service; }
break_unit_vfs() { systemctl stop gpuaas-slice-fabric-vfs.service; }

before() {
    install -m 755 -- "$here/agent" "$agent"
    "$agent" bundle unpack --bundle "$(<"$here/bundle")" --into "$bundles/h200-slice-vm" \
        --digest "$(<"$here/digest")" "$here/bundle.tar"
    bundle first
    gate before
    look before
    # What update-grub wrote for the next boot: the arguments behind the root.
    sed -n 's/^[[:space:]]*linux[[:space:]].* ro  *//p' /boot/grub/grub.cfg | head -n 1 >"$out/arguments"
}

after() {
    # What the units did at boot, before anybody ran anything.
    systemctl show --property=Id,ActiveState,Result,ExecMainStatus 'gpuaas-slice-*' >"$out/units"
    gate boot
    look boot
    state >"$out/state-before"
    bundle second
    state >"$out/state-after"
    gate again
    for row in $(compgen -A function break_); do
        row=${row#break_}
        "break_$row"
        gate "broken-$row"
        if [[ $row == functions_one ]]; then look one; fi
        if declare -F "mend_$row" >/dev/null; then "mend_$row"; else units_again; fi
        gate "mended-$row"
    done
    look end
}

"$(<"$here/step")"
