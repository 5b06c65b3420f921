#!/bin/bash
# Brings the bundle's packages, where no image brought them.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

packages_install
