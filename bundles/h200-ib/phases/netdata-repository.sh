#!/bin/bash
# Netdata's own repository, where a site names one: distributions ship Netdata without go.d.plugin, which has
# the metrics of GPUs, containers and units.
#
# No host has to wait for telemetry: a repository that cannot be read is a warning and is removed again, because
# apt would fail for every other package, unless H200_NETDATA_REQUIRED=1.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"
# shellcheck source=h200-ib/files/apt-repository.sh
source "$GPUAAS_BUNDLE_DIR/files/apt-repository.sh"

list=/etc/apt/sources.list.d/gpuaas-netdata.list
if [[ $H200_ENABLE_NETDATA == 0 || -z $H200_NETDATA_REPO_URL ]]; then
    no_apt_repository netdata
    exit 0
fi
if [[ $H200_NETDATA_REQUIRED == 0 ]]; then
    if ! H200_NETDATA_REQUIRED=1 timeout --kill-after=10 240 bash "$0"; then
        say "warning: Netdata's repository cannot be used: using the distribution's Netdata, if it has one"
        if [[ -e $(at "$list") ]]; then absent "$list"; fi
    fi
    exit 0
fi
# Reads this repository alone.
read_lists() {
    apt_update "${apt[@]}" -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=/dev/null -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any
}
apt_repository netdata "$H200_NETDATA_REPO_URL" "$H200_NETDATA_KEY_URL" "$H200_NETDATA_KEY_SHA256"
after_change netdata-repository "$list" -- read_lists
