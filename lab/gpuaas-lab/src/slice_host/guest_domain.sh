#!/bin/bash
# guest_domain.sh start|runs|stop DOCUMENT ROOT: a guest of a played domain that this machine's own libvirt runs,
# at its bridge of Open vSwitch, with an address of its dnsmasq: a host that the slice bundle made, and root.
#
# Of the domain it lacks what this machine may not have: functions for it, which are played, and the firmware's
# window for them, pages of 1 GiB, another NUMA node, and the processors that it is pinned to. Its drive is a file,
# and it makes its own checksums, which Open vSwitch without the kernel's part (datapath `netdev`) leaves undone.
set -euo pipefail
verb=$1 document=$2 root=$3 claim=${2##*/}
claim=${claim%.xml} unit=guest-call-${claim%.xml}
libvirt() { virsh --quiet --connect qemu:///system "$@"; }
here() {
    sed -e '/<memoryBacking>/,/<\/memoryBacking>/d' -e '/<cputune>/,/<\/cputune>/d' \
        -e '/<numatune>/,/<\/numatune>/d' -e '/<hostdev /,/<\/hostdev>/d' -e '/<console /,/<\/console>/d' \
        -e '/<qemu:commandline>/,/<\/qemu:commandline>/d' \
        -e '/<interface /,/<\/interface>/s|<model .*|&<driver><host csum="off"/><guest csum="off"/></driver>|' \
        -e 's|<disk type="block"|<disk type="file"|' -e "s|<source dev=\"|<source file=\"$root|" \
        -e "s|<source file=\"/var/lib/gpuaas|<source file=\"$root/var/lib/gpuaas|" -e "s|>/var/lib/gpuaas|>$root/var/lib/gpuaas|" \
        -e "s|<serial type=\"pty\">|<serial type=\"file\"><source path=\"$root/run/emulator/console\"/>|" "$document"
}
case $verb in
    start)
        # What the agent keeps is below the folder of the played host, where this machine's dnsmasq and the
        # program for the flows of its bridge do not look.
        cp -- "$root"/var/lib/gpuaas/dhcp-hosts/* /var/lib/gpuaas/dhcp-hosts/
        here >"${document%.xml}.here"
        libvirt define --validate "${document%.xml}.here"
        libvirt start "$claim"
        env --unset=GPUAAS_HOST_ROOT --unset=GPUAAS_SYSFS --unset=GPUAAS_LIB /usr/local/sbin/gpuaas-slice-guest-flows
        # The agent of a played host listens at a port of 127.0.0.1.
        called=$(sed -n 's/^ *url: http:\/\/\([^\/]*\)\/.*/\1/p' "$root/var/lib/gpuaas/slices/$claim/vendor-data")
        systemd-run --quiet --unit="$unit" --socket-property="ListenStream=$called" \
            /lib/systemd/systemd-socket-proxyd "127.0.0.1:$(<"$root/run/gpuaas/guest-call.port")"
        ;;
    runs) [[ $(libvirt domstate "$claim") == running ]] ;;
    stop)
        if ! libvirt domstate "$claim" >/dev/null 2>&1; then exit 0; fi
        if [[ $(libvirt domstate "$claim") == running ]]; then libvirt destroy "$claim"; fi
        libvirt undefine --nvram "$claim"
        for host in "$root"/var/lib/gpuaas/dhcp-hosts/*; do rm -f -- "/var/lib/gpuaas/dhcp-hosts/${host##*/}"; done
        env --unset=GPUAAS_HOST_ROOT --unset=GPUAAS_SYSFS --unset=GPUAAS_LIB /usr/local/sbin/gpuaas-slice-guest-flows
        systemctl stop "$unit.socket" "$unit.service"
        rm -- "${document%.xml}.here"
        ;;
esac
