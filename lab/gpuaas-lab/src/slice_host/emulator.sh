#!/bin/bash
# Plays what the files of a slice host cannot: libvirt, the controllers of its drives, the tools that
# write images and seeds, and the guests, unless what runs real ones was brought (guest_machine.sh, guest_domain.sh). `ask
# COMMAND...` changes nothing, `run COMMAND...` does. What goes wrong is a file in `faults` with the name of
# the fault.
set -euo pipefail
root=$GPUAAS_HOST_ROOT
domains=$root/run/emulator/domains
machine=$root/run/emulator/guest_machine
mkdir -p -- "$domains"

# A laboratory whose clock stands still while its hosts compute is told when that is.
events=$root/run/pace/events
if [[ -p $events ]]; then
    exec 9<>"$events"
    trap 'printf -- "-%s\n" "$$" >&9' EXIT
    printf '+%s\n' "$$" >&9
fi

refuse() { printf 'error: %s\n' "$*" >&2; exit 1; }
broken() { [[ -e $root/faults/$1 ]]; }

# Of a domain's document, which has an element a line.
drives() { sed -n 's/.*<source dev="\([^"]*\)".*/\1/p' "$1"; }
functions() {
    sed -n 's/.*<address domain="0x\(....\)" bus="0x\(..\)" slot="0x\(..\)" function="0x\(.\)".*/\1:\2:\3.\4/p' "$1"
}

# Its cloud-init calls the URL of its seed. The host is at 127.0.0.1, and says where it listens.
call_host() { # CLAIM
    local path status
    path=$(sed -n 's/^ *url: http:\/\/[^\/]*//p' "$root/var/lib/gpuaas/slices/$1/vendor-data")
    if [[ -z $path ]]; then return 0; fi
    exec 8<>"/dev/tcp/127.0.0.1/$(<"$root/run/gpuaas/guest-call.port")"
    printf 'POST %s HTTP/1.1\r\nHost: 10.100.0.1\r\nContent-Length: 13\r\n\r\ninstance_id=i' "$path" >&8
    read -r status <&8
    [[ $status == *" 204 "* ]] || printf 'the call of guest %s: %s\n' "$1" "$status" >&2
}

# The guest takes an address, writes to its drives as a tenant does, and calls its host.
guest() { # DOCUMENT
    local drive place mac claim
    while read -r drive; do
        for place in 3 100003 800003; do
            head -c 4096 /dev/zero | tr '\0' T | dd of="$root$drive" bs=4096 seek="$place" conv=notrunc status=none
        done
    done < <(drives "$1")
    mac=$(sed -n 's/.*<mac address="\([^"]*\)".*/\1/p' "$1")
    if ! broken guest_silent; then
        mkdir -p -- "$root/var/lib/misc"
        printf '0 %s 10.100.0.10 slice *\n' "$mac" >>"$root/var/lib/misc/dnsmasq.leases"
        claim=${1##*/}
        # A call that fails is the guest's own trouble, not that of whoever started it.
        (call_host "${claim%.xml}") || true
    fi
}

# A process that has the domain's functions open, as long as it runs.
hold() { # DOCUMENT
    local number=0 address group id=5000 process
    while [[ -e $root/proc/$id ]]; do id=$((id + 1)); done
    process=$root/proc/$id
    mkdir -p -- "$process/fd"
    printf 'qemu-system-x86\n' >"$process/comm"
    while read -r address; do
        group=$(readlink -- "$root/sys/bus/pci/devices/$address/iommu_group")
        ln -s "/dev/vfio/${group##*/}" "$process/fd/$number"
        number=$((number + 1))
    done < <(functions "$1")
    printf '%s\n' "$process" >"${1%.xml}.process"
}

let_go() { # DOCUMENT
    local process=${1%.xml}.process
    if [[ -e $process ]]; then rm -rf -- "$(<"$process")" "$process"; fi
}

virsh() { # VERB ARGUMENTS, after --connect URI
    local name=${*: -1} document
    document=$domains/$name.xml
    case $1 in
        domstate)
            [[ -e $domains/$name ]] || refuse "failed to get domain '$name'"
            # A guest that ended by itself took its domain with it.
            if [[ $(<"$domains/$name") == running && -x $machine ]] && ! "$machine" runs "$document" "$root"; then
                printf 'shut off\n' >"$domains/$name"
            fi
            cat -- "$domains/$name"
            ;;
        list)
            for document in "$domains"/*.xml; do
                [[ -e $document ]] || continue
                name=${document%.xml}
                if [[ $3 == --all || $(<"$name") == running ]]; then
                    sed -n 's/.*<name>\(.*\)<\/name>.*/\1/p' "$document"
                fi
            done
            ;;
        define)
            name=$(sed -n 's/.*<uuid>\(.*\)<\/uuid>.*/\1/p' "$root$name")
            [[ -n $name ]] || refuse "XML error: a domain has no identifier"
            cp -- "$root${*: -1}" "$domains/$name.xml"
            printf 'shut off\n' >"$domains/$name"
            ;;
        start)
            ! broken start_fails || refuse "internal error: process exited while connecting to monitor"
            if [[ -x $machine ]]; then "$machine" start "$document" "$root" 9>&-; fi
            hold "$document"
            printf 'running\n' >"$domains/$name"
            if [[ ! -x $machine ]]; then guest "$document"; fi
            ;;
        destroy)
            ! broken stop_fails || refuse "Failed to terminate process: Device or resource busy"
            if [[ -x $machine ]]; then "$machine" stop "$document" "$root"; fi
            let_go "$document"
            printf 'shut off\n' >"$domains/$name"
            ;;
        undefine)
            if [[ -x $machine ]]; then "$machine" stop "$document" "$root"; fi
            rm -- "$domains/$name" "$document"
            ;;
    esac
}

# The drive forgets what is on it: a file without a block reads as zeros.
erase() { # FILE
    local bytes
    ! broken erase_fails || refuse "NVMe status: Sanitize Failed(0x1c)"
    if broken erase_lies; then return 0; fi
    bytes=$(stat --dereference --format=%s -- "$1")
    if broken erase_stops_short; then
        fallocate --punch-hole --offset 0 --length "$((bytes * 15 / 16 / 4096 * 4096))" -- "$1"
        return 0
    fi
    truncate --size 0 -- "$1"
    truncate --size "$bytes" -- "$1"
}

# A driver takes a function that has no override as its ids say; only NVMe's has any here.
probe() { # ADDRESS
    local folder=$root/sys/bus/pci/devices/$1 driver=
    if [[ -s $folder/driver_override ]]; then driver=$(<"$folder/driver_override"); fi
    if [[ -z $driver && $(<"$folder/class") == 0x0108* ]]; then driver=nvme; fi
    if [[ -n $driver ]]; then ln -s -- "/sys/bus/pci/drivers/$driver" "$folder/driver"; fi
}

write() { # FILE VALUE
    case $1 in
        */driver/unbind)
            ! broken functions_busy || refuse "write error: Device or resource busy"
            rm -- "$root/sys/bus/pci/devices/$2/driver"
            ;;
        */drivers_probe) probe "$2" ;;
        */sriov/*/node | */sriov/*/port | */sriov/*/mac)
            if broken identity_lost; then
                sed -i 's/[0-9a-f]/0/g' -- "$1"
            elif ! broken identity_stays; then
                printf '%s\n' "$2" >"$1"
            fi
            ;;
        *) printf '%s\n' "$2" >"$1" ;;
    esac
}

# The client of the fabric manager. A partition that is active has a file of its number.
fmpm() { # -l, -a ID, -d ID
    local list=$root/queries/fabric-partitions.json active=$root/run/emulator/partitions edits=() id
    mkdir -p -- "$active"
    [[ -e $list ]] || refuse "Failed to connect to Fabric Manager instance."
    case $1 in
        -l)
            for id in "$active"/*; do
                id=${id##*/}
                if [[ $id != '*' ]]; then edits+=(-e "s/\"partitionId\": $id, \"isActive\": 0/\"partitionId\": $id, \"isActive\": 1/"); fi
            done
            sed -e '' "${edits[@]}" -- "$list"
            ;;
        -a)
            ! broken partition_refused || refuse "Failed to activate partition. fmReturn: -7"
            : >"$active/$2"
            ;;
        -d) if ! broken partition_stays; then rm -f -- "$active/$2"; fi ;;
    esac
}

# A seed that nobody reads is a file of its size.
seed() { # FILE -n LABEL KIB
    if [[ -x $machine ]]; then mkfs.vfat -C "$2" "$3" "$1" "$4" >/dev/null; else truncate --size "$4K" -- "$1"; fi
}

fill_seed() { # FILE SOURCE... ::
    local sources=("${@:2:$#-2}")
    if [[ -x $machine ]]; then mcopy -i "$root$1" "${sources[@]/#/$root}" ::; fi
}

run() {
    case "$1 ${2:-}" in
        "virsh --connect") virsh "${@:4}" ;;
        "nvme sanitize" | "nvme format") erase "$root$4" ;;
        "qemu-img convert") dd if="$root$6" of="$root$7" conv=notrunc status=none ;;
        "mkfs.vfat -C") seed "$root$5" "${@:3:2}" "$6" ;;
        "mcopy -i") fill_seed "${@:3}" ;;
        "blockdev --flushbufs" | "blockdev --rereadpt") ;;
        "fmpm -a" | "fmpm -d") fmpm "$2" "$3" ;;
        *) refuse "what is $1?" ;;
    esac
}

ask() {
    case "$1 ${2:-}" in
        "virsh --connect") virsh "${@:4}" ;;
        "nvme id-ctrl") cat -- "$root/queries/nvme-id-ctrl/${4#/dev/}.json" ;;
        "fmpm -l") fmpm -l ;;
        "nvme sanitize-log") printf '{"nvme0": {"sprog": 65535, "sstat": {"status": 1}}}\n' ;;
        *) refuse "what is $1?" ;;
    esac
}

case $1 in
    run | ask | write) "$@" ;;
    *) refuse "what is $1?" ;;
esac
