#!/bin/bash
# nspawn.sh SYSTEM FOLDER PACKAGE: installs the Debian package in a copy of a Debian with systemd, boots
# it, and prints what the package's service does. SYSTEM is what `cargo xtask real-host` makes; what is
# written goes to FOLDER. Root, with systemd-container.
set -euo pipefail
if [[ ${GPUAAS_PARITY_NAMESPACES:-} != own ]]; then
    GPUAAS_PARITY_NAMESPACES=own exec unshare --mount --pid --fork --kill-child --mount-proc \
        --propagation private -- "$0" "$@"
fi
system=$1 folder=$2 package=$3
root=$folder/root
mkdir -p -- "$folder"/{disk,work,root}
mount -t overlay overlay -o "lowerdir=$system,upperdir=$folder/disk,workdir=$folder/work" "$root"

# The first boot of the image's host is not ours.
mkdir -p -- "$root/etc/cloud"
: >"$root/etc/cloud/cloud-init.disabled"
mount -t proc proc "$root/proc"
cp -- "$package" "$root/gpuaas.deb"
chroot "$root" dpkg --install /gpuaas.deb >&2
umount "$root/proc"

cat >"$root/parity.sh" <<'CHECKS'
#!/bin/bash
# Prints a line for each check; the last one says whether all were good.
step() {
    local what=$1 said
    shift
    if said=$("$@" 2>&1); then
        printf 'ok  %s\n' "$what"
    else
        printf 'FAILED %s: %s\n' "$what" "$said"
        journalctl --unit gpuaas --no-pager --lines 30
        exit 1
    fi
}
ready() { curl --silent --fail --retry 30 --retry-delay 1 --retry-connrefused http://127.0.0.1:8080/readyz; }
doctor() { runuser -u gpuaas -- gpuaas doctor --data /var/lib/gpuaas; }
has_backup() { test -n "$(find /var/lib/gpuaas-backup -mindepth 2 -type f)"; }
hold_ports() {
    # The nodes' socket listens on every address.
    echo 'advertise: https://gpuaas.example:8443' >>/etc/gpuaas/serve.yaml
    systemctl stop gpuaas
    systemctl enable --now gpuaas-operators.socket gpuaas-nodes.socket
    systemctl start gpuaas
}
killed() { systemctl kill --signal=KILL gpuaas && sleep 1 && ready; }
step 'systemd started the service' systemctl is-active gpuaas
step 'it answers requests' ready
step 'gpuaas doctor finds nothing' doctor
step 'the service restarts' systemctl restart gpuaas
step 'it answers again' ready
step 'systemd starts it again after a kill' killed
step 'the backup runs' systemctl start gpuaas-backup.service
step 'a backup was written' has_backup
step 'systemd holds the ports' hold_ports
step 'it answers at a port of systemd' ready
echo 'all good'
CHECKS
chmod 0755 -- "$root/parity.sh"
cat >"$root/etc/systemd/system/parity.service" <<'UNIT'
[Unit]
After=gpuaas.service network.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/parity.sh >/parity.log; systemctl poweroff'
[Install]
WantedBy=multi-user.target
UNIT
chroot "$root" systemctl --quiet enable parity.service

# systemd in the container needs version 2 of control groups, and nspawn a /run that is a tmpfs.
mount -t tmpfs tmpfs /run
if [[ $(stat -f -c %T /sys/fs/cgroup) != cgroup2fs ]]; then
    mount -t tmpfs tmpfs /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
group=/sys/fs/cgroup/gpuaas-parity-$(stat -c %i -- "$folder")
if mkdir -p -- "$group" 2>/dev/null; then printf '%s\n' "$$" >"$group/cgroup.procs" || true; fi
systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit --private-network \
    --machine=gpuaas-parity --console=pipe </dev/null >"$folder/console" || true
cat -- "$root/parity.log"
[[ $(tail -n 1 -- "$root/parity.log") == 'all good' ]]
