#!/bin/bash
# prove.sh AGENT ROOTFS [ROLE]: boots a real host, runs the bundles of its role (slice or baremetal) on
# it twice through the launcher, and looks at the gates: everything in effect the first time, nothing
# changed the second time. What the system's release has no package for is named and skipped.
set -euo pipefail
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
agent=$(realpath -- "$1") rootfs=$2 role=${3:-slice}
case $role in
    # A distribution's Netdata has no go.d.plugin.
    slice) main=h200-slice-vm gates=(slice_ready telemetry) set=(--set ovs_datapath=netdev --set "telemetry_groups=system mem net") ;;
    baremetal) main=h200-ib gates=(active telemetry) set=(--set "telemetry_groups=system mem net") ;;
    *) printf 'error: there is no role %s\n' "$role" >&2 && exit 1 ;;
esac
work=$(mktemp -d)
name=host$$
bundles=/usr/local/share/gpuaas/site-bootstrap

finish() {
    if [[ -n ${machine:-} ]]; then
        kill -KILL "$machine" 2>/dev/null || true
        wait "$machine" 2>/dev/null || true
    fi
    rm -rf -- "$work"
}
trap finish EXIT
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
# machine.sh is a namespace's first process, below it is nspawn, and below that the host's first process.
inside() { nsenter --target "$(pgrep -P "$(pgrep -P "$(pgrep -P "$machine")")" | head -n 1)" --all -- "$@"; }
# soon SECONDS COMMAND...
soon() {
    local left
    for ((left = $1 * 5; left > 0; left--)); do
        if "${@:2}"; then return 0; fi
        kill -0 "$machine" 2>/dev/null || return 1
        sleep 0.2
    done
    return 1
}
# What the bundles may touch, but for what daemons write there by themselves, and for the agent's record of
# what it saw after a run: the first is over before Netdata has a value of each group.
digest() {
    inside bash -c 'cd / && find etc usr/local usr/lib/systemd var/lib/gpuaas var/lib/hardware boot ! -type d \
        ! -path etc/openvswitch/conf.db ! -path "var/lib/gpuaas/site-bootstrap/*.validation" \( -type l -printf "%p %l\n" -o -printf "%p %m " -exec sha256sum {} \; \) | sort' >"$1"
}
bundle() {
    inside systemd-run --quiet --wait --pipe --property=StandardError=journal \
        /usr/local/bin/gpuaas-node-agent bundle run "$bundles/$main" --hostname "$name" \
        --set install_packages=0 "${set[@]}" >"$work/$1" ||
        fail "the bundles did not end well: $(<"$work/$1")"
}
count() { grep -o '"changed": [0-9]*' "$work/$1" | awk '{ n += $2 } END { print n }'; }

printf 'datasource_list: [None]\n' >"$work/datasource"
began=$EPOCHREALTIME
"$here/machine.sh" "$work/host" "$rootfs" "$name" "$work/datasource" </dev/null >"$work/log" 2>&1 &
machine=$!
# shellcheck disable=SC2317 # soon calls it
booted() { inside systemctl is-active --quiet multi-user.target 2>/dev/null; }
soon 120 booted || fail "the host does not come up: $(tail -n 5 -- "$work/log")"
printf 'booted in %.1f s\n' "$(awk "BEGIN { print $EPOCHREALTIME - $began }")"
inside install -D -m 755 /dev/stdin /usr/local/bin/gpuaas-node-agent <"$agent"
for name_of in h200-ib h200-slice-vm; do
    archive=${GPUAAS_ARCHIVES:?a folder with the bundles archives}/$name_of.tar
    version=$(tar -xOf "$archive" manifest.json | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
    inside tee "/run/$name_of.tar" <"$archive" >/dev/null
    inside gpuaas-node-agent bundle unpack --bundle "$name_of@$version" --into "$bundles/$name_of" \
        --digest "$(sha256sum <"$archive" | cut -d ' ' -f 1)" "/run/$name_of.tar"
done
bundle first
# What asks for a boot gets it, as the agent would do it; the bundle that asked runs again.
reasons=/run/gpuaas/reboot-needed.d
if inside test -d "$reasons"; then
    printf 'started again because %s\n' "$(inside sh -c "cat $reasons/*" | paste -sd ';')"
    boot=$(inside cat /proc/sys/kernel/random/boot_id)
    inside systemctl reboot || true
    # shellcheck disable=SC2317 # soon calls it
    another_boot() { booted && [[ $(inside cat /proc/sys/kernel/random/boot_id) != "$boot" ]]; }
    soon 120 another_boot || fail "the host does not come up again: $(tail -n 5 -- "$work/log")"
    bundle after
    ! inside test -n "$(inside sh -c "ls $reasons 2>/dev/null")" || fail "it asks for another boot"
fi
printf 'first run: %s things changed\n' "$(count first)"
# What is red at a gate, a line each.
red() { python3 -c 'import json, sys; [print(c["name"] + ": " + c["seen"]) for c in json.load(sys.stdin)["checks"] if not c["passed"]]'; }
for gate in "${gates[@]}"; do
    if [[ $gate == telemetry ]] && grep -q "^skip netdata:" "$rootfs/etc/gpuaas-rootfs-lacks" 2>/dev/null; then
        printf 'skip %s: %s\n' "$gate" "$(grep '^skip netdata:' "$rootfs/etc/gpuaas-rootfs-lacks")"
        continue
    fi
    # Netdata takes its time for a first value of each group.
    # shellcheck disable=SC2317 # soon calls it
    is_open() {
        inside systemd-run --quiet --wait --pipe /usr/local/bin/gpuaas-node-agent check --gate "$gate" >"$work/$gate" || true
        # The agent's own unit is the node bootstrap's, which does not run here.
        wrong=$(red <"$work/$gate" | grep -v '^unit gpuaas-node-agent.service: ' || true)
        [[ -z $wrong ]]
    }
    soon 10 is_open || true
    [[ -z $wrong ]] || fail "$gate is closed: $wrong"
    (($(grep -c '"passed": true' "$work/$gate") > 0)) || fail "$gate has no checks: $(<"$work/$gate")"
    printf '%s: all of %s checks pass\n' "$gate" "$(grep -c '"passed": true' "$work/$gate")"
done
digest "$work/before"
bundle second
digest "$work/after"
printf 'second run: %s things changed\n' "$(count second)"
[[ $(count second) == 0 ]] || fail "a second run changed something"
diff -- "$work/before" "$work/after" >&2 || fail "a second run changed files"
printf 'the tree is as before: %s\n' "$(sha256sum <"$work/after" | cut -c 1-16)"
