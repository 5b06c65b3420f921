#!/bin/bash
# make-guest.sh ROOT IMAGE: a disk that OVMF boots, with the kernel of the system in ROOT and a tenant that
# is one shell script: it takes an address, writes down on its own disk what it sees of its machine, and
# calls its host as cloud-init would (phone_home of the seed's vendor-data).
#
# A whole Debian would take a guest of an emulated machine many minutes.
set -euo pipefail
root=$1 image=$2
version=$(basename -- "$root"/lib/modules/*)
work=$root/tmp/guest
mkdir -p -- "$work/tree/bin" "$work/tree/lib" "$work/tree/dev" "$work/tree/proc" "$work/tree/sys"
cp -- "$root/bin/busybox" "$work/tree/bin/busybox"
for name in sh mount insmod ip udhcpc wget dd cat echo sleep strings grep sed basename nproc yes head sync tr; do
    ln -s busybox "$work/tree/bin/$name"
done
# With what they need, in the order in which they need each other.
mapfile -t modules < <(chroot -- "$root" modprobe --set-version "$version" --show-depends --all virtio_pci virtio_blk virtio_net |
    sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++')
for file in "${modules[@]}"; do cp -- "$root/$file" "$work/tree/lib/"; done
cat >"$work/tree/init" <<INIT
#!/bin/sh
# What a tenant leaves, and what it sees.
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for file in ${modules[*]##*/}; do insmod /lib/\$file; done
INIT
cat >>"$work/tree/init" <<'INIT'
# Sizes of the six registers.
bars() { while read -r first last flags; do echo $((last - first + 1)); done | head -n 6 | tr '\n' ' '; }
report() {
    echo "GUEST-REPORT"
    for device in /sys/bus/pci/devices/*; do
        echo "pci $(basename $device) $(cat $device/vendor) $(cat $device/device) $(cat $device/class) node $(cat $device/numa_node) bars $(bars <$device/resource)"
    done
    for node in /sys/devices/system/node/node*; do
        echo "node $(basename $node) cpus $(cat $node/cpulist) kb $(sed -n 's/.*MemTotal: *\([0-9]*\).*/\1/p' $node/meminfo)"
    done
    for disk in /sys/block/vd*; do echo "disk $(basename $disk) $(cat $disk/serial) $(cat $disk/size)"; done
    echo "mac $(cat /sys/class/net/eth0/address)"
    echo "seconds $(cat /proc/uptime)"
    echo "GUEST-REPORT-END"
}
report >/report
cat /report
# 8 MiB of it behind the image, with the name of the slot in each line.
name=$(cat /sys/block/vda/serial)
yes "TENANT-PATTERN of $name" | head -c 8388608 | dd of=/dev/vda bs=1M seek=40 conv=fsync,notrunc 2>/dev/null
dd if=/report of=/dev/vda bs=1M seek=48 conv=fsync,notrunc 2>/dev/null
sync
echo '#!/bin/sh
case $1 in bound) ip addr add $ip/$mask dev $interface; ip route add default via $router;; esac' >/dhcp
busybox chmod 755 /dhcp
ip link set eth0 up
udhcpc -i eth0 -q -n -t 20 -s /dhcp
url=$(strings /dev/vdb | sed -n 's/^ *url: *\(http[^ ]*\).*/\1/p' | head -n 1)
echo "calls $url"
until wget -q -O /dev/null --post-data "instance_id=guest" "$url"; do sleep 3; done
echo "called after $(cat /proc/uptime) s"
while true; do sleep 3600; done
INIT
chmod 755 -- "$work/tree/init"
inside() { chroot -- "$root" /bin/bash -euc "$1"; }
inside 'cd /tmp/guest/tree; find . | LC_ALL=C sort | cpio --quiet -o -H newc | gzip -1 >../initrd'
# The firmware starts the kernel, with its arguments and its initial system in it (systemd-stub(7)).
printf 'console=ttyS0 quiet no_timer_check panic=-1' >"$work/cmdline"
objcopy --add-section .cmdline="$work/cmdline" --change-section-vma .cmdline=0x30000 \
    --add-section .linux="$root/boot/vmlinuz-$version" --change-section-vma .linux=0x2000000 \
    --add-section .initrd="$work/initrd" --change-section-vma .initrd=0x3000000 \
    "$root/usr/lib/systemd/boot/efi/linuxx64.efi.stub" "$work/BOOTX64.EFI"
inside 'cd /tmp/guest
    truncate -s 32M image
    printf "label: gpt\nstart=2048, type=uefi\n" | sfdisk -q image
    truncate -s 30M esp
    mkfs.vfat -n ESP esp >/dev/null
    mmd -i esp ::EFI ::EFI/BOOT
    mcopy -i esp BOOTX64.EFI ::EFI/BOOT/
    dd if=esp of=image bs=1M seek=1 conv=notrunc status=none'
mv -- "$work/image" "$image"
rm -rf -- "$work"
