#!/bin/bash
# NVIDIA's own repository, where a site names one: driver, fabric manager, container toolkit and
# datacenter-gpu-manager of one version, from one place. Ubuntu has packages of the same names, and the
# fabric manager takes the driver of its own version alone, so NVIDIA's win (apt_preferences(5)).
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"
# shellcheck source=h200-ib/files/apt-repository.sh
source "$GPUAAS_BUNDLE_DIR/files/apt-repository.sh"

preferences=/etc/apt/preferences.d/gpuaas-nvidia
if [[ -z $H200_NVIDIA_REPO_URL ]]; then
    no_apt_repository nvidia
    absent "$preferences"
    exit 0
fi
apt_repository nvidia "$H200_NVIDIA_REPO_URL" "$H200_NVIDIA_KEY_URL" "$H200_NVIDIA_KEY_SHA256"
host=${H200_NVIDIA_REPO_URL#https://}
host=${host%%/*}
place "$preferences" 0644 <<PREFERENCES
# Written by ${GPUAAS_BUNDLE%@*}.
Package: *
Pin: origin ${host%%:*}
Pin-Priority: 600
PREFERENCES
