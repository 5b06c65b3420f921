#!/bin/bash
# Tells the node something. GPUAAS_HOST_ROOT stands for / on a simulated host.
set -euo pipefail

FILE="${GPUAAS_HOST_ROOT:-}/etc/gpuaas/greeting"
if [[ -f "$FILE" && "$(<"$FILE")" == "$BUNDLE_GREETING" ]]; then
  echo "unchanged /etc/gpuaas/greeting"
else
  mkdir -p "$(dirname "$FILE")"
  printf '%s\n' "$BUNDLE_GREETING" >"$FILE"
  echo "wrote /etc/gpuaas/greeting"
fi
