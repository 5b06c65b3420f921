#!/bin/bash
# Netdata for the operators: bounded on disk, on loopback only. nginx is its only reader.
#
# No host has to wait for telemetry, and a release may have no Netdata (Debian 13): a failure is a
# warning, and red at the telemetry gate, unless H200_NETDATA_REQUIRED=1.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

# Whether netdata is in the group of Docker.
in_docker_group() {
    awk -F: '$1 == "docker" { n = split($4, members, ","); for (i = 1; i <= n; i++) if (members[i] == "netdata") found = 1 }
        END { exit !found }' "$(at /etc/group)"
}
leave_docker_group() {
    host_do gpasswd --delete netdata docker
    if ! dry; then say "changed group docker (netdata removed)"; fi
}

if [[ $H200_ENABLE_NETDATA == 0 ]]; then
    say "Netdata is disabled"
    unit_stopped netdata.service
    if in_docker_group; then leave_docker_group; fi
    for file in netdata.conf go.d.conf go.d/nvidia_smi.conf go.d/docker.conf go.d/systemdunits.conf .opt-out-from-anonymous-statistics; do
        absent "/etc/netdata/$file"
    done
    absent /var/lib/gpuaas/applied/unit-netdata.service
    exit 0
fi
if [[ $H200_NETDATA_REQUIRED == 0 ]]; then
    # A daemon that does not come up must not use up the time of the phase.
    H200_NETDATA_REQUIRED=1 timeout --kill-after=10 150 bash "$0" || say "warning: no Netdata on this host: the telemetry gate stays closed; no other gate depends on it"
    exit 0
fi

[[ $H200_NETDATA_BIND == 127.0.0.1:* ]] ||
    fail "H200_NETDATA_BIND is $H200_NETDATA_BIND, not on 127.0.0.1: other hosts read it through the edge"
socket_port "$H200_NETDATA_BIND" H200_NETDATA_BIND >/dev/null
((H200_NETDATA_RETENTION_MB >= 64)) || fail "H200_NETDATA_RETENTION_MB is $H200_NETDATA_RETENTION_MB, expected at least 64"
if [[ -n $(packages_missing netdata) ]]; then fail "the package netdata is not installed"; fi

if ! compgen -G "$(at /usr)/lib*/netdata/plugins.d/go.d.plugin" >/dev/null; then
    say "warning: this Netdata has no go.d.plugin; GPU metrics need the package netdata-plugin-go from Netdata's own repository (netdata_repo_url)"
fi

# Docker answers its own group alone, and whoever is in it is as good as root on the host. A site that
# does not want its Netdata to be takes docker out of telemetry_groups.
asks_docker=0
if [[ " $H200_TELEMETRY_GROUPS " == *" docker "* ]] && compgen -G "$(at /usr)/lib*/netdata/plugins.d/go.d.plugin" >/dev/null; then asks_docker=1; fi
if ((asks_docker)) && ! grep -q '^docker:' "$(at /etc/group)"; then
    say "warning: the group docker does not exist, so Netdata has no container metrics"
    asks_docker=0
fi
if ((asks_docker)) && ! in_docker_group; then
    host_do usermod --append --groups docker netdata
    if ! dry; then say "changed group docker (netdata added)"; fi
elif ! ((asks_docker)) && in_docker_group; then
    leave_docker_group
fi

# The setting of the budget has had two names; Netdata passes over the one that it does not know.
place /etc/netdata/netdata.conf 0644 <<CONF
# Written by ${GPUAAS_BUNDLE%@*}.
[global]
    run as user = netdata
[db]
    mode = dbengine
    update every = 5
    storage tiers = 1
    dbengine multihost disk space MB = $H200_NETDATA_RETENTION_MB
    dbengine tier 0 retention size = ${H200_NETDATA_RETENTION_MB}MiB
[web]
    bind to = $H200_NETDATA_BIND
    web files owner = root
    web files group = root
    allow connections from = localhost 127.* ::1
    allow dashboard from = localhost 127.* ::1
    allow streaming from = !*
    allow management from = !*
    allow netdata.conf from = !*
[plugins]
    cgroups = yes
    go.d = yes
[registry]
    enabled = no
[statsd]
    enabled = no
CONF
# A slice host's GPUs are its guests', and a collector that opens them would hold them.
collectors=$(<"$GPUAAS_BUNDLE_DIR/files/netdata/go.d.conf")
if ! ((asks_docker)); then collectors=${collectors/docker: yes/docker: no}; fi
if [[ $H200_HOST_ROLE == slice ]]; then collectors=${collectors/nvidia_smi: yes/nvidia_smi: no}; fi
place /etc/netdata/go.d.conf 0644 <<<"$collectors"
files=(/etc/netdata/netdata.conf /etc/netdata/go.d.conf)
for name in nvidia_smi docker systemdunits; do
    place "/etc/netdata/go.d/$name.conf" 0644 <"$GPUAAS_BUNDLE_DIR/files/netdata/$name.conf"
    files+=("/etc/netdata/go.d/$name.conf")
done
# Nothing leaves the host but through the edge.
place /etc/netdata/.opt-out-from-anonymous-statistics 0644 </dev/null
answers() { http_answers "http://$H200_NETDATA_BIND/api/v1/info"; }
in_effect=answers unit_running netdata.service "${files[@]}"
if live || [[ -n $GPUAAS_FIXTURE_KERNEL ]]; then
    http_soon "http://$H200_NETDATA_BIND/api/v1/info" 60 || fail "Netdata does not answer on $H200_NETDATA_BIND"
fi
