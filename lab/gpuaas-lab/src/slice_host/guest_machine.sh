#!/bin/bash
# guest_machine.sh start|runs|stop DOCUMENT ROOT: a guest of a played domain that is real. QEMU without KVM starts
# it with the domain's firmware, its MAC, its drive and its seed. In place of the bridge there is a network of
# QEMU's, with the address that the seed names, behind which the agent of the host listens.
set -euo pipefail
verb=$1 document=$2 root=$3 claim=${2##*/}
claim=${claim%.xml} process=${document%.xml}.machine
runs() { kill -0 "$(<"$process")" 2>/dev/null; }
case $verb in
    runs)
        runs
        exit
        ;;
    stop)
        if [[ ! -e $process ]]; then exit 0; fi
        kill -9 "$(<"$process")" 2>/dev/null || true
        while runs; do sleep 0.1; done
        rm -f -- "$process" "${document%.xml}.vars"
        exit
        ;;
esac
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
setsid qemu-system-x86_64 "${machine[@]}" </dev/null >"$root/run/emulator/console" 2>&1 &
printf '%s\n' "$!" >"$process"
