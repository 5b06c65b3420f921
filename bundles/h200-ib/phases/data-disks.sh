#!/bin/bash
# Disks that hold nothing become /share1, /share2, ... and are mounted by UUID.
#
# Destructive, so a disk is left alone as soon as anything speaks against it: it is the system's, it
# has a partition, a holder or a signature that wipefs or blkid knows, it is in fstab or mounted, or
# its first or last MiB is not zero (data without a signature, such as a raw volume of a database).
# Where the control plane has mounted data disks already, they have signatures and stay.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

fstab=/etc/fstab
plans=/var/lib/gpuaas/data-disks
edge=1048576

mounts() { if [[ -f $(at "$fstab") ]]; then cat -- "$(at "$fstab")"; fi; }

# Disks of the kernel: with a device behind them, writable, not removable.
disks() {
    local folder name
    for folder in "$GPUAAS_SYSFS"/block/*; do
        name=${folder##*/}
        if [[ -e $folder/device && $name =~ ^(nvme[0-9]+n[0-9]+|sd[a-z]+|vd[a-z]+)$ ]] &&
            [[ $(sysfs_read "block/$name/removable") == 0 && $(sysfs_read "block/$name/ro") == 0 ]]; then
            say "$name"
        fi
    done | sort -V
}

# in_use NAME: prints what speaks against it.
in_use() {
    local name=$1 device=$2 bytes=$3 found status=0
    if ((bytes < H200_DATA_DISK_MIN_GB * 1000000000)); then
        say "it is smaller than $H200_DATA_DISK_MIN_GB GB"
    elif compgen -G "$GPUAAS_SYSFS/block/$name/$name*" >/dev/null; then
        say "it has partitions"
    elif compgen -G "$GPUAAS_SYSFS/block/$name/holders/*" >/dev/null; then
        say "another device uses it"
    elif live && { findmnt -rn -S "$device" >/dev/null || swapon --show=NAME --noheadings | grep -qx -- "$device"; }; then
        say "it is mounted"
    elif grep -qE "^[[:space:]]*/dev/${name}[[:space:]]" <<<"$(mounts)"; then
        say "it is listed in fstab"
    elif ! found=$(wipefs -n -- "$device"); then
        say "wipefs cannot read it"
    elif [[ -n $found ]]; then
        say "it has a signature"
    else
        blkid -p -- "$device" >/dev/null 2>&1 || status=$?
        if ((status != 2)); then
            say "blkid does not report it as empty (status $status)"
        elif ! cmp -s -n "$edge" -- "$device" /dev/zero ||
            ! cmp -s -n "$edge" -i "$((bytes - edge)):0" -- "$device" /dev/zero; then
            say "it holds data at its start or end"
        fi
    fi
}

next_share() {
    local number=1
    while grep -qE "[[:space:]]/share${number}[[:space:]]" <<<"$(mounts)" || [[ -e $(at "/share$number") ]]; do
        number=$((number + 1))
    done
    say "/share$number"
}

# What is planned for a disk is written down first, then fstab, then the disk. So a run that breaks
# off in between is completed by the next, and no line of fstab is written twice.
make_share() {
    local name=$1 device=$2 plan=$plans/$1 uuid='' target='' lines
    if [[ -f $(at "$plan") ]]; then read -r uuid target <"$(at "$plan")"; fi
    if [[ -z $uuid || -e $(at "/dev/disk/by-uuid/$uuid") ]]; then
        uuid=$(</proc/sys/kernel/random/uuid)
        target=$(next_share)
        place "$plan" 0644 <<<"$uuid $target"
    fi
    mkdir -p -- "$(at "$target")"
    lines=$(mounts)
    if [[ $lines != *"UUID=$uuid "* ]]; then
        place "$fstab" 0644 <<<"${lines:+$lines$'\n'}UUID=$uuid $target $H200_DATA_DISK_FS defaults,nofail,x-systemd.device-timeout=30s 0 2"
    fi
    case $H200_DATA_DISK_FS in
        ext4) mkfs.ext4 -q -F -U "$uuid" -- "$device" ;;
        xfs) mkfs.xfs -q -m "uuid=$uuid" "$device" ;;
        *) fail "H200_DATA_DISK_FS is $H200_DATA_DISK_FS, expected ext4 or xfs" ;;
    esac
    say "changed $name is $target"
}

mount_shares() {
    local plan target
    for plan in "$(at "$plans")"/*; do
        [[ -f $plan ]] || continue
        read -r _ target <"$plan"
        if ! host_ask findmnt -rn --mountpoint "$target" >/dev/null; then host_do mount "$target"; fi
    done
}

for tool in wipefs blkid findmnt swapon cmp "mkfs.$H200_DATA_DISK_FS"; do
    command -v "$tool" >/dev/null || fail "$tool is not installed on this host"
done
((H200_DATA_DISK_MIN_GB >= 0)) || fail "H200_DATA_DISK_MIN_GB is $H200_DATA_DISK_MIN_GB, expected 0 or more"
mapfile -t names < <(disks)
for name in "${names[@]}"; do
    device=$(at "/dev/$name")
    bytes=$(($(sysfs_read "block/$name/size") * 512))
    reason=$(in_use "$name" "$device" "$bytes")
    if [[ -n $reason ]]; then
        say "unchanged $name: $reason"
    else
        make_share "$name" "$device"
    fi
done
mount_shares
