#!/bin/bash
# A boot waits for one link, and not for ever: an H200 host has fabric and spare ports that nobody
# plugged in. systemd takes the last drop-in by name, and netplan and images have some of their own
# (10-netplan.conf, gpuaas.conf), so ours sorts behind them. Whether it counts is asked of systemd.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

((H200_WAIT_ONLINE_SECONDS >= 1 && H200_WAIT_ONLINE_SECONDS <= 600)) ||
    fail "H200_WAIT_ONLINE_SECONDS is $H200_WAIT_ONLINE_SECONDS, expected 1 to 600"
unit=systemd-networkd-wait-online.service
drop_in=/etc/systemd/system/$unit.d/zz-gpuaas-bounded.conf
command="/lib/systemd/systemd-networkd-wait-online --any --timeout=$H200_WAIT_ONLINE_SECONDS"

starts() { host_ask systemctl show --property=ExecStart --value -- "$unit"; }
bounded() { [[ $(starts) == *" argv[]=$command ; "* ]]; }

absent "/etc/systemd/system/$unit.d/90-gpuaas-bounded.conf"
place "$drop_in" 0644 <<UNIT
[Service]
ExecStart=
ExecStart=$command
UNIT
in_effect=bounded after_change wait-online "$drop_in" -- host_do systemctl daemon-reload
if ! dry && found=$(starts) && [[ -n $found ]] && ! bounded; then
    say "warning: another file overrides what $unit starts: $found"
fi
