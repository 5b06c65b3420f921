#!/bin/bash
# shellcheck disable=SC2317 # functions are called by the tests, which shellcheck does not see
# Runs the bundles' phases on folders that stand for hosts, and checks what they leave there: the
# effects, that a second run changes nothing, what is refused, and what the tools of a host say of
# the files. A tool that this machine lacks is named and skipped.
#
#   bundles/test.sh [TEST...]
set -euo pipefail
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
export PATH=$PATH:/usr/sbin:/sbin
export GPUAAS_LIB=$here/../crates/gpuaas-node-agent/src/bundle/host.sh
export GPUAAS_FIXTURE_KERNEL=$here/fixture/kernel
export GPUAAS_SITE=lab GPUAAS_HOSTNAME=j22u11 GPUAAS_RUN_ID=run-1 LC_ALL=C
failures=0

wrong() {
    printf 'FAIL %s: %s\n' "$current" "$*"
    failures=$((failures + 1))
}
tool() {
    command -v "$1" >/dev/null && return 0
    printf 'skip %s: there is no %s\n' "$current" "$1"
    return 1
}
own_network() {
    unshare -n true 2>/dev/null && return 0
    printf 'skip %s: no network namespace can be made\n' "$current"
    return 1
}
has_line() { grep -qxF -- "$2" "$root$1" || wrong "$1 has no line: $2"; }
has_no() { ! grep -qE -- "$2" "$root$1" || wrong "$1 has a line like $2"; }
mode_is() { [[ $(stat -c %a -- "$root$1") == "$2" ]] || wrong "$1 has mode $(stat -c %a -- "$root$1"), not $2"; }
said() { grep -qE -- "$1" "$work/said" || wrong "nothing like \"$1\" was said, but: $(<"$work/said")"; }
logged() { grep -qE -- "$1" "$root/run/fixture/log" || wrong "the host was not asked to: $1"; }

new_host() {
    root=$work/host$((++hosts))
    cp -a -- "$fresh" "$root"
    export GPUAAS_HOST_ROOT=$root GPUAAS_SYSFS=$root/sys
}

# The inputs of a bundle as the launcher would set them: `export` lines, and its phases in order.
manifest() {
    python3 - "$here/$1/bundle.yaml" <<'PYTHON'
import json, re, shlex, sys, yaml
m = yaml.safe_load(open(sys.argv[1]))
def check(kind, text):
    import ipaddress
    if isinstance(kind, dict):
        (name, of), = kind.items()
        return text in of if name == "choice" else all(check(of, w) for w in text.replace(",", " ").split())
    if kind == "integer": return re.fullmatch(r"-?\d+", text)
    if kind == "boolean": return text in "01"
    if kind == "address": return ipaddress.ip_address(text)
    if kind == "cidr": return "/" in text and ipaddress.ip_interface(text)
    if kind == "socket":
        address, _, port = text.rpartition(":")
        return ipaddress.ip_address(address.strip("[]")) and 0 < int(port) < 65536
    if kind == "package": return re.fullmatch("[a-z0-9][a-z0-9+.-]+", text)
    if kind == "interface": return re.fullmatch(r"[^/:\s]{1,15}", text)
    return kind == "string"
names = set()
for name, i in m["inputs"].items():
    assert re.fullmatch("[a-z][a-z0-9_]*", name) and re.fullmatch("[A-Z][A-Z0-9_]*", i["environment"]), name
    assert i["about"] and "\n" not in i["about"] and i["environment"] not in names, name
    assert not set(i) - {"type", "about", "default", "environment", "secret", "unique", "derived"}, name
    assert not i.get("unique") or not i.get("default"), name
    names.add(i["environment"])
    if "default" not in i:  # a test gives it
        continue
    assert isinstance(i["default"], str) and check(i["type"], i["default"]), f"{name}: {i}"
    assert not (i.get("secret") and i["default"]), name
    print(f"export {i['environment']}={shlex.quote(i['default'])}")
for name, part in re.findall(r"\{([a-z_]+)(:[^}]*|)\}", json.dumps([m["expects"], [r["with"] for r in m.get("requires", [])]])):
    assert name in m["inputs"] and part in ("", ":port"), name + part
    assert not part or m["inputs"][name]["type"] == "socket", name + part
booleans = {n for n, i in m["inputs"].items() if i["type"] == "boolean"}
for item in m["phases"] + m["expects"]:
    assert set(item.get("gates", [])) <= {"active", "slice_ready", "telemetry"}, item
    assert not ("slice_ready" in item.get("gates", []) and "19998" in str(item)), item
    assert item.get("only_when") is None or item["only_when"] in booleans, item
print("phases=(" + " ".join(p["name"] for p in m["phases"] if p["run"] == f"phases/{p['name']}.sh") + ")")
for p in m["phases"]:
    print(f"touches[{p['name']}]=" + shlex.quote(" ".join(p["touches"])))
for kind in ("required", "optional"):
    name = "GPUAAS_PACKAGES" if kind == "required" else "GPUAAS_OPTIONAL_PACKAGES"
    print(f"export {name}={shlex.quote(' '.join(m.get('packages', {}).get(kind, [])))}")
by_switch = {True: [], False: []}
for name, packages in m.get("packages", {}).get("when", {}).items():
    assert name in booleans, name
    by_switch[m["inputs"][name].get("default") == "1"] += packages
print(f"export GPUAAS_SWITCHED_PACKAGES={shlex.quote(' '.join(by_switch[True]))}")
print(f"export GPUAAS_UNWANTED_PACKAGES={shlex.quote(' '.join(by_switch[False]))}")
print(f"export GPUAAS_BUNDLE={m['name']}@{m['version']}")
PYTHON
}

use() {
    export GPUAAS_BUNDLE_DIR=$here/$1
    declare -gA touches=()
    # Whichever test reads a bundle first leaves what it read to the others.
    if [[ ! -e $manifests/$1 ]]; then
        if manifest "$1" >"$work/manifest"; then mv -- "$work/manifest" "$manifests/$1"; else wrong "its manifest is wrong"; fi
    fi
    # shellcheck source=/dev/null
    source "$manifests/$1"
}

# Every file of the host, and when it changed last. What a kernel shows is no file.
tree() { (cd -- "$root" && find . -path ./sys -prune -o -path ./proc -prune -o -path ./run -prune -o ! -type d -printf '%P %C@\n' | sort); }
phase() { # NAME [VARIABLE=VALUE...]
    local status=0 path folder
    tree >"$work/tree"
    env "${@:2}" bash "$GPUAAS_BUNDLE_DIR/phases/$1.sh" >"$work/said" 2>&1 || status=$?
    while read -r path; do
        for folder in /var/lib/gpuaas ${touches[$1]}; do
            if [[ $path/ == "${folder%/}"/* ]]; then continue 2; fi
        done
        wrong "phase $1 changed $path, which its bundle does not say that it touches"
    done < <(tree | comm -3 -- "$work/tree" - | sed 's|^\t*|/|; s| [0-9.]*$||' | sort -u)
    return "$status"
}
passes() { phase "$@" || wrong "phase $* failed: $(<"$work/said")"; }
refused() { # PATTERN NAME [VARIABLE=VALUE...]
    local before
    before=$(digest)
    if phase "${@:2}"; then wrong "phase ${*:2} was not refused"; fi
    said "$1"
    [[ $(digest) == "$before" ]] || wrong "phase ${*:2} was refused and changed something"
}

# Everything in the host's folder but times.
digest() {
    (cd -- "$root" && find . -type f -printf '%p %m\n' -o -printf '%p %y %l\n' | sort &&
        find . -type f -size -70000k ! -path './dev/*' -print0 | sort -z | xargs -0 sha256sum) | sha256sum
}
again() { # NAME [VARIABLE=VALUE...]: the same phase changes nothing
    local before
    before=$(digest)
    passes "$@"
    [[ $(digest) == "$before" ]] || wrong "a second run of $* changed something"
    ! grep -E '^changed' "$work/said" || wrong "a second run of $* said changed"
}
twice() {
    passes "$@"
    cp -- "$work/said" "$work/first"
    again "$@"
    cp -- "$work/first" "$work/said"
}

for file in "$here"/tests/*.sh; do
    # shellcheck source=/dev/null
    source "$file"
done

current=setup
hosts=0
declare -A touches
for needed in python3 mkfs.ext4 blkid wipefs; do tool "$needed" || exit 0; done
python3 -c 'import yaml' 2>/dev/null || { printf 'skip: python3 has no yaml\n'; exit 0; }
fresh=$work/fresh manifests=$work/manifests
mkdir -- "$fresh" "$manifests"
"$here/fixture/make-host.sh" "$fresh"
if (($# == 0)); then mapfile -t tests < <(compgen -A function test_); else tests=("${@/#/test_}"); fi
# Each test has a folder of its own; as many run at once as there are processors.
run_one() {
    current=${1#test_}
    work=$work/$1
    mkdir -- "$work"
    new_host
    "$1"
    if ((failures == 0)); then
        rm -rf -- "${work:?}"/host*
        : >"$work/ended-well"
        printf 'ok   %s\n' "$current"
    fi
}
at_once=$(nproc)
for test in "${tests[@]}"; do
    while (($(jobs -pr | wc -l) >= at_once)); do wait -n || true; done
    (run_one "$test") >"$work/$test.out" 2>&1 &
done
wait
for test in "${tests[@]}"; do
    cat -- "$work/$test.out"
    if [[ ! -e $work/$test/ended-well ]]; then failures=$((failures + 1)); fi
done
printf '%s tests, %s failures\n' "${#tests[@]}" "$failures"
exit $((failures > 0))
