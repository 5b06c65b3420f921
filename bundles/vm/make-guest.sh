#!/bin/bash
# make-guest.sh ROOT IMAGE: a disk that OVMF boots, with the kernel of the system in ROOT and a tenant that
# is one shell script: it takes an address, writes down on its own disk what it sees of its machine, and
# calls its host as cloud-init would (phone_home of the seed's vendor-data).
#
# A whole Debian would take a guest of an emulated machine many minutes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=uefi-disk.sh
source "${BASH_SOURCE[0]%/*}/uefi-disk.sh"
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
# What a tenant sees of its machine, and what it leaves.
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for file in ${modules[*]##*/}; do insmod /lib/\$file; done
INIT
cat >>"$work/tree/init" <<'INIT'
# Without another process where the shell can do it: one takes a good part of a second.
report() {
    echo "GUEST-REPORT"
    for device in /sys/bus/pci/devices/*; do
        read -r vendor <$device/vendor; read -r kind <$device/device; read -r node <$device/numa_node
        sizes= count=0
        case "$vendor $kind" in "0x1b36 0x0005" | "0x1b36 0x0010")
            while [ $count -lt 6 ] && read -r first last flags; do
                sizes="$sizes $((last - first + 1))" count=$((count + 1))
            done <$device/resource ;;
        esac
        echo "pci ${device##*/} $vendor $kind node $node bars$sizes"
    done
    for node in /sys/devices/system/node/node[0-9]*; do
        cpus=$(cat $node/cpulist)
        read -r first second third kib unit <$node/meminfo
        echo "node ${node##*/} cpus $cpus kb $kib"
    done
    for disk in /sys/block/vd*; do
        serial=; read -r serial <$disk/serial; read -r size <$disk/size
        echo "disk ${disk##*/} $serial $size"
    done
    read -r mac </sys/class/net/eth0/address; echo "mac $mac"
    read -r uptime idle </proc/uptime; echo "seconds $uptime"
    echo "GUEST-REPORT-END"
}
report >/report
cat /report
# Which disk comes first is a matter of chance. The slot's has a name, and the seed has none.
for disk in /sys/block/vd*; do
    serial=; read -r serial <$disk/serial
    case $serial in slot*) own=/dev/${disk##*/} slot=$serial ;; *) seed=/dev/${disk##*/} ;; esac
done
# 2 MiB of it behind the image, with the name of the slot in each line.
yes "TENANT-PATTERN of $slot" | head -c 2097152 | dd of=$own bs=1M seek=40 conv=fsync,notrunc 2>/dev/null
dd if=/report of=$own bs=1M seek=48 conv=fsync,notrunc 2>/dev/null
sync
echo '#!/bin/sh
case $1 in bound) ip addr add $ip/$mask dev $interface; ip route add default via $router;; esac' >/dhcp
busybox chmod 755 /dhcp
ip link set eth0 up
udhcpc -i eth0 -q -n -t 20 -s /dhcp
url=$(strings $seed | sed -n 's/^ *url: *\(http[^ ]*\).*/\1/p' | head -n 1)
echo "calls $url"
until wget -q -O /dev/null --post-data "instance_id=guest" "$url"; do sleep 3; done
echo "called after $(cat /proc/uptime) s"
while true; do sleep 3600; done
INIT
chmod 755 -- "$work/tree/init"
inside() { chroot -- "$root" /bin/bash -euc "$1"; }
inside 'cd /tmp/guest/tree; find . | LC_ALL=C sort | cpio --quiet -o -H newc | gzip -1 >../initrd'
unified_kernel "$root" "$work/initrd" "console=ttyS0 $emulated" "$work/kernel"
esp_with "$root" "$work/kernel" "$work/esp" 30
printf 'label: gpt\nstart=2048, type=uefi\n' | gpt_disk "$root" "$work/image" 32
dd if="$work/esp" of="$work/image" bs=1M seek=1 conv=notrunc status=none
mv -- "$work/image" "$image"
rm -rf -- "$work"
