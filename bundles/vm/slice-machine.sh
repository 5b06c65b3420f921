#!/bin/bash
# slice-machine.sh IMAGE FOLDER PORT: a slice host of software, until it powers itself off or is killed.
#
# IMAGE is what `make-image.sh ... slices` made. FOLDER gets the machine's own disk, its drives and the
# socket of its second serial port, which takes orders (make-image.sh), and has `handed.tar`, which the
# machine finds as its disk `handed`. PORT of 127.0.0.1 is what the machine reaches at 10.0.2.100:8443, and
# it reaches nothing else. No processor feature of this machine is needed (TCG, not KVM).
#
# Two NUMA nodes with two cores and a page of 1 GiB for a guest (below 4 GiB there is no room for one, so
# the first node has more), and each has below a root complex of its own: an endpoint with a prefetchable window that nothing drives (`pci-testdev`, the GPU), a controller with SR-IOV (NVMe,
# which plays the fabric's adapter), and a drive, each behind a root port with ACS.
set -euo pipefail
image=$1 folder=$2 port=$3
cp --sparse=always --reflink=auto -- "$image/disk.raw" "$folder/disk.raw"
cp --sparse=always -- "$image/guest.raw" "$folder/guest.raw"
for name in near far; do truncate -s 64M -- "$folder/$name.raw"; done
forward="bash -c 'exec 3<>/dev/tcp/127.0.0.1/$port; cat <&3 & cat >&3'"
# shellcheck disable=SC2054 # the commas are QEMU's
machine=(
    -machine q35,kernel-irqchip=split -accel tcg,thread=multi
    -cpu qemu64,+pdpe1gb,+ssse3,+sse4.1,+sse4.2,+popcnt -m 7168
    -smp 4,sockets=2,cores=2 -object memory-backend-ram,id=m0,size=4G -object memory-backend-ram,id=m1,size=3G
    -numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1
    -numa dist,src=0,dst=1,val=21
    -device intel-iommu,intremap=on,aw-bits=48
    -display none -monitor none -no-reboot -serial stdio
    -chardev "socket,id=orders,path=$folder/orders,server=on,wait=off" -serial chardev:orders
    -netdev "user,id=net,restrict=on,guestfwd=tcp:10.0.2.100:8443-cmd:$forward" -device virtio-net-pci,netdev=net
)
drive() { # FILE SERIAL
    machine+=(-drive "file=$1,format=raw,if=none,id=$2,cache=unsafe" -device "virtio-blk-pci,drive=$2,serial=$2")
}
drive "$folder/disk.raw" root
drive "$folder/handed.tar" handed
drive "$folder/guest.raw" guest
slot() { # NAME BUS NODE FIRST-CHASSIS MIB-OF-THE-GPU
    # shellcheck disable=SC2054 # the commas are QEMU's
    machine+=(
        -device "pxb-pcie,id=$1,bus_nr=$2,numa_node=$3,bus=pcie.0"
        -device "pcie-root-port,id=$1-gpu,bus=$1,slot=$(($4 + 1)),chassis=$(($4 + 1))"
        -device "pcie-root-port,id=$1-fabric,bus=$1,slot=$(($4 + 2)),chassis=$(($4 + 2))"
        -device "pcie-root-port,id=$1-drive,bus=$1,slot=$(($4 + 3)),chassis=$(($4 + 3))"
        -device "pci-testdev,membar=${5}M,bus=$1-gpu"
        -device "nvme-subsys,id=$1-adapter"
        -device "nvme,serial=$1-adapter,subsys=$1-adapter,bus=$1-fabric,sriov_max_vfs=2,max_ioqpairs=6,msix_qsize=6,sriov_vq_flexible=4,sriov_vi_flexible=2"
        -drive "file=$folder/$1.raw,format=raw,if=none,id=$1-space,cache=writeback,discard=unmap"
        -device "nvme,serial=DRIVE-$1,drive=$1-space,bus=$1-drive"
    )
}
slot near 0x40 0 0 64
slot far 0x80 1 10 128
# Where the kernel lies by chance, the first node may have no whole GiB left (nokaslr).
own="console=ttyS0 root=/dev/vda rw net.ifnames=0 quiet no_timer_check panic=-1 nokaslr"
own+=" intel_iommu=on iommu=pt hugepagesz=1G hugepages=0:1,1:1"
exec qemu-system-x86_64 "${machine[@]}" -kernel "$image/kernel" -initrd "$image/initrd" -append "$own" </dev/null
