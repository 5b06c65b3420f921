#!/bin/bash
# guest_machine.sh DOCUMENT ROOT: a guest of a played domain that is real. QEMU without KVM starts it with the
# domain's firmware, its MAC, its drive and its seed. In place of the bridge there is a network of QEMU's, with
# the address that the seed names, behind which the agent of the host listens.
set -euo pipefail
document=$1 root=$2 claim=${1##*/}
claim=${claim%.xml}
one() { sed -n "s/.*$1.*/\1/p" "$document" | head -n 1; }
mac=$(one '<mac address="\([^"]*\)"')
drive=$(one '<source dev="\([^"]*\)"')
serial=$(one '<serial>\([^<]*\)<')
firmware=$(one '<loader [^>]*>\([^<]*\)<')
variables=$(one '<nvram template="\([^"]*\)"')
folder=$root/var/lib/gpuaas/slices/$claim
called=$(sed -n 's/^ *url: http:\/\/\([^\/]*\)\/.*/\1/p' "$folder/vendor-data")
listens=$(<"$root/run/gpuaas/guest-call.port")
forward="bash -c 'exec 3<>/dev/tcp/127.0.0.1/$listens; cat <&3 & cat >&3'"
network=${called%.*}
cp -- "$variables" "${document%.xml}.vars"
# The host keeps an address of the network for itself, and one for names: not the one that guests call.
# shellcheck disable=SC2054 # the commas are QEMU's
machine=(
    -machine q35 -accel tcg -cpu max -m 1024 -display none -monitor none -no-reboot -serial stdio
    -drive "if=pflash,format=raw,readonly=on,file=$firmware"
    -drive "if=pflash,format=raw,file=${document%.xml}.vars"
    -drive "file=$root$drive,format=raw,if=none,id=drive,discard=unmap"
    -device "virtio-blk-pci,drive=drive,serial=$serial,bootindex=1"
    -drive "file=$folder/seed.img,format=raw,if=none,id=seed,readonly=on" -device virtio-blk-pci,drive=seed
    -device virtio-rng-pci
    -netdev "user,id=net,restrict=on,net=$network.0/24,host=$network.2,dns=$network.3,dhcpstart=$network.10,guestfwd=tcp:$called-cmd:$forward"
    -device "virtio-net-pci,netdev=net,mac=$mac"
)
exec qemu-system-x86_64 "${machine[@]}"
