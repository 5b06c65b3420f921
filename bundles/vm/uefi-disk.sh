# shellcheck shell=bash
#
# Functions of make-guest.sh and make-image.sh: a disk that UEFI firmware starts by itself.

# Arguments of a kernel that is emulated. Much takes seconds that is of no use there: self-tests, a fifth level
# of page tables, services of PCIe ports, security modules, and copies byte by byte (feature 297, ERMS).
# shellcheck disable=SC2034 # whoever sources this uses it
emulated="quiet no_timer_check panic=-1 cryptomgr.notests no5lvl nokaslr mitigations=off"
emulated+=" pcie_ports=compat lsm= audit=0 clearcpuid=297"

# unified_kernel ROOT INITRD CMDLINE FILE: what the firmware starts: the stub of the system in ROOT
# (systemd-stub(7)) with its kernel, those arguments and that initial system in it.
unified_kernel() {
    local root=$1 initrd=$2 file=$4 arguments
    arguments=$(mktemp)
    printf '%s' "$3" >"$arguments"
    objcopy --add-section .cmdline="$arguments" --change-section-vma .cmdline=0x30000 \
        --add-section .linux="$(echo "$root"/boot/vmlinuz-*)" --change-section-vma .linux=0x2000000 \
        --add-section .initrd="$initrd" --change-section-vma .initrd=0x3000000 \
        "$root/usr/lib/systemd/boot/efi/linuxx64.efi.stub" "$file"
    rm -- "$arguments"
}

# esp_with ROOT KERNEL FILE MIB: a file system for /EFI/BOOT/BOOTX64.EFI, by the tools of the system in ROOT.
esp_with() {
    local root=$1 kernel=$2 file=$3 size=$4
    mkdir -p -- "$root/tmp/esp"
    mv -- "$kernel" "$root/tmp/esp/BOOTX64.EFI"
    chroot -- "$root" /bin/bash -euc "cd /tmp/esp
        truncate -s ${size}M esp
        mkfs.vfat -n ESP esp >/dev/null
        mmd -i esp ::EFI ::EFI/BOOT
        mcopy -i esp BOOTX64.EFI ::EFI/BOOT/"
    mv -- "$root/tmp/esp/esp" "$file"
    rm -rf -- "$root/tmp/esp"
}

# gpt_disk ROOT FILE MIB: an empty disk with the partitions that standard input says (sfdisk(8)).
gpt_disk() {
    local root=$1 file=$2 size=$3
    truncate -s "${size}M" -- "$root/tmp/disk"
    chroot -- "$root" sfdisk -q /tmp/disk
    mv -- "$root/tmp/disk" "$file"
}
