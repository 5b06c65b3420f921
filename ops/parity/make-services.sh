#!/bin/bash
# make-services.sh FOLDER: the system of the parity stack's services, from where this machine's apt gets
# its own packages: FOLDER/root.tar. Made once for each list of packages. Root, on Debian or Ubuntu.
set -euo pipefail
folder=$1
here=$(cd -- "${BASH_SOURCE[0]%/*}" && pwd)
fail() { printf 'error: %s: %s\nhint: %s\n' "$1" "$2" "$3" >&2; exit 1; }

packages=(
    # What the control planes use.
    postgresql nats-server docker-registry prometheus
    # What the bootstrap scripts of simulated hosts need.
    bash ca-certificates curl iproute2 pciutils procps python3
)

((EUID == 0)) || fail parity_needs_root "uid $EUID cannot make a system" "run it as root"
command -v mmdebstrap >/dev/null || fail parity_tool_missing "mmdebstrap is missing" "apt-get install mmdebstrap"
# shellcheck source=/dev/null
source /etc/os-release
[[ " $ID ${ID_LIKE:-} " == *" debian "* ]] || fail parity_needs_debian "this is ${PRETTY_NAME:-$ID}" "run it on Debian or Ubuntu"
mkdir -p -- "$folder"
# A second process waits, and finds the system.
exec 9>"$folder/lock"
flock 9
stamp=$(cat -- "$here/make-services.sh" /etc/os-release | sha256sum | cut -c 1-16)
if [[ $(cat -- "$folder/stamp" 2>/dev/null) == "$stamp" ]]; then exit 0; fi
rm -rf -- "$folder/stamp" "$folder/new"
mkdir -- "$folder/new"

# The distribution's own lines of this machine's apt, in both of its forms.
for file in /etc/apt/sources.list.d/*.sources; do
    if grep -qE "^Suites:.*\b$VERSION_CODENAME\b" "$file" 2>/dev/null; then cp -- "$file" "$folder/new/"; fi
done
grep -hE "^deb .* $VERSION_CODENAME(-[a-z]+)? " /etc/apt/sources.list /etc/apt/sources.list.d/*.list >"$folder/new/own.list" 2>/dev/null || true
mapfile -t mirrors < <(find "$folder/new" -type f -size +0)
((${#mirrors[@]})) || fail parity_no_mirror "apt has no lines for $VERSION_CODENAME" "see sources.list(5)"

options=(--quiet --format=tar --variant=minbase "--include=$(IFS=, && printf '%s' "${packages[*]}")")
options+=(--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --dpkgopt=force-unsafe-io)
for path in doc man info locale lintian; do options+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
# Device files are the container's; no cluster is made: postgresql.sh makes one.
options+=(--skip=output/dev)
# shellcheck disable=SC2016 # mmdebstrap's shell expands it
options+=(--essential-hook='mkdir -p "$1/etc/postgresql-common"
    echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.conf"')
# Every service has the user of the control plane's image, and a folder of its own.
# shellcheck disable=SC2016
options+=(--customize-hook='
    chroot "$1" groupadd --gid 65532 parity
    chroot "$1" useradd --uid 65532 --gid 65532 --no-create-home --home-dir /var/lib/parity parity
    for name in nats postgresql prometheus region registry; do
        chroot "$1" install -d -m 0700 -o 65532 -g 65532 /var/lib/parity "/var/lib/parity/$name"
    done
    test -e "$1/usr/bin/pg_isready" || chroot "$1" sh -c "ln -s /usr/lib/postgresql/*/bin/pg_isready /usr/bin/"')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0} mmdebstrap "${options[@]}" "$VERSION_CODENAME" "$folder/new/root.tar" "${mirrors[@]}" >&2 ||
    fail parity_not_built "mmdebstrap failed" "the lines above say why; is the mirror reachable?"
mv -- "$folder/new/root.tar" "$folder/root.tar"
rm -rf -- "$folder/new"
printf '%s\n' "$stamp" >"$folder/stamp"
