# What curtin does in an unpacked image ($1) that needs no machine, in namespaces of its own: fstab with the
# identifiers of the root ($2) and the EFI system partition ($3), lines ($4) in the place of the kernel
# arguments of grub's defaults unless there are none, the initial file system.
set -eu
tree=$1
mount -t proc proc "$tree/proc"
mount -t sysfs -o ro sysfs "$tree/sys"
mount -t tmpfs tmpfs "$tree/run"
mount --rbind /dev "$tree/dev"
exec chroot "$tree" env -i LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -euc '
    printf "%s\n" "/dev/disk/by-uuid/$1 / ext4 defaults 0 1" "/dev/disk/by-uuid/$2 /boot/efi vfat defaults 0 1" >/etc/fstab
    if [ -n "$3" ]; then
        touch /etc/default/grub
        sed -i "/^GRUB_CMDLINE_LINUX_DEFAULT=/d" /etc/default/grub
        printf "%s\n" "$3" >>/etc/default/grub
        settings=/etc/default/grub.d/50-cloudimg-settings.cfg
        if [ -e "$settings" ]; then mv "$settings" "$settings.disabled"; fi
    fi
    exec update-initramfs -u -k all
' prepare "$2" "$3" "$4"
