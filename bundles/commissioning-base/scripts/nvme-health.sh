#!/bin/sh
# --- Start MAAS 1.0 script metadata ---
# name: nvme-health
# title: NVMe health
# description: Fails where an NVMe controller is not live, has no namespace or warns of itself
# script_type: testing
# hardware_type: node
# parallel: any
# timeout: 00:05:00
# tags: gpuaas
# packages: {apt: [nvme-cli]}
# --- End MAAS 1.0 script metadata ---
#
# Reads the controllers' states and asks each for its own SMART log. Writes nothing to a disk.
set -eu

ROOT="${GPUAAS_HOST_ROOT:-}"
found=0
bad=0

# TEXT: says what is wrong with the controller at hand.
complain() {
  printf '%s: %s\n' "$name" "$1"
  bad=$((bad + 1))
}

for controller in "$ROOT"/sys/class/nvme/nvme*; do
  [ -d "$controller" ] || continue
  found=$((found + 1))
  name="${controller##*/}"
  state=unknown
  if [ -r "$controller/state" ]; then
    IFS= read -r state <"$controller/state" || true
  fi
  spaces=0
  for space in "$controller"/nvme*n*; do
    [ -d "$space" ] && spaces=$((spaces + 1))
  done
  printf '%s: %s, %d namespaces\n' "$name" "$state" "$spaces"
  if [ "$state" != live ]; then
    complain "the controller is $state"
    continue
  fi
  [ "$spaces" -gt 0 ] || complain "it has no namespace"
  if [ -z "$ROOT" ] && command -v nvme >/dev/null 2>&1; then
    log="$(nvme smart-log "/dev/$name" 2>&1)" || complain "no SMART log: $log"
    warning="$(printf '%s\n' "$log" | sed -n 's/^critical_warning[[:space:]]*:[[:space:]]*//p')"
    printf '%s: critical_warning %s\n' "$name" "${warning:-unknown}"
    case "$warning" in
      '' | 0 | 0x0 | 0x00) ;;
      *) complain "it warns of itself: critical_warning $warning" ;;
    esac
  fi
done
printf '%d NVMe controllers, %d complaints\n' "$found" "$bad"
[ "$bad" -eq 0 ]
