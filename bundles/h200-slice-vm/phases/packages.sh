#!/bin/bash
# Brings the bundle's packages, where no image brought them, and takes those away again that a switch
# asked for and asks for no more.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

packages_by_switch
