#!/bin/bash
# Plays a host of the laboratory: what launches and releases of slices ask for is the emulator's, everything
# else the fixture's that the bundles are tested with. Both work on the same files.
set -euo pipefail
here=$(dirname -- "$(realpath -- "$0")")
case "$1 ${2:-}" in
    *" virsh" | *" nvme" | *" qemu-img" | *" mkfs.vfat" | *" mcopy" | *" blockdev" | *" fmpm") exec "$here/emulator" "$@" ;;
    *) exec "$here/kernel" "$@" ;;
esac
