# gpuaas image boot-test: what curtin does in an unpacked image ($1) that needs no machine, in namespaces
# of its own: fstab with the identifiers of the root ($2) and the EFI system partition ($3), the defaults
# of grub, the initial file system.
set -eu
tree=$1
mount -t proc proc "$tree/proc"
mount -t sysfs -o ro sysfs "$tree/sys"
mount -t tmpfs tmpfs "$tree/run"
mount --rbind /dev "$tree/dev"
exec chroot "$tree" env -i LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -euc '
    printf "%s\n" "/dev/disk/by-uuid/$1 / ext4 defaults 0 1" "/dev/disk/by-uuid/$2 /boot/efi vfat defaults 0 1" >/etc/fstab
    # The arguments of MAAS take the place of whatever the image has there; here they are what a machine of
    # software with a serial console needs.
    touch /etc/default/grub
    sed -i "/^GRUB_CMDLINE_LINUX_DEFAULT=/d" /etc/default/grub
    printf "%s\n" "GRUB_CMDLINE_LINUX_DEFAULT=\"console=ttyS0 no_timer_check panic=-1\"" \
        "GRUB_DISABLE_OS_PROBER=\"true\"" "GRUB_TERMINAL=\"console\"" >>/etc/default/grub
    settings=/etc/default/grub.d/50-cloudimg-settings.cfg
    if [ -e "$settings" ]; then mv "$settings" "$settings.disabled"; fi
    exec update-initramfs -u -k all
' prepare "$2" "$3"
