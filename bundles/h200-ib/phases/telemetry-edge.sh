#!/bin/bash
# nginx in front of Netdata: reads only, from named networks only, and nothing that manages it.
#
# The networks are a geo block and no allow list: a redirect or a refusal by `return` happens before
# nginx looks at an allow list, which would let everybody in that far. The most specific network
# decides; where a network is both allowed and denied, denied wins.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

if [[ $H200_NETDATA_REQUIRED == 0 ]]; then
    H200_NETDATA_REQUIRED=1 bash "$0" || say "warning: no telemetry edge on this host; nothing depends on it"
    exit 0
fi

site=/etc/nginx/sites-available/gpuaas-netdata-edge
backend=http://$H200_NETDATA_BIND
listen=$H200_NETDATA_EDGE_LISTEN
[[ $H200_NETDATA_BIND == 127.0.0.1:* ]] || fail "H200_NETDATA_BIND is $H200_NETDATA_BIND, not on 127.0.0.1"
port=$(socket_port "$listen" H200_NETDATA_EDGE_LISTEN)
((port != $(socket_port "$H200_NETDATA_BIND" H200_NETDATA_BIND))) ||
    fail "H200_NETDATA_EDGE_LISTEN has port $port, which is Netdata's own"
# The host asks its own edge on loopback, whatever else it listens on.
if [[ $listen != 0.0.0.0:* && $listen != 127.0.0.1:* ]]; then own="    listen 127.0.0.1:$port;"; fi
if [[ -n $(packages_missing nginx) && -n $(packages_missing nginx-light) ]]; then
    fail "neither the package nginx nor nginx-light is installed"
fi

# Lines of the geo block: 0 may read, 1 may not.
networks() {
    local network bounds allowed=$H200_TELEMETRY_ALLOW
    if [[ -z $allowed ]]; then allowed=$(management_address); fi
    for network in $allowed -- $H200_TELEMETRY_DENY; do
        if [[ $network == -- ]]; then denied=1 && continue; fi
        if [[ $network != *:* ]]; then
            bounds=$(subnet_bounds "$network")
            network=$(ip_text "${bounds% *}")/${network#*/}
        fi
        printf '    %s %s;\n' "$network" "${denied:-0}"
    done
}

# Netdata's dashboard has moved with its versions; the first path that answers is the one.
dashboard() {
    local path room=spaces/$GPUAAS_HOSTNAME/rooms/local/overview
    for path in "/v3/$room" "/v2/$room" /v1/ /; do
        if http_answers "$backend$path"; then
            printf '%s' "$path"
            return 0
        fi
    done
    if ! dry && { live || [[ -n $GPUAAS_FIXTURE_KERNEL ]]; }; then fail "Netdata shows no dashboard on $backend"; fi
    printf '/v1/'
}

[[ $GPUAAS_HOSTNAME =~ ^[A-Za-z0-9-]+$ ]] || fail "$GPUAAS_HOSTNAME is no host's name"
networks=$(networks)
dashboard=$(dashboard)
say "the dashboard is at $dashboard"
template=$(<"$GPUAAS_BUNDLE_DIR/files/gpuaas-netdata-edge")
template=${template//@LISTEN@/$listen}
template=${template//@OWN@/${own:-}}
template=${template//@BACKEND@/$backend}
template=${template//@DASHBOARD@/$dashboard}
place "$site" 0644 <<<"${template//@NETWORKS@/$networks}"
link /etc/nginx/sites-enabled/gpuaas-netdata-edge "$site"
absent /etc/nginx/sites-enabled/default
after_change nginx-test "$site" -- host_do nginx -t
unit_running nginx.service "$site"
if live || [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
    http_soon "http://127.0.0.1:$port/gpuaas/telemetry/health" 10 || fail "the telemetry edge does not answer on port $port"
fi
