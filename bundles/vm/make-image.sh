#!/bin/bash
# make-image.sh FOLDER [slices|guest]: the system of the emulated machine, from where this machine's apt gets
# its own: FOLDER/disk.raw, FOLDER/kernel, FOLDER/initrd. Made once: what is there of the same packages
# is kept. Root, on Debian or Ubuntu, with mmdebstrap; some 3 minutes and 0.6 GB.
#
# With `slices` the system has libvirt, QEMU, Open vSwitch and dnsmasq as well, takes orders at its second
# serial port, and has a guest of its own beside it, FOLDER/guest.raw (make-guest.sh): some 0.7 GB on disk.
#
# With `guest` it is that of a tenant, FOLDER/guest.raw: Debian with cloud-init, as its packages have it, in
# a disk that UEFI firmware starts.
#
# Of the distribution's kernel only those drivers are kept that the machine can have, and of its
# packages no documentation: unpacking is most of the time. The kernel is not the one for clouds,
# which has no vfio.
set -euo pipefail
folder=$1 kind=${2:-plain}
here=$(cd -- "${BASH_SOURCE[0]%/*}" && pwd)
# shellcheck source-path=SCRIPTDIR source=uefi-disk.sh
source "$here/uefi-disk.sh"
fail() { printf 'error: %s: %s\nhint: %s\n' "$1" "$2" "$3" >&2; exit 1; }

packages=(
    systemd systemd-sysv udev kmod procps pciutils iproute2 jq initramfs-tools grub2-common
    linux-image-amd64
)
size=1G
# Below /lib/modules/VERSION/kernel.
no_modules=(sound)
if [[ $kind == slices ]]; then
    # Below them what the slice host's bundle installs, and what an agent asks or runs.
    packages+=(
        libvirt-clients libvirt-daemon-system libvirt-daemon-driver-qemu qemu-system-x86 qemu-utils ovmf
        openvswitch-switch dnsmasq nftables iptables nvme-cli dosfstools mtools curl ca-certificates apparmor
        numactl fdisk busybox-static systemd-boot-efi
    )
    size=2500M
elif [[ $kind == guest ]]; then
    packages=(
        systemd systemd-sysv udev kmod iproute2 initramfs-tools linux-image-cloud-amd64 cloud-init
        systemd-boot-efi dosfstools mtools fdisk
    )
    # Its udev would load them, each of which takes seconds.
    no_modules+=(arch/x86/kvm arch/x86/crypto)
    size=700M
fi
# Below /lib/modules/VERSION/kernel/drivers.
no_drivers=(
    accessibility ata atm auxdisplay bluetooth char comedi crypto dma edac extcon firewire gpu hid hsi hv
    hwmon i2c iio infiniband input isdn leds media memstick message mfd misc mmc mtd
    net/can net/ethernet net/wireless net/usb ntb parport pcmcia platform power regulator rtc scsi
    soundwire spi staging target thermal thunderbolt tty usb video w1 watchdog xen
)

((EUID == 0)) || fail vm_needs_root "uid $EUID cannot make a system" "run it as root"
# shellcheck source=/dev/null
source /etc/os-release
[[ " $ID ${ID_LIKE:-} " == *" debian "* ]] || fail vm_needs_debian "this is ${PRETTY_NAME:-$ID}" "run it on Debian or Ubuntu"
for tool in mmdebstrap mkfs.ext4; do
    command -v "$tool" >/dev/null || fail vm_tool_missing "there is no $tool" "apt-get install mmdebstrap e2fsprogs"
done
mkdir -p -- "${folder%/*}"
# Whoever comes second waits, and finds it made.
exec 9>"$folder.lock"
flock 9
stamp=$(printf '%s\n' "$VERSION_CODENAME" "$kind" "$(cat -- "$here"/make-*.sh "$here/uefi-disk.sh" | sha256sum)" | sha256sum | cut -c 1-16)
if [[ $(cat -- "$folder/stamp" 2>/dev/null) == "$stamp" ]]; then
    printf '%s is there\n' "$folder"
    exit 0
fi

new=$folder.new
rm -rf -- "$new"
mkdir -p -- "$new/apt"
trap 'rm -rf -- "$new"' EXIT
# The distribution's own lines of this machine's apt, in both of its forms.
for file in /etc/apt/sources.list.d/*.sources; do
    if grep -qE "^Suites:.*\b$VERSION_CODENAME\b" "$file" 2>/dev/null; then cp -- "$file" "$new/apt/"; fi
done
grep -hE "^deb .* $VERSION_CODENAME(-[a-z]+)? " /etc/apt/sources.list /etc/apt/sources.list.d/*.list >"$new/apt/own.list" 2>/dev/null || true
mapfile -t mirrors < <(find "$new/apt" -type f -size +0)
((${#mirrors[@]})) || fail vm_no_mirror "apt has no lines for $VERSION_CODENAME" "see sources.list(5)"

options=(--quiet --format=directory --variant=essential "--include=$(IFS=, && printf '%s' "${packages[*]}")")
options+=(--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --dpkgopt=force-unsafe-io)
for path in /usr/share/doc /usr/share/man /usr/share/locale /usr/share/info /usr/share/i18n; do
    options+=("--dpkgopt=path-exclude=$path/*")
done
for path in "${no_modules[@]}" "${no_drivers[@]/#/drivers/}"; do
    options+=("--dpkgopt=path-exclude=/lib/modules/*/kernel/$path/*")
done
# The initial system needs the disk and nothing else.
# shellcheck disable=SC2016 # mmdebstrap's shell expands it
options+=(--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
    printf "MODULES=list\nCOMPRESS=gzip\n" >"$1/etc/initramfs-tools/conf.d/machine"
    printf "virtio_pci\nvirtio_blk\next4\n" >"$1/usr/share/initramfs-tools/modules.d/machine"')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0} mmdebstrap "${options[@]}" "$VERSION_CODENAME" "$new/root" "${mirrors[@]}" >&2 ||
    fail vm_not_built "mmdebstrap ended badly" "the lines above say why; is the mirror reachable?"

root=$new/root
# Each line at the second serial port is a script in base64, and each answer its status and output.
orders() {
    cat >"$1/etc/systemd/system/orders.service" <<'UNIT'
[Unit]
Description=Orders from outside
After=multi-user.target

[Service]
ExecStart=/usr/local/sbin/orders
Restart=always
StandardOutput=journal+console
StandardError=journal+console
UNIT
    cat >"$1/usr/local/sbin/orders" <<'SCRIPT'
#!/bin/bash
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
printf 'ready\n' >&3
while read -r line <&3; do
    base64 -d <<<"$line" >/run/order
    bash /run/order >/run/answer 2>&1 </dev/null
    printf '%s %s\n' "$?" "$(base64 -w 0 /run/answer)" >&3
done
SCRIPT
    chmod 755 -- "$1/usr/local/sbin/orders"
    ln -sf ../orders.service "$1/etc/systemd/system/multi-user.target.wants/orders.service"
    rm -- "$1/etc/systemd/system/multi-user.target.wants/handed.service"
}
# Units that do nothing for a machine that lives for minutes.
without_idle_units() {
    for unit in getty.target e2scrub_reap.service systemd-timesyncd.service systemd-pstore.service fstrim.timer \
        nvmf-autoconnect.service libvirt-guests.service systemd-binfmt.service; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
}
# The machine's disk, its kernel and its initial system, and for `slices` the guest beside them.
machine() {
    # At boot the machine runs what it is handed on its second disk, and hands back what that leaves.
    cat >"$root/etc/systemd/system/handed.service" <<'UNIT'
[Unit]
Description=What this machine was handed
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/handed
StandardOutput=journal+console
StandardError=journal+console
TimeoutStartSec=infinity
UNIT
    cat >"$root/usr/local/sbin/handed" <<'SCRIPT'
#!/bin/bash
mkdir -p /run/handed/out
tar -x -f /dev/disk/by-id/virtio-handed -C /run/handed
bash /run/handed/run >/run/handed/out/said 2>&1
printf '%s\n' "$?" >/run/handed/out/status
tar -c -f /dev/disk/by-id/virtio-back -C /run/handed/out .
sync
systemctl poweroff --force
SCRIPT
    chmod 755 -- "$root/usr/local/sbin/handed"
    mkdir -p -- "$root/etc/systemd/system/multi-user.target.wants"
    ln -s ../handed.service "$root/etc/systemd/system/multi-user.target.wants/handed.service"
    without_idle_units
    printf 'slice-host\n' >"$root/etc/hostname"
    mkdir -p -- "$root/boot/grub"
    printf '/dev/vda / ext4 errors=remount-ro 0 1\n' >"$root/etc/fstab"
    : >"$root/etc/machine-id"
    cp -- "$root"/boot/vmlinuz-* "$new/kernel"
    cp -- "$root"/boot/initrd.img-* "$new/initrd"
    if [[ $kind == slices ]]; then orders "$root"; fi
    mkfs.ext4 -q -L root -d "$root" "$new/disk.raw" "$size"
    if [[ $kind == slices ]]; then "$here/make-guest.sh" "$root" "$new/guest.raw"; fi
}
# The tenant's disk: the firmware's partition and the system's.
guest() {
    # Its device is unknown to whoever makes it, and so is its datasource.
    printf 'LABEL=root / ext4 errors=remount-ro 0 1\n' >"$root/etc/fstab"
    printf 'localhost\n' >"$root/etc/hostname"
    : >"$root/etc/machine-id"
    without_idle_units
    chroot -- "$root" systemctl --quiet enable systemd-networkd
    unified_kernel "$root" "$(echo "$root"/boot/initrd.img-*)" \
        "console=ttyS0 $emulated root=LABEL=root rw net.ifnames=0" "$new/BOOTX64.EFI"
    esp_with "$root" "$new/BOOTX64.EFI" "$new/esp" 62
    mkfs.ext4 -q -L root -d "$root" "$new/system" "$size"
    printf 'label: gpt\nstart=2048, size=126976, type=uefi\nstart=131072, size=1433600, type=linux\n' |
        gpt_disk "$root" "$new/guest.raw" 768
    dd if="$new/esp" of="$new/guest.raw" bs=1M seek=1 conv=notrunc status=none
    dd if="$new/system" of="$new/guest.raw" bs=1M seek=64 conv=notrunc,sparse status=none
    rm -- "$new/esp" "$new/system"
}
if [[ $kind == guest ]]; then
    guest
else
    machine
fi
rm -rf -- "$root" "$new/apt"
printf '%s\n' "$stamp" >"$new/stamp"
rm -rf -- "$folder"
mv -- "$new" "$folder"
printf '%s is made\n' "$folder"
