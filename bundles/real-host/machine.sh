#!/bin/bash
# machine.sh FOLDER ROOTFS NAME DATASOURCE [OPTIONS]: a host that is real but for its hardware, until it is
# powered off or this process ends.
#
# The rootfs (make-rootfs.sh) is booted by systemd-nspawn, with systemd, networkd, cloud-init and
# every daemon as the distribution has them. Its disk is an overlay in FOLDER, so it outlives a
# reboot; the network is its own, with links that lead nowhere. What a container cannot have is
# played: PCI, InfiniBand and the IOMMU are a tree of the bundles' fixture, the kernel's arguments a
# file that a boot reads from what update-grub wrote. DATASOURCE is what curtin leaves for cloud-init,
# OPTIONS the kernel options that the deployment carried. All mounts and processes are in namespaces
# of their own, so whoever kills this one ends everything in it.
set -euo pipefail
if [[ ${GPUAAS_MACHINE_MOUNTS:-} != own ]]; then
    GPUAAS_MACHINE_MOUNTS=own exec unshare --mount --propagation private --pid --fork --kill-child \
        --mount-proc -- "$0" "$@"
fi
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
folder=$(realpath -- "$1") rootfs=$(realpath -- "$2") name=$3 datasource=$(realpath -- "$4") options=${5:-}
root=$folder/root
hardware=/var/lib/hardware

put() { mkdir -p -- "$root${1%/*}" && cat >"$root$1"; }

# What the maker, the firmware and curtin would have left on a new machine.
deliver() {
    "$here/../fixture/make-host.sh" "$folder/made"
    mkdir -p -- "$root$hardware"
    cp -a -- "$folder/made/sys" "$root$hardware/sys"
    rm -rf -- "$folder/made"
    install -m 755 -- "$here/../fixture/kernel" "$root$hardware/kernel"
    put /etc/hostname <<<"$name"
    # Of the network, as MAAS gives it.
    rm -f -- "$root/etc/resolv.conf"
    put /etc/resolv.conf <<<"nameserver 10.177.36.1"
    put /etc/hosts <<<"127.0.0.1 localhost"$'\n'"127.0.1.1 $name"
    put /etc/cloud/cloud.cfg.d/90_maas.cfg <"$datasource"
    rm -f -- "$root/etc/cloud/cloud-init.disabled" "$root/etc/machine-id"
    : >"$root/etc/machine-id"
    # A container has no grub: what update-grub makes of its files counts from the next boot on.
    put /usr/sbin/update-grub <<'SCRIPT'
#!/bin/sh
set -eu
GRUB_CMDLINE_LINUX_DEFAULT=
for file in /etc/default/grub /etc/default/grub.d/*.cfg; do
    if [ -r "$file" ]; then . "$file"; fi
done
printf 'BOOT_IMAGE=/boot/vmlinuz root=UUID=0 ro %s\n' "$GRUB_CMDLINE_LINUX_DEFAULT" >/var/lib/hardware/cmdline.next
SCRIPT
    chmod 755 -- "$root/usr/sbin/update-grub"
    # NVIDIA's driver comes with a curated image; here it has the fixture's GPUs.
    printf '#!/bin/sh\nGPUAAS_SYSFS=%s/sys exec %s/kernel ask nvidia-smi "$@"\n' "$hardware" "$hardware" | put /usr/bin/nvidia-smi
    chmod 755 -- "$root/usr/bin/nvidia-smi"
    put /etc/default/grub.d/50-curtin-settings.cfg <<<"GRUB_CMDLINE_LINUX_DEFAULT=\"quiet${options:+ $options}\""
    put $hardware/cmdline.next <<<"BOOT_IMAGE=/boot/vmlinuz root=UUID=0 ro quiet${options:+ $options}"
    # Everything that systemd starts finds the hardware there.
    put /etc/systemd/system.conf.d/50-hardware.conf <<CONF
[Manager]
DefaultEnvironment=GPUAAS_SYSFS=$hardware/sys GPUAAS_FIXTURE_KERNEL=$hardware/kernel
CONF
    put /etc/systemd/system/hardware-links.service <<UNIT
[Unit]
Description=Links and arguments that a container does not have
DefaultDependencies=no
Before=network-pre.target systemd-networkd.service cloud-init-local.service
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$hardware/links

[Install]
WantedBy=sysinit.target
UNIT
    put $hardware/links <<'SCRIPT'
#!/bin/sh
set -eu
cp /var/lib/hardware/cmdline.next /var/lib/hardware/cmdline
mount --bind /var/lib/hardware/cmdline /proc/cmdline
GPUAAS_SYSFS=/var/lib/hardware/sys /var/lib/hardware/kernel pages
# Its own ip knows no virtual functions, so their identities are in sysfs, as with NVIDIA's driver.
GPUAAS_SYSFS=/var/lib/hardware/sys /var/lib/hardware/kernel have driver nvidia
number=0
for link in eno1 /var/lib/hardware/sys/class/net/ibp*; do
    ip link add "${link##*/}" type veth peer name "cable$number"
    ip link set "cable$number" up
    number=$((number + 1))
done
SCRIPT
    chmod 755 -- "$root$hardware/links"
    put /etc/netplan/50-cloud-init.yaml <<'PLAN'
network:
  version: 2
  renderer: networkd
  ethernets:
    eno1:
      accept-ra: false
      link-local: []
      addresses: [10.177.36.100/24]
      routes: [{to: 0.0.0.0/0, via: 10.177.36.1}]
PLAN
    chmod 600 -- "$root/etc/netplan/50-cloud-init.yaml"
    put /etc/cloud/cloud.cfg.d/91_host.cfg <<<$'network: {config: disabled}\nlocale: false'
    chroot "$root" systemctl --quiet enable hardware-links.service systemd-networkd.service
    : >"$root$hardware/delivered"
}

mkdir -p -- "$folder"/{disk,work,root}
mount -t overlay overlay -o "lowerdir=$rootfs,upperdir=$folder/disk,workdir=$folder/work" "$root"
if [[ ! -e $root$hardware/delivered ]]; then deliver; fi
# systemd in the container wants version 2 of control groups, and nspawn a /run that is a tmpfs.
mount -t tmpfs tmpfs /run
if [[ $(stat -f -c %T /sys/fs/cgroup) != cgroup2fs ]]; then
    mount -t tmpfs tmpfs /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
# Two systems in one control group would end each other's services. What hosts left that were ended is
# empty, and goes.
find /sys/fs/cgroup -mindepth 1 -depth -type d -path '/sys/fs/cgroup/gpuaas-host-*' -exec rmdir -- {} + 2>/dev/null || true
group=/sys/fs/cgroup/gpuaas-host-$name-$(stat -c %i -- "$folder")
if mkdir -p -- "$group" 2>/dev/null; then printf '%s\n' "$$" >"$group/cgroup.procs" || true; fi
# A host that starts again has nspawn end with 133, as for systemd to start its unit again (--keep-unit).
status=133
while ((status == 133)); do
    status=0
    systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit --private-network \
        --machine="$name" --console=pipe --capability=all --kill-signal=SIGRTMIN+4 \
        --bind=/dev/net/tun || status=$?
done
exit "$status"
