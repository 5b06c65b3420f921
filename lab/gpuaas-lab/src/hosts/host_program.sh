#!/bin/bash
# Plays a host of the laboratory: what launches and releases of slices ask for is the emulator's, everything
# else the fixture's that the bundles are tested with. Both work on the same files.
set -euo pipefail
here=$(dirname -- "$(realpath -- "$0")")
pace=${GPUAAS_HOST_ROOT:-}/run/pace

# takes PERCENT: that part of what the bootstrap takes goes by (host_pace.rs).
takes() {
    if [[ ! -p $pace/events || ! -p $pace/go ]]; then return 0; fi
    exec 8<>"$pace/go" 9<>"$pace/events"
    printf 'take %s\n' "$1" >&9
    read -r _ <&8
    exec 8<&- 9<&-
}

# What takes long on hardware.
case " $* " in
    " run apt-get "*" update "*) takes 10 ;;
    " run apt-get "*" install "*) takes 40 ;;
    " run networkctl reconfigure "* | " run netplan "* | " run systemctl restart "* | " run modprobe "*) takes 4 ;;
esac
case "$1 ${2:-}" in
    *" virsh" | *" nvme" | *" qemu-img" | *" mkfs.vfat" | *" mcopy" | *" blockdev" | *" fmpm") exec "$here/emulator" "$@" ;;
    *) exec "$here/kernel" "$@" ;;
esac
