#!/bin/bash
# Which InfiniBand stack the host has.
#
# none:  whatever the kernel brings and loads by itself.
# inbox: the kernel's own modules, loaded at every boot; fails where the kernel has none.
# doca:  NVIDIA's DKMS packages, from a repository that the site names; with
#        H200_INSTALL_PACKAGES=0 only those that the image has. The adapters' firmware stays as it
#        is: an installation that is ended at its time limit must not be one that flashes.
#
# none is the default. In an image the DKMS packages can make MAAS' curtin fail in the kernel's or
# the headers' post-install step, so they belong here, behind the installation; and a site asks for
# them once it has seen them build for its kernel.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"
# shellcheck source=h200-ib/files/apt-repository.sh
source "$GPUAAS_BUNDLE_DIR/files/apt-repository.sh"

modules=(mlx5_core mlx5_ib ib_umad ib_ipoib)
modules_file=/etc/modules-load.d/gpuaas-fabric.conf

load_modules() {
    local module
    for module in "${modules[@]}"; do
        kernel_do modprobe "$module"
    done
}

case $H200_OFED in
    none)
        say "using the kernel's own InfiniBand stack: DKMS packages are built on request only"
        absent "$modules_file"
        ;;
    inbox)
        printf '%s\n' "${modules[@]}" | place "$modules_file" 0644
        after_change ofed-modules "$modules_file" -- load_modules
        ;;
    doca)
        absent "$modules_file"
        if [[ -z $(packages_missing doca-ofed) ]]; then
            say "unchanged doca-ofed is installed"
        elif [[ $H200_INSTALL_PACKAGES == 0 ]]; then
            say "warning: doca-ofed is not installed; with H200_INSTALL_PACKAGES=0 the image must include it"
        elif ! live; then
            say "would install doca-ofed from $H200_DOCA_REPO_URL"
        else
            apt_repository doca "$H200_DOCA_REPO_URL" "$H200_DOCA_KEY_URL" "$H200_DOCA_KEY_SHA256"
            GPUAAS_PACKAGES=doca-ofed GPUAAS_OPTIONAL_PACKAGES='' GPUAAS_BUNDLE=h200-ib-ofed@1 packages_install
            reboot_needed "doca-ofed replaces modules that are in use"
        fi
        ;;
    *) fail "H200_OFED is $H200_OFED, expected none, inbox or doca" ;;
esac
