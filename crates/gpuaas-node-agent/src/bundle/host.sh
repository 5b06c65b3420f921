# shellcheck shell=bash
# What the scripts of a site bundle share. The launcher names this file in GPUAAS_LIB; a phase that
# installs a program of its own places it on the host too, as /usr/local/lib/gpuaas/host.sh.
#
# GPUAAS_HOST_ROOT is empty on a real host. Else it names a folder that stands for /: nothing
# outside of it changes, and no daemon of this machine is touched. GPUAAS_FIXTURE_KERNEL may then
# name a program that plays the rest of the host:
#   PROGRAM write FILE VALUE    a write to a file of sysfs; the program does what the kernel would
#   PROGRAM run COMMAND...      a command that changes the host
#   PROGRAM ask COMMAND...      a command that only reads it
# Without that program, commands are named and not run, and questions have no answer.
#
# With GPUAAS_DRY_RUN=1 nothing changes at all: what would is said.
#
# With GPUAAS_REPAIR=1 a check of the phase's effect fails: what was applied once is applied again,
# whatever the records of it say.
#
# A phase may run any number of times. What it finds as it should be it leaves alone.

# Else a failure inside $( ) would go unseen.
shopt -s inherit_errexit

GPUAAS_HOST_ROOT=${GPUAAS_HOST_ROOT:-}
GPUAAS_HOST_ROOT=${GPUAAS_HOST_ROOT%/}
GPUAAS_SYSFS=${GPUAAS_SYSFS:-$GPUAAS_HOST_ROOT/sys}
GPUAAS_FIXTURE_KERNEL=${GPUAAS_FIXTURE_KERNEL:-}
export GPUAAS_HOST_ROOT GPUAAS_SYSFS

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Whether nothing is to change.
dry() { [[ ${GPUAAS_DRY_RUN:-0} == 1 ]]; }
# Whether the effect of this phase is lost, as a check says.
repairing() { [[ ${GPUAAS_REPAIR:-0} == 1 ]]; }
# Whether this is a real host.
live() { [[ -z $GPUAAS_HOST_ROOT ]]; }

[[ -z $GPUAAS_HOST_ROOT || $GPUAAS_HOST_ROOT == /* ]] || fail "GPUAAS_HOST_ROOT has to be an absolute path"
if ! live && [[ $GPUAAS_SYSFS == /sys || $GPUAAS_SYSFS == /sys/* ]]; then
    fail "GPUAAS_SYSFS is this machine's own /sys, and the host below $GPUAAS_HOST_ROOT is another"
fi

# Where a path of the host is. A link inside a simulated host must not lead out of it.
at() {
    local file=$GPUAAS_HOST_ROOT$1
    if ! live && [[ $(realpath -m -- "${file%/*}")/ != "$(realpath -m -- "$GPUAAS_HOST_ROOT")"/* ]]; then
        fail "$1 leads out of $GPUAAS_HOST_ROOT"
    fi
    printf '%s' "$file"
}

# place PATH MODE <CONTENT: a file has exactly this content and mode.
place() {
    local path=$1 mode=${2#0} file new
    file=$(at "$path")
    if dry; then
        if [[ -f $file && ! -L $file && $(stat -c %a -- "$file") == "$mode" ]] && cmp -s -- - "$file"; then
            say "unchanged $path"
        else
            say "would change $path"
        fi
        return 0
    fi
    mkdir -p -- "${file%/*}"
    new=$(mktemp -- "${file%/*}/.gpuaas.XXXXXX")
    cat >"$new"
    chmod -- "$mode" "$new"
    if [[ -f $file && ! -L $file && $(stat -c %a -- "$file") == "$mode" ]] && cmp -s -- "$new" "$file"; then
        rm -f -- "$new"
        say "unchanged $path"
        return 0
    fi
    sync -- "$new"
    mv -fT -- "$new" "$file"
    say "changed $path"
}

# absent PATH: there is no such file or link.
absent() {
    local file
    file=$(at "$1")
    if [[ ! -e $file && ! -L $file ]]; then
        say "unchanged $1"
        return 0
    fi
    if dry; then say "would change $1 (removed)" && return 0; fi
    rm -f -- "$file"
    say "changed $1 (removed)"
}

# link PATH TARGET: a symbolic link.
link() {
    local file
    file=$(at "$1")
    if [[ -L $file && $(readlink -- "$file") == "$2" ]]; then
        say "unchanged $1"
        return 0
    fi
    if dry; then say "would change $1" && return 0; fi
    mkdir -p -- "${file%/*}"
    ln -sfnT -- "$2" "$file"
    say "changed $1"
}

# host_do COMMAND...: changes the running host.
host_do() {
    if dry; then
        say "would run $*"
    elif live; then
        say "runs $*"
        "$@"
    elif [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
        "$GPUAAS_FIXTURE_KERNEL" run "$@"
    else
        say "would run $*"
    fi
}

# host_ask COMMAND...: asks the running host. Without one there is no answer, and status 1.
host_ask() {
    if live; then
        "$@"
    elif [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
        "$GPUAAS_FIXTURE_KERNEL" ask "$@"
    else
        return 1
    fi
}

# kernel_do COMMAND...: changes the kernel beside sysfs, such as modprobe.
kernel_do() {
    if [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then "$GPUAAS_FIXTURE_KERNEL" run "$@"; else host_do "$@"; fi
}

# after_change NAME FILE... -- COMMAND...: runs COMMAND, unless it has run to its end with these
# files as they are and its effect is there still. A run that broke off between the file and the
# command is made good. `in_effect=FUNCTION after_change ...` names what looks at the effect: a file
# that was applied once says nothing of an address that was taken away since.
after_change() {
    local name=$1 files=() digest
    shift
    while [[ $1 != -- ]]; do
        files+=("$(at "$1")")
        shift
    done
    shift
    if dry && ! cat -- "${files[@]}" >/dev/null 2>&1; then
        "$@"
        return 0
    fi
    digest=$(cat -- "${files[@]}" | sha256sum)
    digest=${digest%% *}
    if ! repairing && [[ $(cat -- "$(at "/var/lib/gpuaas/applied/$name")" 2>/dev/null) == "$digest" ]] &&
        "${in_effect:-true}"; then
        return 0
    fi
    "$@"
    if dry; then return 0; fi
    if live || [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
        place "/var/lib/gpuaas/applied/$name" 0644 <<<"$digest" >/dev/null
    fi
}

# Where a unit's file is on the host, or nothing.
unit_file() {
    local folder
    for folder in /etc/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
        if [[ -f $(at "$folder/$1") ]]; then
            printf '%s' "$folder/$1"
            return 0
        fi
    done
}

# unit_enabled UNIT: starts at boot.
unit_enabled() {
    local unit=$1 path target
    if live; then
        if systemctl is-enabled --quiet "$unit" 2>/dev/null; then
            say "unchanged $unit is enabled"
        elif dry; then
            say "would change $unit is enabled"
        else
            systemctl --quiet enable "$unit"
            say "changed $unit is enabled"
        fi
        return 0
    fi
    path=$(unit_file "$unit")
    if [[ -z $path ]]; then
        say "would enable $unit, of which this host has no file"
        return 0
    fi
    while read -r target; do
        link "/etc/systemd/system/$target.wants/$unit" "$path"
    done < <(sed -n 's/^WantedBy=//p' "$(at "$path")" | tr ' ' '\n')
}

# unit_do VERB UNIT: and what the unit said, when it does not start.
unit_do() {
    if ! host_do systemctl "$1" "$2"; then
        if live; then journalctl --no-pager -q -o cat -n 20 -u "$2" >&2 || true; fi
        fail "$2 does not ${1}"
    fi
}

unit_restart() {
    host_do systemctl daemon-reload
    unit_do restart "$1"
}

# unit_running UNIT [FILE...]: enabled, active, and started after the last change of these files; again
# where what it brought about is lost (see after_change).
unit_running() {
    local unit=$1
    shift
    unit_enabled "$unit"
    if (($#)); then after_change "unit-$unit" "$@" -- unit_restart "$unit"; fi
    if ! host_ask systemctl is-active --quiet "$unit"; then
        unit_do start "$unit"
    fi
}

# unit_stopped UNIT: neither active nor started at boot.
unit_stopped() {
    if [[ -z $(unit_file "$1") ]]; then return 0; fi
    if host_ask systemctl is-active --quiet "$1" || host_ask systemctl is-enabled --quiet "$1" 2>/dev/null; then
        host_do systemctl disable --now "$1"
        if ! dry; then say "changed $1 is stopped"; fi
    else
        say "unchanged $1 is stopped"
    fi
}

# wait_a_second: for what comes by itself. Fails where nothing is to come.
wait_a_second() {
    if dry; then return 1; fi
    if live; then
        sleep 1
    elif [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
        "$GPUAAS_FIXTURE_KERNEL" run sleep 1
    else
        return 1
    fi
}

# packages_missing NAME...: prints those that are not installed.
packages_missing() {
    local name installed
    installed=" $(dpkg-query --admindir="$(at /var/lib/dpkg)" -W -f '${db:Status-Status}:${Package} ' -- "$@" 2>/dev/null || true)"
    for name in "$@"; do
        [[ $installed == *" installed:$name "* ]] || say "$name"
    done
}

# apt_update COMMAND...: brings the lists. DPkg::Lock::Timeout is not for their lock, which a boot's own
# apt-daily may have, so this waits for it: 60 times 10 seconds.
apt_update() {
    local left said
    for ((left = 60; left > 0; left--)); do
        if said=$(host_do "$@" update 2>&1); then
            say "$said"
            return 0
        fi
        if [[ $said != *"Could not get lock"* && $said != *"Unable to lock"* ]]; then break; fi
        if live; then sleep 10; fi
    done
    say "$said"
    fail "the package lists cannot be brought"
}

apt=(apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold)

# packages_by_switch: installs the bundle's packages and those that a switch asks for, and removes those
# of a switch that is off, if this bundle brought them. What an image has stays.
packages_by_switch() {
    local brought=/var/lib/gpuaas/applied/brought-${GPUAAS_BUNDLE%@*} missing name lines gone=()
    local -x DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # lists of names
    missing=$(packages_missing ${GPUAAS_SWITCHED_PACKAGES:-})
    GPUAAS_OPTIONAL_PACKAGES="${GPUAAS_OPTIONAL_PACKAGES:-} ${GPUAAS_SWITCHED_PACKAGES:-}" packages_install
    lines=$(cat -- "$(at "$brought")" 2>/dev/null || true)
    for name in $missing; do
        if [[ -z $(packages_missing "$name") && $'\n'$lines$'\n' != *$'\n'$name$'\n'* ]]; then
            lines=${lines:+$lines$'\n'}$name
        fi
    done
    for name in ${GPUAAS_UNWANTED_PACKAGES:-}; do
        if [[ -z $(packages_missing "$name") && $'\n'$lines$'\n' == *$'\n'$name$'\n'* ]]; then gone+=("$name"); fi
    done
    if ((${#gone[@]})); then
        if dry; then say "would change removed ${gone[*]}" && return 0; fi
        host_do "${apt[@]}" remove -- "${gone[@]}"
        for name in "${gone[@]}"; do lines=$(grep -vxF -- "$name" <<<"$lines" || true); done
        say "changed removed ${gone[*]}"
    fi
    if ! dry && [[ -n $lines || -e $(at "$brought") ]]; then place "$brought" 0644 <<<"$lines" >/dev/null; fi
}

# packages_install: the required ones in one go, of the optional ones what there is.
packages_install() {
    local required optional name tried=/var/lib/gpuaas/applied/packages-${GPUAAS_BUNDLE%@*}
    local -x DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # both are lists of names
    read -r -d '' -a required < <(packages_missing ${GPUAAS_PACKAGES:-}) || true
    # shellcheck disable=SC2086
    read -r -d '' -a optional < <(packages_missing ${GPUAAS_OPTIONAL_PACKAGES:-}) || true
    if ((${#required[@]} + ${#optional[@]} == 0)); then
        say "unchanged all packages are installed"
        return 0
    fi
    # What could not be had is not asked for again at every run.
    if ! repairing && ((${#required[@]} == 0)) && [[ $(cat -- "$(at "$tried")" 2>/dev/null) == "${optional[*]}" ]]; then
        say "unchanged all packages are installed but optional ones: ${optional[*]}"
        return 0
    fi
    if dry; then say "would change installed ${required[*]} ${optional[*]}" && return 0; fi
    # What an installation left that was ended amid it would fail every other one.
    if [[ -n $(host_ask dpkg --audit 2>/dev/null || true) ]]; then host_do dpkg --configure -a; fi
    apt_update "${apt[@]}"
    if ((${#required[@]})); then
        host_do "${apt[@]}" install --no-install-recommends -- "${required[@]}"
        say "changed installed ${required[*]}"
    fi
    for name in "${optional[@]}"; do
        if host_do "${apt[@]}" install --no-install-recommends -- "$name"; then
            say "changed installed $name"
        else
            say "warning: the optional package $name cannot be installed"
        fi
    done
    if live || [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
        # shellcheck disable=SC2086
        read -r -d '' -a required < <(packages_missing ${GPUAAS_PACKAGES:-}) || true
        ((${#required[@]} == 0)) || fail "still not installed: ${required[*]}"
        # shellcheck disable=SC2086
        read -r -d '' -a optional < <(packages_missing ${GPUAAS_OPTIONAL_PACKAGES:-}) || true
        place "$tried" 0644 <<<"${optional[*]}" >/dev/null
    fi
}

# install_library: the programs that bundles install source it.
install_library() { place /usr/local/lib/gpuaas/host.sh 0644 <"$GPUAAS_LIB"; }

# sysfs_read FILE: first line of a file of sysfs, or nothing.
sysfs_read() {
    local line=
    if [[ -r $GPUAAS_SYSFS/$1 ]]; then read -r line <"$GPUAAS_SYSFS/$1" || true; fi
    printf '%s' "$line"
}

# sysfs_write FILE VALUE: the file is named relative to sysfs.
sysfs_write() {
    local file=$GPUAAS_SYSFS/$1
    if [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
        "$GPUAAS_FIXTURE_KERNEL" write "$file" "$2" || fail "the kernel refused $2 in $file"
    else
        printf '%s' "$2" >"$file" || fail "the kernel refused $2 in $file"
    fi
}

# pci_functions VENDOR CLASS: addresses of a vendor whose class begins so, in order.
pci_functions() {
    local folder class
    for folder in "$GPUAAS_SYSFS"/bus/pci/devices/*; do
        folder=bus/pci/devices/${folder##*/}
        class=$(sysfs_read "$folder/class")
        if [[ $(sysfs_read "$folder/vendor") == "0x${1,,}" && ${class#0x} == "${2,,}"* ]]; then
            say "${folder##*/}"
        fi
    done
}

# pci_driver ADDRESS: the driver that it is bound to, or nothing.
pci_driver() {
    local driver
    driver=$(readlink -- "$GPUAAS_SYSFS/bus/pci/devices/$1/driver" || true)
    printf '%s' "${driver##*/}"
}

# http_answers URL: whether a GET succeeds.
http_answers() { host_ask curl -fsS -o /dev/null --max-time 5 -- "$1" 2>/dev/null; }

# http_soon URL SECONDS: waits for it, where there is something to wait for.
http_soon() {
    local left
    if dry; then return 0; fi
    for ((left = $2; left > 0; left--)); do
        if http_answers "$1"; then return 0; fi
        if live; then sleep 1; fi
    done
    return 1
}

# socket_port SOCKET NAME: the port of ADDRESS:PORT. Fails where it is none.
socket_port() {
    [[ $1 =~ ^([0-9.]+|\[[0-9a-fA-F:]+\]):([0-9]{1,5})$ ]] || fail "$2 is $1, not ADDRESS:PORT"
    ((BASH_REMATCH[2] >= 1 && BASH_REMATCH[2] <= 65535)) || fail "$2 has no port from 1 to 65535"
    printf '%s' "${BASH_REMATCH[2]}"
}

# ip_number ADDRESS: an IPv4 address as a number.
ip_number() {
    local a b c d
    [[ $1 =~ ^([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})$ ]] || fail "$1 is not an IPv4 address"
    a=$((10#${BASH_REMATCH[1]})) b=$((10#${BASH_REMATCH[2]})) c=$((10#${BASH_REMATCH[3]})) d=$((10#${BASH_REMATCH[4]}))
    ((a < 256 && b < 256 && c < 256 && d < 256)) || fail "$1 is not an IPv4 address"
    printf '%s' $(((a << 24) + (b << 16) + (c << 8) + d))
}

ip_text() { printf '%s' "$(($1 >> 24 & 255)).$(($1 >> 16 & 255)).$(($1 >> 8 & 255)).$(($1 & 255))"; }

# subnet_bounds SUBNET: its first and its last address, as numbers.
subnet_bounds() {
    local length=${1#*/} first size
    [[ $1 == */* && $length =~ ^([0-9]|[12][0-9]|3[0-2])$ ]] || fail "$1 is not an IPv4 subnet"
    size=$((1 << (32 - length)))
    first=$(ip_number "${1%/*}")
    first=$((first / size * size))
    printf '%s %s' "$first" "$((first + size - 1))"
}

# host_in_subnet ADDRESS SUBNET: whether a host may have the address: inside, and neither end.
host_in_subnet() {
    local bounds number
    bounds=$(subnet_bounds "$2")
    number=$(ip_number "${1%/*}")
    ((number > ${bounds% *} && number < ${bounds#* }))
}

# management_address: ADDRESS/LENGTH of the link that has the default route.
management_address() {
    local device
    device=$(host_ask ip -4 -o route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1) || true
    [[ -n $device ]] || return 0
    host_ask ip -4 -o addr show dev "$device" scope global | awk '{print $4; exit}'
}

# Where this phase of this bundle says why the host has to be started again. A boot empties /run.
reboot_file() {
    local phase=${0##*/}
    printf '/run/gpuaas/reboot-needed.d/%s.%s' "${GPUAAS_BUNDLE%%@*}" "${phase%.sh}"
}

# reboot_needed WHY: the host has to be started again, for this phase; the agent reports it.
reboot_needed() {
    say "reboot needed: $1"
    place "$(reboot_file)" 0644 <<<"$1"
}

# reboot_not_needed: this phase needs no reboot any more. What others need stays.
reboot_not_needed() { absent "$(reboot_file)"; }

# reboot_is_due: whether this phase has asked for a reboot that has not been.
reboot_is_due() { [[ -e $(at "$(reboot_file)") ]]; }
