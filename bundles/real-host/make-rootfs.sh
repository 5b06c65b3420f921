#!/bin/bash
# make-rootfs.sh FOLDER: the system of a real host, from where this machine's apt gets its own. Made
# once: an existing folder of the same packages is kept. Root, on Debian or Ubuntu, with mmdebstrap.
set -euo pipefail
folder=$1
fail() { printf 'error: %s: %s\nhint: %s\n' "$1" "$2" "$3" >&2; exit 1; }

# What the bundles' hosts have, as far as the distribution has it. Daemons are its own.
packages=(
    systemd systemd-sysv dbus udev kmod procps iproute2 iputils-ping ca-certificates curl jq sudo
    e2fsprogs pciutils openssh-server python3-yaml cloud-init netplan.io nftables iptables
    openvswitch-switch dnsmasq nginx-light netdata docker.io
    libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils ovmf
)

((EUID == 0)) || fail real_host_needs_root "uid $EUID cannot make a system" "run it as root"
# shellcheck source=/dev/null
source /etc/os-release
[[ " $ID ${ID_LIKE:-} " == *" debian "* ]] || fail real_host_needs_debian "this is ${PRETTY_NAME:-$ID}" "run it on Debian or Ubuntu"
for tool in mmdebstrap systemd-nspawn unshare nsenter; do
    command -v "$tool" >/dev/null || fail real_host_tool_missing "there is no $tool" "apt-get install mmdebstrap systemd-container util-linux"
done
stamp=$(printf '%s\n' "$VERSION_CODENAME" "${packages[@]}" "$(sha256sum <"${BASH_SOURCE[0]}")" | sha256sum | cut -c 1-16)
if [[ $(cat -- "$folder/etc/gpuaas-rootfs" 2>/dev/null) == "$stamp" ]]; then
    printf '%s is there\n' "$folder"
    exit 0
fi

# The distribution's own lines of this machine's apt, in both of its forms.
sources=$(mktemp --suffix=.sources)
lines=$(mktemp --suffix=.list)
trap 'rm -f -- "$sources" "$lines"; rm -rf -- "$folder.new"' EXIT
for file in /etc/apt/sources.list.d/*.sources; do
    if grep -qE "^Suites:.*\b$VERSION_CODENAME\b" "$file" 2>/dev/null; then
        cat -- "$file" >>"$sources" && printf '\n' >>"$sources"
    fi
done
grep -hE "^deb .* $VERSION_CODENAME(-[a-z]+)? " /etc/apt/sources.list /etc/apt/sources.list.d/*.list >"$lines" 2>/dev/null || true
mirrors=()
if [[ -s $sources ]]; then mirrors+=("$sources"); fi
if [[ -s $lines ]]; then mirrors+=("$lines"); fi
((${#mirrors[@]})) || fail real_host_no_mirror "apt has no lines for $VERSION_CODENAME" "see sources.list(5)"

rm -rf -- "$folder.new"
mkdir -p -- "${folder%/*}"
include=$(IFS=, && printf '%s' "${packages[*]}")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0} mmdebstrap --quiet --format=directory --variant=apt --include="$include" \
    "$VERSION_CODENAME" "$folder.new" "${mirrors[@]}" >&2 ||
    fail real_host_not_built "mmdebstrap ended badly" "the lines above say why; is the mirror reachable?"
# A curated image boots without waiting for links that nobody plugged in.
mkdir -p -- "$folder.new/etc/systemd/system/systemd-networkd-wait-online.service.d"
printf '[Service]\nExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --any --timeout=30\n' \
    >"$folder.new/etc/systemd/system/systemd-networkd-wait-online.service.d/50-image.conf"
printf '%s\n' "$stamp" >"$folder.new/etc/gpuaas-rootfs"
rm -rf -- "$folder"
mv -- "$folder.new" "$folder"
printf '%s is made\n' "$folder"
