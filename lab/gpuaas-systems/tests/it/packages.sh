#!/bin/sh
# Installs, upgrades, removes and purges both packages in a throw-away copy of this system.
# Usage: packages.sh FOLDER, an empty folder beside which `packages` has the two .deb files.
set -eux
if [ "${GPUAAS_PACKAGES_MOUNTS:-}" != own ]; then
    GPUAAS_PACKAGES_MOUNTS=own exec unshare --mount --propagation private -- "$0" "$@"
fi

# What is written goes to memory; this system's own files are only read.
mount -t tmpfs -o mode=0755 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
root=$1/root
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
cp "${1%/*}"/packages/*.deb "$root/tmp"

inside() { TMPDIR=/tmp chroot "$root" "$@"; }
mode() { inside stat -c '%a %U %G' "$1"; }
control_plane=$(inside sh -c 'ls /tmp/gpuaas_*.deb')
agent=$(inside sh -c 'ls /tmp/gpuaas-node-agent_*.deb')

# Install.
inside dpkg --install "$control_plane"
inside gpuaas --version
test "$(inside readlink -f /usr/bin/gpuaas)" = /usr/lib/gpuaas/gpuaas
inside id gpuaas
test "$(mode /etc/gpuaas)" = "750 root gpuaas"
test "$(mode /etc/gpuaas/serve.yaml)" = "640 root gpuaas"
test "$(mode /var/lib/gpuaas)" = "700 gpuaas gpuaas"
test "$(inside systemctl is-enabled gpuaas.service)" = enabled
test -z "$(inside dpkg --verify gpuaas)"
# The agent's state would be below a folder of the control plane's user.
if inside dpkg --install "$agent"; then exit 1; fi

# Upgrade: the configuration, the state and the operator's choice stay.
inside sh -c 'echo "# changed by the operator" >>/etc/gpuaas/serve.yaml'
inside sh -c 'echo rows >/var/lib/gpuaas/gpuaas.db'
inside systemctl disable gpuaas.service
inside dpkg-deb --raw-extract "$control_plane" /tmp/next
inside sed -i 's/^Version: .*/Version: 99/' /tmp/next/DEBIAN/control
inside dpkg-deb --root-owner-group -Zgzip -z1 --build /tmp/next /tmp/next.deb
inside dpkg --install /tmp/next.deb
test "$(inside dpkg-query --show --showformat "\${Version}" gpuaas)" = 99
inside grep -q 'changed by the operator' /etc/gpuaas/serve.yaml
test "$(mode /etc/gpuaas/serve.yaml)" = "640 root gpuaas"
test "$(inside cat /var/lib/gpuaas/gpuaas.db)" = rows
test "$(inside systemctl is-enabled gpuaas.service || true)" = disabled

# Remove, and purge without a word about the state.
inside dpkg --remove gpuaas
test -e "$root/etc/gpuaas/serve.yaml"
said=$(inside dpkg --purge gpuaas)
case $said in *"keeping /var/lib/gpuaas "*) ;; *) exit 1 ;; esac
test "$(inside cat /var/lib/gpuaas/gpuaas.db)" = rows
test ! -e "$root/etc/gpuaas"

# Purge with the state: nothing is left.
inside dpkg --install "$control_plane"
inside systemctl enable gpuaas-operators.socket gpuaas-nodes.socket gpuaas-backup.timer
GPUAAS_PURGE=yes inside dpkg --purge gpuaas
if inside id gpuaas; then exit 1; fi

# The agent.
inside dpkg --install "$agent"
inside gpuaas-node-agent version
test "$(inside systemctl is-enabled gpuaas-node-agent.service)" = enabled
mkdir -p "$root/var/lib/gpuaas/agent" "$root/etc/gpuaas"
echo '{}' >"$root/etc/gpuaas/agent.json"
said=$(inside dpkg --purge gpuaas-node-agent)
case $said in *"keeping /etc/gpuaas/agent.json;"*) ;; *) exit 1 ;; esac
inside dpkg --install "$agent"
GPUAAS_PURGE=yes inside dpkg --purge gpuaas-node-agent
left=$(cd "$1/upper" && find . -name '*gpuaas*' ! -type c)
test -z "$left"

# A host that the node bootstrap set up keeps its agent, its unit and its identity.
mkdir -p "$root/var/lib/gpuaas/agent" "$root/etc/systemd/system/multi-user.target.wants"
unit=/etc/systemd/system/gpuaas-node-agent.service
echo '[Service]' >"$root$unit"
ln -s "$unit" "$root/etc/systemd/system/multi-user.target.wants/"
inside dpkg --install "$agent"
GPUAAS_PURGE=yes inside dpkg --purge gpuaas-node-agent
test -d "$root/var/lib/gpuaas/agent"
test -L "$root/etc/systemd/system/multi-user.target.wants/gpuaas-node-agent.service"
