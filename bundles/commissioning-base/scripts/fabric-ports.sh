#!/bin/sh
# --- Start MAAS 1.0 script metadata ---
# name: fabric-ports
# title: Fabric adapters
# description: Fails where an InfiniBand or RoCE adapter has no port with a physical link
# script_type: commissioning
# hardware_type: node
# parallel: any
# timeout: 00:05:00
# tags: gpuaas,noauto
# --- End MAAS 1.0 script metadata ---
#
# The adapter's firmware trains the link by itself, so the physical state is meaningful before a
# subnet manager or an address is there. A node without a fabric passes. An adapter with several
# ports may leave some of them without a cable, but not all.
set -eu

ROOT="${GPUAAS_HOST_ROOT:-}"
WAIT_SECONDS="${GPUAAS_LINK_WAIT_SECONDS:-60}"

if [ -z "$ROOT" ] && command -v modprobe >/dev/null 2>&1; then
  modprobe -q mlx5_ib || true
fi

# ADAPTER: prints its ports; fails where none has a physical link.
linked() {
  up=1
  for port in "$1"/ports/*; do
    [ -r "$port/phys_state" ] || continue
    IFS= read -r state <"$port/phys_state" || true
    rate=unknown
    if [ -r "$port/rate" ]; then
      IFS= read -r rate <"$port/rate" || true
    fi
    printf '%s port %s: %s, %s\n' "${1##*/}" "${port##*/}" "$state" "$rate"
    case "$state" in
      *LinkUp*) up=0 ;;
    esac
  done
  return "$up"
}

adapters=0
dark=0
for adapter in "$ROOT"/sys/class/infiniband/*; do
  [ -d "$adapter/ports" ] || continue
  adapters=$((adapters + 1))
  waited=0
  while ! linked "$adapter"; do
    if [ "$waited" -ge "$WAIT_SECONDS" ]; then
      printf '%s has no port with a physical link\n' "${adapter##*/}"
      dark=$((dark + 1))
      break
    fi
    sleep 5
    waited=$((waited + 5))
  done
done
printf '%d fabric adapters, %d without a link\n' "$adapters" "$dark"
[ "$dark" -eq 0 ]
