#!/bin/bash
# gpuaas image boot-test: `report TARGET` waits until the system is up, writes what it has become to the
# file or device TARGET, a line `NAME VALUE` each and `reported yes` as the last one, and switches off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
if [[ -c $1 ]]; then stty -F "$1" raw -echo; fi
line() { printf '%s %s\n' "$1" "$2"; }
microseconds() { systemctl show --property "$2" --value "$1"; }
{
    # Firmware and boot loader write to every serial port, and end none of their lines.
    printf '\n'
    line state "$(timeout 300 systemctl is-system-running --wait)"
    systemctl list-units --failed --plain --no-legend --no-pager | while read -r unit _; do
        line failed_unit "$unit"
    done
    line multi_user "$(systemctl is-active multi-user.target)"
    line multi_user_us "$(microseconds multi-user.target ActiveEnterTimestampMonotonic)"
    line userspace_us "$(systemctl show --property UserspaceTimestampMonotonic --value)"
    line kernel "$(uname -r)"
    line cmdline "$(cat /proc/cmdline)"
    line machine_id "$(cat /etc/machine-id)"
    for key in /etc/ssh/ssh_host_*_key.pub; do
        if [[ -e $key ]]; then line host_key "$(cut -d ' ' -f 1-2 "$key")"; fi
    done
    line root_source "$(findmnt --noheadings --output SOURCE --nofsroot /)"
    line esp "$(findmnt --noheadings --output SOURCE,FSTYPE /boot/efi)"
    if [[ -d /sys/firmware/efi ]]; then
        line firmware "UEFI $(cat /sys/class/dmi/id/bios_vendor) $(cat /sys/class/dmi/id/bios_version)"
        # Shim leaves it behind (its MokListRT, MokListXRT and SbatLevelRT), and nothing else does.
        if [[ -d /sys/firmware/efi/mok-variables ]]; then line shim yes; fi
        current=$(efibootmgr | sed -n 's/^BootCurrent: //p')
        line boot_entry "$(efibootmgr -v | grep "^Boot$current")"
    fi
    validator=/usr/local/sbin/gpuaas-h200-host-image-validate.sh
    if [[ -x $validator ]]; then
        line validator yes
        "$validator" | sed -n 's/^fails /validator_fails /p'
        line validator_status "${PIPESTATUS[0]}"
    fi
    line cloud_init "$(cloud-init status 2>&1 | tr '\n' ' ')"
    line reported yes
} >"$1"
sync
systemctl poweroff --force --force
