#!/bin/bash
# machine.sh IMAGE DISK HANDED BACK ARGUMENTS: a machine of software, until it powers itself off.
#
# IMAGE is what make-image.sh made, DISK the machine's own copy of its disk, HANDED a tar that it
# takes apart and runs (`run` in it), BACK a file that it writes a tar to. ARGUMENTS are the
# kernel's. No processor feature of this machine is needed (TCG, not KVM), and no network.
#
# What a slice host is about is QEMU's here and the kernel's own: an IOMMU (VT-d), two NUMA nodes, a
# controller with SR-IOV (NVMe, which plays the fabric's adapter), two endpoints that nothing else
# drives (`edu`, the GPUs), one below each node's root, each behind a root port with ACS.
set -euo pipefail
image=$1 disk=$2 handed=$3 back=$4 arguments=$5
if [[ ! -e $disk ]]; then cp --sparse=always --reflink=auto -- "$image/disk.raw" "$disk"; fi
truncate -s 16M -- "$back"
# shellcheck disable=SC2054 # the commas are QEMU's
machine=(
    -machine q35,kernel-irqchip=split -accel tcg,thread=multi -cpu qemu64,+x2apic -m 1024
    -smp 2,sockets=2 -object memory-backend-ram,id=m0,size=512M -object memory-backend-ram,id=m1,size=512M
    -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1
    -device intel-iommu,intremap=on
    -display none -monitor none -serial stdio -nic none -no-reboot
)
drive() { # FILE SERIAL
    machine+=(-drive "file=$1,format=raw,if=none,id=$2,cache=unsafe" -device "virtio-blk-pci,drive=$2,serial=$2")
}
drive "$disk" root
drive "$handed" handed
drive "$back" back
# shellcheck disable=SC2054 # the commas are QEMU's
machine+=(
    -device pxb-pcie,id=near,bus_nr=0x40,numa_node=0,bus=pcie.0
    -device pxb-pcie,id=far,bus_nr=0x80,numa_node=1,bus=pcie.0
    -device pcie-root-port,id=port0,bus=near,slot=1,chassis=1
    -device pcie-root-port,id=port1,bus=near,slot=2,chassis=2
    -device pcie-root-port,id=port2,bus=far,slot=3,chassis=3
    -device nvme-subsys,id=adapter
    -drive driver=null-co,size=64M,if=none,id=space
    -device nvme,id=physical,serial=adapter,subsys=adapter,bus=port0,sriov_max_vfs=4,max_ioqpairs=10,msix_qsize=10,sriov_vq_flexible=8,sriov_vi_flexible=4
    -device nvme-ns,drive=space,bus=physical
    -device edu,bus=port1
    -device edu,bus=port2
)
# A busy machine emulates no timer that the kernel would trust, and a kernel that gave up is at its end.
own="console=ttyS0 root=/dev/vda rw net.ifnames=0 quiet no_timer_check panic=-1"
exec qemu-system-x86_64 "${machine[@]}" -kernel "$image/kernel" -initrd "$image/initrd" \
    -append "$own $arguments" </dev/null
