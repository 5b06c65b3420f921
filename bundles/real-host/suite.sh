#!/bin/bash
# suite.sh ROOTFS [TEST...]: bundles/test.sh with the tools of the system in ROOTFS (make-rootfs.sh), in
# namespaces of its own and on an overlay: neither this machine nor the system is changed. Root.
set -euo pipefail
if [[ ${GPUAAS_SUITE_MOUNTS:-} != own ]]; then
    GPUAAS_SUITE_MOUNTS=own exec unshare --mount --propagation private --pid --fork --kill-child --net -- "$0" "$@"
fi
repository=$(realpath -- "$(dirname -- "${BASH_SOURCE[0]}")/../..")
rootfs=$(realpath -- "$1")
shift
# What is mounted here is gone with the namespace.
mount -t tmpfs tmpfs /mnt
mkdir -- /mnt/{disk,work,root}
mount -t overlay overlay -o "lowerdir=$rootfs,upperdir=/mnt/disk,workdir=/mnt/work" /mnt/root
mount -t proc proc /mnt/root/proc
mount --rbind /sys /mnt/root/sys
mount --rbind /dev /mnt/root/dev
mkdir -- /mnt/root/repository
for part in bundles crates xtask .ci; do
    mkdir -- "/mnt/root/repository/$part"
    mount --bind -o ro "$repository/$part" "/mnt/root/repository/$part"
done
mount -t tmpfs tmpfs /mnt/root/tmp
cat -- "$rootfs/etc/gpuaas-rootfs-lacks" 2>/dev/null || true
# shellcheck source=/dev/null
(source "$rootfs/etc/os-release" && printf 'bundles/test.sh on %s\n' "$PRETTY_NAME")
exec chroot /mnt/root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash /repository/bundles/test.sh "$@"
