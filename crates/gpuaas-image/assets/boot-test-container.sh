# gpuaas image boot-test: boots the folder $1 in the namespaces that this runs in. systemd wants version 2
# of control groups, and in them a group that no other system is in; those of systems that were ended
# are empty, and go.
set -eu
mount -t tmpfs tmpfs /run
if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
    mount -t tmpfs tmpfs /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
find /sys/fs/cgroup -mindepth 1 -depth -type d -path '/sys/fs/cgroup/gpuaas-image-*' -exec rmdir -- {} + 2>/dev/null || true
group=/sys/fs/cgroup/gpuaas-image-$(stat -c %i "$1")
mkdir -p "$group"
echo $$ >"$group/cgroup.procs"
exec systemd-nspawn --quiet "--directory=$1" --boot --register=no --keep-unit --private-network \
    --machine=gpuaas-image --console=pipe --kill-signal=SIGRTMIN+4
