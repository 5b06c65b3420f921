# shellcheck shell=bash disable=SC2154,SC2016 # sourced by test.sh, which sets these
# The real host's machine (real-host/machine.sh).

# nspawn ends with 133 where its host starts again: it is started again on the same disk. Any other end is
# the machine's.
test_machine_starts_again() {
    if ((EUID != 0)) || ! unshare --mount --pid --fork true 2>/dev/null; then
        printf 'skip %s: no namespaces of mounts and processes can be made\n' "$current"
        return
    fi
    # Below an overlay another overlay's disk is refused by some kernels.
    mkdir -p -- "$work/system/var/lib/hardware" "$work/programs" "$work/machine"
    mount -t tmpfs tmpfs "$work/machine" 2>/dev/null || { printf 'skip %s: nothing can be mounted\n' "$current" && return; }
    : >"$work/system/var/lib/hardware/delivered"
    : >"$work/datasource"
    printf '#!/bin/bash\nroot=${2#--directory=}\nprintf "boot\\n" >>"$root/boots"\nif (($(wc -l <"$root/boots") < 3)); then exit 133; fi\ncp -- "$root/boots" %q\nexit 7\n' \
        "$work/boots" >"$work/programs/systemd-nspawn"
    chmod +x -- "$work/programs/systemd-nspawn"
    local status=0
    PATH=$work/programs:$PATH "$here/real-host/machine.sh" "$work/machine" "$work/system" host "$work/datasource" >"$work/said" 2>&1 || status=$?
    umount "$work/machine"
    if grep -q 'mount: .*overlay' "$work/said"; then
        printf 'skip %s: no overlay can be mounted\n' "$current"
        return
    fi
    [[ $(wc -l <"$work/boots") == 3 ]] || wrong "it was not started three times: $(<"$work/said")"
    [[ $status == 7 ]] || wrong "it ended with $status: $(<"$work/said")"
}
