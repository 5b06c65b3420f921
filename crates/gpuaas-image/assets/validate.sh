#!/bin/bash
# gpuaas-h200-host-image-validate.sh: whether a host has what its image was built with. A line for each
# check; ends with 1 where one fails. What only the machine itself can show is skipped in a container.
set -uo pipefail
failures=0
packages=(@PACKAGES@)
bundles=(@BUNDLES@)
kernel_arguments=(@KERNEL_ARGUMENTS@)

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >/dev/null 2>&1; then
        printf 'ok    %s\n' "$name"
    else
        printf 'fails %s\n' "$name"
        failures=$((failures + 1))
    fi
}
skip() { printf 'skip  %s: %s\n' "$1" "$2"; }

# shellcheck disable=SC2317 # check calls it
is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' -- "$1" 2>/dev/null) == installed ]]; }
# shellcheck disable=SC2317 # check calls it
sets_argument() { grep -qsE "^GRUB_CMDLINE_LINUX=.*[\" ]$1[\" ]" /etc/default/grub.d/*.cfg; }

check 'build record' test -s /etc/gpuaas/maas-host-image-build.json
for package in "${packages[@]}"; do
    check "package $package" is_installed "$package"
done
for bundle in "${bundles[@]}"; do
    check "bundle $bundle" test -x "/usr/local/share/gpuaas/site-bootstrap/$bundle/bootstrap.sh"
done
for argument in "${kernel_arguments[@]}"; do
    check "kernel argument $argument is set" sets_argument "$argument"
    if systemd-detect-virt --quiet --container; then
        skip "kernel argument $argument is in use" 'a container has no kernel of its own'
    else
        check "kernel argument $argument is in use" grep -qwF -- "$argument" /proc/cmdline
    fi
done
if command -v docker >/dev/null; then
    check 'docker bounds its logs' grep -qs max-size /etc/docker/daemon.json
fi
# What systemd makes of all drop-ins, a bundle's among them.
# shellcheck disable=SC2317 # check calls it
is_bounded() { systemctl show -P ExecStart systemd-networkd-wait-online.service | grep -q -- --timeout=; }
check 'waiting for the network is bounded' is_bounded
exit $((failures > 0))
