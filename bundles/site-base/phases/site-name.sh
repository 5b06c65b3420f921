#!/bin/bash
# Names the site on the host.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

place /etc/gpuaas/site.conf 0644 <<<"GPUAAS_SITE=$GPUAAS_SITE"
