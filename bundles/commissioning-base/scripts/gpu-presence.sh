#!/bin/sh
# --- Start MAAS 1.0 script metadata ---
# name: gpu-presence
# title: GPUs on the PCI bus
# description: Fails where no GPU answers on the PCI bus, or where one has fallen off it
# script_type: commissioning
# hardware_type: node
# parallel: any
# timeout: 00:02:00
# tags: gpuaas,noauto
# --- End MAAS 1.0 script metadata ---
#
# Reads /sys, which needs no driver. A GPU is a display or 3D controller (PCI class 0x03) of a
# vendor that makes accelerators: NVIDIA, AMD, and Intel without its graphics for screens. The
# BMC's own VGA chip is none. A function that reads as ones only has fallen off the bus.
set -eu

ROOT="${GPUAAS_HOST_ROOT:-}"
found=0
bad=0

# FILE: its first line; nothing where it cannot be read.
first_line() {
  if [ -r "$1" ]; then
    IFS= read -r line <"$1" || true
    printf '%s' "$line"
  fi
}

for device in "$ROOT"/sys/bus/pci/devices/*; do
  [ -e "$device/class" ] || continue
  class="$(first_line "$device/class")"
  vendor="$(first_line "$device/vendor")"
  case "$vendor $class" in
    0x10de\ 0x030[02]* | 0x1002\ 0x03[08]* | 0x1002\ 0x1200* | 0x8086\ 0x0380*) ;;
    *) continue ;;
  esac
  found=$((found + 1))
  address="${device##*/}"
  width="$(first_line "$device/current_link_width")"
  most="$(first_line "$device/max_link_width")"
  revision="$(first_line "$device/revision")"
  printf '%s vendor %s device %s, PCIe x%s of x%s\n' "$address" "$vendor" \
    "$(first_line "$device/device")" "${width:-?}" "${most:-?}"
  if [ "$revision" = 0xff ] || [ "$width" = 0 ]; then
    printf '%s does not answer: it has fallen off the bus\n' "$address"
    bad=$((bad + 1))
  fi
done

if command -v lspci >/dev/null 2>&1 && [ -z "$ROOT" ]; then
  lspci -nn -d ::0302 || true
fi
if [ "$found" -eq 0 ]; then
  printf 'no GPU on the PCI bus\n'
  exit 1
fi
printf '%d GPUs, %d of them do not answer\n' "$found" "$bad"
[ "$bad" -eq 0 ]
