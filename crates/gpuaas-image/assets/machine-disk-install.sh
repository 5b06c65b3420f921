#!/bin/bash
# Installs the boot loader as curtin does before a first boot, as the first and only process of a machine
# that runs the image's own kernel. In a chroot on a loop device grub finds no device for its menu, and says
# nothing of that; here the disk is the machine's. `removable`: where firmware without a boot entry looks,
# too.
#
# What went wrong goes to the second serial port as `failed_step STEP`, or `installed yes`.
set -eEuo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
step='mount what the kernel shows'
end() {
    sync
    systemctl poweroff --force --force
}
trap 'printf "failed_step %s\n" "$step" >/dev/ttyS1; end' ERR

for pair in proc:/proc sysfs:/sys devtmpfs:/dev tmpfs:/run; do
    mountpoint -q "${pair#*:}" || mount -t "${pair%%:*}" "${pair%%:*}" "${pair#*:}"
done
stty -F /dev/ttyS1 raw -echo
# Firmware writes to every serial port, and ends none of its lines.
printf '\n' >/dev/ttyS1
mount -o remount,rw /

step='find UEFI variables'
modprobe -q efivarfs || true
mountpoint -q /sys/firmware/efi/efivars || mount -t efivarfs efivarfs /sys/firmware/efi/efivars

step='mount the EFI system partition'
mkdir -p /boot/efi
mount /boot/efi

step='install grub'
# The signed grub looks for its menu below the distribution's own name.
# shellcheck source=/dev/null
id=$(. /etc/os-release && printf '%s' "$ID")
options=(--target=x86_64-efi --efi-directory=/boot/efi "--bootloader-id=$id" --recheck)
if [[ " $* " == *' removable '* ]]; then options+=(--force-extra-removable); fi
grub-install "${options[@]}"

step='write the menu of grub'
update-grub
# A menu without an entry boots nothing.
grep -q '^menuentry ' /boot/grub/grub.cfg

step='unmount the EFI system partition'
umount /boot/efi
rm -- "$0"
printf 'installed yes\n' >/dev/ttyS1
mount -o remount,ro / || true
end
