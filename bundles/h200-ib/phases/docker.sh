#!/bin/bash
# Docker runs and starts at boot, whether a package or the image brought it, builds with BuildKit, and
# keeps a bounded log of each container. On bare metal containers can ask for GPUs where NVIDIA's
# container toolkit is. What daemon.json says already stays: only what it does not say is added.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

settings=/etc/docker/daemon.json
if ! dry && [[ -z $(unit_file docker.service) ]]; then
    fail "no docker.service on this host: neither the image nor a package installed Docker"
fi

# What nvidia-ctk runtime configure would write as well.
wanted() {
    local runtimes=
    if [[ $H200_HOST_ROLE == baremetal && -e $(at /usr/bin/nvidia-container-runtime) ]]; then
        runtimes=$',\n  "runtimes": {\n    "nvidia": {\n      "args": [],\n      "path": "nvidia-container-runtime"\n    }\n  }'
    fi
    printf '{\n  "features": {\n    "buildkit": true\n  },\n  "log-driver": "json-file",\n  "log-opts": {\n    "max-file": "5",\n    "max-size": "20m"\n  }%s\n}\n' "$runtimes"
}

# Options belong to a driver, so another one that is there keeps its own; so does a runtime.
merged() {
    jq -n --sort-keys --slurpfile there "$1" --argjson wanted "$2" '
        if ($there | length) != 1 or ($there[0] | type) != "object" then error("not one object") else $there[0] end
        | . as $there
        | $wanted
        | if ($there["log-driver"] // "json-file") != "json-file" then del(.["log-opts"], .["log-driver"]) else . end
        | if $there.runtimes.nvidia then del(.runtimes) else . end
        | . * $there'
}

wanted=$(wanted)
file=$(at "$settings")
# Docker takes a blank file for none.
if [[ ! -f $file ]] || ! grep -q '[^[:space:]]' -- "$file"; then
    place "$settings" 0644 <<<"$wanted"
elif ! command -v jq >/dev/null; then
    say "warning: jq is not installed, so $settings was not changed"
else
    # A byte order mark is no part of the settings.
    merged=$(merged <(sed '1s/^\xef\xbb\xbf//' -- "$file") "$wanted") ||
        fail "$settings is not a JSON object: Docker would not start; correct or remove the file"
    place "$settings" 0644 <<<"$merged"
fi
unit_running docker.service "$settings"
