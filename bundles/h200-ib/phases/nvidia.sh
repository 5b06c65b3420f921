#!/bin/bash
# NVIDIA's driver and fabric manager on bare metal, where the image did not bring them: without them
# nvidia-smi lists no GPU, and the host does not become active. A slice host has none of it: its GPUs
# are its guests'.
#
# A driver that is there stays as it is, whatever its version. GPUs that it misses are no matter of
# packages, and the gate says so.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

if [[ $H200_HOST_ROLE == slice ]]; then
    say "unchanged: a slice host reserves its GPUs for guests"
    exit 0
fi

found() { host_ask nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true; }

# The fabric manager takes the driver of its own version alone.
of_one_version() {
    local versions
    # shellcheck disable=SC2086 # a list of names
    versions=$(dpkg-query --admindir="$(at /var/lib/dpkg)" -W -f '${Version}\n' -- $H200_NVIDIA_PACKAGES 2>/dev/null |
        sed 's/^[0-9]*://; s/[-~+].*//' | sort -u) || true
    if [[ $versions == *$'\n'* ]]; then
        say "warning: NVIDIA's packages have different versions (${versions//$'\n'/, }): use packages from one repository"
    fi
}

# Modules that were built just now, for the kernel that runs where its headers are to be had.
bring_driver() {
    local headers
    headers=linux-headers-$(host_ask uname -r || true)
    GPUAAS_PACKAGES=$H200_NVIDIA_PACKAGES GPUAAS_OPTIONAL_PACKAGES=${headers%-} \
        GPUAAS_BUNDLE=h200-ib-nvidia@1 packages_install
    if dry; then return 0; fi
    of_one_version
    kernel_do modprobe nvidia || say "warning: the running kernel cannot load the module nvidia"
}

count=$(found)
# shellcheck disable=SC2086 # a list of names
missing=$(packages_missing $H200_NVIDIA_PACKAGES)
if ((count > 0)); then
    say "unchanged nvidia-smi lists $count GPUs"
elif [[ -z $H200_NVIDIA_PACKAGES || $H200_INSTALL_PACKAGES == 0 ]]; then
    say "warning: nvidia-smi lists no GPU, and driver installation is off: use an image that has the driver"
elif [[ -n $missing ]]; then
    bring_driver
    count=$(found)
    if ((count == 0)) && ! dry; then reboot_needed "nvidia-smi lists no GPU yet: NVIDIA's driver loads at the next boot"; fi
elif reboot_is_due; then
    say "unchanged NVIDIA's driver is installed and loads at the next boot"
else
    say "warning: NVIDIA's driver is installed and no reboot is pending, but nvidia-smi lists no GPU: check dmesg"
fi
# Whether each GPU has joined the fabric of the NVSwitches; no program can use one that has not.
fabric_ready() {
    host_ask nvidia-smi -q 2>/dev/null | awk '
        /^GPU / { gpus++ }
        $1 == "Fabric" { inside = 1; next }
        inside && $1 == "State" { state = $3 }
        inside && $1 == "Status" { ready += state == "Completed" && $3 == "Success"; inside = 0 }
        END { exit !(gpus > 0 && ready == gpus) }'
}

# The package of the fabric manager for the driver that is there.
fabric_manager_package() {
    local major package
    major=$(host_ask nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1) || true
    major=${major%%.*}
    for package in $H200_NVIDIA_PACKAGES; do
        if [[ $package == *fabricmanager* && $major =~ ^[0-9]+$ && -$package- == *-"$major"-* ]]; then say "$package"; fi
    done
}

bring_fabric_manager() {
    local package
    package=$(fabric_manager_package)
    if [[ -z $package || $H200_INSTALL_PACKAGES == 0 ]]; then
        say "warning: nvidia-fabricmanager.service is missing, and no fabric manager package for this driver will be installed: programs cannot use the GPUs"
    elif [[ -n $(packages_missing "$package") ]]; then
        GPUAAS_PACKAGES=$package GPUAAS_OPTIONAL_PACKAGES='' GPUAAS_BUNDLE=h200-ib-fabric-manager@1 packages_install
    fi
}

start_fabric_manager() {
    local left
    unit_running nvidia-fabricmanager.service
    if dry || fabric_ready; then return 0; fi
    # It may run since before the GPUs were there.
    if repairing; then unit_restart nvidia-fabricmanager.service; fi
    for ((left = 60; left > 0; left--)); do
        if fabric_ready || ! wait_a_second; then break; fi
    done
    if ! fabric_ready; then say "warning: the GPUs have not joined the NVSwitch fabric: check journalctl -u nvidia-fabricmanager.service"; fi
}

# The fabric manager is for NVSwitches, and fails where there are none (H200 NVL).
units=(nvidia-persistenced.service)
if [[ -z $(pci_functions 10de 0680) ]]; then
    say "no NVSwitch on this host: the fabric manager is not started"
else
    if ((count > 0)) && [[ -z $(unit_file nvidia-fabricmanager.service) ]]; then bring_fabric_manager; fi
    if ((count > 0)) && [[ -n $(unit_file nvidia-fabricmanager.service) ]]; then
        start_fabric_manager
    else
        units+=(nvidia-fabricmanager.service)
    fi
fi
for unit in "${units[@]}"; do
    if [[ -z $(unit_file "$unit") ]]; then
        say "$unit is not installed on this host"
    elif ((count > 0)); then
        unit_running "$unit"
    else
        unit_enabled "$unit" # it starts with the driver
    fi
done
