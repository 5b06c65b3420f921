# shellcheck shell=bash disable=SC2154,SC2016 # sourced by test.sh, which sets these
# Netdata and its edge.

test_netdata() {
    use h200-ib
    twice netdata H200_NETDATA_REQUIRED=1
    for line in "bind to = 127.0.0.1:19998" "update every = 5" "dbengine multihost disk space MB = 256" "dbengine tier 0 retention size = 256MiB"; do
        grep -qxF -- "    $line" "$root/etc/netdata/netdata.conf" || wrong "netdata.conf has no $line"
    done
    has_line /etc/netdata/go.d.conf "  nvidia_smi: yes"
    passes netdata H200_HOST_ROLE=slice
    has_line /etc/netdata/go.d.conf "  nvidia_smi: no"
    twice netdata H200_NETDATA_REQUIRED=1
    logged "systemctl restart netdata.service"
    if tool python3; then
        python3 -c 'import sys, yaml; [yaml.safe_load(open(f)) for f in sys.argv[1:]]' "$root"/etc/netdata/go.d.conf "$root"/etc/netdata/go.d/*.conf || wrong "not YAML"
    fi
    # A changed budget restarts it, once.
    twice netdata H200_NETDATA_RETENTION_MB=512
    [[ $(grep -c "restart netdata" "$root/run/fixture/log") == 4 ]] || wrong "restarts: $(<"$root/run/fixture/log")"
    refused "not on 127.0.0.1" netdata H200_NETDATA_REQUIRED=1 H200_NETDATA_BIND=0.0.0.0:19998
    refused "no port from 1 to 65535" netdata H200_NETDATA_REQUIRED=1 H200_NETDATA_BIND=127.0.0.1:0
    refused "at least 64" netdata H200_NETDATA_REQUIRED=1 H200_NETDATA_RETENTION_MB=8
}

# Each override alone moves everything: what listens, what is asked, and what the edge passes on.
test_telemetry_elsewhere() {
    use h200-ib
    local bind=H200_NETDATA_BIND=127.0.0.1:20000 listen=H200_NETDATA_EDGE_LISTEN=0.0.0.0:29999
    local site=/etc/nginx/sites-available/gpuaas-netdata-edge
    twice netdata "$bind"
    has_line /etc/netdata/netdata.conf "    bind to = 127.0.0.1:20000"
    twice telemetry-edge "$bind"
    has_line $site "    listen 0.0.0.0:19999;"
    has_line $site "        proxy_pass http://127.0.0.1:20000;"
    has_no $site 19998
    twice telemetry-edge "$bind" "$listen"
    has_line $site "    listen 0.0.0.0:29999;"
    has_no $site 19999
    if phase telemetry-edge "$listen" H200_NETDATA_REQUIRED=1; then wrong "the edge came up, and nothing listens behind it"; fi
    said "no dashboard on http://127.0.0.1:19998"
}

# Docker's metrics need its group, which a site may refuse its Netdata; a Netdata without go.d.plugin
# has no use for it.
test_netdata_asks_docker() {
    use h200-ib
    twice netdata H200_NETDATA_REQUIRED=1
    has_line /etc/group "docker:x:998:netdata"
    has_line /etc/netdata/go.d.conf "  docker: yes"
    twice netdata H200_NETDATA_REQUIRED=1 H200_TELEMETRY_GROUPS="system mem"
    has_line /etc/group "docker:x:998:"
    has_line /etc/netdata/go.d.conf "  docker: no"
    twice netdata H200_NETDATA_REQUIRED=1
    rm -- "$root/usr/libexec/netdata/plugins.d/go.d.plugin"
    passes netdata H200_NETDATA_REQUIRED=1
    said "this Netdata has no go.d.plugin"
    has_line /etc/group "docker:x:998:"
    sed -i '/^docker:/d' "$root/etc/group"
    : >"$root/usr/libexec/netdata/plugins.d/go.d.plugin"
    passes netdata H200_NETDATA_REQUIRED=1
    said "the group docker does not exist, so Netdata has no container metrics"
}

# The switch works both ways: off, nothing is installed; turned off, what the bundle brought is removed and
# what the image brought is stopped. nginx stays where it serves something else.
test_netdata_switched_off() {
    use h200-ib
    local packages="netdata netdata-plugin-go nginx-light"
    local off=(H200_ENABLE_NETDATA=0 GPUAAS_SWITCHED_PACKAGES= GPUAAS_UNWANTED_PACKAGES="$packages") name
    has() { grep -qx "Package: $1" "$root/var/lib/dpkg/status"; }
    sed -i '/^Package: netdata$/,/^$/d; /^Package: nginx-light$/,/^$/d' "$root/var/lib/dpkg/status"
    twice packages "${off[@]}"
    twice netdata "${off[@]}"
    twice telemetry-edge "${off[@]}"
    for name in $packages; do ! has "$name" || wrong "$name was installed"; done
    [[ ! -e $root/run/fixture/active/netdata.service && -L $root/etc/nginx/sites-enabled/default ]] || wrong "Netdata runs, or nginx lost its site"
    for name in packages netdata telemetry-edge; do twice "$name"; done
    for name in $packages; do has "$name" || wrong "$name is not installed"; done
    [[ -e $root/run/fixture/active/netdata.service && -e $root/run/fixture/active/nginx.service ]] || wrong "they do not run"
    for name in packages netdata telemetry-edge; do twice "$name" "${off[@]}"; done
    for name in $packages; do ! has "$name" || wrong "$name stays"; done
    [[ ! -e $root/run/fixture/active/netdata.service && ! -e $root/run/fixture/active/nginx.service ]] || wrong "they run"
    [[ ! -e $root/etc/nginx/sites-enabled/gpuaas-netdata-edge && ! -e $root/etc/netdata/netdata.conf ]] || wrong "their settings stay"
    has_line /etc/group "docker:x:998:"
    ! compgen -G "$root/run/fixture/listeners/*" >/dev/null || wrong "something listens: $(ls "$root/run/fixture/listeners")"
}

test_netdata_of_an_image_switched_off() {
    use h200-ib
    local off=(H200_ENABLE_NETDATA=0 GPUAAS_SWITCHED_PACKAGES= GPUAAS_UNWANTED_PACKAGES="netdata nginx-light")
    passes netdata
    passes telemetry-edge
    printf 'server { listen 8080; }\n' >"$root/etc/nginx/sites-enabled/mirror"
    for name in packages netdata telemetry-edge; do twice "$name" "${off[@]}"; done
    grep -qx "Package: netdata" "$root/var/lib/dpkg/status" || wrong "a package of the image was removed"
    [[ ! -e $root/run/fixture/active/netdata.service ]] || wrong "Netdata runs"
    [[ -e $root/run/fixture/active/nginx.service ]] || wrong "nginx was stopped, which serves another site"
}

# A run that broke off between the file and the restart is made good.
test_netdata_broken_off() {
    use h200-ib
    passes netdata
    rm -- "$root/var/lib/gpuaas/applied/unit-netdata.service"
    passes netdata
    said "unchanged /etc/netdata/netdata.conf"
    [[ $(grep -c "restart netdata" "$root/run/fixture/log") == 2 ]] || wrong "it was not restarted"
}

test_netdata_is_no_gate_of_a_slice() {
    use h200-ib
    sed -i 's/Package: netdata/Package: other/; s/Package: nginx-light/Package: another/' "$root/var/lib/dpkg/status"
    refused "package netdata is not installed" netdata H200_NETDATA_REQUIRED=1
    refused "nginx nor nginx-light" telemetry-edge H200_NETDATA_REQUIRED=1
    passes netdata H200_NETDATA_REQUIRED=0
    said "warning: no Netdata"
    passes telemetry-edge H200_NETDATA_REQUIRED=0
    said "warning: no telemetry edge"
}

test_edge() {
    use h200-ib
    passes netdata
    twice telemetry-edge H200_TELEMETRY_DENY=10.100.0.0/24
    local site=/etc/nginx/sites-available/gpuaas-netdata-edge
    has_line $site "    listen 0.0.0.0:19999;"
    [[ $(grep -E '^    (allow|deny) ' "$root$site") == "    allow ::1/128;
    deny 10.100.0.0/24;
    allow 127.0.0.0/8;
    deny all;" ]] || wrong "who may read: $(<"$root$site")"
    # Nobody but the control plane reads where nobody is named: not the neighbours of its network.
    said "warning: the control plane's address is unknown"
    mkdir -p -- "$root/etc/gpuaas"
    printf '{"hostname": "j22u11", "control_plane_url": "https://10.177.36.7:8443", "site": "lab"}' >"$root/etc/gpuaas/bootstrap.json"
    twice telemetry-edge
    [[ $(grep -E '^    (allow|deny) ' "$root$site") == "    allow ::1/128;
    allow 10.177.36.7/32;
    allow 127.0.0.0/8;
    deny all;" ]] || wrong "who may read: $(<"$root$site")"
    ! grep -q warning "$work/said" || wrong "it warns: $(<"$work/said")"
    printf '{"control_plane_url": "https://gpuaas.example/"}' >"$root/etc/gpuaas/bootstrap.json"
    printf '#!/bin/bash\nif [[ "$*" == "ask getent ahosts gpuaas.example" ]]; then printf "10.177.36.8 STREAM gpuaas.example\\n10.177.36.8 DGRAM\\n2001:db8::8 STREAM\\n"; exit; fi\nexec %q "$@"\n' "$here/fixture/kernel" >"$work/player"
    chmod +x -- "$work/player"
    twice telemetry-edge GPUAAS_FIXTURE_KERNEL="$work/player"
    has_line $site "    allow 10.177.36.8/32;"
    has_line $site "    allow 2001:db8::8/128;"
    # Every nginx can read it: that of Debian 11 and Ubuntu 22.04 has no geo, and fewer others.
    has_no $site '^ *(geo|limit_req|limit_req_zone|memcached_pass|split_clients|ssi|userid) '

    has_line $site "        return 302 /v2/spaces/j22u11/rooms/local/overview;"
    has_no $site '@[A-Z]+@'
    [[ $(readlink -- "$root/etc/nginx/sites-enabled/gpuaas-netdata-edge") == "$site" ]] || wrong "it is not enabled"
    [[ ! -L $root/etc/nginx/sites-enabled/default ]] || wrong "the default site stays"
    twice telemetry-edge H200_NETDATA_EDGE_LISTEN=10.177.36.100:29999 H200_NETDATA_REQUIRED=0
    has_line $site "    listen 127.0.0.1:29999;"
    refused "which Netdata itself uses" telemetry-edge H200_NETDATA_REQUIRED=1 H200_NETDATA_EDGE_LISTEN=0.0.0.0:19998
    refused "not ADDRESS:PORT" telemetry-edge H200_NETDATA_REQUIRED=1 "H200_NETDATA_EDGE_LISTEN=0.0.0.0:1;root /"
    refused "not on 127.0.0.1" telemetry-edge H200_NETDATA_REQUIRED=1 H200_NETDATA_BIND=10.0.0.1:19998
}

# The real nginx in a network of its own, with a small Netdata behind it.
test_edge_with_nginx() {
    use h200-ib
    if ! tool nginx || ! tool curl || ! own_network; then return; fi
    passes netdata
    passes telemetry-edge H200_TELEMETRY_DENY=10.100.0.0/24 H200_TELEMETRY_ALLOW="10.177.0.0/16 10.100.0.0/16"
    local conf=$root/run/nginx.conf built module paths=
    built=$(nginx -V 2>&1)
    for module in fastcgi uwsgi scgi; do
        if [[ $built != *--without-http_${module}_module* ]]; then paths+="${module}_temp_path $root/run/$module; "; fi
    done
    cat >"$conf" <<CONF
pid $root/run/nginx.pid;
error_log $root/run/error.log;
user root;
worker_processes 1;
events {}
http {
    access_log off;
    client_body_temp_path $root/run/t1; proxy_temp_path $root/run/t2; $paths
    include $root/etc/nginx/sites-available/gpuaas-netdata-edge;
}
CONF
    nginx -q -t -c "$conf" >"$work/said" 2>&1 || wrong "nginx -t: $(<"$work/said")"
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare -n bash -c '
        set -euo pipefail
        ip link set lo up
        for address in 10.177.36.100 10.177.9.9 10.100.0.9 10.5.5.5; do ip addr add "$address/32" dev lo; done
        python3 "$1" & backend=$!
        trap "kill $backend" EXIT
        for _ in $(seq 100); do if curl -s -o /dev/null http://127.0.0.1:19998/; then break; fi; sleep 0.1; done
        nginx -c "$2" 2>/dev/null
        trap "kill $backend \$(<$3)" EXIT
        get() { printf "%s " "$(curl -s -o /dev/null -m 10 -w "%{http_code} %{redirect_url}" "$@")"; }
        edge=http://10.177.36.100:19999
        get $edge/gpuaas/telemetry/health; get -I $edge/gpuaas/telemetry/netdata/; get $edge/api/v1/data?chart=x; echo
        for path in "" v1/ v2/static/app.0f3a.js v3/spaces/j22u11/rooms/local/overview "?x=/../y" dashboard.js lib/a-1.0.min.css api/v1/badge.svg?x=1%20 api/v3/data api/v2/contexts/; do get $edge/$path; done; echo
        for path in api/v3/stream_info api/v3/stream_path host/a/stream v1/stream api/v1/manage/health?cmd=x api/v3/settings api/v3/settings.json \
            api/v2/claim api/v3/bearer_get_token api/v1/bearer_protection api/v1/functions api/v2/config api/v1/registry mcp sse v3/ws netdata.conf \
            v1/api/v1/manage/health V1/API/v1/x.js api/v1/x.js host/a/api/v1/info api/v1/INFO api/v4/info api/v1/info/x api/v1/manage/../info v1/%2e%2e/api/v1/info \
            "v1/a;b" v1//x "v1/..?x" host/a/ etc/passwd; do
            [[ $(curl -s -o /dev/null -m 10 --path-as-is -w "%{http_code}" "$edge/$path") == 403 ]] || printf "%s passes\n" "$path"
        done
        for method in POST PUT DELETE OPTIONS TRACE STREAM; do get -X $method $edge/api/v1/data; done; echo
        get -X POST $edge/api/v1/data; get $edge/api/v1/manage/health?cmd=x; get $edge//api//v2/%63laim; get $edge/host/a/stream; get $edge/netdata.conf; get $edge/gpuaas/x; echo
        get --interface 10.177.9.9 $edge/api/v1/info; get --interface 10.100.0.9 $edge/api/v1/info
        get --interface 10.5.5.5 $edge/gpuaas/telemetry/netdata/; get --interface 10.5.5.5 -X POST $edge/; echo
        kill $backend; wait $backend || true
        trap "kill \$(<$3)" EXIT
        get $edge/gpuaas/telemetry/health; echo
    ' - "$here/fixture/netdata.py" "$conf" "$root/run/nginx.pid" >"$work/said" 2>"$work/trouble" || wrong "edge: $(<"$work/trouble")"
    local expected="200 302 http://10.177.36.100:19999/v2/spaces/j22u11/rooms/local/overview 200
200 200 200 200 200 200 200 200 200 200
405 405 405 405 405 405
405 403 403 403 403 404
200 403 403 403
502"
    [[ $(sed 's/ \+/ /g; s/ $//' "$work/said") == "$expected" ]] || wrong "edge answered: $(<"$work/said")"
}
