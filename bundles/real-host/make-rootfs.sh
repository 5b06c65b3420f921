#!/bin/bash
# make-rootfs.sh FOLDER [RELEASE]: the system of a real host from where this machine's apt gets its
# own: RELEASE of this machine's distribution, such as bullseye, bookworm or trixie; this machine's own
# without it. Made once: an existing folder of the same release and packages is kept. Root, on Debian
# or Ubuntu, with mmdebstrap.
set -euo pipefail
folder=$1
fail() { printf 'error: %s: %s\nhint: %s\n' "$1" "$2" "$3" >&2; exit 1; }

# What the bundles' hosts have in every release. Daemons are the distribution's own.
packages=(
    systemd systemd-sysv dbus udev kmod procps iproute2 iputils-ping ca-certificates curl jq sudo locales
    e2fsprogs pciutils ethtool openssh-server python3-yaml cloud-init netplan.io nftables iptables
    openvswitch-switch dnsmasq nginx-light docker.io
    libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils ovmf dosfstools mtools
)
# What a release may lack; that it does is said, and left in the system for whoever runs there.
optional=(netdata systemd-resolved)
# What the bundles may ask for: which of it the release has is kept in the system, and its suite compares
# that with the table.
mapfile -t asked < <(grep -v '^#' -- "$(dirname -- "${BASH_SOURCE[0]}")/../packages.tsv" | cut -f 1 | tail -n +2)
((${#asked[@]})) || { printf 'error: packages.tsv names no package\n' >&2; exit 1; }

((EUID == 0)) || fail real_host_needs_root "uid $EUID cannot make a system" "run it as root"
# shellcheck source=/dev/null
source /etc/os-release
[[ " $ID ${ID_LIKE:-} " == *" debian "* ]] || fail real_host_needs_debian "this is ${PRETTY_NAME:-$ID}" "run it on Debian or Ubuntu"
release=${2:-$VERSION_CODENAME}
[[ $release =~ ^[a-z]+$ ]] || fail real_host_release_unknown "$release is no release" "one of bullseye, bookworm, trixie"
for tool in mmdebstrap systemd-nspawn unshare nsenter; do
    command -v "$tool" >/dev/null || fail real_host_tool_missing "there is no $tool" "apt-get install mmdebstrap systemd-container util-linux"
done
# What mmdebstrap mounts and starts ends with this, whatever ends it.
if [[ ${GPUAAS_ROOTFS_MOUNTS:-} != own ]]; then
    GPUAAS_ROOTFS_MOUNTS=own exec unshare --mount --propagation private --pid --fork --kill-child --mount-proc -- "$0" "$@"
fi
mkdir -p -- "${folder%/*}"
# Whoever comes second waits, and finds it made.
exec 9>"$folder.lock"
flock 9
stamp=$(printf '%s\n' "$release" "${packages[@]}" "${asked[@]}" "$(sha256sum <"${BASH_SOURCE[0]}")" | sha256sum | cut -c 1-16)
if [[ $(cat -- "$folder/etc/gpuaas-rootfs" 2>/dev/null) == "$stamp" ]]; then
    printf '%s is there\n' "$folder"
    exit 0
fi

# The distribution's own lines of this machine's apt, in both of its forms; another release of it has
# the same mirror, suites and keyring.
sources=$(mktemp --suffix=.sources)
lines=$(mktemp --suffix=.list)
trap 'rm -f -- "$sources" "$lines"; rm -rf -- "$folder.new"' EXIT
for file in /etc/apt/sources.list.d/*.sources; do
    if grep -qE "^Suites:.*\b$VERSION_CODENAME\b" "$file" 2>/dev/null; then
        sed "/^Suites:/s/\b$VERSION_CODENAME\b/$release/g" "$file" >>"$sources" && printf '\n' >>"$sources"
    fi
done
grep -hE "^deb .* $VERSION_CODENAME(-[a-z]+)? " /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed "s/\b$VERSION_CODENAME\b/$release/g" >"$lines" || true
mirrors=()
if [[ -s $sources ]]; then mirrors+=("$sources"); fi
if [[ -s $lines ]]; then mirrors+=("$lines"); fi
((${#mirrors[@]})) || fail real_host_no_mirror "apt has no lines for $VERSION_CODENAME" "see sources.list(5)"

# Runs outside of the new system, whose folder is $1.
# shellcheck disable=SC2016
have_optional='set -eu
for name in '"${optional[*]}"'; do
    if [ -n "$(chroot "$1" apt-cache show --no-all-versions "$name" 2>/dev/null)" ]; then
        chroot "$1" apt-get -q -y install --no-install-recommends "$name"
        # An image starts Netdata once a bundle has bound it to loopback.
        if [ "$name" = netdata ]; then chroot "$1" systemctl --quiet disable netdata.service; fi
    else
        printf "skip %s: %s has no such package\n" "$name" '"$release"' | tee -a "$1/etc/gpuaas-rootfs-lacks" >&2
    fi
done
for name in '"${asked[*]}"'; do
    candidate=$(chroot "$1" apt-cache policy "$name" 2>/dev/null | sed -n "s/^ *Candidate: //p")
    printf "%s\t%s\n" "$name" "${candidate:-(none)}" >>"$1/etc/gpuaas-rootfs-packages"
done'
rm -rf -- "$folder.new"
include=$(IFS=, && printf '%s' "${packages[*]}")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0} mmdebstrap --quiet --format=directory --variant=apt --include="$include" \
    --customize-hook="$have_optional" "$release" "$folder.new" "${mirrors[@]}" >&2 9>&- ||
    fail real_host_not_built "mmdebstrap ended badly" "the lines above say why; is the mirror reachable?"
# A curated image boots without waiting for links that nobody plugged in.
mkdir -p -- "$folder.new/etc/systemd/system/systemd-networkd-wait-online.service.d"
printf '[Service]\nExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --any --timeout=30\n' \
    >"$folder.new/etc/systemd/system/systemd-networkd-wait-online.service.d/50-image.conf"
printf '%s\n' "$stamp" >"$folder.new/etc/gpuaas-rootfs"
rm -rf -- "$folder"
mv -- "$folder.new" "$folder"
printf '%s is made\n' "$folder"
