#!/bin/bash
# nginx in front of Netdata: reads only, from named networks only, and nothing that manages it.
#
# The most specific network decides; where a network is both allowed and denied, denied wins. nginx
# takes the first line that fits, so they are sorted. How the networks decide before anything else
# does is said in the site's file.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

site=/etc/nginx/sites-available/gpuaas-netdata-edge
enabled=/etc/nginx/sites-enabled/gpuaas-netdata-edge

# nginx stays where it serves something else.
if [[ $H200_ENABLE_NETDATA == 0 ]]; then
    say "the telemetry edge is disabled"
    if [[ -e $(at "$site") || -L $(at "$enabled") ]]; then
        absent "$enabled"
        absent "$site"
        absent /var/lib/gpuaas/applied/unit-nginx.service
        if compgen -G "$(at /etc/nginx)/sites-enabled/*" >/dev/null || compgen -G "$(at /etc/nginx)/conf.d/*.conf" >/dev/null; then
            host_do systemctl try-reload-or-restart nginx.service
        else
            unit_stopped nginx.service
        fi
    fi
    exit 0
fi
if [[ $H200_NETDATA_REQUIRED == 0 ]]; then
    # A daemon that does not come up must not use up the time of the phase.
    H200_NETDATA_REQUIRED=1 timeout --kill-after=10 150 bash "$0" || say "warning: no telemetry edge on this host: the telemetry gate stays closed; no other gate depends on it"
    exit 0
fi

backend=http://$H200_NETDATA_BIND
listen=$H200_NETDATA_EDGE_LISTEN
[[ $H200_NETDATA_BIND == 127.0.0.1:* ]] || fail "H200_NETDATA_BIND is $H200_NETDATA_BIND, not on 127.0.0.1"
port=$(socket_port "$listen" H200_NETDATA_EDGE_LISTEN)
((port != $(socket_port "$H200_NETDATA_BIND" H200_NETDATA_BIND))) ||
    fail "H200_NETDATA_EDGE_LISTEN uses port $port, which Netdata itself uses"
# The host asks its own edge on loopback, whatever else it listens on.
if [[ $listen != 0.0.0.0:* && $listen != 127.0.0.1:* ]]; then own="    listen 127.0.0.1:$port;"; fi
if [[ -n $(packages_missing nginx) && -n $(packages_missing nginx-light) ]]; then
    fail "neither the package nginx nor nginx-light is installed"
fi

# The addresses of the control plane, by the URL that the host was deployed with.
control_plane() {
    local file host
    file=$(at /etc/gpuaas/bootstrap.json)
    [[ -r $file ]] || return 0
    host=$(sed -n 's#.*"control_plane_url": *"https*://\(\[[^]]*\]\|[^:/"]*\).*#\1#p' "$file" | tr -d '[]')
    if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then
        say "$host"
    elif [[ -n $host ]]; then
        host_ask getent ahosts "$host" | awk '{ print $1 }' | sort -u || true
    fi | sed 's|^[0-9.]*$|&/32|; s|^[0-9a-f:]*$|&/128|'
}

# Lines of who may read and who may not, the most specific network first.
networks() {
    local network bounds verb=allow allowed=$H200_TELEMETRY_ALLOW
    if [[ -z $allowed ]]; then allowed=$(control_plane); fi
    for network in 127.0.0.0/8 ::1/128 $allowed -- $H200_TELEMETRY_DENY; do
        if [[ $network == -- ]]; then verb=deny && continue; fi
        if [[ $network != *:* ]]; then
            bounds=$(subnet_bounds "$network")
            network=$(ip_text "${bounds% *}")/${network#*/}
        fi
        printf '%s %s %s\n' "${network#*/}" "$verb" "$network"
    done | sort -k 1,1nr -k 2,2r | awk '{ print "    " $2 " " $3 ";" }'
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
    if ! dry && { live || [[ -n $GPUAAS_FIXTURE_KERNEL ]]; }; then fail "Netdata serves no dashboard on $backend"; fi
    printf '/v1/'
}

[[ $GPUAAS_HOSTNAME =~ ^[A-Za-z0-9-]+$ ]] || fail "invalid hostname $GPUAAS_HOSTNAME: expected letters, digits and hyphens"
networks=$(networks)
dashboard=$(dashboard)
say "the dashboard is at $dashboard"
if [[ -z $H200_TELEMETRY_ALLOW && $networks != *"allow "*[0-9]/32* && $networks != *[^1]/128* ]]; then
    say "warning: the control plane's address is unknown, so only the host itself can read its telemetry: list networks in H200_TELEMETRY_ALLOW"
fi
template=$(<"$GPUAAS_BUNDLE_DIR/files/gpuaas-netdata-edge")
template=${template//@LISTEN@/$listen}
template=${template//@OWN@/${own:-}}
template=${template//@BACKEND@/$backend}
template=${template//@DASHBOARD@/$dashboard}
place "$site" 0644 <<<"${template//@NETWORKS@/$networks}"
link "$enabled" "$site"
absent /etc/nginx/sites-enabled/default
after_change nginx-test "$site" -- host_do nginx -t
unit_running nginx.service "$site"
if live || [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
    http_soon "http://127.0.0.1:$port/gpuaas/telemetry/health" 10 || fail "the telemetry edge does not answer on port $port"
fi
